/* F(4x4, 3x3): a tile of 4 x 4 outputs of a 3 x 3 convolution takes 36 products instead of 144.
 *
 *   y = A' [(G w G') * (B' x B)] A        dw = G' [(A dy A') * (B' x B)] G
 *
 * x is a tile of 6 x 6, y and dy of 4 x 4, w of 3 x 3; products are summed over channels for y, over
 * tiles for dw.  Source: Lavin & Gray 2015 (arXiv:1509.09308), section 4.1, points 0, +-1, +-2.
 */
#ifndef GRADTOOL_WINOGRAD_H
#define GRADTOOL_WINOGRAD_H

#include "gradtool.h"

#define POINTS 36
#define PAD 16 /* floats between rows of a power of two, so that they fall into other cache sets */

/* Tiles of an image, channels last; a tile's source begins `top` above and `left` of it. */
struct grid {
    int64_t batch, height, width, pixel; /* of the image; floats from a pixel to the next */
    int64_t rows, columns, top, left;    /* tiles of one image */
    int64_t channels;                    /* those at work, from the image's address on */
};

/* Where what is computed of tile t and channel c lies: at + point * per_point + t * row + c. */
struct plane {
    float *at;
    int64_t per_point, row;
};

/* Tiles from `first` on: of x by B, of dy by A; and of products by A' to y, with bias. */
void SHARED(winograd_source)(const struct grid *grid, const float *x, int64_t first, int64_t count,
                             const struct plane *plane, int64_t slots);
void SHARED(winograd_cotangent)(const struct grid *grid, const float *dy, int64_t first,
                                int64_t count, const struct plane *plane, int64_t slots);
void SHARED(winograd_target)(const struct grid *grid, float *y, const float *bias, int64_t first,
                             int64_t count, const struct plane *plane, int64_t slots);

/* Weights w[out, in], or for dx w[in, out] whose taps are turned. */
struct filters {
    const float *w;
    int64_t in, out;
    int flipped;
};

/* Panels of G w G' as tiles read them, of outputs first to first + count: one panel has `in` rows of
 * TILE_COLUMNS, a point parts(count, TILE_COLUMNS) panels. */
void SHARED(winograd_weights)(const struct filters *filters, int64_t first, int64_t count,
                              float *panels, int64_t slots);
/* dw[out, in] of sums[point][in][row of out]. */
void SHARED(winograd_gradient)(const struct plane *sums, int64_t in, int64_t out, float *dw,
                               int64_t slots);

INLINE void times_b(const vec d[6], vec t[6]) {
    const vec a = d[4] - 4 * d[2], b = d[3] - 4 * d[1], c = d[4] - d[2], e = 2 * (d[3] - d[1]);
    t[0] = 4 * d[0] - 5 * d[2] + d[4];
    t[1] = a + b;
    t[2] = a - b;
    t[3] = c + e;
    t[4] = c - e;
    t[5] = 4 * d[1] - 5 * d[3] + d[5];
}

INLINE void times_a(const vec y[4], vec z[6]) {
    const vec even = y[0] + y[2], odd = y[1] + y[3];
    const vec even4 = y[0] + 4 * y[2], odd2 = 2 * y[1] + 8 * y[3];
    z[0] = y[0];
    z[1] = even + odd;
    z[2] = even - odd;
    z[3] = even4 + odd2;
    z[4] = even4 - odd2;
    z[5] = y[3];
}

INLINE void times_a_turned(const vec m[6], vec y[4]) {
    const vec p = m[1] + m[2], q = m[1] - m[2], r = m[3] + m[4], s = m[3] - m[4];
    y[0] = m[0] + p + r;
    y[1] = q + 2 * s;
    y[2] = p + 4 * r;
    y[3] = q + 8 * s + m[5];
}

INLINE void times_g(const vec g[3], vec u[6]) {
    const vec outer = (g[0] + g[2]) * (-1.0f / 6), inner = g[1] * (1.0f / 6);
    const vec far = g[0] * (1.0f / 24) + g[2] * (1.0f / 6), near = g[1] * (1.0f / 12);
    u[0] = g[0] * 0.25f;
    u[1] = outer - inner;
    u[2] = outer + inner;
    u[3] = far + near;
    u[4] = far - near;
    u[5] = g[2];
}

INLINE void times_g_turned(const vec v[6], vec g[3]) {
    const vec p = (v[1] + v[2]) * (1.0f / 6), q = v[3] + v[4];
    g[0] = v[0] * 0.25f - p + q * (1.0f / 24);
    g[1] = (v[2] - v[1]) * (1.0f / 6) + (v[3] - v[4]) * (1.0f / 12);
    g[2] = q * (1.0f / 6) - p + v[5];
}

#endif
