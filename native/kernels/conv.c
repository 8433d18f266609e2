/* Convolutions of any kernel, stride, dilation and group, channels last: y and dx.
 *
 * For PIXELS targets at a time, what a block of taps reads is gathered into lines, which are
 * multiplied by panels of weights; sums over blocks of taps go on in y.  Where what the taps of a row
 * of the kernel read lies in a row, and rows are long, they are multiplied where they lie, without
 * lines.  A 1 x 1 kernel of stride 1 without pads is one product of matrices.  dx is a convolution of dy for each residue of the
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
    int64_t groups, sources, targets, taps, block, stride, per_slot, spread;
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
                .alpha = 1,
                .beta = tap > 0,
                .bias = bias && tap == 0 ? bias + group * pass->targets + j : NULL};
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
    for (int64_t group = 0; group < pass->groups; group++) {
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

static int by_rows(const struct pass *pass) {
    const struct axis *columns = &pass->window.columns;
    const struct range range = interior(columns);
    return pass->groups == 1 && columns->delta == 1 && !pass->spread && columns->taps > 0 &&
           range.to <= columns->count && range.to - range.from >= LONG;
}

static void multiply_interior(const struct pass *pass, int64_t n, int64_t row, struct range range,
                              float *c) {
    const struct conv *call = pass->call;
    const struct axis *rows = &pass->window.rows, *columns = &pass->window.columns;
    const int64_t line = columns->size * pass->sources, run = columns->taps * pass->sources;
    int64_t first = 0, end = rows->taps;
    while (first < end && !inside(rows, source_of(rows, row, first))) first++;
    while (end > first && !inside(rows, source_of(rows, row, end - 1))) end--;
    const int64_t x = source_of(columns, range.from, 0), step = columns->stride * pass->sources;
    const float *a = call->x + (n * rows->size + source_of(rows, row, first)) * line + x * pass->sources;
    const int64_t depth = first < end ? run : 0, panel = pass->taps * pass->sources;
    for (int64_t j = 0; j < pass->targets; j += TILE_COLUMNS) {
        const struct finish finish = {.alpha = 1,
                                      .bias = call->bias ? call->bias + j : NULL,
                                      .more = most(0, end - first - 1),
                                      .a_jump = rows->delta * line - run};
        const float *b = pass->panels + j * panel + first * run * TILE_COLUMNS;
        for (int64_t i = range.from; i < range.to; i += TILE_ROWS)
            multiply_tile(0, least(TILE_ROWS, range.to - i), depth, a + (i - range.from) * step, step,
                          b, TILE_COLUMNS, c + i * call->out_channels + j, call->out_channels,
                          least(TILE_COLUMNS, pass->targets - j), &finish);
    }
}

static void row_chunk(void *argument, int64_t chunk, int64_t slot) {
    const struct pass *pass = argument;
    const struct axis *rows = &pass->window.rows;
    const int64_t width = pass->window.columns.count, channels = pass->call->out_channels;
    const struct range range = interior(&pass->window.columns);
    float *lines = pass->lines + slot * pass->per_slot;
    float *c = pass->call->y + chunk * width * channels;
    multiply_interior(pass, chunk / rows->count, chunk % rows->count, range, c);
    for (int64_t j = 0; j < width;) {
        if (j == range.from) j = range.to;
        const int64_t end = j < range.from ? range.from : width, pixels = least(PIXELS, end - j);
        if (pixels > 0)
            multiply_group(pass, 0, chunk * width + j, pixels, lines, c + j * channels, channels);
        j += pixels;
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
    const int64_t merged =
        merged_groups(call->group, call->channels / call->group, call->out_channels / call->group);
    pass.groups = call->group / merged;
    pass.sources = call->channels / pass.groups;
    pass.targets = call->out_channels / pass.groups;
    pass.taps = pass.window.rows.taps * pass.window.columns.taps;
    pass.block = most(1, DEPTH / most(1, pass.sources));
    const int64_t deepest = least(call->kernel_height * call->kernel_width, pass.block);
    pass.stride = deepest * pass.sources + LINE_PAD;
    pass.spread = call->backward && call->stride_y * call->stride_x > 1;
    pass.per_slot = PIXELS * (pass.stride + (pass.spread ? pass.targets + LINE_PAD : 0));
    pass.lines = call->work;
    float *panels = call->work + call->slots * pass.per_slot;
    pass.panels = panels;
    SHARED(conv_weights)(call, &pass.window, merged, panels);
    const int64_t all = call->batch * pass.window.rows.count * pass.window.columns.count;
    if (by_rows(&pass))
        gt_parallel(call->batch * pass.window.rows.count, row_chunk, &pass, call->slots);
    else
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
