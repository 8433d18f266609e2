/* Gradients by float masks of attention: the slopes of scores, summed where a mask is broadcast. */
#ifndef GRADTOOL_MASK_GRAD_H
#define GRADTOOL_MASK_GRAD_H

#include "attention.h"
#include "moments.h"

/* Where heads of several chunks add to the same places, parts of them have a gradient each: the
 * first its output, the others floats of the workspace, from `apart` on; it is -1 for all others.
 * `at` is NULL where no gradient is wanted.
 */
struct mask_grad {
    float *at;
    int64_t size, apart;
};

/* A gradient for each mask, or NULL if none is wanted. */
struct mask_grads {
    const struct mask *masks;
    const struct mask_grad *to;
    float *work;
    int64_t count, parts, slots;
};

/* Before and after the chunks: zeros where they share places, and the sum of all parts. */
void SHARED(clear_shared)(const struct mask_grads *all);
void SHARED(sum_parts)(const struct mask_grads *all);

INLINE float *place_of(const struct mask_grad *to, int64_t part, float *work) {
    return to->apart < 0 || part == 0 ? to->at : work + to->apart + (part - 1) * to->size;
}

/* Zeros for the heads that no other chunk adds to. */
INLINE void clear_own(const struct mask_grads *all, int64_t batch, int64_t head, int64_t heads) {
    for (int64_t i = 0; all->to && i < all->count; i++) {
        const struct mask *mask = all->masks + i;
        const struct mask_grad *to = all->to + i;
        if (!to->at || to->apart >= 0) continue;
        float *at = to->at + batch * mask->batch_step + head * mask->head_step;
        const int64_t size = mask->head_step    ? heads * mask->head_step
                             : mask->batch_step ? mask->batch_step
                                                : to->size;
        for (int64_t j = 0; j < size; j++) at[j] = 0;
    }
}

INLINE void add_slopes(const struct mask *mask, const struct block *at, const float *ds, float *to) {
    const int64_t n = at->columns;
    to += at->batch * mask->batch_step + at->head * mask->head_step + at->row * mask->row_step;
    for (int64_t i = 0; i < at->rows; i++, ds += n, to += mask->row_step) {
        if (!mask->column_step)
            *to += row_sum(ds, n);
        else
            for (int64_t j = 0; j < n; j += LANES)
                store_left(to, load_left(to, j, n, 0) + load_left(ds, j, n, 0), j, n);
    }
}

/* The last mask was put last: what a boolean one hides is no slope of those before. */
INLINE void through_masks(const struct mask_grads *all, const struct block *at, int64_t part,
                          float *ds) {
    for (int64_t i = all->count - 1; i >= 0; i--)
        if (all->masks[i].flags)
            put_mask(all->masks + i, at, 0, ds);
        else if (all->to && all->to[i].at)
            add_slopes(all->masks + i, at, ds, place_of(all->to + i, part, all->work));
}

#endif
