/* Convolution 3 x 3 of stride 1, channels last, by F(4x4, 3x3): y, dx and dw.
 *
 * Tiles are transformed, the 36 points are multiplied as matrices [tiles, channels] x [channels,
 * outputs], and the result is transformed back.  dx is y of dy by the turned weights.  For dw the
 * matrices are [channels, tiles] x [tiles, outputs].  This goes by blocks of tiles where there are
 * many, summed in order for dw, or by blocks of outputs where there are many weights, so that what
 * passes from one to the next stays in cache.
 *
 * Source: Lavin & Gray 2015.  Error: docs in gradtool/native/winograd.py.
 * Workspace in bytes: gradtool.native.winograd.work.
 */
#include "pool.h"
#include "tiles.h"
#include "winograd.h"

/* `tiles` and `outputs` of a block: at least one of them is all there are. */
struct winograd {
    const float *x, *w, *bias;
    float *y, *work;
    int64_t batch, height, width, channels, out_height, out_width, out_channels;
    int64_t top, left, flipped, tiles, outputs, slots;
};

struct winograd_dw {
    const float *x, *dy;
    float *dw, *work;
    int64_t batch, height, width, channels, out_height, out_width, out_channels;
    int64_t top, left, tiles, outputs, slots;
};

struct products {
    struct plane left, right, sums;
    const float *panels;
    int64_t tiles, in, out;
    int first;
};

static struct plane plane_of(float **work, int64_t rows, int64_t columns) {
    const struct plane plane = {*work, rows * (columns + PAD), columns + PAD};
    *work += POINTS * plane.per_point;
    return plane;
}

/* sums[tiles, out] = left[tiles, in] panels[in, out] of one point. */
static void forward_point(void *argument, int64_t point, int64_t slot) {
    const struct products *at = argument;
    const struct finish finish = {.alpha = 1};
    const int64_t panels = parts(at->out, TILE_COLUMNS);
    const float *b = at->panels + point * panels * at->in * TILE_COLUMNS;
    const float *a = at->left.at + point * at->left.per_point;
    float *c = at->sums.at + point * at->sums.per_point;
    (void)slot;
    for (int64_t panel = 0; panel < panels; panel++)
        for (int64_t t = 0; t < at->tiles; t += TILE_ROWS)
            multiply_tile(0, least(TILE_ROWS, at->tiles - t), at->in, a + t * at->left.row,
                          at->left.row, b + panel * at->in * TILE_COLUMNS, TILE_COLUMNS,
                          c + t * at->sums.row + panel * TILE_COLUMNS, at->sums.row,
                          least(TILE_COLUMNS, at->out - panel * TILE_COLUMNS), &finish);
}

/* sums[in, out] += left[tiles, in]' right[tiles, out] of one point. */
static void gradient_point(void *argument, int64_t point, int64_t slot) {
    const struct products *at = argument;
    const struct finish finish = {.alpha = 1, .beta = at->first ? 0 : 1};
    const float *a = at->left.at + point * at->left.per_point;
    const float *b = at->right.at + point * at->right.per_point;
    float *c = at->sums.at + point * at->sums.per_point;
    (void)slot;
    for (int64_t j = 0; j < at->out; j += TILE_COLUMNS)
        for (int64_t i = 0; i < at->in; i += TILE_ROWS)
            multiply_tile(1, least(TILE_ROWS, at->in - i), at->tiles, a + i, at->left.row, b + j,
                          at->right.row, c + i * at->sums.row + j, at->sums.row,
                          least(TILE_COLUMNS, at->out - j), &finish);
}

KERNEL(winograd)(const struct winograd *call) {
    const int64_t rows = parts(call->out_height, 4), columns = parts(call->out_width, 4);
    const int64_t all = call->batch * rows * columns, slots = call->slots;
    const struct grid source = {call->batch, call->height, call->width, call->channels, rows,
                                columns,     call->top,    call->left,  call->channels};
    const struct filters filters = {call->w, call->channels, call->out_channels, call->flipped != 0};
    struct products at = {.in = call->channels};
    float *work = call->work;
    at.left = plane_of(&work, call->tiles, call->channels);
    at.sums = plane_of(&work, call->tiles, call->outputs);
    at.panels = work;
    for (int64_t o = 0; o < call->out_channels; o += call->outputs) {
        at.out = least(call->outputs, call->out_channels - o);
        const struct grid target = {call->batch, call->out_height, call->out_width,
                                    call->out_channels, rows, columns, 0, 0, at.out};
        const float *bias = call->bias ? call->bias + o : NULL;
        SHARED(winograd_weights)(&filters, o, at.out, work, slots);
        for (int64_t first = 0; first < all; first += call->tiles) {
            at.tiles = least(call->tiles, all - first);
            if (o == 0 || call->tiles < all)
                SHARED(winograd_source)(&source, call->x, first, at.tiles, &at.left, slots);
            gt_parallel(POINTS, forward_point, &at, slots);
            SHARED(winograd_target)(&target, call->y + o, bias, first, at.tiles, &at.sums, slots);
        }
    }
}

KERNEL(winograd_dw)(const struct winograd_dw *call) {
    const int64_t rows = parts(call->out_height, 4), columns = parts(call->out_width, 4);
    const int64_t all = call->batch * rows * columns, slots = call->slots;
    const struct grid source = {call->batch, call->height, call->width, call->channels, rows,
                                columns,     call->top,    call->left,  call->channels};
    struct products at = {.in = call->channels};
    float *work = call->work;
    at.left = plane_of(&work, call->tiles, call->channels);
    at.right = plane_of(&work, call->tiles, call->outputs);
    at.sums = plane_of(&work, call->channels, call->outputs);
    for (int64_t o = 0; o < call->out_channels; o += call->outputs) {
        at.out = least(call->outputs, call->out_channels - o);
        const struct grid target = {call->batch, call->out_height, call->out_width,
                                    call->out_channels, rows, columns, 0, 0, at.out};
        for (int64_t first = 0; first < all; first += call->tiles) {
            at.tiles = least(call->tiles, all - first);
            at.first = first == 0;
            if (o == 0 || call->tiles < all)
                SHARED(winograd_source)(&source, call->x, first, at.tiles, &at.left, slots);
            SHARED(winograd_cotangent)(&target, call->dy + o, first, at.tiles, &at.right, slots);
            gt_parallel(POINTS, gradient_point, &at, slots);
        }
        SHARED(winograd_gradient)(&at.sums, at.in, at.out, call->dw + o * at.in * 9, slots);
    }
}
