/* The weights' gradient of any convolution, channels last.
 *
 * One chunk is a block of columns (taps and input channels) and of rows (outputs) of a group's
 * gradient [outputs, taps x inputs]: for PIXELS of dy at a time, what its columns read is gathered
 * into lines, and dy turned is multiplied by them; the sums go on over all pixels, in order.  At
 * last they are written in the order of weights.
 *
 * Workspace in bytes: gradtool.native.conv.gradient_w_work.
 */
#include "conv_dw.h"
#include "gemm.h"
#include "pool.h"
#include "tiles.h"

#define COLUMNS 128 /* of a block, if one tap has not fewer channels than that */

static void block_chunk(void *argument, int64_t chunk, int64_t slot) {
    const struct dw_pass *pass = argument;
    const struct conv_dw *call = pass->call;
    const int64_t m = chunk % pass->row_blocks * ROWS, rows = least(ROWS, pass->outputs - m);
    chunk /= pass->row_blocks;
    const int64_t channel = chunk % pass->channel_blocks * pass->channel_block;
    chunk /= pass->channel_blocks;
    const int64_t tap = chunk % pass->tap_blocks * pass->tap_block;
    const int64_t group = chunk / pass->tap_blocks, base = group * pass->inputs;
    const struct taps taps = {tap, least(pass->taps, tap + pass->tap_block), base + channel,
                              base + least(pass->inputs, channel + pass->channel_block)};
    const int64_t columns = (taps.to_tap - tap) * (taps.to - taps.from);
    const int64_t stride = pass->tap_block * pass->channel_block + LINE_PAD;
    const int64_t all = call->batch * call->out_height * call->out_width;
    float *lines = pass->lines + slot * PIXELS * stride;
    float *sums = pass->sums + (group * pass->outputs + m) * pass->row + tap * pass->inputs + channel;
    for (int64_t first = 0; first < all; first += PIXELS) {
        const int64_t pixels = least(PIXELS, all - first);
        const float *dy = call->dy + first * call->out_channels + group * pass->outputs + m;
        const struct finish finish = {.alpha = 1, .beta = first > 0};
        gather(&pass->window, &pass->image, &taps, first, pixels, lines, stride);
        for (int64_t j = 0; j < columns; j += TILE_COLUMNS)
            for (int64_t i = 0; i < rows; i += TILE_ROWS)
                multiply_tile(1, least(TILE_ROWS, rows - i), pixels, dy + i, call->out_channels,
                              lines + j, stride, sums + i * pass->row + j, pass->row,
                              least(TILE_COLUMNS, columns - j), &finish);
    }
}

/* dw[output, input, tap] of sums[output][tap, input]. */
static void order_chunk(void *argument, int64_t output, int64_t slot) {
    const struct dw_pass *pass = argument;
    const struct conv_dw *call = pass->call;
    const int64_t inputs = call->channels / call->group, outputs = call->out_channels / call->group;
    const int64_t one = output % pass->outputs / outputs; /* of the groups that are computed as one */
    const float *sums = pass->sums + output * pass->row + one * inputs;
    float *dw = call->dw + output * inputs * pass->taps;
    const int empty = call->batch * call->out_height * call->out_width == 0;
    (void)slot;
    for (int64_t c = 0; c < inputs; c++)
        for (int64_t t = 0; t < pass->taps; t++)
            dw[c * pass->taps + t] = empty ? 0 : sums[t * pass->inputs + c];
}

static int is_product(const struct conv_dw *call) {
    return call->kernel_height * call->kernel_width * call->group * call->stride_y *
                   call->stride_x == 1 &&
           call->top == 0 && call->left == 0 && call->height == call->out_height &&
           call->width == call->out_width;
}

/* dw[output, input] of a 1 x 1 kernel. */
static void multiply_all(const struct conv_dw *call) {
    const struct product product = {
        .a = call->dy, .b = call->x, .c = call->dw,
        .m = call->out_channels, .n = call->channels,
        .k = call->batch * call->height * call->width,
        .a_row = call->out_channels, .b_row = call->channels, .c_row = call->channels,
        .a_turned = 1, .alpha = 1};
    SHARED(multiply)(&product, call->work, call->slots);
}

KERNEL(conv_dw)(const struct conv_dw *call) {
    if (is_product(call)) {
        multiply_all(call);
        return;
    }
    const int64_t merged =
        merged_groups(call->group, call->channels / call->group, call->out_channels / call->group);
    struct dw_pass pass = {
        .call = call,
        .window = {forward_axis(call->height, call->out_height, call->kernel_height, call->stride_y,
                                call->dilation_y, call->top),
                   forward_axis(call->width, call->out_width, call->kernel_width, call->stride_x,
                                call->dilation_x, call->left)},
        .image = {call->x, call->x + call->batch * call->height * call->width * call->channels,
                  call->channels},
        .groups = call->group / merged,
        .inputs = call->channels / call->group * merged,
        .outputs = call->out_channels / call->group * merged,
        .taps = call->kernel_height * call->kernel_width};
    pass.row = pass.taps * pass.inputs;
    pass.channel_block = least(pass.inputs, COLUMNS);
    pass.channel_blocks = parts(pass.inputs, pass.channel_block);
    pass.tap_block = pass.channel_blocks > 1 ? 1 : least(pass.taps, COLUMNS / pass.inputs);
    pass.tap_blocks = parts(pass.taps, pass.tap_block);
    pass.row_blocks = parts(pass.outputs, ROWS);
    pass.sums = call->work;
    pass.lines = call->work + call->out_channels * pass.row;
    if (SHARED(conv_dw_rows)(&pass)) return;
    gt_parallel(pass.groups * pass.tap_blocks * pass.channel_blocks * pass.row_blocks, block_chunk,
                &pass, call->slots);
    gt_parallel(call->out_channels, order_chunk, &pass, call->slots);
}
