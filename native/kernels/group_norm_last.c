/* Group and instance normalisation of [images, pixels, channels], and their gradients.
 *
 * The formulas are those of group_norm.c.  Images come one after the other: the statistics of their
 * channels are joined to those of groups, then rows are cut into chunks.
 * Source: gradtool's numpy kernels.  Workspace in floats, with c = channels rounded up to 16:
 * 7 c + 2 c (parts of an image + slots).
 */
#include "activations.h"
#include "channels.h"
#include "pool.h"

#define CHUNK 16384 /* floats */

struct group_norm_last {
    const float *x, *scale, *bias, *residual;
    float *y, *work;
    int64_t images, channels, pixels, groups, scales, relu, slots;
    double epsilon;
};

struct group_norm_last_grad {
    const float *x, *scale, *dy, *y;
    float *dx, *dscale, *dbias, *dresidual, *work;
    int64_t images, channels, pixels, groups, scales, slots;
    double epsilon;
};

/* Rows of a number per channel; in backward dx = d FACTOR - FIRST - (x - MEAN) SECOND. */
enum { MEAN, RSTD, FACTOR, FIRST, SECOND, DSCALE, DBIAS, ROWS };

struct image {
    const struct group_norm_last *call;
    const struct group_norm_last_grad *grad;
    float *work;
    int64_t at, channels, pixels;
};

INLINE float *row_of(const struct image *image, int row) {
    return image->work + row * channel_room(image->channels);
}

/* MEAN and RSTD of each channel: those of its group. */
static void statistics(const struct image *image, const float *x, int64_t groups, double epsilon,
                       int64_t slots) {
    const struct images one = {1, image->channels, image->pixels, slots};
    const int64_t each = image->channels / groups;
    float *mean = row_of(image, MEAN), *variance = row_of(image, RSTD);
    SHARED(channel_statistics)(x + image->at, &one, mean, variance, row_of(image, ROWS));
    for (int64_t c = 0; c < image->channels; c += each) {
        struct moments found = {0, 0, 0};
        for (int64_t k = c; k < c + each; k++)
            merge(&found, mean[k], (double)variance[k] * (double)image->pixels,
                  (double)image->pixels);
        const float rstd = inverse_root(found.squares / found.count, epsilon);
        for (int64_t k = c; k < c + each; k++) mean[k] = (float)found.mean, variance[k] = rstd;
    }
}

static int64_t rows_at_once(int64_t channels) { return most(1, CHUNK / channels); }

static void forward_rows(void *argument, int64_t chunk, int64_t slot) {
    const struct image *image = argument;
    const struct group_norm_last *call = image->call;
    const int64_t n = call->channels, rows = rows_at_once(n);
    const int64_t end = least(call->pixels, (chunk + 1) * rows);
    const float *mean = row_of(image, MEAN), *factor = row_of(image, FACTOR);
    const float *bias = row_of(image, FIRST);
    (void)slot;
    for (int64_t at = image->at + chunk * rows * n; at < image->at + end * n; at += n)
        for (int64_t j = 0; j < n; j += LANES) {
            const vec c = load_left(call->x + at, j, n, 0) - load(mean + j);
            vec y = c * load(factor + j) + load(bias + j);
            if (call->residual) y += load_left(call->residual + at, j, n, 0);
            store_left(call->y + at, call->relu ? at_least(y, 0) : y, j, n);
        }
}

KERNEL(group_norm_last)(const struct group_norm_last *call) {
    const int64_t n = call->channels, chunks = n ? parts(call->pixels, rows_at_once(n)) : 0;
    struct image image = {.call = call, .work = call->work, .channels = n, .pixels = call->pixels};
    for (int64_t i = 0; chunks && i < call->images; i++, image.at += n * call->pixels) {
        statistics(&image, call->x, call->groups, call->epsilon, call->slots);
        for (int64_t c = 0; c < n; c++) {
            const int64_t s = c * call->scales / n;
            row_of(&image, FACTOR)[c] = row_of(&image, RSTD)[c] * call->scale[s];
            row_of(&image, FIRST)[c] = call->bias[s];
        }
        gt_parallel(chunks, forward_rows, &image, call->slots);
    }
}

INLINE vec given(const struct group_norm_last_grad *call, int64_t at, int64_t j, int64_t n) {
    const vec dy = load_left(call->dy + at, j, n, 0);
    return call->y ? relu_grad(load_left(call->y + at, j, n, 1), dy) : dy;
}

static void sums_of_part(void *argument, int64_t part, int64_t slot) {
    const struct image *image = argument;
    const struct images one = {1, image->channels, image->pixels, 0};
    const int64_t n = image->channels, room = channel_room(n), size = rows_of_part(&one);
    const int64_t end = least(image->pixels, (part + 1) * size);
    float *sums = row_of(image, ROWS) + 2 * part * room, *products = sums + room;
    (void)slot;
    for (int64_t j = 0; j < n; j += LANES) {
        /* The sum of dx is that of d less as much: its last bits count. */
        vec sum = splat(0), excess = splat(0), product = splat(0);
        for (int64_t from = part * size; from < end; from += BRIEF) {
            vec brief = splat(0);
            for (int64_t row = from; row < least(end, from + BRIEF); row++) {
                const vec d = given(image->grad, image->at + row * n, j, n);
                const vec x = load_left(image->grad->x + image->at + row * n, j, n, 0);
                brief += d;
                product += d * (x - load(row_of(image, MEAN) + j));
            }
            add_exactly(&sum, &excess, brief);
        }
        store(sums + j, sum);
        store(products + j, product);
    }
}

static void backward_rows(void *argument, int64_t chunk, int64_t slot) {
    const struct image *image = argument;
    const struct group_norm_last_grad *call = image->grad;
    const int64_t n = call->channels, rows = rows_at_once(n);
    const int64_t end = least(call->pixels, (chunk + 1) * rows);
    (void)slot;
    for (int64_t at = image->at + chunk * rows * n; at < image->at + end * n; at += n)
        for (int64_t j = 0; j < n; j += LANES) {
            const vec d = given(call, at, j, n);
            const vec c = load_left(call->x + at, j, n, 0) - load(row_of(image, MEAN) + j);
            const vec dx = d * load(row_of(image, FACTOR) + j) - load(row_of(image, FIRST) + j);
            if (call->dresidual) store_left(call->dresidual + at, d, j, n);
            if (call->dx)
                store_left(call->dx + at, dx - c * load(row_of(image, SECOND) + j), j, n);
        }
}

/* Take off dx what rounding left in its mean over each group, which is zero in mathematics. */
static void centre(const struct image *image) {
    const int64_t n = image->channels, end = n * image->pixels, groups = image->grad->groups;
    float *dx = image->grad->dx + image->at, *mean = row_of(image, FIRST);
    for (int64_t j = 0; j < n; j += LANES) {
        vec sum = splat(0);
        for (int64_t at = 0; at < end; at += n) sum += load_left(dx + at, j, n, 0);
        store(mean + j, sum);
    }
    for (int64_t from = 0; from < n; from += n / groups) {
        double sum = 0;
        for (int64_t c = from; c < from + n / groups; c++) sum += mean[c];
        for (int64_t c = from; c < from + n / groups; c++)
            mean[c] = (float)(sum / (double)(n / groups * image->pixels));
    }
    for (int64_t at = 0; at < end; at += n)
        for (int64_t j = 0; j < n; j += LANES)
            store_left(dx + at, load_left(dx + at, j, n, 0) - load(mean + j), j, n);
}

/* From the sums of parts: those of groups, and what the image adds to dscale and dbias. */
static void settle(const struct image *image, int64_t count) {
    const struct group_norm_last_grad *call = image->grad;
    const int64_t n = call->channels, room = channel_room(n), each = n / call->groups;
    const float *rstd = row_of(image, RSTD), *sums = row_of(image, ROWS);
    for (int64_t from = 0; from < n; from += each) {
        double first = 0, second = 0;
        const float part = rstd[from] / (float)(each * call->pixels);
        for (int64_t c = from; c < from + each; c++) {
            const float scale = call->scale[c * call->scales / n];
            double sum = 0, product = 0;
            for (int64_t p = 0; p < count; p++)
                sum += sums[2 * p * room + c], product += sums[(2 * p + 1) * room + c];
            row_of(image, DBIAS)[c] += (float)sum;
            row_of(image, DSCALE)[c] += (float)(product * rstd[from]);
            row_of(image, FACTOR)[c] = rstd[from] * scale;
            first += scale * sum, second += scale * product * rstd[from];
        }
        for (int64_t c = from; c < from + each; c++) {
            row_of(image, FIRST)[c] = (float)first * part;
            row_of(image, SECOND)[c] = (float)second * part * rstd[from];
        }
    }
}

KERNEL(group_norm_last_grad)(const struct group_norm_last_grad *call) {
    const int64_t n = call->channels, chunks = n ? parts(call->pixels, rows_at_once(n)) : 0;
    struct image image = {.grad = call, .work = call->work, .channels = n, .pixels = call->pixels};
    const struct images one = {1, n, call->pixels, call->slots};
    for (int64_t c = 0; c < n; c++) row_of(&image, DSCALE)[c] = row_of(&image, DBIAS)[c] = 0;
    for (int64_t i = 0; chunks && i < call->images; i++, image.at += n * call->pixels) {
        statistics(&image, call->x, call->groups, call->epsilon, call->slots);
        gt_parallel(parts_of(&one), sums_of_part, &image, call->slots);
        settle(&image, parts_of(&one));
        if (call->dx || call->dresidual) gt_parallel(chunks, backward_rows, &image, call->slots);
        if (call->dx && chunks == 1) centre(&image);
    }
    for (int64_t s = 0; s < call->scales; s++) {
        double scale = 0, bias = 0;
        for (int64_t c = s * n / call->scales; c < (s + 1) * n / call->scales; c++)
            scale += row_of(&image, DSCALE)[c], bias += row_of(&image, DBIAS)[c];
        if (call->dscale) call->dscale[s] = (float)scale;
        if (call->dbias) call->dbias[s] = (float)bias;
    }
}
