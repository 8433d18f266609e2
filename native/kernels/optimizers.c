/* Steps of optimizers, each one pass over a parameter, its gradient and its state.
 *
 * sgd:    g' = g + l2 x;  v' = momentum v + dampened g';
 *         x' = before x - rate (nesterov ? g' + momentum v' : v')
 * adam:   g' = g + l2 x;  v' = v + share1 (g' - v);  h' = h + share2 (g'^2 - h);
 *         x' = before x - rate v' / (sqrt(h') / root + epsilon)
 * adagrad: g' = g + l2 x;  h' = h + g'^2;  x' = x - rate g' / (sqrt(h') + epsilon)
 *
 * `share1` and `share2` are 1 - beta1 and 1 - beta2; `rate` and `root` have adam's corrections for
 * the first steps in them; `before` is 1 without weight decay apart from the gradient.  sgd without
 * momentum has no `v` and `new_v` (NULL).  Outputs may be the inputs of the same place.
 * Source: gradtool/operators/updates.py; Kingma & Ba 2015; Loshchilov & Hutter 2019.
 * Workspace: none.
 */
#include "gradtool.h"
#include "pool.h"

#define CHUNK 16384

struct sgd {
    const float *x, *g, *v;
    float *new_x, *new_v;
    int64_t count, nesterov, slots;
    double rate, momentum, dampened, l2, before;
};

struct adam {
    const float *x, *g, *v, *h;
    float *new_x, *new_v, *new_h;
    int64_t count, slots;
    double rate, share1, share2, epsilon, root, l2, before;
};

struct adagrad {
    const float *x, *g, *h;
    float *new_x, *new_h;
    int64_t count, slots;
    double rate, epsilon, l2;
};

/* The gradient with that of the penalty, if there is one: 0 times an infinity is none. */
static inline float penalised(float g, float l2, float x) {
    return l2 == 0.0f ? g : g + l2 * x;
}

/* Lanes are left to the compiler: each element is for itself. */
static void sgd_chunk(void *argument, int64_t chunk, int64_t slot) {
    const struct sgd *call = argument;
    const float rate = (float)call->rate, momentum = (float)call->momentum;
    const float dampened = (float)call->dampened, l2 = (float)call->l2;
    const float before = (float)call->before;
    const float ahead = call->nesterov ? momentum : 1.0f, now = call->nesterov ? 1.0f : 0.0f;
    const int64_t end = least(call->count, (chunk + 1) * CHUNK);
    (void)slot;
#pragma clang loop vectorize(assume_safety)
    for (int64_t i = chunk * CHUNK; i < end; i++) {
        float x = call->x[i], g = penalised(call->g[i], l2, x);
        float v = momentum * call->v[i] + dampened * g;
        call->new_v[i] = v;
        call->new_x[i] = before * x - rate * (now * g + ahead * v);
    }
}

static void descent_chunk(void *argument, int64_t chunk, int64_t slot) {
    const struct sgd *call = argument;
    const float rate = (float)call->rate, l2 = (float)call->l2, before = (float)call->before;
    const int64_t end = least(call->count, (chunk + 1) * CHUNK);
    (void)slot;
#pragma clang loop vectorize(assume_safety)
    for (int64_t i = chunk * CHUNK; i < end; i++) {
        float x = call->x[i];
        call->new_x[i] = before * x - rate * penalised(call->g[i], l2, x);
    }
}

static void adam_chunk(void *argument, int64_t chunk, int64_t slot) {
    const struct adam *call = argument;
    const float rate = (float)call->rate, epsilon = (float)call->epsilon, l2 = (float)call->l2;
    const float share1 = (float)call->share1, share2 = (float)call->share2;
    const float root = (float)(1 / call->root), before = (float)call->before;
    const int64_t end = least(call->count, (chunk + 1) * CHUNK);
    (void)slot;
#pragma clang loop vectorize(assume_safety)
    for (int64_t i = chunk * CHUNK; i < end; i++) {
        float x = call->x[i], g = penalised(call->g[i], l2, x);
        float v = call->v[i] + share1 * (g - call->v[i]);
        float h = call->h[i] + share2 * (g * g - call->h[i]);
        call->new_v[i] = v;
        call->new_h[i] = h;
        call->new_x[i] = before * x - rate * v / (root * __builtin_sqrtf(h) + epsilon);
    }
}

static void adagrad_chunk(void *argument, int64_t chunk, int64_t slot) {
    const struct adagrad *call = argument;
    const float rate = (float)call->rate, epsilon = (float)call->epsilon, l2 = (float)call->l2;
    const int64_t end = least(call->count, (chunk + 1) * CHUNK);
    (void)slot;
#pragma clang loop vectorize(assume_safety)
    for (int64_t i = chunk * CHUNK; i < end; i++) {
        float x = call->x[i], g = penalised(call->g[i], l2, x);
        float h = call->h[i] + g * g;
        call->new_h[i] = h;
        call->new_x[i] = x - rate * g / (__builtin_sqrtf(h) + epsilon);
    }
}

KERNEL(sgd)(const struct sgd *call) {
    gt_task *chunk = call->v ? sgd_chunk : descent_chunk;
    gt_parallel(parts(call->count, CHUNK), chunk, (void *)call, call->slots);
}

KERNEL(adam)(const struct adam *call) {
    gt_parallel(parts(call->count, CHUNK), adam_chunk, (void *)call, call->slots);
}

KERNEL(adagrad)(const struct adagrad *call) {
    gt_parallel(parts(call->count, CHUNK), adagrad_chunk, (void *)call, call->slots);
}
