/* Lines of what a convolution reads: for each target pixel, its taps of a group's channels.
 *
 * A line is [tap, channel] for the taps `from_tap` to `to_tap`, counted through rows of the kernel,
 * and the channels `from` to `to` of the image; what lies outside of it is zero.  Up to LANES floats
 * after a line are written: lines are PAD floats longer than what they hold, and come in order.
 */
#ifndef GRADTOOL_GATHER_H
#define GRADTOOL_GATHER_H

#include "axes.h"

#define LINE_PAD 16

struct image {
    const float *at, *end;
    int64_t channels;
};

struct window {
    struct axis rows, columns;
};

struct taps {
    int64_t from_tap, to_tap, from, to;
};

/* n floats, where whole vectors fit before the end of the image. */
INLINE void copy_run(float *to, const float *from, int64_t n, const float *end) {
    int64_t i = 0;
    if (rounded_up(n, LANES) <= end - from)
        for (; i < n; i += LANES) store(to + i, load(from + i));
    for (; i < n; i++) to[i] = from[i];
}

INLINE void zero_run(float *to, int64_t n) {
    for (int64_t i = 0; i < n; i += LANES) store(to + i, splat(0));
}

INLINE void gather_pixel(const struct window *window, const struct image *image,
                         const struct taps *taps, int64_t n, int64_t row, int64_t column,
                         float *line) {
    const struct axis *rows = &window->rows, *columns = &window->columns;
    const int64_t channels = taps->to - taps->from;
    const int whole = columns->delta == 1 && channels == image->channels;
    int64_t tap = taps->from_tap;
    while (tap < taps->to_tap) {
        const int64_t b = tap % columns->taps, y = source_of(rows, row, tap / columns->taps);
        const int64_t run = whole ? least(columns->taps - b, taps->to_tap - tap) : 1;
        const int64_t x = source_of(columns, column, b);
        /* Of the run, the taps before `left` and from `right` on lie outside. */
        int64_t left = run, right = run;
        if (inside(rows, y)) {
            left = least(run, most(0, -x));
            right = most(left, least(run, columns->size - x));
        }
        if (left > 0) zero_run(line, left * channels);
        if (right > left) {
            const int64_t pixel = (n * rows->size + y) * columns->size + x + left;
            copy_run(line + left * channels, image->at + pixel * image->channels + taps->from,
                     (right - left) * channels, image->end);
        }
        if (run > right) zero_run(line + right * channels, (run - right) * channels);
        line += run * channels;
        tap += run;
    }
}

/* Pixels first to first + count of the targets, in order of image, row and column. */
INLINE void gather(const struct window *window, const struct image *image, const struct taps *taps,
                   int64_t first, int64_t count, float *lines, int64_t stride) {
    const int64_t width = window->columns.count, height = window->rows.count;
    for (int64_t i = 0; i < count; i++) {
        const int64_t pixel = first + i;
        gather_pixel(window, image, taps, pixel / width / height, pixel / width % height,
                     pixel % width, lines + i * stride);
    }
}

#endif
