/* The weights' gradient of a convolution whose rows are long: x is multiplied where it lies.
 *
 * One chunk is a row of the kernel, a block of what its taps read of a row of x, and a block of
 * outputs.  For a few rows of y at a time, the rows of x that they read, turned, are multiplied by
 * them: the columns whose taps are all inside directly, the others by gathered lines.  Sums are
 * [tap, input, output], over images and rows in order; outputs are whole vectors.
 * Workspace: that of conv_dw.c, whose lines hold at least a row's edges.
 */
#include "conv_dw.h"
#include "pool.h"
#include "tiles.h"

#define COLUMNS 84   /* of a row's run: whole tiles of x86-64 */
#define OUTPUTS 96   /* whole tiles */
#define TOGETHER 512 /* pixels of rows at a time */

struct part {
    const struct dw_pass *pass;
    int64_t tap_row, column, columns, m, outputs; /* of the sums: a part of a row's run, outputs */
    float *lines;
    int started;
};

/* Of a: `count` rows of `depth` pixels, from one to the next `row` floats, and after a row `jump`. */
static void add(struct part *part, int64_t pixel, int64_t depth, int64_t count, const float *a,
                int64_t row, int64_t jump) {
    const struct dw_pass *pass = part->pass;
    const int64_t channels = pass->call->out_channels;
    const int64_t run = pass->window.columns.taps * pass->inputs;
    const struct finish finish = {.alpha = 1,
                                  .beta = part->started,
                                  .more = count - 1,
                                  .a_jump = jump,
                                  .b_jump = (pass->call->out_width - depth) * channels};
    float *sums = pass->sums + (part->tap_row * run + part->column) * channels + part->m;
    const float *dy = pass->call->dy + pixel * channels + part->m;
    for (int64_t j = 0; j < part->outputs; j += TILE_COLUMNS)
        for (int64_t i = 0; i < part->columns; i += TILE_ROWS)
            multiply_tile(1, least(TILE_ROWS, part->columns - i), depth, a + i, row, dy + j, channels,
                          sums + i * channels + j, channels, least(TILE_COLUMNS, part->outputs - j),
                          &finish);
    part->started = 1;
}

/* Columns `from` to `to` of some rows of one image, by lines of all taps of the kernel's row. */
static void add_edge(struct part *part, int64_t n, int64_t first, int64_t count, int64_t from,
                     int64_t to) {
    const struct dw_pass *pass = part->pass;
    const struct axis *rows = &pass->window.rows, *columns = &pass->window.columns;
    const int64_t stride = columns->taps * pass->inputs + LINE_PAD;
    const struct taps taps = {0, columns->taps, 0, pass->inputs};
    const int64_t widest = least(PIXELS, to - from);
    for (int64_t x = from; x < to; x += widest) {
        const int64_t width = least(widest, to - x), together = PIXELS / width;
        for (int64_t row = first; row < first + count; row += together) {
            const int64_t many = least(together, first + count - row);
            for (int64_t i = 0; i < many * width; i++)
                gather_pixel(&pass->window, &pass->image, &taps, n, row + i / width, x + i % width,
                             part->tap_row, 0, part->lines + i * stride);
            add(part, (n * rows->count + row) * columns->count + x, width, many,
                part->lines + part->column, stride, 0);
        }
    }
}

static void add_rows(struct part *part, int64_t n, int64_t first, int64_t count) {
    const struct dw_pass *pass = part->pass;
    const struct axis *rows = &pass->window.rows, *columns = &pass->window.columns;
    const struct range range = interior(columns);
    const int64_t line = columns->size * pass->inputs, step = columns->stride * pass->inputs;
    const int64_t x = source_of(columns, range.from, 0) * pass->inputs + part->column;
    const int64_t depth = range.to - range.from, y = source_of(rows, first, part->tap_row);
    const float *a = pass->image.at + (n * rows->size + y) * line + x;
    add(part, (n * rows->count + first) * columns->count + range.from, depth, count, a, step,
        rows->stride * line - depth * step);
    add_edge(part, n, first, count, 0, range.from);
    add_edge(part, n, first, count, range.to, columns->count);
}

static void rows_chunk(void *argument, int64_t chunk, int64_t slot) {
    const struct dw_pass *pass = argument;
    const struct axis *rows = &pass->window.rows, *columns = &pass->window.columns;
    const int64_t run = columns->taps * pass->inputs, blocks = parts(run, COLUMNS);
    const int64_t stride = run + LINE_PAD, output_blocks = parts(pass->outputs, OUTPUTS);
    struct part part = {.pass = pass, .m = chunk % output_blocks * OUTPUTS};
    part.outputs = least(OUTPUTS, pass->outputs - part.m);
    chunk /= output_blocks;
    part.column = chunk % blocks * COLUMNS;
    part.columns = least(COLUMNS, run - part.column);
    part.tap_row = chunk / blocks;
    part.lines = pass->lines + slot * PIXELS * stride;
    int64_t from = 0, to = rows->count;
    while (from < to && !inside(rows, source_of(rows, from, part.tap_row))) from++;
    while (to > from && !inside(rows, source_of(rows, to - 1, part.tap_row))) to--;
    const int64_t together = most(1, TOGETHER / columns->count);
    for (int64_t n = 0; n < pass->call->batch; n++)
        for (int64_t row = from; row < to; row += together)
            add_rows(&part, n, row, least(together, to - row));
    if (!part.started) add(&part, 0, 0, 1, pass->image.at, 0, 0); /* zeros */
}

/* dw[output, input, tap] of the sums of a vector of outputs. */
static void order_chunk(void *argument, int64_t chunk, int64_t slot) {
    const struct dw_pass *pass = argument;
    const int64_t o = chunk * LANES, outputs = pass->outputs, size = pass->inputs * pass->taps;
    (void)slot;
    for (int64_t c = 0; c < pass->inputs; c++)
        for (int64_t t = 0; t < pass->taps; t++) {
            const float *from = pass->sums + (t * pass->inputs + c) * outputs + o;
            float *to = pass->call->dw + o * size + c * pass->taps + t;
            for (int64_t l = 0; l < LANES; l++) to[l * size] = from[l];
        }
}

int SHARED(conv_dw_rows)(const struct dw_pass *pass) {
    const struct conv_dw *call = pass->call;
    const struct axis *columns = &pass->window.columns;
    const struct range range = interior(columns);
    if (call->group != 1 || columns->delta != 1 || range.to > columns->count ||
        range.to - range.from < LONG || pass->outputs % 16 != 0)
        return 0;
    const int64_t blocks = parts(columns->taps * pass->inputs, COLUMNS);
    gt_parallel(pass->window.rows.taps * blocks * parts(pass->outputs, OUTPUTS), rows_chunk,
                (void *)pass, call->slots);
    gt_parallel(pass->outputs / LANES, order_chunk, (void *)pass, call->slots);
    return 1;
}
