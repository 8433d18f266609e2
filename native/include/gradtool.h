/* What every kernel file includes: names per instruction set, vectors as wide as the machine's,
 * and the rules of a kernel.
 *
 * A file of kernels/ is compiled once for each instruction set (GT_ISA: v3, v4, neon).  A kernel
 * is `KERNEL(name)(const struct name *call)`: every field of the struct is one word of eight bytes
 * (pointers first, then sizes, then numbers), so that a bound step is a function and an array of
 * words.  It allocates nothing, writes its outputs and `work` only, and computes the same bits for
 * any number of threads.
 */
#ifndef GRADTOOL_H
#define GRADTOOL_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define GT_EXPORT __declspec(dllexport)
#else
#define GT_EXPORT __attribute__((visibility("default")))
#endif

#define GT_JOIN_(a, b) a##_##b
#define GT_JOIN(a, b) GT_JOIN_(a, b)

/* Exported: `gt_name_v4`. */
#define KERNEL(name) GT_EXPORT void GT_JOIN(gt_##name, GT_ISA)
/* Shared between files of one instruction set: `name_v4`. */
#define SHARED(name) GT_JOIN(name, GT_ISA)

#define INLINE static inline __attribute__((always_inline))

/* Before a loop over registers: none of its turns is a turn at run time. */
#define FLAT _Pragma("clang loop unroll(full)")

/* Floats of one register. */
#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t ivec __attribute__((vector_size(4 * LANES)));
/* The same in memory, wherever a float may lie. */
typedef float vec_at __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t ivec_at __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

INLINE vec load(const float *at) { return *(const vec_at *)at; }
INLINE void store(float *at, vec value) { *(vec_at *)at = value; }
/* The first `count` floats, the other lanes 0. */
INLINE vec load_some(const float *at, int64_t count) {
    if (count >= LANES) return load(at);
    float lanes[LANES] = {0};
    for (int64_t i = 0; i < count; i++) lanes[i] = at[i];
    return load(lanes);
}

INLINE void store_some(float *at, vec value, int64_t count) {
    if (count >= LANES) {
        store(at, value);
        return;
    }
    float lanes[LANES];
    store(lanes, value);
    for (int64_t i = 0; i < count; i++) at[i] = lanes[i];
}

/* x - 0 is x, to the sign of a zero. */
INLINE vec splat(float value) { return value - (vec){0}; }

/* One lane of `chosen`, -1 or 0, takes `yes` or `no`. */
INLINE vec choose(ivec chosen, vec yes, vec no) {
    return (vec)((chosen & (ivec)yes) | (~chosen & (ivec)no));
}

INLINE vec vec_max(vec a, vec b) { return choose(a > b, a, b); }
INLINE vec vec_min(vec a, vec b) { return choose(a < b, a, b); }

/* The sum of the lanes, always in the same order: halves onto halves. */
INLINE float sum_lanes(vec value) {
    float lanes[LANES];
    store(lanes, value);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) lanes[i] += lanes[i + half];
    return lanes[0];
}

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
INLINE int64_t parts(int64_t count, int64_t size) { return (count + size - 1) / size; }
INLINE int64_t rounded_up(int64_t count, int64_t size) { return parts(count, size) * size; }

#endif
