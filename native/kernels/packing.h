/* Copies of matrices in the order in which tiles read them.
 *
 * A panel is `depth` groups of `width` floats: panel[k * width + i] for the line i of a matrix and
 * its place k.  `lines` of them hold something, the rest is zero.  Up to LANES floats after a panel
 * may be written, too, before what follows it is: a workspace ends with as many to spare.
 */
#ifndef GRADTOOL_PACKING_H
#define GRADTOOL_PACKING_H

#include "gradtool.h"

#if LANES == 16
#define ZIP_LOW 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define ZIP_HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif LANES == 8
#define ZIP_LOW 0, 8, 1, 9, 2, 10, 3, 11
#define ZIP_HIGH 4, 12, 5, 13, 6, 14, 7, 15
#else
#define ZIP_LOW 0, 4, 1, 5
#define ZIP_HIGH 2, 6, 3, 7
#endif

/* Places of one panel that are written before those of the next: a store to another page each time
 * would miss the buffer of page translations.  As many places on, the next are asked for. */
#define TURN 8
/* Floats ahead of what is read of each line that the next are asked for. */
#define AHEAD 64

/* Rows become columns: log2(LANES) perfect shuffles of the rows. */
INLINE void transpose(vec rows[LANES]) {
    FLAT for (int round = 1; round < LANES; round *= 2) {
        vec next[LANES];
        FLAT for (int i = 0; i < LANES / 2; i++) {
            next[2 * i] = __builtin_shufflevector(rows[i], rows[i + LANES / 2], ZIP_LOW);
            next[2 * i + 1] = __builtin_shufflevector(rows[i], rows[i + LANES / 2], ZIP_HIGH);
        }
        FLAT for (int i = 0; i < LANES; i++) rows[i] = next[i];
    }
}

/* Of a matrix whose lines lie `stride` apart, each with its places beside each other. */
INLINE void pack_lines(const float *from, int64_t stride, int64_t lines, int64_t depth, float *panel,
                       int64_t width) {
    const int64_t whole = depth / LANES * LANES;
    for (int64_t i = 0; i < width; i += LANES)
        for (int64_t k = 0; k < whole; k += LANES) {
            vec rows[LANES];
            for (int r = 0; r < LANES; r++) {
                const float *line = from + (i + r) * stride + k;
                rows[r] = i + r < lines ? load(line) : splat(0);
                __builtin_prefetch(line + AHEAD);
            }
            transpose(rows);
            for (int r = 0; r < LANES; r++) {
                float *at = panel + (k + r) * width + i;
                if (i + LANES <= width || i == 0) {
                    store(at, rows[r]); /* beyond `width` what comes next is not yet written */
                    continue;
                }
                float lanes[LANES];
                store(lanes, rows[r]);
                for (int64_t j = 0; j < width - i; j++) at[j] = lanes[j];
            }
        }
    for (int64_t k = whole; k < depth; k++)
        for (int64_t i = 0; i < width; i++)
            panel[k * width + i] = i < lines ? from[i * stride + k] : 0;
}

/* Of a matrix whose places lie `stride` apart, each with its lines beside each other: all panels of
 * `width` lines, from place `first` to `end` of `depth`.  The last panel is as wide as its lines, or
 * with `filled` as wide as the others. */
INLINE void pack_places(const float *from, int64_t stride, int64_t lines, int64_t first, int64_t end,
                        int64_t depth, float *panels, int64_t width, int filled) {
    for (int64_t from_k = first; from_k < end; from_k += TURN)
        for (int64_t i = 0; i < lines; i += width) {
            const int64_t count = least(width, lines - i), wide = filled ? width : count;
            for (int64_t k = from_k; k < least(end, from_k + TURN); k++) {
                const float *line = from + k * stride + i;
                float *at = panels + i * depth + k * wide;
                int64_t c = 0;
                __builtin_prefetch(line + TURN * stride);
                __builtin_prefetch(line + TURN * stride + LANES);
                for (; c + LANES <= count; c += LANES) store(at + c, load(line + c));
                if (c == count) continue;
                /* A vector across the end is written over by the next place, and reads into it. */
                if (k + 1 < end && count == wide && i + c + LANES <= stride + lines) {
                    store(at + c, load(line + c));
                    continue;
                }
                for (; c < count; c++) at[c] = line[c];
                for (; c < wide; c++) at[c] = 0;
            }
        }
}

#endif
