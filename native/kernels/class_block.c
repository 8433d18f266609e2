/* A block of the scores of a linear layer, and what it gives to the cross-entropy of each row.
 *
 * z [rows, count] are the scores of the classes from `first` on; with a softcap c they become
 * c tanh(z / c).  Forward takes block after block into `top`, the greatest, `total`, the sum of
 * exp(z - top), `picked`, the score of the label, and `even`, the sum of w z.  Behind the last
 *
 * loss = log total + top - picked;  lse = log total + top;  spread = lse sum w - even
 *
 * Backward puts (of_all exp(z - lse) - of_label onehot - of_even w) times the slope of the cap in
 * the place of z; `dbias` are its sums over rows.  An ignored label has class 0: its of_label is 0.
 * A label that is no class sets `strange` to 1, which is 0 without any.
 * Source: gradtool's numpy kernels.  Workspace: none.
 */
#include "labels.h"
#include "pool.h"
#include "softmax.h"

#define LINES 128 /* added in floats, one after the other */
#define COLUMNS 256

struct class_block {
    float *z;
    const void *labels;
    const float *weights;
    float *top, *total, *picked, *even, *loss, *lse, *spread;
    int64_t *strange;
    int64_t rows, count, first, classes, wide, ignores, ignored, slots;
    double softcap;
};

struct class_block_grad {
    float *z;
    const void *labels;
    const float *weights, *lse, *of_all, *of_label, *of_even;
    float *dbias;
    int64_t rows, count, first, classes, wide, slots;
    double softcap;
};

INLINE int64_t rows_at_once(int64_t count) { return most(1, SCORES / most(count, 1)); }

INLINE float scalar_exp(float x) { return vec_exp_below(splat(x))[0]; }

INLINE void cap_row(float *z, int64_t n, float cap) {
    for (int64_t j = 0; j < n; j += LANES)
        store_left(z, vec_tanh(load_left(z, j, n, 0) / cap) * cap, j, n);
}

/* The sum of w z over a row, w being 1 without weights. */
INLINE float even_row(const float *z, const float *weights, int64_t n) {
    vec sum = splat(0);
    for (int64_t j = 0; j < n; j += LANES) {
        const vec some = load_left(z, j, n, 0);
        sum += weights ? some * load_left(weights, j, n, 0) : some;
    }
    return sum_lanes(sum);
}

static void finish(const struct class_block *call, int64_t i, double shares, int ignored) {
    const float log_sum = scalar_log(call->total[i]), lse = call->top[i] + log_sum;
    if (call->loss) call->loss[i] = ignored ? 0 : (call->top[i] - call->picked[i]) + log_sum;
    if (call->lse) call->lse[i] = lse;
    if (call->spread) call->spread[i] = (float)(lse * shares - call->even[i]);
}

static void block_rows(void *argument, int64_t chunk, int64_t slot) {
    const struct class_block *call = argument;
    const struct labels labels = {call->labels, NULL, call->wide, call->ignores, call->ignored,
                                  call->classes};
    const int64_t n = call->count, lines = rows_at_once(n);
    const int last = call->first + n == call->classes;
    double shares = (double)call->classes;
    (void)slot;
    if (last && call->spread && call->weights) {
        shares = 0;
        for (int64_t j = 0; j < call->classes; j++) shares += call->weights[j];
    }
    for (int64_t i = chunk * lines; i < least(call->rows, (chunk + 1) * lines); i++) {
        float *z = call->z + i * n;
        int64_t label;
        const float counts = weight_of(&labels, i, &label);
        if (label < 0 && counts != 0) __atomic_store_n(call->strange, 1, __ATOMIC_RELAXED);
        if (call->softcap != 0) cap_row(z, n, (float)call->softcap);
        if (call->first == 0) {
            call->top[i] = -3.402823466e38f;
            call->total[i] = call->picked[i] = 0;
            if (call->even) call->even[i] = 0;
        }
        const float before = call->top[i], here = row_max(z, n);
        const float top = here > before || here != here ? here : before;
        call->total[i] = call->total[i] * scalar_exp(before - top) + row_exp(z, top, n, NULL);
        call->top[i] = top;
        if (label >= call->first && label < call->first + n)
            call->picked[i] = z[label - call->first];
        if (call->even) {
            const float *w = call->weights ? call->weights + call->first : NULL;
            call->even[i] += even_row(z, w, n);
        }
        if (last) finish(call, i, shares, counts == 0);
    }
}

KERNEL(class_block)(const struct class_block *call) {
    if (call->first == 0) *call->strange = 0;
    gt_parallel(parts(call->rows, rows_at_once(call->count)), block_rows, (void *)call,
                call->slots);
}

static void gradient_rows(void *argument, int64_t chunk, int64_t slot) {
    const struct class_block_grad *call = argument;
    const struct labels labels = {call->labels, NULL, call->wide, 0, 0, call->classes};
    const int64_t n = call->count, lines = rows_at_once(n);
    const float cap = (float)call->softcap;
    (void)slot;
    for (int64_t i = chunk * lines; i < least(call->rows, (chunk + 1) * lines); i++) {
        float *z = call->z + i * n;
        const float lse = call->lse[i], all = call->of_all[i];
        const float own = call->of_even ? call->of_even[i] : 0;
        int64_t label;
        weight_of(&labels, i, &label);
        label -= call->first;
        const int hit = label >= 0 && label < n;
        float less = hit ? call->of_label[i] : 0;
        if (hit && cap != 0) {
            const float t = vec_tanh(splat(z[label] / cap))[0];
            less *= 1 - t * t;
        }
        for (int64_t j = 0; j < n; j += LANES) {
            vec u = load_left(z, j, n, 0), slope = splat(1);
            if (cap != 0) {
                const vec t = vec_tanh(u / cap);
                u = t * cap;
                slope = 1.0f - t * t;
            }
            vec d = vec_exp(u - lse) * all;
            if (call->of_even && call->weights)
                d -= load_left(call->weights + call->first, j, n, 0) * own;
            else if (call->of_even)
                d -= own;
            store_left(z, cap != 0 ? d * slope : d, j, n);
        }
        if (hit) z[label] -= less;
    }
}

static void bias_columns(void *argument, int64_t chunk, int64_t slot) {
    const struct class_block_grad *call = argument;
    const int64_t n = call->count, end = least(n, (chunk + 1) * COLUMNS);
    (void)slot;
    for (int64_t j = chunk * COLUMNS; j < end; j += LANES) {
        vec sum = splat(0);
        for (int64_t i = 0; i < call->rows; i += LINES) {
            vec some = splat(0);
            for (int64_t k = i; k < least(call->rows, i + LINES); k++)
                some += load_left(call->z + k * n, j, end, 0);
            sum += some;
        }
        store_left(call->dbias, sum, j, end);
    }
}

KERNEL(class_block_grad)(const struct class_block_grad *call) {
    gt_parallel(parts(call->rows, rows_at_once(call->count)), gradient_rows, (void *)call,
                call->slots);
    if (call->dbias)
        gt_parallel(parts(call->count, COLUMNS), bias_columns, (void *)call, call->slots);
}
