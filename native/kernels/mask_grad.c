/* What chunks share of gradients by masks: cleared before, and summed by part afterwards. */
#include "mask_grad.h"
#include "pool.h"

#define PIECE 16384 /* floats of a chunk */

struct sums {
    const struct mask_grad *to;
    float *work;
    int64_t parts;
};

static void clear_piece(void *argument, int64_t piece, int64_t slot) {
    const struct sums *sums = argument;
    const int64_t begin = piece * PIECE, end = least(sums->to->size, begin + PIECE);
    (void)slot;
    for (int64_t part = 0; part < sums->parts; part++) {
        float *at = place_of(sums->to, part, sums->work);
        for (int64_t i = begin; i < end; i++) at[i] = 0;
    }
}

static void sum_piece(void *argument, int64_t piece, int64_t slot) {
    const struct sums *sums = argument;
    const int64_t begin = piece * PIECE, end = least(sums->to->size, begin + PIECE);
    (void)slot;
    for (int64_t part = 1; part < sums->parts; part++) {
        const float *more = place_of(sums->to, part, sums->work);
        for (int64_t i = begin; i < end; i++) sums->to->at[i] += more[i];
    }
}

static void each_shared(const struct mask_grads *all, gt_task *task) {
    for (int64_t i = 0; all->to && i < all->count; i++) {
        struct sums sums = {all->to + i, all->work, all->parts};
        if (sums.to->at && sums.to->apart >= 0)
            gt_parallel(parts(sums.to->size, PIECE), task, &sums, all->slots);
    }
}

void SHARED(clear_shared)(const struct mask_grads *all) { each_shared(all, clear_piece); }

void SHARED(sum_parts)(const struct mask_grads *all) {
    if (all->parts > 1) each_shared(all, sum_piece);
}
