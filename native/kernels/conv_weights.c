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
    int64_t sources, targets, per_group; /* channels of a group, and panels */
};

static void weights_chunk(void *argument, int64_t chunk, int64_t slot) {
    const struct packing *at = argument;
    const struct conv *call = at->call;
    const struct axis *rows = &at->window->rows, *columns = &at->window->columns;
    const int64_t group = chunk / at->per_group, m = chunk % at->per_group * TILE_COLUMNS;
    const int64_t targets = least(TILE_COLUMNS, at->targets - m);
    const int64_t area = call->kernel_height * call->kernel_width;
    /* What one more source or target channel is in w. */
    const int64_t source = call->backward ? at->targets * area : area;
    const int64_t target = call->backward ? area : at->sources * area;
    const float *w = call->w + group * at->sources * at->targets * area + m * target;
    float *to = at->panels + chunk * rows->taps * columns->taps * at->sources * TILE_COLUMNS;
    (void)slot;
    for (int64_t i = 0; i < rows->taps; i++)
        for (int64_t j = 0; j < columns->taps; j++) {
            const int64_t a = rows->first + i * rows->step, b = columns->first + j * columns->step;
            const float *from = w + a * call->kernel_width + b;
            for (int64_t c = 0; c < at->sources; c++, to += TILE_COLUMNS)
                for (int64_t k = 0; k < TILE_COLUMNS; k++)
                    to[k] = k < targets ? from[c * source + k * target] : 0;
        }
}

void SHARED(conv_weights)(const struct conv *call, const struct window *window, float *panels) {
    struct packing at = {call, window, panels, call->channels / call->group,
                         call->out_channels / call->group, 0};
    at.per_group = parts(at.targets, TILE_COLUMNS);
    gt_parallel(call->group * at.per_group, weights_chunk, &at, call->slots);
}
