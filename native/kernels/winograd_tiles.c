/* Tiles of images into the 36 points of F(4x4, 3x3), and back; winograd.h has the formulas.
 *
 * Channels run along vectors; the last vector ends with the last channel, so that some channels may
 * be computed twice, to the same bits.  There are at least LANES channels.  Workspace: none.
 */
#include "pool.h"
#include "winograd.h"

#define TILES 4 /* of a chunk */

struct pass {
    const struct grid *grid;
    const float *from, *bias;
    float *to;
    int64_t first, count;
    const struct plane *plane;
};

/* The places of a tile in an image, NULL outside of it. */
static void find(const struct grid *grid, const float *image, int64_t tile, int64_t size,
                 const float **at) {
    const int64_t n = tile / (grid->rows * grid->columns);
    const int64_t top = tile / grid->columns % grid->rows * 4 - grid->top;
    const int64_t left = tile % grid->columns * 4 - grid->left;
    for (int64_t i = 0; i < size; i++)
        for (int64_t j = 0; j < size; j++) {
            const int64_t y = top + i, x = left + j;
            const int inside = y >= 0 && y < grid->height && x >= 0 && x < grid->width;
            at[i * size + j] =
                inside ? image + ((n * grid->height + y) * grid->width + x) * grid->pixel : NULL;
        }
}

INLINE vec read(const float *at, int64_t channel) { return at ? load(at + channel) : splat(0); }

INLINE int64_t last_vector(int64_t channel, int64_t channels) {
    return least(channel, channels - LANES);
}

static void source_chunk(void *argument, int64_t chunk, int64_t slot) {
    const struct pass *pass = argument;
    const struct plane *plane = pass->plane;
    const int64_t end = least(pass->count, (chunk + 1) * TILES);
    (void)slot;
    for (int64_t tile = chunk * TILES; tile < end; tile++) {
        const float *at[36];
        find(pass->grid, pass->from, pass->first + tile, 6, at);
        for (int64_t start = 0; start < pass->grid->channels; start += LANES) {
            const int64_t channel = last_vector(start, pass->grid->channels);
            float *to = plane->at + tile * plane->row + channel;
            vec half[6][6];
            for (int j = 0; j < 6; j++) {
                vec d[6], t[6];
                FLAT for (int i = 0; i < 6; i++) d[i] = read(at[6 * i + j], channel);
                times_b(d, t);
                FLAT for (int i = 0; i < 6; i++) half[i][j] = t[i];
            }
            for (int i = 0; i < 6; i++) {
                vec t[6];
                times_b(half[i], t);
                FLAT for (int j = 0; j < 6; j++) store(to + (6 * i + j) * plane->per_point, t[j]);
            }
        }
    }
}

static void cotangent_chunk(void *argument, int64_t chunk, int64_t slot) {
    const struct pass *pass = argument;
    const struct plane *plane = pass->plane;
    const int64_t end = least(pass->count, (chunk + 1) * TILES);
    (void)slot;
    for (int64_t tile = chunk * TILES; tile < end; tile++) {
        const float *at[16];
        find(pass->grid, pass->from, pass->first + tile, 4, at);
        for (int64_t start = 0; start < pass->grid->channels; start += LANES) {
            const int64_t channel = last_vector(start, pass->grid->channels);
            float *to = plane->at + tile * plane->row + channel;
            vec half[6][4];
            for (int j = 0; j < 4; j++) {
                vec d[4], z[6];
                FLAT for (int i = 0; i < 4; i++) d[i] = read(at[4 * i + j], channel);
                times_a(d, z);
                FLAT for (int i = 0; i < 6; i++) half[i][j] = z[i];
            }
            for (int i = 0; i < 6; i++) {
                vec z[6];
                times_a(half[i], z);
                FLAT for (int j = 0; j < 6; j++) store(to + (6 * i + j) * plane->per_point, z[j]);
            }
        }
    }
}

static void target_chunk(void *argument, int64_t chunk, int64_t slot) {
    const struct pass *pass = argument;
    const struct plane *plane = pass->plane;
    const int64_t end = least(pass->count, (chunk + 1) * TILES);
    (void)slot;
    for (int64_t tile = chunk * TILES; tile < end; tile++) {
        const float *at[16];
        find(pass->grid, pass->to, pass->first + tile, 4, at);
        for (int64_t start = 0; start < pass->grid->channels; start += LANES) {
            const int64_t channel = last_vector(start, pass->grid->channels);
            const float *from = plane->at + tile * plane->row + channel;
            const vec bias = pass->bias ? load(pass->bias + channel) : splat(0);
            vec half[4][6];
            for (int j = 0; j < 6; j++) {
                vec m[6], y[4];
                FLAT for (int i = 0; i < 6; i++) m[i] = load(from + (6 * i + j) * plane->per_point);
                times_a_turned(m, y);
                FLAT for (int i = 0; i < 4; i++) half[i][j] = y[i];
            }
            for (int i = 0; i < 4; i++) {
                vec y[4];
                times_a_turned(half[i], y);
                FLAT for (int j = 0; j < 4; j++) {
                    const float *to = at[4 * i + j];
                    if (to) store((float *)to + channel, y[j] + bias);
                }
            }
        }
    }
}

void SHARED(winograd_source)(const struct grid *grid, const float *x, int64_t first, int64_t count,
                             const struct plane *plane, int64_t slots) {
    struct pass pass = {grid, x, NULL, NULL, first, count, plane};
    gt_parallel(parts(count, TILES), source_chunk, &pass, slots);
}

void SHARED(winograd_cotangent)(const struct grid *grid, const float *dy, int64_t first,
                                int64_t count, const struct plane *plane, int64_t slots) {
    struct pass pass = {grid, dy, NULL, NULL, first, count, plane};
    gt_parallel(parts(count, TILES), cotangent_chunk, &pass, slots);
}

void SHARED(winograd_target)(const struct grid *grid, float *y, const float *bias, int64_t first,
                             int64_t count, const struct plane *plane, int64_t slots) {
    struct pass pass = {grid, NULL, bias, y, first, count, plane};
    gt_parallel(parts(count, TILES), target_chunk, &pass, slots);
}
