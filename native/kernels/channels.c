/* Mean and variance of channels that lie beside each other, in one pass over memory.
 *
 * A part of the rows is read by blocks that stay in cache: the mean of a block, then its centred
 * squares; blocks are merged in order, and then parts are.
 * Source: Chan, Golub & LeVeque 1979.  Workspace: channels.h.
 */
#include "channels.h"

#include "pool.h"

#define BLOCK 8192 /* floats */

struct pass {
    const float *x;
    const struct images *images;
    float *parts, *spare;
};

/* to[c] = sum over rows of x[c], or of (x[c] - mean[c])^2, for `vectors` vectors from j on. */
INLINE void add_strip(const float *x, int64_t rows, int64_t channels, const float *mean, float *to,
                      int64_t j, int vectors) {
    vec sums[4], others[4], centre[4];
    for (int v = 0; v < vectors; v++) {
        sums[v] = others[v] = splat(0);
        centre[v] = mean ? load(mean + j + v * LANES) : splat(0);
    }
    int64_t r = 0;
    for (; r + 2 <= rows; r += 2)
        for (int v = 0; v < vectors; v++) {
            const float *at = x + r * channels;
            const vec c = load_left(at, j + v * LANES, channels, 0) - centre[v];
            const vec d = load_left(at + channels, j + v * LANES, channels, 0) - centre[v];
            sums[v] += mean ? c * c : c;
            others[v] += mean ? d * d : d;
        }
    for (int v = 0; r < rows && v < vectors; v++) {
        const vec c = load_left(x + r * channels, j + v * LANES, channels, 0) - centre[v];
        sums[v] += mean ? c * c : c;
    }
    for (int v = 0; v < vectors; v++) store(to + j + v * LANES, sums[v] + others[v]);
}

INLINE void add_rows(const float *x, int64_t rows, int64_t channels, const float *mean, float *to) {
    int64_t j = 0;
    for (; j + 4 * LANES <= channels; j += 4 * LANES) add_strip(x, rows, channels, mean, to, j, 4);
    for (; j < channels; j += LANES) add_strip(x, rows, channels, mean, to, j, 1);
}

/* Merge the moments of `more` rows, given as mean and squares, into those of `count` rows. */
INLINE void merge_rows(float *mean, float *squares, float count, const float *more_mean,
                       const float *more_squares, float more, int64_t channels) {
    const float share = more / (count + more), weight = count * share;
    for (int64_t j = 0; j < channels; j += LANES) {
        const vec away = load(more_mean + j) - load(mean + j);
        store(mean + j, load(mean + j) + away * share);
        store(squares + j, load(squares + j) + load(more_squares + j) + away * away * weight);
    }
}

static void one_part(void *argument, int64_t part, int64_t slot) {
    const struct pass *pass = argument;
    const int64_t channels = pass->images->channels, room = channel_room(channels);
    const int64_t size = rows_of_part(pass->images), first = part * size;
    const int64_t end = least(pass->images->images * pass->images->pixels, first + size);
    const int64_t rows = most(4, BLOCK / channels);
    float *mean = pass->parts + 2 * part * room, *squares = mean + room;
    float *block_mean = pass->spare + 2 * slot * room, *block_squares = block_mean + room;
    for (int64_t r = first; r < end; r += rows) {
        const int64_t here = least(rows, end - r);
        const float *x = pass->x + r * channels;
        float *m = r == first ? mean : block_mean, *s = r == first ? squares : block_squares;
        add_rows(x, here, channels, NULL, m);
        for (int64_t j = 0; j < channels; j += LANES) store(m + j, load(m + j) / (float)here);
        add_rows(x, here, channels, m, s);
        if (r > first)
            merge_rows(mean, squares, (float)(r - first), m, s, (float)here, channels);
    }
}

void SHARED(channel_statistics)(const float *x, const struct images *images, float *mean,
                                float *variance, float *work) {
    const int64_t room = channel_room(images->channels), count = parts_of(images);
    const int64_t rows = images->images * images->pixels, size = rows_of_part(images);
    struct pass pass = {x, images, work, work + 2 * count * room};
    gt_parallel(count, one_part, &pass, images->slots);
    for (int64_t part = 1; part < count; part++) {
        const float *from = work + 2 * part * room;
        merge_rows(work, work + room, (float)(part * size), from, from + room,
                   (float)least(size, rows - part * size), images->channels);
    }
    for (int64_t c = 0; c < images->channels; c++) {
        mean[c] = rows ? work[c] : __builtin_nanf("");
        variance[c] = rows ? work[room + c] / (float)rows : __builtin_nanf("");
    }
}
