/* Products of small tiles, held in registers: what matrix products and convolutions are made of.
 *
 * c[i, j] = alpha sum_k a[i, k] b[k, j] + beta c[i, j] + bias[j]
 * for i < rows <= TILE_ROWS and j < columns <= TILE_COLUMNS.  The sum runs over k in order, so that
 * its bits do not depend on how a product is cut into tiles.
 *
 * Source: Goto & van de Geijn 2008, "Anatomy of high-performance matrix multiplication".
 * Sizes fill the registers: 28 + 2 + 1 of 32 (v4), 12 + 2 + 1 of 16 (v3), 24 + 3 + 1 of 32 (neon).
 */
#ifndef GRADTOOL_TILES_H
#define GRADTOOL_TILES_H

#include "gradtool.h"

#if LANES == 16
#define TILE_ROWS 14
#define TILE_VECTORS 2
#elif LANES == 8
#define TILE_ROWS 6
#define TILE_VECTORS 2
#else
#define TILE_ROWS 8
#define TILE_VECTORS 3
#endif
#define TILE_COLUMNS (TILE_VECTORS * LANES)

struct finish {
    float alpha, beta;
    const float *bias; /* of the first column, or NULL */
    /* k may run in as many further runs: before each, a and b move on by so many floats. */
    int64_t more, a_jump, b_jump;
};

/* a: rows `a_row` floats apart; or `turned`, columns `a_row` floats apart.  b: rows `b_row` floats
 * apart, of whole vectors: what they hold beyond `columns` goes nowhere. */
typedef void tile_function(int64_t depth, const float *a, int64_t a_row, const float *b,
                           int64_t b_row, float *c, int64_t c_row, int64_t columns,
                           const struct finish *finish);

extern tile_function *const SHARED(tiles)[2][TILE_ROWS][TILE_VECTORS];

INLINE void multiply_tile(int turned, int64_t rows, int64_t depth, const float *a, int64_t a_row,
                          const float *b, int64_t b_row, float *c, int64_t c_row, int64_t columns,
                          const struct finish *finish) {
    SHARED(tiles)[turned][rows - 1][(columns - 1) / LANES](depth, a, a_row, b, b_row, c, c_row,
                                                          columns, finish);
}

#endif
