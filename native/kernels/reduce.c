/* Sums over the middle axis of [before, n, after], times a factor.
 *
 * y[b, a] = factor * sum over i of x[b, i, a].  Parts of up to `part` are summed in floats, one
 * vector after the other (along after, or along n where after is 1), and the parts in doubles, in
 * order.  Workspace in floats: before * ceil(n / part) * after, none if there is one part.
 */
#include "ends.h"
#include "pool.h"

#define LEAST 16384 /* elements of a chunk */
#define ABREAST 4   /* vectors of columns that are summed together */

struct reduce_sum {
    const float *x;
    float *y, *work;
    int64_t before, n, after, part, slots;
    double factor;
};

static float line_sum(const float *x, int64_t count) {
    vec sums[4] = {{0}, {0}, {0}, {0}};
    int64_t i = 0;
    for (; i + 4 * LANES <= count; i += 4 * LANES)
        for (int k = 0; k < 4; k++) sums[k] += load(x + i + k * LANES);
    for (; i < count; i += LANES) sums[0] += load_left(x, i, count, 0);
    return sum_lanes((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

/* The sums of some vectors of columns over `rows` rows, to nearly every bit.
 *
 * The gradient of a bias before a normalisation is such a sum, and zero in mathematics. */
INLINE void vector_sums(const float *x, int64_t rows, int64_t columns, int64_t from, int vectors,
                        float *y) {
    vec sum[ABREAST], excess[ABREAST];
    FLAT for (int v = 0; v < vectors; v++) sum[v] = excess[v] = splat(0);
    for (int64_t row = 0; row < rows; row += BRIEF) {
        vec brief[ABREAST];
        FLAT for (int v = 0; v < vectors; v++) brief[v] = splat(0);
        for (int64_t i = row; i < least(rows, row + BRIEF); i++)
            FLAT for (int v = 0; v < vectors; v++)
                brief[v] += load_left(x + i * columns, from + v * LANES, columns, 0);
        FLAT for (int v = 0; v < vectors; v++) add_exactly(sum + v, excess + v, brief[v]);
    }
    FLAT for (int v = 0; v < vectors; v++) store_left(y, sum[v], from + v * LANES, columns);
}

/* Several vectors at a time, so that a row is read by more than a line of cache. */
static void column_sums(const float *x, int64_t rows, int64_t columns, float *y) {
    int64_t c = 0;
    for (; c + ABREAST * LANES <= columns; c += ABREAST * LANES)
        vector_sums(x, rows, columns, c, ABREAST, y);
    for (; c < columns; c += LANES) vector_sums(x, rows, columns, c, 1, y);
}

static int64_t cuts(const struct reduce_sum *call) { return parts(call->n, call->part); }

static int64_t together(const struct reduce_sum *call) {
    return most(1, LEAST / most(1, least(call->part, call->n) * call->after));
}

static void sum_chunk(void *argument, int64_t chunk, int64_t slot) {
    const struct reduce_sum *call = argument;
    const int64_t all = call->before * cuts(call), first = chunk * together(call);
    const int64_t end = least(all, first + together(call)), after = call->after;
    (void)slot;
    for (int64_t piece = first; piece < end; piece++) {
        const int64_t from = piece % cuts(call) * call->part;
        const int64_t count = least(call->part, call->n - from);
        const float *x = call->x + (piece / cuts(call) * call->n + from) * after;
        float *y = (cuts(call) > 1 ? call->work : call->y) + piece * after;
        if (after == 1)
            *y = line_sum(x, count);
        else
            column_sums(x, count, after, y);
        if (cuts(call) == 1)
            for (int64_t a = 0; a < after; a++) y[a] = (float)(y[a] * call->factor);
    }
}

static void total_chunk(void *argument, int64_t chunk, int64_t slot) {
    const struct reduce_sum *call = argument;
    const int64_t all = call->before * call->after, each = most(1, LEAST / cuts(call));
    (void)slot;
    for (int64_t at = chunk * each; at < least(all, (chunk + 1) * each); at++) {
        const float *sums = call->work + at / call->after * cuts(call) * call->after;
        double total = 0;
        for (int64_t k = 0; k < cuts(call); k++) total += sums[k * call->after + at % call->after];
        call->y[at] = (float)(total * call->factor);
    }
}

KERNEL(reduce_sum)(const struct reduce_sum *call) {
    const int64_t all = call->before * call->after;
    if (all == 0) return;
    if (call->n == 0) {
        for (int64_t i = 0; i < all; i++) call->y[i] = 0;
        return;
    }
    gt_parallel(parts(call->before * cuts(call), together(call)), sum_chunk, (void *)call,
                call->slots);
    if (cuts(call) > 1)
        gt_parallel(parts(all, most(1, LEAST / cuts(call))), total_chunk, (void *)call,
                    call->slots);
}
