/* Group and instance normalisation of [images, channels, pixels], and their gradients.
 *
 *     y = act((x - mean) rstd scale + bias + residual)  over the channels of a group and its pixels
 *     d = relu ? dy where y is positive : dy            dresidual = d
 *     dx = rstd (dn - mean(dn) - n mean(dn n))  with  dn = d scale,  n = (x - mean) rstd
 *     dscale = sum d n        dbias = sum d
 *
 * There are `scales` scales and biases: one per channel, or per group.  Statistics are computed
 * again in backward.  Every output may be NULL; y may be x or the residual, dx and dresidual dy.
 * Source: gradtool's numpy kernels.  Workspace of backward in floats: 2 images channels.
 */
#include "activations.h"
#include "moments.h"
#include "pool.h"

struct group_norm {
    const float *x, *scale, *bias, *residual;
    float *y;
    int64_t images, channels, pixels, groups, scales, relu, slots;
    double epsilon;
};

struct group_norm_grad {
    const float *x, *scale, *dy, *y;
    float *dx, *dscale, *dbias, *dresidual, *work;
    int64_t images, channels, pixels, groups, scales, slots;
    double epsilon;
};

static void statistics(const float *x, int64_t n, double epsilon, float *mean, float *rstd) {
    struct moments found = {0, 0, 0};
    add_moments(&found, x, n);
    *mean = (float)found.mean;
    *rstd = inverse_root(found.squares / (double)n, epsilon);
}

static void one_group(void *argument, int64_t group, int64_t slot) {
    const struct group_norm *call = argument;
    const int64_t channels = call->channels / call->groups, n = call->pixels;
    float mean, rstd;
    (void)slot;
    statistics(call->x + group * channels * n, channels * n, call->epsilon, &mean, &rstd);
    for (int64_t k = 0; k < channels; k++) {
        const int64_t line = group * channels + k, at = line * n;
        const int64_t c = line % call->channels * call->scales / call->channels;
        const float factor = rstd * call->scale[c], bias = call->bias[c];
        for (int64_t i = 0; i < n; i += LANES) {
            vec y = (load_left(call->x + at, i, n, 0) - mean) * factor + bias;
            if (call->residual) y += load_left(call->residual + at, i, n, 0);
            store_left(call->y + at, call->relu ? at_least(y, 0) : y, i, n);
        }
    }
}

KERNEL(group_norm)(const struct group_norm *call) {
    if (call->channels * call->pixels == 0) return;
    gt_parallel(call->images * call->groups, one_group, (void *)call, call->slots);
}

INLINE vec given(const struct group_norm_grad *call, int64_t at, int64_t i) {
    const vec dy = load_left(call->dy + at, i, call->pixels, 0);
    return call->y ? relu_grad(load_left(call->y + at, i, call->pixels, 1), dy) : dy;
}

/* The sums of d and of d n over the pixels of a channel. */
static void sums_of(const struct group_norm_grad *call, int64_t at, float mean, float rstd,
                    float *sum, float *product) {
    double all = 0, products = 0;
    for (int64_t from = 0; from < call->pixels; from += TOGETHER) {
        const int64_t end = least(call->pixels, from + TOGETHER);
        vec first = splat(0), second = splat(0);
        for (int64_t i = from; i < end; i += LANES) {
            const vec d = given(call, at, i);
            first += d;
            second += d * (load_left(call->x + at, i, call->pixels, 0) - mean);
        }
        all += sum_lanes(first), products += sum_lanes(second);
    }
    *sum = (float)all, *product = (float)(products * rstd);
}

/* Take off n numbers what rounding left in their mean, which is zero in mathematics. */
static void centre(float *x, int64_t n) {
    const float mean = row_sum(x, n) / (float)n;
    for (int64_t i = 0; i < n; i += LANES) store_left(x, load_left(x, i, n, 0) - mean, i, n);
}

static void one_group_grad(void *argument, int64_t group, int64_t slot) {
    const struct group_norm_grad *call = argument;
    const int64_t channels = call->channels / call->groups, n = call->pixels;
    const double count = (double)(channels * n);
    double firsts = 0, seconds = 0;
    float mean, rstd;
    (void)slot;
    statistics(call->x + group * channels * n, channels * n, call->epsilon, &mean, &rstd);
    for (int64_t line = group * channels; line < (group + 1) * channels; line++) {
        const float scale = call->scale[line % call->channels * call->scales / call->channels];
        float *sums = call->work + 2 * line;
        sums_of(call, line * n, mean, rstd, sums, sums + 1);
        firsts += scale * sums[0], seconds += scale * sums[1];
    }
    if (!call->dx && !call->dresidual) return;
    const float first = (float)(firsts / count) * rstd;
    const float second = (float)(seconds / count) * rstd * rstd;
    for (int64_t line = group * channels; line < (group + 1) * channels; line++) {
        const int64_t at = line * n;
        const float factor =
            rstd * call->scale[line % call->channels * call->scales / call->channels];
        for (int64_t i = 0; i < n; i += LANES) {
            const vec d = given(call, at, i), c = load_left(call->x + at, i, n, 0) - mean;
            if (call->dresidual) store_left(call->dresidual + at, d, i, n);
            if (call->dx) store_left(call->dx + at, d * factor - first - c * second, i, n);
        }
    }
    /* While it is in cache. */
    if (call->dx && channels * n <= TOGETHER) centre(call->dx + group * channels * n, channels * n);
}

KERNEL(group_norm_grad)(const struct group_norm_grad *call) {
    const int64_t some = call->channels * call->pixels;
    if (some) gt_parallel(call->images * call->groups, one_group_grad, (void *)call, call->slots);
    const int64_t each = call->scales ? call->channels / call->scales : 0;
    for (int64_t s = 0; s < call->scales; s++) {
        double scale = 0, bias = 0;
        for (int64_t image = 0; some && image < call->images; image++)
            for (int64_t c = s * each; c < (s + 1) * each; c++) {
                const float *sums = call->work + 2 * (image * call->channels + c);
                bias += sums[0], scale += sums[1];
            }
        if (call->dscale) call->dscale[s] = (float)scale;
        if (call->dbias) call->dbias[s] = (float)bias;
    }
}
