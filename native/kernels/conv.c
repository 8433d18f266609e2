/* Convolutions of any kernel, stride, dilation and group, channels last: y and dx.
 *
 * For PIXELS targets at a time, what a block of taps reads is gathered into lines, which are
 * multiplied by panels of weights; sums over blocks of taps go on in y.  A 1 x 1 kernel of stride 1
 * without pads is one product of matrices.  dx is a convolution of dy for each residue of the
 * strides, whose targets are collected first and spread afterwards.
 *
 * Source: Chellapilla et al. 2006 (convolution as a product), by blocks that stay in cache.
 * Workspace in bytes: gradtool.native.conv.work.
 */
#include "conv.h"
#include "gemm.h"
#include "pool.h"
#include "tiles.h"

#define PIXELS 84 /* whole tiles of x86-64 */
#define DEPTH 384 /* of a block of taps, if one tap is not deeper */

struct pass {
    const struct conv *call;
    struct window window;
    struct image image;
    const float *panels;
    float *lines;
    int64_t sources, targets, taps, block, stride, per_slot, spread;
};

/* Targets first to first + pixels of one group: to c, whose lines are c_row apart. */
static void multiply_group(const struct pass *pass, int64_t group, int64_t first, int64_t pixels,
                           float *lines, float *c, int64_t c_row) {
    const int64_t per_group = parts(pass->targets, TILE_COLUMNS);
    const int64_t panel = pass->taps * pass->sources * TILE_COLUMNS;
    const float *bias = pass->call->bias;
    int64_t tap = 0;
    do { /* once without taps, too: zeros */
        const struct taps taps = {tap, least(pass->taps, tap + pass->block), group * pass->sources,
                                  (group + 1) * pass->sources};
        const int64_t depth = (taps.to_tap - tap) * pass->sources;
        gather(&pass->window, &pass->image, &taps, first, pixels, lines, pass->stride);
        for (int64_t p = 0; p < per_group; p++) {
            const int64_t j = p * TILE_COLUMNS;
            const struct finish finish = {
                1, tap > 0, bias && tap == 0 ? bias + group * pass->targets + j : NULL};
            const float *b = pass->panels + (group * per_group + p) * panel +
                             tap * pass->sources * TILE_COLUMNS;
            for (int64_t i = 0; i < pixels; i += TILE_ROWS)
                multiply_tile(0, least(TILE_ROWS, pixels - i), depth, lines + i * pass->stride,
                              pass->stride, b, TILE_COLUMNS, c + i * c_row + j, c_row,
                              least(TILE_COLUMNS, pass->targets - j), &finish);
        }
        tap += pass->block;
    } while (tap < pass->taps);
}

static void spread(const struct pass *pass, int64_t group, int64_t first, int64_t pixels,
                   const float *from, int64_t row) {
    const struct conv *call = pass->call;
    const struct axis *rows = &pass->window.rows, *columns = &pass->window.columns;
    for (int64_t i = 0; i < pixels; i++) {
        const int64_t pixel = first + i, n = pixel / columns->count / rows->count;
        const int64_t y = rows->start + pixel / columns->count % rows->count * rows->pitch;
        const int64_t x = columns->start + pixel % columns->count * columns->pitch;
        float *to = call->y + ((n * call->out_height + y) * call->out_width + x) * call->out_channels +
                    group * pass->targets;
        for (int64_t k = 0; k < pass->targets; k++) to[k] = from[i * row + k];
    }
}

static void pixels_chunk(void *argument, int64_t chunk, int64_t slot) {
    const struct pass *pass = argument;
    const struct conv *call = pass->call;
    const int64_t all = call->batch * pass->window.rows.count * pass->window.columns.count;
    const int64_t first = chunk * PIXELS, pixels = least(PIXELS, all - first);
    float *lines = pass->lines + slot * pass->per_slot;
    for (int64_t group = 0; group < call->group; group++) {
        if (pass->spread) {
            float *c = lines + PIXELS * pass->stride;
            const int64_t row = pass->targets + LINE_PAD;
            multiply_group(pass, group, first, pixels, lines, c, row);
            spread(pass, group, first, pixels, c, row);
        } else {
            float *c = call->y + first * call->out_channels + group * pass->targets;
            multiply_group(pass, group, first, pixels, lines, c, call->out_channels);
        }
    }
}

static int is_product(const struct conv *call) {
    return call->kernel_height * call->kernel_width * call->group * call->stride_y *
                   call->stride_x == 1 &&
           call->top == 0 && call->left == 0 && call->height == call->out_height &&
           call->width == call->out_width;
}

static void multiply_all(const struct conv *call) {
    const struct product product = {
        .a = call->x, .b = call->w, .bias = call->bias, .c = call->y,
        .m = call->batch * call->height * call->width, .n = call->out_channels, .k = call->channels,
        .a_row = call->channels, .c_row = call->out_channels,
        .b_row = call->backward ? call->out_channels : call->channels,
        .b_turned = !call->backward, .alpha = 1};
    SHARED(multiply)(&product, call->work, call->slots);
}

static void one_residue(const struct conv *call, int64_t y, int64_t x) {
    struct pass pass = {.call = call, .window = window_of(call, y, x), .image = source_image(call)};
    pass.sources = call->channels / call->group;
    pass.targets = call->out_channels / call->group;
    pass.taps = pass.window.rows.taps * pass.window.columns.taps;
    pass.block = most(1, DEPTH / most(1, pass.sources));
    const int64_t deepest = least(call->kernel_height * call->kernel_width, pass.block);
    pass.stride = deepest * pass.sources + LINE_PAD;
    pass.spread = call->backward && call->stride_y * call->stride_x > 1;
    pass.per_slot = PIXELS * (pass.stride + (pass.spread ? pass.targets + LINE_PAD : 0));
    pass.lines = call->work;
    float *panels = call->work + call->slots * pass.per_slot;
    pass.panels = panels;
    SHARED(conv_weights)(call, &pass.window, panels);
    const int64_t all = call->batch * pass.window.rows.count * pass.window.columns.count;
    gt_parallel(parts(all, PIXELS), pixels_chunk, &pass, call->slots);
}

KERNEL(conv)(const struct conv *call) {
    if (is_product(call)) {
        multiply_all(call);
        return;
    }
    const int64_t rows = call->backward ? call->stride_y : 1;
    const int64_t columns = call->backward ? call->stride_x : 1;
    for (int64_t y = 0; y < rows; y++)
        for (int64_t x = 0; x < columns; x++) one_residue(call, y, x);
}
