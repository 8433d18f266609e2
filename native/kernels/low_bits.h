/* Matrices of few bits, decoded a stretch of a row at a time.
 *
 * A row of the matrix is `blocks` blocks of `block` codes of 2, 4 or 8 bits, the first in the lowest
 * bits of a byte.  A code stands for (code - zero) scale, with a scale and a zero for each block; or,
 * with a table of 16 numbers and the first code of a byte in its high bits, for table[code] scale.
 * `groups` has the block of each column, the nearest where there is none of its number.  Blocks are multiples of 16: no vector reads beyond a row.
 */
#ifndef GRADTOOL_LOW_BITS_H
#define GRADTOOL_LOW_BITS_H

#include <string.h>

#include "gradtool.h"
#include "packing.h"
#include "tiles.h"

struct coded {
    const uint8_t *codes, *zeros; /* zeros: packed as codes are, bytes of a row; or NULL */
    const float *scale, *offset;  /* offset: zeros as floats; or NULL */
    const float *table;
    const int32_t *groups;
    int64_t blocks, block, bits;
};

typedef uint32_t uvec __attribute__((vector_size(4 * LANES)));
typedef uint8_t bvec __attribute__((vector_size(LANES)));

#if LANES == 16
#define BY_4 {0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28}
#define BY_2 {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30}
#elif LANES == 8
#define BY_4 {0, 4, 8, 12, 16, 20, 24, 28}
#define BY_2 {0, 2, 4, 6, 8, 10, 12, 14}
#else
#define BY_4 {0, 4, 8, 12}
#define BY_2 {0, 2, 4, 6}
#endif

/* LANES codes, the first in the lowest bits of a byte. */
INLINE vec codes_at(const uint8_t *at, int bits) {
    if (bits == 8) {
        bvec bytes;
        memcpy(&bytes, at, sizeof bytes);
        return __builtin_convertvector(__builtin_convertvector(bytes, ivec), vec);
    }
    uint64_t word = 0;
    memcpy(&word, at, LANES * bits / 8);
    uvec all = (uvec){0} + (uint32_t)word;
#if LANES == 16
    if (bits == 4)
        all = __builtin_shufflevector(all, (uvec){0} + (uint32_t)(word >> 32), 0, 1, 2, 3, 4, 5, 6, 7,
                                      24, 25, 26, 27, 28, 29, 30, 31);
#endif
    const uvec by = bits == 4 ? (uvec)BY_4 : (uvec)BY_2;
    return __builtin_convertvector((ivec)((all >> by) & (uint32_t)((1 << bits) - 1)), vec);
}

INLINE int code_of(const uint8_t *row, int64_t place, int bits) {
    return row[place * bits / 8] >> (place * bits % 8) & ((1 << bits) - 1);
}

INLINE float zero_of(const struct coded *coded, int64_t row, int64_t block, int bits) {
    if (coded->offset) return coded->offset[row * coded->blocks + block];
    if (!coded->zeros) return (float)(1 << (bits - 1));
    return (float)code_of(coded->zeros + row * parts(coded->blocks * bits, 8), block, bits);
}

/* Place `i` of a row of panels `jump` floats apart. */
INLINE float *panel_at(float *panels, int64_t i, int64_t jump) {
    return panels + (uint64_t)i / TILE_COLUMNS * jump + (uint64_t)i % TILE_COLUMNS;
}

/* One number after the other: of a table, or of columns that choose their blocks. */
INLINE void decode_each(const struct coded *coded, int64_t row, int64_t from, int64_t count, float *to, int64_t jump) {
    const uint8_t *codes = coded->codes + row * coded->blocks * coded->block * coded->bits / 8;
    const float *scale = coded->scale + row * coded->blocks;
    for (int64_t i = 0; i < count; i++) {
        const int64_t k = from + i;
        const int64_t said = coded->groups ? coded->groups[k] : k / coded->block;
        const int64_t block = least(most(said, 0), coded->blocks - 1);
        const int code = code_of(codes, coded->table ? k ^ 1 : k, (int)coded->bits);
        *panel_at(to, i, jump) = coded->table ? coded->table[code] * scale[block]
                                              : ((float)code - zero_of(coded, row, block, (int)coded->bits)) * scale[block];
    }
}

INLINE void decode_blocks(const struct coded *coded, int64_t row, int64_t from, int64_t count, float *to,
                          int64_t jump, int bits) {
    const uint8_t *codes = coded->codes + row * coded->blocks * coded->block * bits / 8;
    const float *scales = coded->scale + row * coded->blocks;
    int64_t block = (uint32_t)from / (uint32_t)coded->block, last = block * coded->block;
    for (int64_t k = from, end = from + count; k < end; block++) {
        last = least(end, last + coded->block);
        const vec scale = splat(scales[block]), zero = splat(zero_of(coded, row, block, bits));
        for (; k + LANES <= last; k += LANES)
            store(panel_at(to, k - from, jump), (codes_at(codes + k * bits / 8, bits) - zero) * scale);
        if (k < last) {
            store_some(panel_at(to, k - from, jump), (codes_at(codes + k * bits / 8, bits) - zero) * scale, last - k);
            k = last;
        }
    }
}

/* Places of LANES rows beside each other, `rows` of which are there; the others are zero. */
INLINE void decode_lines(const struct coded *coded, int64_t row, int64_t rows, int64_t from, int64_t count,
                         float *panel, int bits) {
    const int64_t bytes = coded->blocks * coded->block * bits / 8;
    const uint8_t *codes = coded->codes + row * bytes;
    int64_t block = (uint32_t)from / (uint32_t)coded->block, last = block * coded->block;
    for (int64_t k = from, end = from + count; k < end; block++) {
        float scale[LANES] = {0}, zero[LANES] = {0};
        for (int r = 0; r < least(LANES, rows); r++) {
            scale[r] = coded->scale[(row + r) * coded->blocks + block];
            zero[r] = zero_of(coded, row + r, block, bits);
        }
        last = least(end, last + coded->block);
        for (; k < last; k += LANES) {
            vec all[LANES];
            FLAT for (int r = 0; r < LANES; r++)
                all[r] = (codes_at(codes + (r < rows ? r : 0) * bytes + k * bits / 8, bits) - zero[r]) * scale[r];
            transpose(all);
            float *at = panel + (k - from) * TILE_COLUMNS;
            if (k + LANES <= last)
                FLAT for (int r = 0; r < LANES; r++) store(at + r * TILE_COLUMNS, all[r]);
            else
                FLAT for (int r = 0; r < LANES; r++) if (k + r < last) store(at + r * TILE_COLUMNS, all[r]);
        }
        k = last;
    }
}

#define BY_BITS(function, ...)                                                                   \
    do {                                                                                         \
        if (coded->bits == 4)                                                                    \
            function(__VA_ARGS__, 4);                                                            \
        else if (coded->bits == 8)                                                               \
            function(__VA_ARGS__, 8);                                                            \
        else                                                                                     \
            function(__VA_ARGS__, 2);                                                            \
    } while (0)

/* `count` numbers of a row, over panels `jump` floats apart; `from` is a multiple of four. */
INLINE void decode(const struct coded *coded, int64_t row, int64_t from, int64_t count, float *to, int64_t jump) {
    if (coded->table || coded->groups)
        decode_each(coded, row, from, count, to, jump);
    else
        BY_BITS(decode_blocks, coded, row, from, count, to, jump);
}

#endif
