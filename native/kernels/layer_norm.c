/* Layer and root-mean-square normalisation of rows, and their gradients.
 *
 *     s = x + residual        y = (s - mean) rstd scale + bias
 *     dx = rstd (dn - mean(dn) - n mean(dn n)) + dsum  with  dn = dy scale,  n = (s - mean) rstd
 *     dscale = sum dy n        dbias = sum dy
 *
 * `root` is for the root mean square: mean is 0.  `sum` takes s, where it is wanted.  In backward x
 * is s, and `mean` and `rstd` may be NULL: they are computed again.  Every output may be NULL; y
 * may be x or the residual, dx any input of its size.  The gradient of the residual is dx.
 * Source: gradtool's numpy kernels.  Workspace of backward in floats: 2 channel_room(n) parts.
 */
#include "channels.h"
#include "pool.h"

#define CHUNK 16384 /* floats */

struct layer_norm {
    const float *x, *residual, *scale, *bias;
    float *y, *sum, *mean, *rstd;
    int64_t rows, n, root, slots;
    double epsilon;
};

struct layer_norm_grad {
    const float *x, *scale, *mean, *rstd, *dy, *dsum;
    float *dx, *dscale, *dbias, *work;
    int64_t rows, n, root, slots;
    double epsilon;
};

static void statistics(const float *x, int64_t n, int64_t root, double epsilon, float *mean,
                       float *rstd) {
    struct moments found = {0, 0, 0};
    *mean = 0;
    if (root) {
        for (int64_t i = 0; i < n; i += TOGETHER)
            found.squares += row_squares(x + i, least(TOGETHER, n - i), 0);
    } else if (n <= TOGETHER) {
        *mean = row_sum(x, n) / (float)n;
        found.squares = row_squares(x, n, *mean);
    } else {
        add_moments(&found, x, n);
        *mean = (float)found.mean;
    }
    *rstd = inverse_root(found.squares / (double)n, epsilon);
}

static int64_t rows_at_once(int64_t n) { return most(1, CHUNK / most(n, 1)); }

static void some_rows(void *argument, int64_t chunk, int64_t slot) {
    const struct layer_norm *call = argument;
    const int64_t n = call->n, size = rows_at_once(n), end = least(call->rows, (chunk + 1) * size);
    (void)slot;
    for (int64_t row = chunk * size; row < end; row++) {
        const float *x = call->x + row * n;
        float *y = call->y ? call->y + row * n : NULL, mean, rstd;
        if (call->residual) {
            const float *other = call->residual + row * n;
            float *sum = call->sum ? call->sum + row * n : y;
            for (int64_t i = 0; i < n; i += LANES)
                store_left(sum, load_left(x, i, n, 0) + load_left(other, i, n, 0), i, n);
            x = sum;
        }
        statistics(x, n, call->root, call->epsilon, &mean, &rstd);
        if (call->mean) call->mean[row] = mean;
        if (call->rstd) call->rstd[row] = rstd;
        for (int64_t i = 0; y && i < n; i += LANES) {
            const vec c = load_left(x, i, n, 0) - mean;
            const vec part = c * rstd * load_left(call->scale, i, n, 0);
            store_left(y, call->bias ? part + load_left(call->bias, i, n, 0) : part, i, n);
        }
    }
}

KERNEL(layer_norm)(const struct layer_norm *call) {
    gt_parallel(parts(call->rows, rows_at_once(call->n)), some_rows, (void *)call, call->slots);
}

INLINE struct images rows_of(const struct layer_norm_grad *call) {
    return (struct images){call->rows, call->n, 1, call->slots};
}

static void one_part(void *argument, int64_t part, int64_t slot) {
    const struct layer_norm_grad *call = argument;
    const struct images rows = rows_of(call);
    const int64_t n = call->n, room = channel_room(n), size = rows_of_part(&rows);
    const int64_t end = least(call->rows, (part + 1) * size);
    float *scales = call->work + 2 * part * room, *biases = scales + room;
    (void)slot;
    for (int64_t i = 0; i < 2 * room; i++) scales[i] = 0;
    for (int64_t row = part * size; row < end; row++) {
        const float *x = call->x + row * n, *dy = call->dy + row * n;
        float mean = call->mean ? call->mean[row] : 0, rstd;
        if (call->rstd)
            rstd = call->rstd[row];
        else
            statistics(x, n, call->root, call->epsilon, &mean, &rstd);
        vec firsts = splat(0), seconds = splat(0);
        for (int64_t i = 0; i < n; i += LANES) {
            const vec g = load_left(dy, i, n, 0);
            const vec normal = (load_left(x, i, n, mean) - mean) * rstd;
            const vec dn = g * load_left(call->scale, i, n, 0);
            firsts += dn;
            seconds += dn * normal;
            store(scales + i, load(scales + i) + g * normal);
            store(biases + i, load(biases + i) + g);
        }
        if (!call->dx) continue;
        const float *more = call->dsum ? call->dsum + row * n : NULL;
        const float first = call->root ? 0 : sum_lanes(firsts) / (float)n;
        const float second = sum_lanes(seconds) / (float)n * rstd;
        for (int64_t i = 0; i < n; i += LANES) {
            const vec dn = load_left(dy, i, n, 0) * load_left(call->scale, i, n, 0);
            const vec c = load_left(x, i, n, 0) - mean;
            const vec dx = (dn - first - c * second) * rstd;
            store_left(call->dx + row * n, more ? dx + load_left(more, i, n, 0) : dx, i, n);
        }
    }
}

KERNEL(layer_norm_grad)(const struct layer_norm_grad *call) {
    const struct images rows = rows_of(call);
    const int64_t count = parts_of(&rows), room = channel_room(call->n);
    gt_parallel(count, one_part, (void *)call, call->slots);
    for (int64_t i = 0; i < call->n; i++) {
        double scale = 0, bias = 0;
        for (int64_t part = 0; part < count; part++) {
            scale += call->work[2 * part * room + i];
            bias += call->work[(2 * part + 1) * room + i];
        }
        if (call->dscale) call->dscale[i] = (float)scale;
        if (call->dbias) call->dbias[i] = (float)bias;
    }
}
