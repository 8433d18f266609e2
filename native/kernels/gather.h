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
                         const struct taps *taps, int64_t n, int64_t row, int64_t column, int64_t i,
                         int64_t b, float *line) {
    const struct axis *rows = &window->rows, *columns = &window->columns;
    const int64_t channels = taps->to - taps->from;
    const int whole = columns->delta == 1 && channels == image->channels;
    const float *from = image->at + n * rows->size * columns->size * image->channels + taps->from;
    int64_t left_over = taps->to_tap - taps->from_tap;
    while (left_over > 0) {
        const int64_t y = source_of(rows, row, i), x = source_of(columns, column, b);
        const int64_t run = whole ? least(columns->taps - b, left_over) : 1;
        /* Of the run, the taps before `left` and from `right` on lie outside. */
        int64_t left = run, right = run;
        if (inside(rows, y)) {
            left = least(run, most(0, -x));
            right = most(left, least(run, columns->size - x));
        }
        if (left > 0) zero_run(line, left * channels);
        if (right > left)
            copy_run(line + left * channels, from + (y * columns->size + x + left) * image->channels,
                     (right - left) * channels, image->end);
        if (run > right) zero_run(line + right * channels, (run - right) * channels);
        line += run * channels;
        left_over -= run;
        b += run;
        if (b == columns->taps) b = 0, i++;
    }
}

/* Pixels first to first + count of the targets, in order of image, row and column. */
INLINE void gather(const struct window *window, const struct image *image, const struct taps *taps,
                   int64_t first, int64_t count, float *lines, int64_t stride) {
    if (taps->to_tap == taps->from_tap) return;
    const int64_t width = window->columns.count, height = window->rows.count;
    const int64_t i = taps->from_tap / window->columns.taps, b = taps->from_tap % window->columns.taps;
    int64_t column = first % width, row = first / width % height, n = first / width / height;
    for (int64_t pixel = 0; pixel < count; pixel++) {
        gather_pixel(window, image, taps, n, row, column, i, b, lines + pixel * stride);
        if (++column == width) {
            column = 0;
            if (++row == height) row = 0, n++;
        }
    }
}

#endif
