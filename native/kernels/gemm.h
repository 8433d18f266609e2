/* Matrix products for other kernels of the same instruction set; gemm.c says how. */
#ifndef GRADTOOL_GEMM_H
#define GRADTOOL_GEMM_H

#include "gradtool.h"

struct coded;

/* c[m, n] = alpha op(a)[m, k] op(b)[k, n] + beta c + bias[n], of rows `*_row` floats apart.
 * Where b is `coded` (low_bits.h), it lies there. */
struct product {
    const float *a, *b, *bias;
    const struct coded *coded;
    float *c;
    int64_t m, n, k, a_row, b_row, c_row;
    int64_t a_turned, b_turned; /* a is stored [k, m], b [n, k] */
    float alpha, beta;
};

/* `work` as gradtool.native.gemm.product_bytes says, of `slots` slots. */
void SHARED(multiply)(const struct product *product, float *work, int64_t slots);

/* The same for few rows, without workspace; 0 where it is none of those. */
int SHARED(multiply_thin)(const struct product *product, int64_t slots);

/* Floats of workspace of a product. */
int64_t SHARED(multiply_work)(int64_t m, int64_t n, int64_t k, int64_t slots);

#endif
