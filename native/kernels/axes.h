/* One axis of a convolution, from the side of what is written: y, or dx in each residue of strides.
 *
 * Of the targets `start + j pitch`, j < count, tap `first + i step`, i < taps, reads the source at
 * j stride + offset + i delta, if that is inside `size`.  delta is positive.
 */
#ifndef GRADTOOL_AXES_H
#define GRADTOOL_AXES_H

#include "gradtool.h"

struct axis {
    int64_t start, pitch, count;
    int64_t first, step, taps;
    int64_t stride, offset, delta, size;
};

/* y[j] = sum_a x[j stride + a dilation - pad] w[a] */
INLINE struct axis forward_axis(int64_t source, int64_t target, int64_t kernel, int64_t stride,
                                int64_t dilation, int64_t pad) {
    return (struct axis){0, 1, target, 0, 1, kernel, stride, -pad, dilation, source};
}

/* dx[t] = sum_a dy[(t + pad - a dilation) / stride] w[a], for t = residue modulo stride and those a
 * that leave a whole number; a runs downwards, so that dy runs upwards. */
INLINE struct axis backward_axis(int64_t source, int64_t target, int64_t kernel, int64_t stride,
                                 int64_t dilation, int64_t pad, int64_t residue) {
    struct axis axis = {.start = residue, .pitch = stride, .stride = 1, .size = source, .delta = 1};
    axis.count = residue < target ? parts(target - residue, stride) : 0;
    int64_t last = -1;
    for (int64_t a = 0; a < kernel; a++) {
        if ((residue + pad - a * dilation) % stride != 0) continue;
        if (axis.taps == 1) {
            axis.step = last - a;
            axis.delta = (a - last) * dilation / stride;
        }
        last = a;
        axis.taps++;
    }
    axis.first = last;
    if (axis.taps > 0) axis.offset = (residue + pad - last * dilation) / stride;
    return axis;
}

INLINE int64_t source_of(const struct axis *axis, int64_t j, int64_t i) {
    return j * axis->stride + axis->offset + i * axis->delta;
}

INLINE int inside(const struct axis *axis, int64_t at) { return at >= 0 && at < axis->size; }

#define LONG 24 /* targets of a row that are multiplied where they lie */

/* Columns whose taps are all inside of a row; the others are gathered. */
struct range {
    int64_t from, to;
};

INLINE struct range interior(const struct axis *columns) {
    const int64_t reach = (columns->taps - 1) * columns->delta;
    const int64_t last = columns->size - 1 - reach - columns->offset;
    const int64_t from = columns->offset < 0 ? parts(-columns->offset, columns->stride) : 0;
    const int64_t to = last < 0 ? 0 : least(columns->count, last / columns->stride + 1);
    return (struct range){least(from, columns->count), most(to, from)};
}

#endif
