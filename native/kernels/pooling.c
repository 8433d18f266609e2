/* Largest and average values of windows, channels last, and their gradients.
 *
 * max: y, and `taken`, the number of the tap that is it: the first of several, a NaN before all.
 * average: over what lies inside of the image, or with `padded` inside of its pads, too.
 * Gradients go by pixels of x, each of which asks the windows that it is in: no two threads write
 * one place, and sums run over windows in order.  Workspace: none.
 */
#include "axes.h"
#include "pool.h"

/* Forward reads x and writes y and taken (NULL if nobody asks); backward reads y and taken as dy
 * and taken, and writes x as dx. */
struct pooling {
    float *x, *y;
    int32_t *taken; /* of max */
    int64_t batch, height, width, channels, out_height, out_width;
    int64_t kernel_height, kernel_width, stride_y, stride_x, dilation_y, dilation_x;
    int64_t top, left, bottom, right, padded, slots;
};

INLINE struct axis rows_of(const struct pooling *call) {
    return forward_axis(call->height, call->out_height, call->kernel_height, call->stride_y,
                        call->dilation_y, call->top);
}

INLINE struct axis columns_of(const struct pooling *call) {
    return forward_axis(call->width, call->out_width, call->kernel_width, call->stride_x,
                        call->dilation_x, call->left);
}

INLINE ivec load_taken(const int32_t *at, int64_t count) {
    return (ivec)load_some((const float *)at, count);
}

INLINE void max_pixel(const struct pooling *call, int64_t n, int64_t row, int64_t column, int64_t c,
                      int64_t count) {
    const struct axis rows = rows_of(call), columns = columns_of(call);
    vec best = splat(-__builtin_inff());
    ivec taken = {0};
    int found = 0;
    for (int64_t i = 0; i < rows.taps; i++) {
        const int64_t y = source_of(&rows, row, i);
        if (!inside(&rows, y)) continue;
        for (int64_t j = 0; j < columns.taps; j++) {
            const int64_t x = source_of(&columns, column, j);
            if (!inside(&columns, x)) continue;
            const vec value = load_some(
                call->x + ((n * call->height + y) * call->width + x) * call->channels + c, count);
            const ivec tap = (ivec){0} + (int32_t)(i * columns.taps + j);
            const ivec better =
                found ? (value > best) | ((value != value) & (best == best)) : (ivec){0} - 1;
            best = choose(better, value, best);
            taken = (better & tap) | (~better & taken);
            found = 1;
        }
    }
    const int64_t at = ((n * call->out_height + row) * call->out_width + column) * call->channels + c;
    store_some(call->y + at, best, count);
    if (call->taken) store_some((float *)call->taken + at, (vec)taken, count);
}

/* 1 / the places of a window. */
INLINE float share(const struct pooling *call, const struct axis *rows, const struct axis *columns,
                   int64_t row, int64_t column) {
    const int64_t up = call->padded ? call->top : 0, down = call->padded ? call->bottom : 0;
    const int64_t before = call->padded ? call->left : 0, after = call->padded ? call->right : 0;
    int64_t high = 0, wide = 0;
    for (int64_t i = 0; i < rows->taps; i++) {
        const int64_t y = source_of(rows, row, i);
        high += y >= -up && y < rows->size + down;
    }
    for (int64_t j = 0; j < columns->taps; j++) {
        const int64_t x = source_of(columns, column, j);
        wide += x >= -before && x < columns->size + after;
    }
    return 1.0f / (float)most(1, high * wide);
}

INLINE void average_pixel(const struct pooling *call, int64_t n, int64_t row, int64_t column,
                          int64_t c, int64_t count) {
    const struct axis rows = rows_of(call), columns = columns_of(call);
    vec sum = splat(0);
    for (int64_t i = 0; i < rows.taps; i++) {
        const int64_t y = source_of(&rows, row, i);
        vec line = splat(0);
        if (!inside(&rows, y)) continue;
        for (int64_t j = 0; j < columns.taps; j++) {
            const int64_t x = source_of(&columns, column, j);
            if (inside(&columns, x))
                line += load_some(
                    call->x + ((n * call->height + y) * call->width + x) * call->channels + c, count);
        }
        sum += line;
    }
    const int64_t at = ((n * call->out_height + row) * call->out_width + column) * call->channels + c;
    store_some(call->y + at, sum * share(call, &rows, &columns, row, column), count);
}

/* `rows` and `columns` are those of what x was read by: backward axes, windows upwards. */
INLINE void gradient_pixel(const struct pooling *call, int max, const struct axis *rows,
                           const struct axis *columns, int64_t n, int64_t row, int64_t column,
                           int64_t c, int64_t count) {
    const struct axis down = rows_of(call), across = columns_of(call);
    vec sum = splat(0);
    for (int64_t i = 0; i < rows->taps; i++) {
        const int64_t y = source_of(rows, row, i), a = rows->first + i * rows->step;
        if (!inside(rows, y)) continue;
        for (int64_t j = 0; j < columns->taps; j++) {
            const int64_t x = source_of(columns, column, j), b = columns->first + j * columns->step;
            if (!inside(columns, x)) continue;
            const int64_t at = ((n * call->out_height + y) * call->out_width + x) * call->channels + c;
            const vec dy = load_some(call->y + at, count);
            const ivec tap = (ivec){0} + (int32_t)(a * call->kernel_width + b);
            sum += max ? choose(load_taken(call->taken + at, count) == tap, dy, splat(0))
                       : dy * share(call, &down, &across, y, x);
        }
    }
    const int64_t y = rows->start + row * rows->pitch, x = columns->start + column * columns->pitch;
    store_some(call->x + ((n * call->height + y) * call->width + x) * call->channels + c, sum, count);
}

/* One row of dx: its pixels by residue of the stride, which are in the windows of the same taps. */
INLINE void gradient_row(const struct pooling *call, int max, int64_t line) {
    const int64_t n = line / call->height, y = line % call->height, channels = call->channels;
    const struct axis rows =
        backward_axis(call->out_height, call->height, call->kernel_height, call->stride_y,
                      call->dilation_y, call->top, y % call->stride_y);
    for (int64_t residue = 0; residue < call->stride_x; residue++) {
        const struct axis columns =
            backward_axis(call->out_width, call->width, call->kernel_width, call->stride_x,
                          call->dilation_x, call->left, residue);
        for (int64_t column = 0; column < columns.count; column++) {
            int64_t c = 0;
            for (; c + LANES <= channels; c += LANES)
                gradient_pixel(call, max, &rows, &columns, n, y / call->stride_y, column, c, LANES);
            if (c < channels)
                gradient_pixel(call, max, &rows, &columns, n, y / call->stride_y, column, c,
                               channels - c);
        }
    }
}

#define EACH_VECTOR(width, body)                                                                  \
    const struct pooling *call = argument;                                                        \
    (void)slot;                                                                                   \
    for (int64_t column = 0; column < (width); column++) {                                        \
        int64_t c = 0;                                                                            \
        for (; c + LANES <= call->channels; c += LANES) body(LANES);                              \
        if (c < call->channels) body(call->channels - c);                                         \
    }

static void max_chunk(void *argument, int64_t chunk, int64_t slot) {
#define BODY(count)                                                                               \
    max_pixel(call, chunk / call->out_height, chunk % call->out_height, column, c, count)
    EACH_VECTOR(call->out_width, BODY)
#undef BODY
}

static void average_chunk(void *argument, int64_t chunk, int64_t slot) {
#define BODY(count)                                                                               \
    average_pixel(call, chunk / call->out_height, chunk % call->out_height, column, c, count)
    EACH_VECTOR(call->out_width, BODY)
#undef BODY
}

static void max_gradient_chunk(void *argument, int64_t line, int64_t slot) {
    (void)slot;
    gradient_row(argument, 1, line);
}

static void average_gradient_chunk(void *argument, int64_t line, int64_t slot) {
    (void)slot;
    gradient_row(argument, 0, line);
}

KERNEL(max_pool)(const struct pooling *call) {
    gt_parallel(call->batch * call->out_height, max_chunk, (void *)call, call->slots);
}

KERNEL(average_pool)(const struct pooling *call) {
    gt_parallel(call->batch * call->out_height, average_chunk, (void *)call, call->slots);
}

KERNEL(max_pool_dx)(const struct pooling *call) {
    gt_parallel(call->batch * call->height, max_gradient_chunk, (void *)call, call->slots);
}

KERNEL(average_pool_dx)(const struct pooling *call) {
    gt_parallel(call->batch * call->height, average_gradient_chunk, (void *)call, call->slots);
}
