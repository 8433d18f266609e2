/* Largest and average values of windows, channels last, and their gradients.
 *
 * max: y, and `places`, where in its plane of x it lies: the first of several, the last NaN before
 * all.  Places take 1, 2 or 4 bytes.
 * average: over what lies inside of the image, or with `padded` inside of its pads, too.
 * Gradients go by pixels of x, each of which asks the windows that it is in: no two threads write
 * one place, and sums run over windows in order.  Workspace: none.
 */
#include "axes.h"
#include "pool.h"

/* Forward reads x and writes y and places (NULL where nobody asks); backward reads y as dy, and places,
 * and writes x as dx. */
struct pooling {
    float *x, *y;
    void *places; /* of max */
    int64_t batch, height, width, channels, out_height, out_width;
    int64_t kernel_height, kernel_width, stride_y, stride_x, dilation_y, dilation_x;
    int64_t top, left, bottom, right, padded, bytes, slots;
};

INLINE struct axis rows_of(const struct pooling *call) {
    return forward_axis(call->height, call->out_height, call->kernel_height, call->stride_y,
                        call->dilation_y, call->top);
}

INLINE struct axis columns_of(const struct pooling *call) {
    return forward_axis(call->width, call->out_width, call->kernel_width, call->stride_x,
                        call->dilation_x, call->left);
}

typedef uint8_t bytes_at __attribute__((vector_size(LANES), aligned(1), may_alias));
typedef uint16_t shorts_at __attribute__((vector_size(2 * LANES), aligned(1), may_alias));

INLINE ivec load_places(const struct pooling *call, int64_t at, int64_t count) {
    const char *from = (const char *)call->places + at * call->bytes;
    char lanes[4 * LANES] = {0};
    if (count < LANES) {
        for (int64_t i = 0; i < count * call->bytes; i++) lanes[i] = from[i];
        from = lanes;
    }
    if (call->bytes == 1) return __builtin_convertvector(*(const bytes_at *)from, ivec);
    if (call->bytes == 2) return __builtin_convertvector(*(const shorts_at *)from, ivec);
    return *(const ivec_at *)from;
}

INLINE void store_places(const struct pooling *call, ivec places, int64_t at, int64_t count) {
    char *to = (char *)call->places + at * call->bytes;
    char lanes[4 * LANES], *whole = count < LANES ? lanes : to;
    if (call->bytes == 1)
        *(bytes_at *)whole = __builtin_convertvector(places, bytes_at);
    else if (call->bytes == 2)
        *(shorts_at *)whole = __builtin_convertvector(places, shorts_at);
    else
        *(ivec_at *)whole = places;
    if (count < LANES)
        for (int64_t i = 0; i < count * call->bytes; i++) to[i] = lanes[i];
}

INLINE void max_pixel(const struct pooling *call, int64_t n, int64_t row, int64_t column, int64_t c,
                      int64_t count) {
    const struct axis rows = rows_of(call), columns = columns_of(call);
    vec best = splat(-__builtin_inff());
    ivec places = {0};
    int found = 0;
    for (int64_t i = 0; i < rows.taps; i++) {
        const int64_t y = source_of(&rows, row, i);
        if (!inside(&rows, y)) continue;
        for (int64_t j = 0; j < columns.taps; j++) {
            const int64_t x = source_of(&columns, column, j);
            if (!inside(&columns, x)) continue;
            const vec value = load_some(
                call->x + ((n * call->height + y) * call->width + x) * call->channels + c, count);
            const ivec place = (ivec){0} + (int32_t)(y * call->width + x);
            const ivec better = found ? (value > best) | (value != value) : (ivec){0} - 1;
            best = choose(better, value, best);
            places = (better & place) | (~better & places);
            found = 1;
        }
    }
    const int64_t at = ((n * call->out_height + row) * call->out_width + column) * call->channels + c;
    if (call->y) store_some(call->y + at, best, count);
    if (call->places) store_places(call, places, at, count);
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
    const int64_t high = rows->start + row * rows->pitch;
    const int64_t wide = columns->start + column * columns->pitch;
    const ivec here = (ivec){0} + (int32_t)(high * call->width + wide);
    vec sum = splat(0);
    for (int64_t i = 0; i < rows->taps; i++) {
        const int64_t y = source_of(rows, row, i);
        if (!inside(rows, y)) continue;
        for (int64_t j = 0; j < columns->taps; j++) {
            const int64_t x = source_of(columns, column, j);
            if (!inside(columns, x)) continue;
            const int64_t at = ((n * call->out_height + y) * call->out_width + x) * call->channels + c;
            const vec dy = load_some(call->y + at, count);
            sum += max ? choose(load_places(call, at, count) == here, dy, splat(0))
                       : dy * share(call, &down, &across, y, x);
        }
    }
    store_some(call->x + ((n * call->height + high) * call->width + wide) * call->channels + c, sum,
               count);
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
