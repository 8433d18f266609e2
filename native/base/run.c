/* Runs bound steps one after the other: what an executor calls once for many kernels. */
#include "gradtool.h"

struct step {
    void (*kernel)(const void *words);
    const void *words;
};

GT_EXPORT void gt_run(const struct step *steps, int64_t count) {
    for (int64_t i = 0; i < count; i++) steps[i].kernel(steps[i].words);
}

/* A number of a kernel's words that may change between calls. */
struct number {
    const float *read;
    double *to;
};

GT_EXPORT void gt_number(const struct number *call) { *call->to = *call->read; }
