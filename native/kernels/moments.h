/* Mean and sum of centred squares of numbers beside each other, by blocks that stay in cache.
 *
 * Blocks are merged as in Chan, Golub & LeVeque 1979: nothing cancels.
 */
#ifndef GRADTOOL_MOMENTS_H
#define GRADTOOL_MOMENTS_H

#include "ends.h"

#define TOGETHER 4096 /* floats of a block */

struct moments {
    double mean, squares, count;
};

INLINE float row_sum(const float *x, int64_t n) {
    vec sums[4] = {splat(0), splat(0), splat(0), splat(0)};
    int64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        for (int j = 0; j < 4; j++) sums[j] += load(x + i + j * LANES);
    for (; i < n; i += LANES) sums[0] += load_left(x, i, n, 0);
    return sum_lanes((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

INLINE float row_squares(const float *x, int64_t n, float mean) {
    vec sums[4] = {splat(0), splat(0), splat(0), splat(0)};
    int64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        for (int j = 0; j < 4; j++) {
            const vec c = load(x + i + j * LANES) - mean;
            sums[j] += c * c;
        }
    for (; i < n; i += LANES) {
        const vec c = load_left(x, i, n, mean) - mean;
        sums[0] += c * c;
    }
    return sum_lanes((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

INLINE void merge(struct moments *into, double mean, double squares, double count) {
    const double all = into->count + count, away = mean - into->mean;
    into->mean += away * (count / all);
    into->squares += squares + away * away * (into->count * count / all);
    into->count = all;
}

/* Those of n numbers more. */
INLINE void add_moments(struct moments *into, const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i += TOGETHER) {
        const int64_t count = least(TOGETHER, n - i);
        const float mean = row_sum(x + i, count) / (float)count;
        merge(into, mean, row_squares(x + i, count, mean), (double)count);
    }
}

/* 1 / sqrt(x + epsilon). */
INLINE float inverse_root(double x, double epsilon) {
    return (float)(1 / __builtin_sqrt(x + epsilon));
}

#endif
