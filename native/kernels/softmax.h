/* The greatest of a line of scores and the sum of exp(x - greatest), by row or by column. */
#ifndef GRADTOOL_SOFTMAX_H
#define GRADTOOL_SOFTMAX_H

#include "ends.h"
#include "functions.h"

INLINE float row_max(const float *x, int64_t n) {
    const float lowest = -__builtin_inff();
    vec top = splat(lowest), other = top;
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        top = vec_max(load(x + i), top);
        other = vec_max(load(x + i + LANES), other);
    }
    for (; i < n; i += LANES) top = vec_max(load_left(x, i, n, lowest), top);
    return max_lanes(vec_max(top, other));
}

/* The sum of e = exp(x - top), which `out` takes unless it is NULL; it may be x. */
INLINE float row_exp(const float *x, float top, int64_t n, float *out) {
    vec sum = splat(0), other = sum;
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        const vec e = vec_exp_below(load(x + i) - top);
        const vec f = vec_exp_below(load(x + i + LANES) - top);
        sum += e;
        other += f;
        if (out) store(out + i, e), store(out + i + LANES, f);
    }
    for (; i < n; i += LANES) {
        const vec e = vec_exp_below(load_left(x, i, n, -__builtin_inff()) - top);
        sum += e;
        if (out) store_left(out, e, i, n);
    }
    return sum_lanes(sum + other);
}

INLINE float scalar_log(float x) { return vec_log(splat(x))[0]; }

/* LANES columns beside each other, `here` of them there; lines lie `step` floats apart. */
INLINE vec column_max(const float *x, int64_t n, int64_t step, int64_t here) {
    vec top = splat(-__builtin_inff());
    for (int64_t i = 0; i < n; i++) top = vec_max(load_left(x + i * step, 0, here, 0), top);
    return top;
}

INLINE vec column_exp(const float *x, vec top, int64_t n, int64_t step, int64_t here, float *out) {
    vec sum = splat(0);
    for (int64_t i = 0; i < n; i++) {
        const vec e = vec_exp_below(load_left(x + i * step, 0, here, 0) - top);
        sum += e;
        if (out) store_left(out + i * step, e, 0, here);
    }
    return sum;
}

#endif
