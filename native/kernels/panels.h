/* Products by tiles of matrices that stay in cache: a is read where it lies, b where it can be.
 *
 * For products in a chunk that are too small for the packing of `multiply` to pay.
 */
#ifndef GRADTOOL_PANELS_H
#define GRADTOOL_PANELS_H

#include "packing.h"
#include "tiles.h"

#define WHOLE 16     /* columns that are whole vectors for every instruction set */
#define PANEL_MORE 32 /* columns of the widest tile */

/* Panel j, of TILE_COLUMNS columns of b, begins `step` floats after the one before. */
struct panels {
    const float *at;
    int64_t step, row;
};

/* Floats of a workspace for b of [depth, columns], wherever it has to be packed. */
INLINE int64_t panel_room(int64_t depth, int64_t columns) {
    return depth * (columns + PANEL_MORE) + 16;
}
INLINE int64_t places_room(int64_t depth, int64_t columns) {
    return columns % WHOLE ? panel_room(depth, columns) : 0;
}

/* b stored [depth, columns]. */
INLINE struct panels packed_places(const float *b, int64_t row, int64_t depth, int64_t columns,
                                   float *work) {
    pack_places(b, row, columns, 0, depth, depth, work, TILE_COLUMNS, 1);
    return (struct panels){work, depth * TILE_COLUMNS, TILE_COLUMNS};
}

/* The same, read where it lies if its rows are whole vectors. */
INLINE struct panels panels_of_places(const float *b, int64_t row, int64_t depth, int64_t columns,
                                      float *work) {
    if (columns % WHOLE == 0) return (struct panels){b, TILE_COLUMNS, row};
    return packed_places(b, row, depth, columns, work);
}

/* b stored [columns, depth]. */
INLINE struct panels panels_of_lines(const float *b, int64_t row, int64_t depth, int64_t columns,
                                     float *work) {
    for (int64_t j = 0; j < columns; j += TILE_COLUMNS)
        pack_lines(b + j * row, row, least(TILE_COLUMNS, columns - j), depth, work + j * depth,
                   TILE_COLUMNS);
    return (struct panels){work, depth * TILE_COLUMNS, TILE_COLUMNS};
}

/* c = alpha op(a) b + beta c: c is [m, n], a is [m, depth] or, turned, [depth, m]. */
INLINE void by_panels(int64_t m, int64_t n, int64_t depth, const float *a, int64_t a_row,
                      int turned, struct panels b, float *c, int64_t c_row, float alpha, float beta) {
    const struct finish finish = {.alpha = alpha, .beta = beta};
    for (int64_t j = 0; j < n; j += TILE_COLUMNS)
        for (int64_t i = 0; i < m; i += TILE_ROWS)
            multiply_tile(turned, least(TILE_ROWS, m - i), depth, turned ? a + i : a + i * a_row,
                          a_row, b.at + j / TILE_COLUMNS * b.step, b.row, c + i * c_row + j, c_row,
                          least(TILE_COLUMNS, n - j), &finish);
}

#endif
