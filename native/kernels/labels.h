/* Labels [N, D] of class scores [N, C, D], and the weight that each gives its sample. */
#ifndef GRADTOOL_LABELS_H
#define GRADTOOL_LABELS_H

#include "gradtool.h"

#define SCORES 16384 /* of a chunk */

struct labels {
    const void *at;
    const float *weights; /* of classes, or NULL */
    int64_t wide;         /* 64 bits each, else 32 */
    int64_t ignores, ignored, classes;
};

/* The weight of sample i.  One that is ignored has weight 0 and class 0; a label that is no class
 * has weight NaN and class -1. */
INLINE float weight_of(const struct labels *labels, int64_t i, int64_t *label) {
    const int64_t found = labels->wide ? ((const int64_t *)labels->at)[i]
                                       : ((const int32_t *)labels->at)[i];
    const int ignored = labels->ignores && found == labels->ignored;
    *label = !ignored ? found : labels->classes ? 0 : -1;
    if (ignored) return 0;
    if (found < 0 || found >= labels->classes) {
        *label = -1;
        return __builtin_nanf("");
    }
    return labels->weights ? labels->weights[found] : 1;
}

/* Samples are cut into chunks of `lines` of one n: rows where D is 1, else columns. */
struct samples {
    int64_t count, classes, after;
};

INLINE int64_t lines_at_once(const struct samples *s) {
    return rounded_up(most(1, SCORES / most(s->classes, 1)), 16);
}

INLINE int64_t sample_chunks(const struct samples *s) {
    if (s->after == 1) return parts(s->count, lines_at_once(s));
    return s->count * parts(s->after, lines_at_once(s));
}

/* Samples of a chunk: from `*first` to `*end`, numbered over [N, D]. */
INLINE void samples_of(const struct samples *s, int64_t chunk, int64_t *first, int64_t *end) {
    const int64_t lines = lines_at_once(s), blocks = s->after == 1 ? 1 : parts(s->after, lines);
    const int64_t n = s->after == 1 ? 0 : chunk / blocks;
    const int64_t from = (s->after == 1 ? chunk : chunk % blocks) * lines;
    const int64_t all = s->after == 1 ? s->count : s->after;
    *first = n * s->after + from;
    *end = n * s->after + least(all, from + lines);
}

/* Where the scores of sample i begin: classes lie `after` floats apart. */
INLINE int64_t scores_at(const struct samples *s, int64_t i) {
    return i / s->after * s->classes * s->after + i % s->after;
}

/* Doubles at any multiple of four bytes. */
typedef double double_at __attribute__((aligned(4), may_alias));

#endif
