/* Runs bound steps, one after the other or at once: what is called once for many kernels. */
#include "flush.h"
#include "gradtool.h"
#include "pool.h"

struct step {
    void (*kernel)(const void *words);
    const void *words;
};

GT_EXPORT void gt_run(const struct step *steps, int64_t count) {
    const uint64_t before = flush();
    for (int64_t i = 0; i < count; i++) steps[i].kernel(steps[i].words);
    have_numbers(before);
}

static void run_one(void *argument, int64_t chunk, int64_t slot) {
    const struct step *const step = (const struct step *)argument + chunk;
    (void)slot;
    step->kernel(step->words);
}

/* Steps that touch nothing of one another, as many at once as there are threads. */
GT_EXPORT void gt_run_together(const struct step *steps, int64_t count) {
    const uint64_t before = flush();
    gt_parallel(count, run_one, (void *)steps, count);
    have_numbers(before);
}

/* A number of a kernel's words that may change between calls. */
struct number {
    const float *read;
    double *to;
};

GT_EXPORT void gt_number(const struct number *call) { *call->to = *call->read; }
