/* Sizes of a convolution as its kernels take them; conv.c and conv_dw.c. */
#ifndef GRADTOOL_CONV_H
#define GRADTOOL_CONV_H

#include "gather.h"

#define MERGED 32 /* channels of groups that are computed as one */

/* y and its bias of x and w; or with `backward` dx (in `y`) of dy (in `x`) and w. */
struct conv {
    const float *x, *w, *bias;
    float *y, *work;
    int64_t batch, height, width, channels, out_height, out_width, out_channels;
    int64_t kernel_height, kernel_width, stride_y, stride_x, dilation_y, dilation_x, top, left;
    int64_t group, backward, slots;
};

/* How a convolution reads its source for the targets of residues `y` and `x` of the strides. */
INLINE struct window window_of(const struct conv *call, int64_t y, int64_t x) {
    if (!call->backward)
        return (struct window){
            forward_axis(call->height, call->out_height, call->kernel_height, call->stride_y,
                         call->dilation_y, call->top),
            forward_axis(call->width, call->out_width, call->kernel_width, call->stride_x,
                         call->dilation_x, call->left)};
    return (struct window){
        backward_axis(call->height, call->out_height, call->kernel_height, call->stride_y,
                      call->dilation_y, call->top, y),
        backward_axis(call->width, call->out_width, call->kernel_width, call->stride_x,
                      call->dilation_x, call->left, x)};
}

INLINE struct image source_image(const struct conv *call) {
    const int64_t size = call->batch * call->height * call->width * call->channels;
    return (struct image){call->x, call->x + size, call->channels};
}

/* As many narrow groups are computed as one: weights from one to another are zero.  A divisor. */
INLINE int64_t merged_groups(int64_t group, int64_t inputs, int64_t outputs) {
    int64_t merged = 1;
    for (int64_t many = 2; many <= group; many++)
        if (group % many == 0 && many * most(inputs, outputs) <= MERGED) merged = many;
    return merged;
}

/* Panels of a group's weights: rows are taps and source channels, columns target channels. */
void SHARED(conv_weights)(const struct conv *call, const struct window *window, int64_t merged,
                           float *panels);

#endif
