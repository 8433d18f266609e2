/* Weights of a convolution as tiles read them: panels[group][panel][tap][source][TILE_COLUMNS].
 *
 * Of w[out, in / group, a, b] for y, rows are inputs; for dx they are outputs.  Workspace: none.
 */
#include "conv.h"
#include "pool.h"
#include "tiles.h"

struct packing {
    const struct conv *call;
    const struct window *window;
    float *panels;
    int64_t sources, targets; /* channels of a group */
    int64_t merged, per_group; /* groups that are one, and panels of those */
};

static void weights_chunk(void *argument, int64_t chunk, int64_t slot) {
    const struct packing *at = argument;
    const struct conv *call = at->call;
    const struct axis *rows = &at->window->rows, *columns = &at->window->columns;
    const int64_t group = chunk / at->per_group, m = chunk % at->per_group * TILE_COLUMNS;
    const int64_t area = call->kernel_height * call->kernel_width;
    /* What one more source or target channel is in w. */
    const int64_t source = call->backward ? at->targets * area : area;
    const int64_t target = call->backward ? area : at->sources * area;
    const int64_t step = at->sources * at->targets * area; /* of a group */
    float *to = at->panels + chunk * rows->taps * columns->taps * at->merged * at->sources * TILE_COLUMNS;
    (void)slot;
    for (int64_t i = 0; i < rows->taps; i++)
        for (int64_t j = 0; j < columns->taps; j++) {
            const int64_t a = rows->first + i * rows->step, b = columns->first + j * columns->step;
            for (int64_t c = 0; c < at->merged * at->sources; c++, to += TILE_COLUMNS) {
                const int64_t one = c / at->sources, begin = one * at->targets - m;
                const float *from = call->w + (group * at->merged + one) * step +
                                    a * call->kernel_width + b + c % at->sources * source;
                for (int64_t k = 0; k < TILE_COLUMNS; k++) {
                    const int64_t channel = k - begin;
                    to[k] = channel >= 0 && channel < at->targets ? from[channel * target] : 0;
                }
            }
        }
}

void SHARED(conv_weights)(const struct conv *call, const struct window *window, int64_t merged,
                           float *panels) {
    struct packing at = {call, window, panels, call->channels / call->group,
                         call->out_channels / call->group, merged, 0};
    at.per_group = parts(merged * at.targets, TILE_COLUMNS);
    gt_parallel(call->group / merged * at.per_group, weights_chunk, &at, call->slots);
}
