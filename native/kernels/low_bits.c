/* Products with a matrix W [rows, columns] of few bits: y = alpha x W' (turned) or x W,
 * + beta y + bias.
 *
 * Panels of W are decoded as they are packed (low_bits.h, product.c); x and y are rows of floats.
 * Workspace: that of a product of floats, as product.c says.
 */
#include "low_bits.h"

#include "gemm.h"

struct coded_product {
    const float *x;
    const uint8_t *codes;
    const float *scale;
    const uint8_t *zeros;
    const float *offset;
    const int32_t *groups;
    const float *table;
    const float *bias;
    float *y, *work;
    int64_t m, rows, columns, blocks, block, bits, turned, slots;
    double alpha, beta;
};

KERNEL(coded_product)(const struct coded_product *call) {
    const struct coded coded = {
        .codes = call->codes,
        .zeros = call->zeros,
        .scale = call->scale,
        .offset = call->offset,
        .table = call->table,
        .groups = call->groups,
        .blocks = call->blocks,
        .block = call->block,
        .bits = call->bits,
    };
    const int64_t n = call->turned ? call->rows : call->columns;
    const int64_t k = call->turned ? call->columns : call->rows;
    const struct product product = {
        .a = call->x,
        .c = call->y,
        .coded = &coded,
        .m = call->m,
        .n = n,
        .k = k,
        .a_row = k,
        .c_row = n,
        .b_turned = call->turned,
        .bias = call->bias,
        .alpha = (float)call->alpha,
        .beta = (float)call->beta,
    };
    SHARED(multiply)(&product, call->work, call->slots);
}
