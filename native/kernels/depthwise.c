/* Depthwise convolution, channels last, one output per channel: y or dx, and dw.
 *
 * y and dx: a vector of channels sums its taps, of some pixels at once where these lie inside;
 * weights are laid out as [tap, channel] before.  dw: a chunk has some vectors of channels, each of
 * which sums over a row of y, tap by tap, and rows in order.
 *
 * Workspace in bytes: 4 taps channels, of y, dx and dw.
 */
#include "conv.h"
#include "pool.h"

#define PIXELS 4
#define VECTORS 2 /* of channels of several pixels, and of dw in a chunk */
#define ALONE 4   /* of one pixel */

struct depthwise_dw {
    const float *x, *dy;
    float *dw, *work;
    int64_t batch, height, width, channels, out_height, out_width, out_channels;
    int64_t kernel_height, kernel_width, stride_y, stride_x, dilation_y, dilation_x, top, left;
    int64_t group, slots;
};

struct pass {
    const struct conv *call;
    struct window window;
    const float *w;
};

/* Vectors of channels of some pixels of a row: all taps in order; the last vector has `count`
 * channels.  Of several pixels all columns that they read are inside. */
INLINE void taps_of_pixels(const struct pass *pass, int64_t n, int64_t row, int64_t column,
                           int64_t channel, int pixels, int vectors, int64_t count, float *to) {
    const struct conv *call = pass->call;
    const struct axis *rows = &pass->window.rows, *columns = &pass->window.columns;
    const int64_t channels = call->channels, apart = columns->stride * channels;
    vec sums[PIXELS * VECTORS];
    for (int p = 0; p < pixels; p++)
        for (int v = 0; v < vectors; v++) {
            const float *bias = call->bias ? call->bias + channel + v * LANES : NULL;
            sums[p * vectors + v] = bias ? load_some(bias, count) : splat(0);
        }
    for (int64_t i = 0; i < rows->taps; i++) {
        const int64_t y = source_of(rows, row, i);
        if (!inside(rows, y)) continue;
        const int64_t a = rows->first + i * rows->step;
        const float *line = call->x + (n * call->height + y) * call->width * channels + channel;
        for (int64_t j = 0; j < columns->taps; j++) {
            const int64_t x = source_of(columns, column, j);
            if (pixels == 1 && !inside(columns, x)) continue;
            const int64_t tap = a * call->kernel_width + columns->first + j * columns->step;
            const float *from = line + x * channels, *w = pass->w + tap * channels + channel;
            for (int p = 0; p < pixels; p++)
                for (int v = 0; v < vectors; v++)
                    sums[p * vectors + v] += load_some(from + p * apart + v * LANES, count) *
                                   load_some(w + v * LANES, count);
        }
    }
    for (int p = 0; p < pixels; p++)
        for (int v = 0; v < vectors; v++)
            store_some(to + p * columns->pitch * channels + v * LANES, sums[p * vectors + v], count);
}

/* All channels of some pixels.  Half a vector is one of its own: many networks end on it. */
INLINE void whole_pixels(const struct pass *pass, int64_t n, int64_t row, int64_t column,
                         int pixels, int vectors, float *to) {
    const int64_t channels = pass->call->channels;
    int64_t c = 0;
    for (; c + vectors * LANES <= channels; c += vectors * LANES)
        taps_of_pixels(pass, n, row, column, c, pixels, vectors, LANES, to + c);
    for (; c + LANES <= channels; c += LANES)
        taps_of_pixels(pass, n, row, column, c, pixels, 1, LANES, to + c);
    if (c + LANES / 2 <= channels) {
        taps_of_pixels(pass, n, row, column, c, pixels, 1, LANES / 2, to + c);
        c += LANES / 2;
    }
    if (c < channels) taps_of_pixels(pass, n, row, column, c, pixels, 1, channels - c, to + c);
}

static void row_chunk(void *argument, int64_t chunk, int64_t slot) {
    const struct pass *pass = argument;
    const struct conv *call = pass->call;
    const struct axis *rows = &pass->window.rows, *columns = &pass->window.columns;
    const struct range inner = interior(columns);
    const int64_t n = chunk / rows->count, row = chunk % rows->count;
    const int64_t y = rows->start + row * rows->pitch;
    (void)slot;
    for (int64_t column = 0, next; column < columns->count; column = next) {
        const int64_t x = columns->start + column * columns->pitch;
        float *to = call->y + ((n * call->out_height + y) * call->out_width + x) * call->channels;
        next = column + PIXELS;
        if (column >= inner.from && next <= inner.to) {
            whole_pixels(pass, n, row, column, PIXELS, VECTORS, to);
        } else {
            whole_pixels(pass, n, row, column, 1, ALONE, to);
            next = column + 1;
        }
    }
}

KERNEL(depthwise)(const struct conv *call) {
    const int64_t taps = call->kernel_height * call->kernel_width;
    for (int64_t c = 0; c < call->channels; c++)
        for (int64_t t = 0; t < taps; t++) call->work[t * call->channels + c] = call->w[c * taps + t];
    const int64_t residues_y = call->backward ? call->stride_y : 1;
    const int64_t residues_x = call->backward ? call->stride_x : 1;
    for (int64_t y = 0; y < residues_y; y++)
        for (int64_t x = 0; x < residues_x; x++) {
            struct pass pass = {call, window_of(call, y, x), call->work};
            gt_parallel(call->batch * pass.window.rows.count, row_chunk, &pass, call->slots);
        }
}

/* One tap of one row of y: the sum over the columns that read inside of x, by four in turn. */
INLINE vec sum_row(const float *x, const float *dy, const struct axis *columns, int64_t tap,
                   int64_t channels, int64_t count) {
    const int64_t start = source_of(columns, 0, tap), stride = columns->stride;
    const int64_t from = start < 0 ? parts(-start, stride) : 0;
    const int64_t to = start < columns->size ? least(columns->count, parts(columns->size - start, stride)) : 0;
    vec sums[4] = {{0}, {0}, {0}, {0}};
    x += start * channels;
    int64_t j = from;
    for (; j + 4 <= to; j += 4)
        for (int64_t k = 0; k < 4; k++)
            sums[k] += load_some(x + (j + k) * stride * channels, count) *
                       load_some(dy + (j + k) * channels, count);
    for (; j < to; j++)
        sums[0] += load_some(x + j * stride * channels, count) * load_some(dy + j * channels, count);
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* Adds what a vector of channels sums over a row of y to its sums of all taps. */
INLINE void add_row(const struct depthwise_dw *call, const struct axis *rows,
                    const struct axis *columns, int64_t n, int64_t row, int64_t c, int64_t count) {
    const int64_t channels = call->channels, taps = call->kernel_height * call->kernel_width;
    const float *dy = call->dy + (n * rows->count + row) * call->out_width * channels + c;
    for (int64_t t = 0; t < taps; t++) {
        const int64_t y = source_of(rows, row, t / call->kernel_width);
        if (!inside(rows, y)) continue;
        const float *x = call->x + (n * call->height + y) * call->width * channels + c;
        float *sums = call->work + t * channels + c;
        const vec sum = sum_row(x, dy, columns, t % call->kernel_width, channels, count);
        store_some(sums, load_some(sums, count) + sum, count);
    }
}

static void channels_chunk(void *argument, int64_t chunk, int64_t slot) {
    const struct depthwise_dw *call = argument;
    const int64_t channels = call->channels, taps = call->kernel_height * call->kernel_width;
    const int64_t from = chunk * VECTORS * LANES, to = least(from + VECTORS * LANES, channels);
    const struct axis rows = forward_axis(call->height, call->out_height, call->kernel_height,
                                          call->stride_y, call->dilation_y, call->top);
    const struct axis columns = forward_axis(call->width, call->out_width, call->kernel_width,
                                             call->stride_x, call->dilation_x, call->left);
    (void)slot;
    for (int64_t t = 0; t < taps; t++)
        for (int64_t c = from; c < to; c++) call->work[t * channels + c] = 0;
    for (int64_t line = 0; line < call->batch * rows.count; line++) {
        const int64_t n = line / rows.count, row = line % rows.count;
        int64_t c = from;
        for (; c + LANES <= to; c += LANES) add_row(call, &rows, &columns, n, row, c, LANES);
        if (c + LANES / 2 <= to) {
            add_row(call, &rows, &columns, n, row, c, LANES / 2);
            c += LANES / 2;
        }
        if (c < to) add_row(call, &rows, &columns, n, row, c, to - c);
    }
    for (int64_t c = from; c < to; c++)
        for (int64_t t = 0; t < taps; t++) call->dw[c * taps + t] = call->work[t * channels + c];
}

KERNEL(depthwise_dw)(const struct depthwise_dw *call) {
    gt_parallel(parts(call->channels, VECTORS * LANES), channels_chunk, (void *)call, call->slots);
}
