/* Batch normalisation: y = act((x - mean) rstd scale + bias + residual), act being ReLU or nothing.
 *
 * In training the statistics are those of the batch, and move the running ones:
 * new = momentum old + (1 - momentum) found.  y, the running and the saved statistics may each be
 * NULL, and so may `residual`.  x is [images, channels, pixels], or [images, pixels, channels] if
 * `last`; y may be x or the residual.
 * Source: gradtool's numpy kernels.  Workspace in floats, with c = channels rounded up to 16:
 * 5 c, and 2 c (parts + slots) for channels last in training.
 */
#include "channels.h"
#include "functions.h"
#include "pool.h"

#define CHUNK 16384 /* floats */

struct batch_norm {
    const float *x, *scale, *bias, *mean, *variance, *residual;
    float *y, *new_mean, *new_variance, *saved_mean, *saved_rstd, *work;
    int64_t images, channels, pixels, last, relu, training, slots;
    double epsilon, momentum;
};

/* Rows of a number per channel in the workspace. */
enum { MEAN, VARIANCE, FACTOR, BIAS, ROWS };

INLINE struct images images_of(const struct batch_norm *call) {
    return (struct images){call->images, call->channels, call->pixels, call->slots};
}

INLINE float *row_of(const struct batch_norm *call, int row) {
    return call->work + row * channel_room(call->channels);
}

INLINE vec shown(const struct batch_norm *call, vec y, int64_t at, int64_t here) {
    if (call->residual) y += load_left(call->residual + at, 0, here, 0);
    return call->relu ? at_least(y, 0) : y;
}

/* From the mean and variance of a channel: what it is multiplied by, and the outputs. */
static void settle(const struct batch_norm *call, int64_t c) {
    const float mean = row_of(call, MEAN)[c], variance = row_of(call, VARIANCE)[c];
    const float rstd = inverse_root(variance, call->epsilon);
    const float old = (float)call->momentum, new = (float)(1 - call->momentum);
    row_of(call, FACTOR)[c] = rstd * call->scale[c];
    row_of(call, BIAS)[c] = call->bias[c];
    if (call->saved_mean) call->saved_mean[c] = mean;
    if (call->saved_rstd) call->saved_rstd[c] = rstd;
    if (call->new_mean) call->new_mean[c] = mean * new + call->mean[c] * old;
    if (call->new_variance) call->new_variance[c] = variance * new + call->variance[c] * old;
}

static void one_channel(void *argument, int64_t c, int64_t slot) {
    const struct batch_norm *call = argument;
    const struct images images = images_of(call);
    const int64_t n = call->pixels;
    (void)slot;
    if (call->training) {
        const struct moments found = plane_moments(call->x, &images, c);
        const double count = found.count;
        row_of(call, MEAN)[c] = (float)(count ? found.mean : __builtin_nan(""));
        row_of(call, VARIANCE)[c] = (float)(found.squares / count);
    } else {
        row_of(call, MEAN)[c] = call->mean[c];
        row_of(call, VARIANCE)[c] = call->variance[c];
    }
    settle(call, c);
    const float mean = row_of(call, MEAN)[c], factor = row_of(call, FACTOR)[c];
    const float bias = call->bias[c];
    for (int64_t image = 0; call->y && image < call->images; image++) {
        const int64_t at = (image * call->channels + c) * n;
        for (int64_t i = 0; i < n; i += LANES) {
            const int64_t here = least(LANES, n - i);
            const vec y = (load_left(call->x + at, i, n, 0) - mean) * factor + bias;
            store_left(call->y + at, shown(call, y, at + i, here), i, n);
        }
    }
}

static int64_t rows_at_once(const struct batch_norm *call) {
    return most(1, CHUNK / call->channels);
}

static void some_rows(void *argument, int64_t chunk, int64_t slot) {
    const struct batch_norm *call = argument;
    const int64_t n = call->channels, rows = rows_at_once(call);
    /* From the last rows on: those are in cache. */
    const int64_t all = call->images * call->pixels, part = parts(all, rows) - 1 - chunk;
    const int64_t end = least(all, (part + 1) * rows);
    const float *mean = row_of(call, MEAN), *factor = row_of(call, FACTOR);
    const float *bias = row_of(call, BIAS);
    (void)slot;
    for (int64_t at = part * rows * n; at < end * n; at += n)
        for (int64_t j = 0; j < n; j += LANES) {
            const vec c = load_left(call->x + at, j, n, 0) - load(mean + j);
            const vec y = c * load(factor + j) + load(bias + j);
            store_left(call->y + at, shown(call, y, at + j, least(LANES, n - j)), j, n);
        }
}

KERNEL(batch_norm)(const struct batch_norm *call) {
    const struct images images = images_of(call);
    if (call->channels == 0) return;
    if (!call->last) {
        gt_parallel(call->channels, one_channel, (void *)call, call->slots);
        return;
    }
    float *mean = row_of(call, MEAN), *variance = row_of(call, VARIANCE);
    if (call->training)
        SHARED(channel_statistics)(call->x, &images, mean, variance, row_of(call, ROWS));
    for (int64_t c = 0; c < call->channels; c++) {
        if (!call->training) mean[c] = call->mean[c], variance[c] = call->variance[c];
        settle(call, c);
    }
    if (call->y)
        gt_parallel(parts(call->images * call->pixels, rows_at_once(call)), some_rows,
                    (void *)call, call->slots);
}
