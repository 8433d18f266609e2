/* The gradient of max pooling by the places of the maxima, channels last.
 *
 * dx[n, places[n, i, c], c] = sum over windows i, in order, of dy[n, i, c].  A chunk is an image and
 * some of its channels.  Places take 1 or 2 bytes.  Workspace: none.
 */
#include "gradtool.h"
#include "pool.h"

#define CHANNELS 64 /* of a chunk: whole lines of the cache */

struct scatter_places {
    const float *dy;
    const void *places;
    float *dx;
    int64_t images, pixels, windows, channels, bytes, slots;
};

#define SCATTER(type)                                                                             \
    static void scatter_##type(const struct scatter_places *call, int64_t image, int64_t from,    \
                               int64_t to) {                                                      \
        const int64_t channels = call->channels;                                                  \
        const float *dy = call->dy + image * call->windows * channels;                            \
        const type *places = (const type *)call->places + image * call->windows * channels;       \
        float *dx = call->dx + image * call->pixels * channels;                                   \
        for (int64_t i = 0; i < call->windows; i++)                                               \
            for (int64_t c = from; c < to; c++)                                                   \
                dx[(int64_t)places[i * channels + c] * channels + c] += dy[i * channels + c];     \
    }
SCATTER(uint8_t)
SCATTER(uint16_t)

static void scatter_chunk(void *argument, int64_t chunk, int64_t slot) {
    const struct scatter_places *call = argument;
    const int64_t blocks = parts(call->channels, CHANNELS), image = chunk / blocks;
    const int64_t from = chunk % blocks * CHANNELS, to = least(call->channels, from + CHANNELS);
    float *dx = call->dx + image * call->pixels * call->channels;
    (void)slot;
    for (int64_t i = 0; i < call->pixels; i++)
        for (int64_t c = from; c < to; c++) dx[i * call->channels + c] = 0;
    if (call->bytes == 1)
        scatter_uint8_t(call, image, from, to);
    else
        scatter_uint16_t(call, image, from, to);
}

KERNEL(scatter_places)(const struct scatter_places *call) {
    gt_parallel(call->images * parts(call->channels, CHANNELS), scatter_chunk, (void *)call,
                call->slots);
}
