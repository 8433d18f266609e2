/* Softmax, its logarithm and their gradients along the middle axis of [before, n, after].
 *
 * softmax:  y = exp(x - max x) / sum exp(x - max x)     dx = y (dy - sum y dy)
 * log:      y = x - max x - log sum exp(x - max x)      dx = dy - exp(y) sum dy
 *
 * `from` is x, or y for a gradient; `out` may be one of the inputs.  Source: gradtool's numpy
 * kernels.  Workspace: none.
 */
#include "softmax.h"

#include "pool.h"

#define CHUNK 16384

struct softmax {
    const float *from;
    float *out;
    int64_t before, n, after, log, slots;
};

struct softmax_grad {
    const float *from, *dy;
    float *out;
    int64_t before, n, after, log, slots;
};

static void forward_row(const struct softmax *call, const float *x, float *y) {
    const int64_t n = call->n;
    const float top = row_max(x, n);
    if (call->log) {
        const float log_sum = scalar_log(row_exp(x, top, n, NULL));
        for (int64_t i = 0; i < n; i += LANES)
            store_left(y, load_left(x, i, n, 0) - top - log_sum, i, n);
    } else {
        const float factor = 1 / row_exp(x, top, n, y);
        for (int64_t i = 0; i < n; i += LANES)
            store_left(y, load_left(y, i, n, 0) * factor, i, n);
    }
}

static void forward_columns(const struct softmax *call, const float *x, float *y, int64_t here) {
    const int64_t n = call->n, step = call->after;
    const vec top = column_max(x, n, step, here);
    if (call->log) {
        const vec log_sum = vec_log(column_exp(x, top, n, step, here, NULL));
        for (int64_t i = 0; i < n * step; i += step)
            store_left(y + i, load_left(x + i, 0, here, 0) - top - log_sum, 0, here);
    } else {
        const vec factor = 1.0f / column_exp(x, top, n, step, here, y);
        for (int64_t i = 0; i < n * step; i += step)
            store_left(y + i, load_left(y + i, 0, here, 0) * factor, 0, here);
    }
}

static void backward_row(const struct softmax_grad *call, const float *y, const float *dy,
                         float *dx) {
    const int64_t n = call->n;
    vec sums = splat(0);
    for (int64_t i = 0; i < n; i += LANES) {
        const vec d = load_left(dy, i, n, 0);
        sums += call->log ? d : load_left(y, i, n, 0) * d;
    }
    const float sum = sum_lanes(sums);
    for (int64_t i = 0; i < n; i += LANES) {
        const vec p = load_left(y, i, n, 0), d = load_left(dy, i, n, 0);
        store_left(dx, call->log ? d - vec_exp(p) * sum : p * (d - sum), i, n);
    }
}

static void backward_columns(const struct softmax_grad *call, const float *y, const float *dy,
                             float *dx, int64_t here) {
    const int64_t n = call->n, step = call->after;
    vec sum = splat(0);
    for (int64_t i = 0; i < n * step; i += step) {
        const vec d = load_left(dy + i, 0, here, 0);
        sum += call->log ? d : load_left(y + i, 0, here, 0) * d;
    }
    for (int64_t i = 0; i < n * step; i += step) {
        const vec p = load_left(y + i, 0, here, 0), d = load_left(dy + i, 0, here, 0);
        store_left(dx + i, call->log ? d - vec_exp(p) * sum : p * (d - sum), 0, here);
    }
}

/* Rows of a chunk, of [before, n]; or columns of one, of [before, n, after]. */
static int64_t rows_at_once(int64_t n) { return most(1, CHUNK / most(n, 1)); }

#define CHUNKS_OF(name, type, row, columns)                                                       \
    static void name##_rows(void *argument, int64_t chunk, int64_t slot) {                        \
        const type *call = argument;                                                              \
        const int64_t rows = rows_at_once(call->n), end = least(call->before, (chunk + 1) * rows);\
        (void)slot;                                                                               \
        for (int64_t i = chunk * rows * call->n; i < end * call->n; i += call->n) row;            \
    }                                                                                             \
    static void name##_columns(void *argument, int64_t chunk, int64_t slot) {                     \
        const type *call = argument;                                                              \
        const int64_t lines = rounded_up(rows_at_once(call->n), 16);                              \
        const int64_t blocks = parts(call->after, lines), from = chunk % blocks * lines;          \
        const int64_t end = least(call->after, from + lines);                                     \
        (void)slot;                                                                               \
        for (int64_t j = from; j < end; j += LANES) {                                             \
            const int64_t i = chunk / blocks * call->n * call->after + j;                         \
            const int64_t here = least(LANES, end - j);                                           \
            columns;                                                                              \
        }                                                                                         \
    }                                                                                             \
    static void name##_all(const type *call) {                                                    \
        const int64_t rows = rows_at_once(call->n);                                               \
        if (call->n * call->after == 0) return;                                                   \
        if (call->after == 1)                                                                     \
            gt_parallel(parts(call->before, rows), name##_rows, (void *)call, call->slots);       \
        else                                                                                      \
            gt_parallel(call->before * parts(call->after, rounded_up(rows, 16)), name##_columns,  \
                        (void *)call, call->slots);                                               \
    }

CHUNKS_OF(softmax, struct softmax, forward_row(call, call->from + i, call->out + i),
          forward_columns(call, call->from + i, call->out + i, here))
CHUNKS_OF(softmax_grad, struct softmax_grad,
          backward_row(call, call->from + i, call->dy + i, call->out + i),
          backward_columns(call, call->from + i, call->dy + i, call->out + i, here))

KERNEL(softmax)(const struct softmax *call) { softmax_all(call); }

KERNEL(softmax_grad)(const struct softmax_grad *call) { softmax_grad_all(call); }
