/* What recurrent kernels share: where things lie, rows of all times, products of one time.
 *
 * Inside, a row is a sample at a time: rows of X are [times batch, inputs], gates are [times batch,
 * gates hidden].  The product of one time with R is cut into strips of TILE_COLUMNS hidden units;
 * a strip computes all that its units need, so that a time is one call of the pool.
 */
#ifndef GRADTOOL_RECURRENT_H
#define GRADTOOL_RECURRENT_H

#include "ends.h"
#include "functions.h"
#include "gemm.h"
#include "panels.h"
#include "pool.h"

#define SAMPLES 512 /* rows of X that are multiplied at once in forward */

/* Layout 0: X [T, B, I], Y [T, D, B, H], states [D, B, H].
 * Layout 1: X [B, T, I], Y [B, T, D, H], states [B, D, H]. */
struct recurrence {
    int64_t times, batch, inputs, hidden, directions, reverse, layout, slots;
    const int32_t *lens; /* of each sample, or NULL */
};

INLINE int backwards(const struct recurrence *n, int64_t d) { return n->reverse || d == 1; }
INLINE int64_t x_at(const struct recurrence *n, int64_t t, int64_t b) {
    return (n->layout ? b * n->times + t : t * n->batch + b) * n->inputs;
}
INLINE int64_t y_at(const struct recurrence *n, int64_t t, int64_t b, int64_t d) {
    return (n->layout ? (b * n->times + t) * n->directions + d
                      : (t * n->directions + d) * n->batch + b) * n->hidden;
}
INLINE int64_t state_at(const struct recurrence *n, int64_t b, int64_t d) {
    return (n->layout ? b * n->directions + d : d * n->batch + b) * n->hidden;
}
INLINE int over(const struct recurrence *n, int64_t t, int64_t b) {
    return n->lens && n->lens[b] <= t;
}
INLINE int64_t at_once(const struct recurrence *n) {
    return least(n->times, parts(SAMPLES, most(n->batch, 1)));
}

INLINE void copy(float *to, const float *from, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = from ? from[i] : 0;
}

/* States of direction d as [batch, hidden], or zeros. */
INLINE void read_state(const struct recurrence *n, const float *from, int64_t d, float *to) {
    for (int64_t b = 0; b < n->batch; b++)
        copy(to + b * n->hidden, from ? from + state_at(n, b, d) : NULL, n->hidden);
}

/* The other way; the state of an empty sequence is zero where `ended` asks for it. */
INLINE void write_state(const struct recurrence *n, const float *from, int64_t d, float *to,
                        int ended) {
    for (int64_t b = 0; to && b < n->batch; b++)
        copy(to + state_at(n, b, d), ended && over(n, 0, b) ? NULL : from + b * n->hidden,
             n->hidden);
}

/* Rows of X from time `low` on: where they lie, or gathered in `room`. */
INLINE const float *x_rows(const struct recurrence *n, const float *x, int64_t low, int64_t count,
                           float *room) {
    if (!n->layout) return x + x_at(n, low, 0);
    for (int64_t t = 0; t < count; t++)
        for (int64_t b = 0; b < n->batch; b++)
            copy(room + (t * n->batch + b) * n->inputs, x + x_at(n, low + t, b), n->inputs);
    return room;
}

/* The hidden state before each time, [times batch, hidden]: Y holds it one time earlier. */
INLINE void states_before(const struct recurrence *n, const float *y, const float *h0, int64_t d,
                          float *to) {
    const int back = backwards(n, d);
    for (int64_t t = 0; t < n->times; t++)
        for (int64_t b = 0; b < n->batch; b++) {
            const int64_t before = back ? t + 1 : t - 1;
            const int first = before < 0 || before == n->times ||
                              (back && n->lens && n->lens[b] == before);
            const float *from = first ? (h0 ? h0 + state_at(n, b, d) : NULL)
                                      : y + y_at(n, before, b, d);
            copy(to + (t * n->batch + b) * n->hidden, from, n->hidden);
        }
}

/* c = op(a) op(b) + beta c + bias of whole matrices beside each other. */
INLINE void multiply_all(const struct recurrence *n, int64_t m, int64_t columns, int64_t k,
                         const float *a, int64_t a_row, int a_turned, const float *b,
                         int64_t b_row, int b_turned, float *c, int64_t c_row, float beta,
                         const float *bias, float *work) {
    const struct product product = {
        .a = a, .b = b, .bias = bias, .c = c, .m = m, .n = columns, .k = k, .a_row = a_row,
        .b_row = b_row, .c_row = c_row, .a_turned = a_turned, .b_turned = b_turned, .alpha = 1,
        .beta = beta,
    };
    SHARED(multiply)(&product, work, n->slots);
}

/* Panel `strip` of b. */
INLINE struct panels one_panel(struct panels b, int64_t strip) {
    return (struct panels){b.at + strip * b.step, b.step, b.row};
}

/* Wb + Rb of direction d; of the last `split` gates Wb alone. */
INLINE void both_biases(const struct recurrence *n, const float *b, int64_t d, int64_t gates,
                        int64_t split, float *to) {
    const int64_t rows = gates * n->hidden, end = rows - split * n->hidden;
    const float *own = b + 2 * d * rows;
    for (int64_t i = 0; i < rows; i++) to[i] = own[i] + (i < end ? own[rows + i] : 0);
}

/* to[j] = sum over rows of a[row, j], or of a[row, j] b[row, j]. */
INLINE void sum_rows(const float *a, int64_t a_row, const float *b, int64_t b_row, int64_t rows,
                     int64_t columns, float *to) {
    int64_t j = 0;
#define SUM(vectors)                                                                              \
    for (; j + (vectors - 1) * LANES < columns; j += vectors * LANES) {                           \
        vec sums[vectors];                                                                        \
        for (int v = 0; v < vectors; v++) sums[v] = splat(0);                                     \
        for (int64_t i = 0; i < rows; i++)                                                        \
            for (int v = 0; v < vectors; v++) {                                                   \
                const vec one = load_left(a + i * a_row, j + v * LANES, columns, 0);              \
                sums[v] += b ? one * load_left(b + i * b_row, j + v * LANES, columns, 0) : one;   \
            }                                                                                     \
        for (int v = 0; v < vectors; v++) store_left(to, sums[v], j + v * LANES, columns);        \
    }
    SUM(8)
    SUM(1)
#undef SUM
}

/* dX of direction d from the gradients of gates, added after the first direction. */
INLINE void input_gradient(const struct recurrence *n, int64_t d, const float *da, int64_t rows,
                           const float *w, float *dx, float *room, float *work) {
    const int64_t all = n->times * n->batch;
    if (!n->layout) {
        multiply_all(n, all, n->inputs, rows, da, rows, 0, w, n->inputs, 0, dx, n->inputs, d > 0,
                     NULL, work);
        return;
    }
    multiply_all(n, all, n->inputs, rows, da, rows, 0, w, n->inputs, 0, room, n->inputs, 0, NULL,
                 work);
    for (int64_t t = 0; t < n->times; t++)
        for (int64_t b = 0; b < n->batch; b++) {
            const float *from = room + (t * n->batch + b) * n->inputs;
            float *to = dx + x_at(n, t, b);
            for (int64_t i = 0; i < n->inputs; i++) to[i] = d ? to[i] + from[i] : from[i];
        }
}

#endif
