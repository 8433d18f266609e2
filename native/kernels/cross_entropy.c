/* Softmax cross-entropy of scores [N, C, D] against labels [N, D], and its gradient.
 *
 * loss[i] = w (log sum exp(x - max x) - (x[label] - max x));  log_prob = x - max x - log sum
 * dx = g (p - onehot) + (dl - p sum dl)  with p the softmax, g = w dy, and dl that of log_prob
 *
 * `reduction`: 0 none, 1 sum, 2 mean (by weight).  Sums are in double, by chunks, in order.
 * A label that is no class makes its sample NaN, and sets `strange` to 1, which is 0 without any.
 * Source: gradtool's numpy kernels.  Workspace in bytes: 16 for each chunk.
 */
#include "labels.h"
#include "pool.h"
#include "softmax.h"

struct cross_entropy {
    const float *x;
    const void *labels;
    const float *weights;
    float *loss, *log_prob, *work;
    int64_t *strange;
    int64_t count, classes, after, wide, ignores, ignored, reduction, slots;
};

struct cross_entropy_grad {
    const float *x;
    const void *labels;
    const float *weights, *dy, *dlog_prob;
    float *dx, *work;
    int64_t *strange;
    int64_t count, classes, after, wide, ignores, ignored, reduction, slots;
};

#define SAMPLES(call) ((struct samples){(call)->count, (call)->classes, (call)->after})
#define LABELS(call)                                                                              \
    ((struct labels){(call)->labels, (call)->weights, (call)->wide, (call)->ignores,              \
                     (call)->ignored, (call)->classes})

/* Several threads may find one at once. */
static void see(int64_t *strange, int64_t label, float weight) {
    if (label < 0 && weight != 0) __atomic_store_n(strange, 1, __ATOMIC_RELAXED);
}

static void losses(void *argument, int64_t chunk, int64_t slot) {
    const struct cross_entropy *call = argument;
    const struct samples samples = SAMPLES(call);
    const struct labels labels = LABELS(call);
    const int64_t n = call->classes, step = call->after;
    int64_t i, end;
    double loss = 0, weight = 0;
    (void)slot;
    samples_of(&samples, chunk, &i, &end);
    while (i < end) {
        const int64_t at = scores_at(&samples, i), here = step == 1 ? 1 : least(LANES, end - i);
        const float *x = call->x + at;
        float *log_prob = call->log_prob ? call->log_prob + at : NULL;
        float top[LANES], log_sum[LANES];
        if (step == 1) {
            top[0] = row_max(x, n);
            log_sum[0] = scalar_log(row_exp(x, top[0], n, NULL));
            for (int64_t j = 0; log_prob && j < n; j += LANES)
                store_left(log_prob, load_left(x, j, n, 0) - top[0] - log_sum[0], j, n);
        } else {
            const vec tops = column_max(x, n, step, here);
            const vec logs = vec_log(column_exp(x, tops, n, step, here, NULL));
            store(top, tops), store(log_sum, logs);
            for (int64_t j = 0; log_prob && j < n * step; j += step)
                store_left(log_prob + j, load_left(x + j, 0, here, 0) - tops - logs, 0, here);
        }
        for (int64_t lane = 0; lane < here; lane++, i++) {
            int64_t label;
            const float w = weight_of(&labels, i, &label);
            see(call->strange, label, w);
            const float z = label < 0 ? w : x[label * step + lane] - top[lane];
            const float some = (log_sum[lane] - z) * w;
            if (call->loss && call->reduction == 0) call->loss[i] = some;
            loss += w != 0 ? some : 0;
            weight += w;
        }
    }
    double_at *sums = (double_at *)call->work + 2 * chunk;
    sums[0] = loss, sums[1] = weight;
}

KERNEL(cross_entropy)(const struct cross_entropy *call) {
    const struct samples samples = SAMPLES(call);
    const int64_t chunks = sample_chunks(&samples);
    const double_at *sums = (const double_at *)call->work;
    double loss = 0, weight = 0;
    *call->strange = 0;
    gt_parallel(chunks, losses, (void *)call, call->slots);
    if (call->loss == NULL || call->reduction == 0) return;
    for (int64_t i = 0; i < chunks; i++) loss += sums[2 * i], weight += sums[2 * i + 1];
    *call->loss = (float)(call->reduction == 2 ? loss / weight : loss);
}

static void weights(void *argument, int64_t chunk, int64_t slot) {
    const struct cross_entropy_grad *call = argument;
    const struct samples samples = SAMPLES(call);
    const struct labels labels = LABELS(call);
    int64_t i, end, label;
    double weight = 0;
    (void)slot;
    samples_of(&samples, chunk, &i, &end);
    for (; i < end; i++) weight += weight_of(&labels, i, &label);
    ((double_at *)call->work)[2 * chunk + 1] = weight;
}

static void gradients(void *argument, int64_t chunk, int64_t slot) {
    const struct cross_entropy_grad *call = argument;
    const struct samples samples = SAMPLES(call);
    const struct labels labels = LABELS(call);
    const int64_t n = call->classes, step = call->after;
    const float scale = (float)*(const double_at *)call->work;
    int64_t i, end;
    (void)slot;
    samples_of(&samples, chunk, &i, &end);
    while (i < end) {
        const int64_t at = scores_at(&samples, i), here = step == 1 ? 1 : least(LANES, end - i);
        const float *x = call->x + at, *dl = call->dlog_prob ? call->dlog_prob + at : NULL;
        float *dx = call->dx + at, g[LANES] = {0};
        int64_t label[LANES];
        for (int64_t lane = 0; lane < here; lane++) {
            const float w = weight_of(&labels, i + lane, label + lane);
            see(call->strange, label[lane], w);
            const float d = call->reduction == 0 && call->dy ? call->dy[i + lane] : scale;
            g[lane] = w != 0 ? w * d : 0;
        }
        if (step == 1) {
            const float part = 1 / row_exp(x, row_max(x, n), n, dx);
            vec sums = splat(0);
            for (int64_t j = 0; dl && j < n; j += LANES) sums += load_left(dl, j, n, 0);
            const float own = g[0] - sum_lanes(sums);
            for (int64_t j = 0; j < n; j += LANES) {
                const vec p = load_left(dx, j, n, 0) * part * own;
                store_left(dx, dl ? p + load_left(dl, j, n, 0) : p, j, n);
            }
        } else {
            const vec top = column_max(x, n, step, here);
            const vec part = 1.0f / column_exp(x, top, n, step, here, dx);
            vec own = load(g);
            for (int64_t j = 0; dl && j < n * step; j += step) own -= load_left(dl + j, 0, here, 0);
            for (int64_t j = 0; j < n * step; j += step) {
                const vec p = load_left(dx + j, 0, here, 0) * part * own;
                store_left(dx + j, dl ? p + load_left(dl + j, 0, here, 0) : p, 0, here);
            }
        }
        for (int64_t lane = 0; lane < here; lane++)
            if (label[lane] >= 0) dx[label[lane] * step + lane] -= g[lane];
        i += here;
    }
}

KERNEL(cross_entropy_grad)(const struct cross_entropy_grad *call) {
    const struct samples samples = SAMPLES(call);
    const int64_t chunks = sample_chunks(&samples);
    double_at *sums = (double_at *)call->work;
    double scale = call->dy && call->reduction ? *call->dy : 0;
    *call->strange = 0;
    if (chunks == 0 || call->classes == 0) return;
    if (call->reduction == 2) {
        double weight = 0;
        gt_parallel(chunks, weights, (void *)call, call->slots);
        for (int64_t i = 0; i < chunks; i++) weight += sums[2 * i + 1];
        scale = call->dy ? scale / weight : 0;
    }
    sums[0] = scale;
    gt_parallel(chunks, gradients, (void *)call, call->slots);
}
