/* Every size of tile, compiled for itself: tiles.h says what it computes.  Workspace: none. */
#include "tiles.h"

INLINE void write_row(const vec *sums, int vectors, float *c, int64_t columns,
                      const struct finish *finish) {
    FLAT for (int v = 0; v < vectors; v++) {
        const int64_t count = columns - v * LANES;
        float *at = c + v * LANES;
        if (count >= LANES) {
            vec value = sums[v] * finish->alpha;
            if (finish->beta != 0) value += load(at) * finish->beta;
            if (finish->bias) value += load(finish->bias + v * LANES);
            store(at, value);
            continue;
        }
        float lanes[LANES];
        store(lanes, sums[v] * finish->alpha);
        for (int64_t i = 0; i < count; i++) {
            float value = lanes[i];
            if (finish->beta != 0) value = __builtin_fmaf(at[i], finish->beta, value);
            if (finish->bias) value += finish->bias[v * LANES + i];
            at[i] = value;
        }
    }
}

INLINE void add_place(int rows, int vectors, const float *a, int64_t a_step, const float *b,
                      vec sums[TILE_ROWS][TILE_VECTORS]) {
    vec line[TILE_VECTORS];
    FLAT for (int v = 0; v < vectors; v++) line[v] = load(b + v * LANES);
    FLAT for (int i = 0; i < rows; i++) {
        const vec one = splat(a[i * a_step]);
        FLAT for (int v = 0; v < vectors; v++) sums[i][v] += one * line[v];
    }
}

INLINE void tile(int turned, int rows, int vectors, int64_t depth, const float *a, int64_t a_row,
                 const float *b, int64_t b_row, float *c, int64_t c_row, int64_t columns,
                 const struct finish *finish) {
    vec sums[TILE_ROWS][TILE_VECTORS];
    FLAT for (int i = 0; i < rows; i++) FLAT for (int v = 0; v < vectors; v++) sums[i][v] = splat(0);
    FLAT for (int i = 0; i < rows; i++) FLAT for (int v = 0; v < vectors; v++)
        __builtin_prefetch(c + i * c_row + v * LANES, 1);
    for (int64_t run = 0; run <= finish->more; run++) {
        if (turned) {
            _Pragma("clang loop unroll_count(4)") for (int64_t k = 0; k < depth; k++)
                add_place(rows, vectors, a + k * a_row, 1, b + k * b_row, sums);
            a += depth * a_row;
        } else { /* unrolled, its addresses would take more registers than there are */
            for (int64_t k = 0; k < depth; k++)
                add_place(rows, vectors, a + k, a_row, b + k * b_row, sums);
            a += depth;
        }
        b += depth * b_row;
        a += finish->a_jump;
        b += finish->b_jump;
    }
    FLAT for (int i = 0; i < rows; i++) write_row(sums[i], vectors, c + i * c_row, columns, finish);
}

#define TILE(turned, rows, vectors)                                                               \
    static void tile_##turned##_##rows##_##vectors(                                               \
        int64_t depth, const float *a, int64_t a_row, const float *b, int64_t b_row, float *c,    \
        int64_t c_row, int64_t columns, const struct finish *finish) {                            \
        tile(turned, rows, vectors, depth, a, a_row, b, b_row, c, c_row, columns, finish);        \
    }

#if TILE_VECTORS == 2
#define SIZES(turned, rows) TILE(turned, rows, 1) TILE(turned, rows, 2)
#define NAMES(turned, rows) {tile_##turned##_##rows##_1, tile_##turned##_##rows##_2},
#else
#define SIZES(turned, rows) TILE(turned, rows, 1) TILE(turned, rows, 2) TILE(turned, rows, 3)
#define NAMES(turned, rows)                                                                       \
    {tile_##turned##_##rows##_1, tile_##turned##_##rows##_2, tile_##turned##_##rows##_3},
#endif

#define TO_6(of, p) of(p, 1) of(p, 2) of(p, 3) of(p, 4) of(p, 5) of(p, 6)
#define TO_8(of, p) TO_6(of, p) of(p, 7) of(p, 8)
#define TO_14(of, p) TO_8(of, p) of(p, 9) of(p, 10) of(p, 11) of(p, 12) of(p, 13) of(p, 14)
#define EVERY_COUNT(of, turned) GT_JOIN(TO, TILE_ROWS)(of, turned)

EVERY_COUNT(SIZES, 0)
EVERY_COUNT(SIZES, 1)

tile_function *const SHARED(tiles)[2][TILE_ROWS][TILE_VECTORS] = {
    {EVERY_COUNT(NAMES, 0)},
    {EVERY_COUNT(NAMES, 1)},
};
