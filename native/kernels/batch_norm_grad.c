/* The gradient of batch normalisation in training, with that of ReLU and a residual before it.
 *
 *     d = relu ? dy where y is positive : dy      dresidual = d
 *     dbias = sum d          dscale = rstd sum d (x - mean)
 *     dx = scale rstd (d - dbias / n - (x - mean) rstd dscale / n)
 *
 * `y` is NULL without ReLU; `mean` and `rstd` are NULL where they are to be computed again.  Each
 * output may be NULL; dx or dresidual may be dy, and dx may be x.
 * Source: gradtool's numpy kernels.  Workspace in floats, with c = channels rounded up to 16:
 * 5 c, and 2 c (parts + slots) for channels last.
 */
#include "activations.h"
#include "channels.h"
#include "pool.h"

#define CHUNK 16384 /* floats */
#define BLOCK 4096  /* floats whose sums stay in registers */

struct batch_norm_grad {
    const float *x, *scale, *mean, *rstd, *dy, *y;
    float *dx, *dscale, *dbias, *dresidual, *work;
    int64_t images, channels, pixels, last, slots;
    double epsilon;
};

/* Rows of a number per channel: dx = (d - SHIFT - (x - MEAN) SLOPE) FACTOR. */
enum { MEAN, RSTD, SHIFT, SLOPE, FACTOR, ROWS };

INLINE struct images images_of(const struct batch_norm_grad *call) {
    return (struct images){call->images, call->channels, call->pixels, call->slots};
}

INLINE float *row_of(const struct batch_norm_grad *call, int row) {
    return call->work + row * channel_room(call->channels);
}

INLINE vec given(const struct batch_norm_grad *call, int64_t at, int64_t i, int64_t n) {
    const vec dy = load_left(call->dy + at, i, n, 0);
    return call->y ? relu_grad(load_left(call->y + at, i, n, 1), dy) : dy;
}

INLINE void write(const struct batch_norm_grad *call, int64_t at, int64_t i, int64_t n, vec mean,
                  vec shift, vec slope, vec factor) {
    const vec d = given(call, at, i, n);
    const vec c = call->dx ? load_left(call->x + at, i, n, 0) - mean : d;
    if (call->dresidual) store_left(call->dresidual + at, d, i, n);
    if (call->dx) store_left(call->dx + at, (d - shift - c * slope) * factor, i, n);
}

/* From the sums of d and of d (x - mean) of a channel. */
static void settle(const struct batch_norm_grad *call, int64_t c, float sum, float product) {
    const float count = (float)(call->images * call->pixels), rstd = row_of(call, RSTD)[c];
    if (call->dbias) call->dbias[c] = sum;
    if (call->dscale) call->dscale[c] = count > 0 ? product * rstd : 0;
    row_of(call, SHIFT)[c] = sum / count;
    row_of(call, SLOPE)[c] = product * rstd / count * rstd;
    row_of(call, FACTOR)[c] = call->scale ? call->scale[c] * rstd : rstd;
}

static void one_channel(void *argument, int64_t c, int64_t slot) {
    const struct batch_norm_grad *call = argument;
    const struct images images = images_of(call);
    const int64_t n = call->pixels;
    double sum = 0, product = 0;
    (void)slot;
    if (call->rstd) {
        row_of(call, MEAN)[c] = call->mean[c], row_of(call, RSTD)[c] = call->rstd[c];
    } else {
        const struct moments found = plane_moments(call->x, &images, c);
        row_of(call, MEAN)[c] = (float)found.mean;
        row_of(call, RSTD)[c] = inverse_root(found.squares / found.count, call->epsilon);
    }
    const vec mean = splat(row_of(call, MEAN)[c]);
    for (int64_t image = 0; image < call->images; image++) {
        const int64_t at = (image * call->channels + c) * n;
        for (int64_t from = 0; from < n; from += TOGETHER) {
            const int64_t end = least(n, from + TOGETHER);
            vec sums = splat(0), products = splat(0);
            for (int64_t i = from; i < end; i += LANES) {
                const vec d = given(call, at, i, n);
                sums += d;
                products += d * (load_left(call->x + at, i, n, 0) - mean);
            }
            sum += sum_lanes(sums), product += sum_lanes(products);
        }
    }
    settle(call, c, (float)sum, (float)product);
    if (!call->dx && !call->dresidual) return;
    const vec shift = splat(row_of(call, SHIFT)[c]), slope = splat(row_of(call, SLOPE)[c]);
    const vec factor = splat(row_of(call, FACTOR)[c]);
    for (int64_t image = 0; image < call->images; image++)
        for (int64_t i = 0; i < n; i += LANES)
            write(call, (image * call->channels + c) * n, i, n, mean, shift, slope, factor);
}

/* Add the sums over some rows of d and of d (x - mean), of `vectors` vectors from channel j on.
 *
 * The sum of dx is that of d less as much: its last bits count. */
INLINE void add_strip(const struct batch_norm_grad *call, int64_t first, int64_t end, float *sums,
                      float *products, int64_t j, int vectors) {
    const int64_t n = call->channels;
    const float *mean = row_of(call, MEAN);
    vec sum[2], product[2], excess[2];
    for (int v = 0; v < vectors; v++) sum[v] = product[v] = excess[v] = splat(0);
    for (int64_t from = first; from < end; from += BRIEF) {
        vec brief[2] = {splat(0), splat(0)};
        for (int64_t at = from * n; at < least(end, from + BRIEF) * n; at += n)
            for (int v = 0; v < vectors; v++) {
                const int64_t i = j + v * LANES;
                const vec d = given(call, at, i, n);
                brief[v] += d;
                product[v] += d * (load_left(call->x + at, i, n, 0) - load(mean + i));
            }
        for (int v = 0; v < vectors; v++) add_exactly(&sum[v], &excess[v], brief[v]);
    }
    for (int v = 0; v < vectors; v++) {
        store(sums + j + v * LANES, load(sums + j + v * LANES) + sum[v]);
        store(products + j + v * LANES, load(products + j + v * LANES) + product[v]);
    }
}

static void one_part(void *argument, int64_t part, int64_t slot) {
    const struct batch_norm_grad *call = argument;
    const struct images images = images_of(call);
    const int64_t n = call->channels, room = channel_room(n), size = rows_of_part(&images);
    const int64_t end = least(call->images * call->pixels, (part + 1) * size);
    const int64_t rows = most(4, BLOCK / n);
    float *sums = row_of(call, ROWS) + 2 * part * room, *products = sums + room;
    (void)slot;
    for (int64_t j = 0; j < 2 * room; j++) sums[j] = 0;
    for (int64_t r = part * size; r < end; r += rows) {
        const int64_t last = least(end, r + rows);
        int64_t j = 0;
        for (; j + 2 * LANES <= n; j += 2 * LANES) add_strip(call, r, last, sums, products, j, 2);
        for (; j < n; j += LANES) add_strip(call, r, last, sums, products, j, 1);
    }
}

static int64_t rows_at_once(const struct batch_norm_grad *call) {
    return most(1, CHUNK / call->channels);
}

static void some_rows(void *argument, int64_t chunk, int64_t slot) {
    const struct batch_norm_grad *call = argument;
    const int64_t n = call->channels, rows = rows_at_once(call);
    /* From the last rows on: those are in cache. */
    const int64_t all = call->images * call->pixels, part = parts(all, rows) - 1 - chunk;
    const int64_t end = least(all, (part + 1) * rows);
    const float *mean = row_of(call, MEAN), *shift = row_of(call, SHIFT);
    const float *slope = row_of(call, SLOPE), *factor = row_of(call, FACTOR);
    (void)slot;
    for (int64_t at = part * rows * n; at < end * n; at += n)
        for (int64_t j = 0; j < n; j += LANES)
            write(call, at, j, n, load(mean + j), load(shift + j), load(slope + j),
                  load(factor + j));
}

static void channels_last(const struct batch_norm_grad *call) {
    const struct images images = images_of(call);
    const int64_t n = call->channels, room = channel_room(n), count = parts_of(&images);
    float *sums = row_of(call, ROWS);
    if (!call->rstd)
        SHARED(channel_statistics)(call->x, &images, row_of(call, MEAN), row_of(call, RSTD), sums);
    for (int64_t c = 0; c < n; c++) {
        row_of(call, MEAN)[c] = call->rstd ? call->mean[c] : row_of(call, MEAN)[c];
        row_of(call, RSTD)[c] = call->rstd ? call->rstd[c]
                                           : inverse_root(row_of(call, RSTD)[c], call->epsilon);
    }
    gt_parallel(count, one_part, (void *)call, call->slots);
    for (int64_t c = 0; c < n; c++) {
        double sum = 0, product = 0;
        for (int64_t part = 0; part < count; part++) {
            sum += sums[2 * part * room + c];
            product += sums[(2 * part + 1) * room + c];
        }
        settle(call, c, (float)sum, (float)product);
    }
    if (call->dx || call->dresidual)
        gt_parallel(parts(call->images * call->pixels, rows_at_once(call)), some_rows,
                    (void *)call, call->slots);
}

KERNEL(batch_norm_grad)(const struct batch_norm_grad *call) {
    if (call->channels == 0) return;
    if (call->last)
        channels_last(call);
    else
        gt_parallel(call->channels, one_channel, (void *)call, call->slots);
}
