/* The weights' gradient of a convolution: what conv_dw.c and conv_dw_rows.c share. */
#ifndef GRADTOOL_CONV_DW_H
#define GRADTOOL_CONV_DW_H

#include "conv.h"

#define PIXELS 128 /* lines of a slot */
#define ROWS 84    /* outputs of a chunk */

struct conv_dw {
    const float *x, *dy;
    float *dw, *work;
    int64_t batch, height, width, channels, out_height, out_width, out_channels;
    int64_t kernel_height, kernel_width, stride_y, stride_x, dilation_y, dilation_x, top, left;
    int64_t group, slots;
};

struct dw_pass {
    const struct conv_dw *call;
    struct window window;
    struct image image;
    float *sums, *lines;
    int64_t groups, inputs, outputs, taps, row; /* of a group; floats of a row of sums */
    int64_t tap_block, channel_block, row_blocks, tap_blocks, channel_blocks;
};

/* Sums and dw of a convolution whose rows are long; 0 where it is none of those. */
int SHARED(conv_dw_rows)(const struct dw_pass *pass);

#endif
