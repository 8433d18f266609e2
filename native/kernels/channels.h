/* Statistics of the channels of images, and how images are cut for sums over them.
 *
 * Channels first: [images, channels, pixels], one chunk for each channel.  Channels last: rows of
 * channels, `pixels` of each image; rows are cut into parts by shape alone, and sums over parts are
 * added in order.
 */
#ifndef GRADTOOL_CHANNELS_H
#define GRADTOOL_CHANNELS_H

#include "moments.h"

#define PARTS 32   /* at most */
#define LEAST 4096 /* floats of a part, at least */

struct images {
    int64_t images, channels, pixels, slots;
};

/* Floats of a row of numbers per channel in a workspace: whole vectors. */
INLINE int64_t channel_room(int64_t channels) { return rounded_up(channels, 16); }
INLINE int64_t rows_of_part(const struct images *x) {
    return most(parts(x->images * x->pixels, PARTS), parts(LEAST, most(x->channels, 1)));
}
INLINE int64_t parts_of(const struct images *x) {
    return parts(x->images * x->pixels, rows_of_part(x));
}

/* Mean and variance of each channel, channels last.
 * work: 2 channel_room (parts + slots) floats. */
void SHARED(channel_statistics)(const float *x, const struct images *images, float *mean,
                                float *variance, float *work);

/* Those of one channel, channels first. */
INLINE struct moments plane_moments(const float *x, const struct images *images, int64_t channel) {
    struct moments found = {0, 0, 0};
    for (int64_t n = 0; n < images->images; n++)
        add_moments(&found, x + (n * images->channels + channel) * images->pixels, images->pixels);
    return found;
}

#endif
