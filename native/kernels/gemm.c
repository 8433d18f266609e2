/* Products of a batch of matrices: y = alpha op(a) op(b) + beta y + bias, per matrix.
 *
 * Matrices of a batch lie `*_step` floats apart (0 for one that all share).  Those whose panels of
 * b are small are chunks for themselves; others are cut into chunks one after the other.
 *
 * Workspace in bytes: gradtool.native.gemm.work.
 */
#include "gemm.h"
#include "pool.h"

#define SMALL 131072 /* floats of workspace that a slot may have to itself */

struct gemm {
    const float *a, *b, *bias;
    float *c, *work;
    int64_t batch, m, n, k, a_row, b_row, c_row, a_step, b_step, c_step, a_turned, b_turned, slots;
    double alpha, beta;
};

static struct product one_of(const struct gemm *call, int64_t index) {
    return (struct product){
        .a = call->a + index * call->a_step,
        .b = call->b + index * call->b_step,
        .bias = call->bias,
        .c = call->c + index * call->c_step,
        .m = call->m,
        .n = call->n,
        .k = call->k,
        .a_row = call->a_row,
        .b_row = call->b_row,
        .c_row = call->c_row,
        .a_turned = call->a_turned,
        .b_turned = call->b_turned,
        .alpha = (float)call->alpha,
        .beta = (float)call->beta,
    };
}

static void multiply_one(void *argument, int64_t index, int64_t slot) {
    const struct gemm *call = argument;
    const struct product product = one_of(call, index);
    const int64_t room = SHARED(multiply_work)(call->m, call->n, call->k, 1);
    SHARED(multiply)(&product, call->work + slot * room, 1);
}

KERNEL(gemm)(const struct gemm *call) {
    const int64_t alone = SHARED(multiply_work)(call->m, call->n, call->k, 1);
    if (call->batch > 1 && alone <= SMALL) {
        gt_parallel(call->batch, multiply_one, (void *)call, call->slots);
        return;
    }
    for (int64_t index = 0; index < call->batch; index++) {
        const struct product product = one_of(call, index);
        SHARED(multiply)(&product, call->work, call->slots);
    }
}
