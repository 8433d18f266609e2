/* Vectors at the end of an array, where fewer than LANES floats are left, and loops over arrays. */
#ifndef GRADTOOL_ENDS_H
#define GRADTOOL_ENDS_H

#include "gradtool.h"

#if __has_builtin(__builtin_masked_load)
typedef _Bool lanes_of __attribute__((ext_vector_type(LANES)));
typedef float masked __attribute__((ext_vector_type(LANES)));

INLINE lanes_of first_lanes(int64_t count) {
    ivec lane;
    for (int i = 0; i < LANES; i++) lane[i] = i;
    return __builtin_convertvector(lane < (int32_t)count, lanes_of);
}

/* `count` floats, at most LANES, the other lanes `fill`. */
INLINE vec load_filled(const float *at, int64_t count, float fill) {
    return (vec)__builtin_masked_load(first_lanes(count), at, (masked)splat(fill));
}

INLINE void store_first(float *at, vec value, int64_t count) {
    __builtin_masked_store(first_lanes(count), (masked)value, at);
}
#else /* clang before 22 */
INLINE vec load_filled(const float *at, int64_t count, float fill) {
    float lanes[LANES];
    store(lanes, splat(fill));
    for (int64_t i = 0; i < count; i++) lanes[i] = at[i];
    return load(lanes);
}

INLINE void store_first(float *at, vec value, int64_t count) { store_some(at, value, count); }
#endif

/* As many as are left of `count` from `i` on, at most LANES. */
INLINE vec load_left(const float *at, int64_t i, int64_t count, float fill) {
    return i + LANES <= count ? load(at + i) : load_filled(at + i, count - i, fill);
}

INLINE void store_left(float *at, vec value, int64_t i, int64_t count) {
    if (i + LANES <= count)
        store(at + i, value);
    else
        store_first(at + i, value, count - i);
}

/* out[i] = f(a[i], b[i]); the arrays may be the same.  f is known where this is inlined. */
INLINE void map(const float *a, const float *b, float *out, int64_t count, vec (*f)(vec, vec)) {
    const int64_t whole = count / LANES * LANES;
    int64_t i = 0;
    _Pragma("clang loop unroll_count(2)") /* hides the latency of a chain */
    for (; i < whole; i += LANES) store(out + i, f(load(a + i), load(b + i)));
    if (i < count)
        store_first(out + i, f(load_filled(a + i, count - i, 1), load_filled(b + i, count - i, 1)),
                   count - i);
}

/* The greatest lane; NaN if one is. */
INLINE float max_lanes(vec value) {
    float lanes[LANES], most_of = -__builtin_inff();
    store(lanes, value);
    for (int i = 0; i < LANES; i++)
        most_of = lanes[i] > most_of || lanes[i] != lanes[i] ? lanes[i] : most_of;
    return most_of;
}

#define BRIEF 4 /* terms that are added to each other first, where a sum is to be exact */

/* sum += x, less what rounding put into it with the last one (Kahan 1965); infinity has no excess. */
INLINE void add_exactly(vec *sum, vec *excess, vec x) {
    const vec more = x - *excess, next = *sum + more, found = (next - *sum) - more;
    *excess = choose(found == found, found, splat(0));
    *sum = next;
}

#endif
