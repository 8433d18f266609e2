/* Weights of a 3 x 3 convolution into the points of F(4x4, 3x3), and gradients back.
 *
 * Outputs run along vectors.  Nine taps of LANES x LANES weights are turned by shuffles, in a
 * buffer on the stack: taps[(input * 9 + tap) * LANES + output].  Workspace: none.
 */
#include "packing.h"
#include "pool.h"
#include "tiles.h"
#include "winograd.h"

#define EACH _Pragma("clang loop unroll(full)")

struct weights {
    const float *w;
    float *panels, *dw;
    const struct plane *sums;
    int64_t in, out;
    int flipped;
};

/* Taps of `inputs` inputs from `i` on and `outputs` outputs from `o` on. */
static void read_taps(const struct weights *call, int64_t i, int64_t inputs, int64_t o,
                      int64_t outputs, float *taps) {
    if (!call->flipped) {
        pack_lines(call->w + (o * call->in + i) * 9, call->in * 9, outputs, inputs * 9, taps, LANES);
        return;
    }
    for (int64_t input = 0; input < inputs; input++) {
        const float *from = call->w + ((i + input) * call->out + o) * 9;
        for (int64_t tap = 0; tap < 9; tap++)
            for (int64_t output = 0; output < LANES; output++)
                taps[(input * 9 + tap) * LANES + output] =
                    output < outputs ? from[output * 9 + 8 - tap] : 0;
    }
}

/* One chunk is LANES outputs of one panel. */
static void weights_chunk(void *argument, int64_t chunk, int64_t slot) {
    const struct weights *call = argument;
    const int64_t o = chunk * LANES, outputs = most(0, least(LANES, call->out - o));
    const int64_t panels = parts(call->out, TILE_COLUMNS), step = panels * call->in * TILE_COLUMNS;
    float *to = call->panels + o / TILE_COLUMNS * call->in * TILE_COLUMNS + o % TILE_COLUMNS;
    (void)slot;
    for (int64_t i = 0; i < call->in; i += LANES) {
        const int64_t inputs = least(LANES, call->in - i);
        float taps[LANES * 9 * LANES + LANES];
        read_taps(call, i, inputs, o, outputs, taps);
        for (int64_t input = 0; input < inputs; input++) {
            vec half[6][3];
            for (int x = 0; x < 3; x++) {
                vec g[3], u[6];
                EACH for (int y = 0; y < 3; y++)
                    g[y] = load(taps + (input * 9 + y * 3 + x) * LANES);
                times_g(g, u);
                EACH for (int y = 0; y < 6; y++) half[y][x] = u[y];
            }
            for (int y = 0; y < 6; y++) {
                vec u[6];
                times_g(half[y], u);
                EACH for (int x = 0; x < 6; x++)
                    store(to + (6 * y + x) * step + (i + input) * TILE_COLUMNS, u[x]);
            }
        }
    }
}

static void write_taps(const struct weights *call, int64_t i, int64_t inputs, int64_t o,
                       int64_t outputs, const float *taps) {
    const int64_t row = call->in * 9, count = inputs * 9, whole = count / LANES * LANES;
    float *to = call->dw + o * row + i * 9;
    for (int64_t f = 0; f < whole; f += LANES) {
        vec lines[LANES];
        for (int l = 0; l < LANES; l++) lines[l] = load(taps + (f + l) * LANES);
        transpose(lines);
        for (int64_t output = 0; output < outputs; output++) store(to + output * row + f, lines[output]);
    }
    for (int64_t f = whole; f < count; f++)
        for (int64_t output = 0; output < outputs; output++)
            to[output * row + f] = taps[f * LANES + output];
}

static void gradient_chunk(void *argument, int64_t chunk, int64_t slot) {
    const struct weights *call = argument;
    const struct plane *sums = call->sums;
    const int64_t blocks = parts(call->in, LANES);
    const int64_t o = chunk / blocks * LANES, outputs = least(LANES, call->out - o);
    const int64_t i = chunk % blocks * LANES, inputs = least(LANES, call->in - i);
    float taps[LANES * 9 * LANES];
    (void)slot;
    for (int64_t input = 0; input < inputs; input++) {
        const float *from = sums->at + (i + input) * sums->row + o;
        vec half[3][6];
        for (int x = 0; x < 6; x++) {
            vec v[6], g[3];
            EACH for (int y = 0; y < 6; y++) v[y] = load(from + (6 * y + x) * sums->per_point);
            times_g_turned(v, g);
            EACH for (int y = 0; y < 3; y++) half[y][x] = g[y];
        }
        for (int y = 0; y < 3; y++) {
            vec g[3];
            times_g_turned(half[y], g);
            EACH for (int x = 0; x < 3; x++) store(taps + (input * 9 + y * 3 + x) * LANES, g[x]);
        }
    }
    write_taps(call, i, inputs, o, outputs, taps);
}

void SHARED(winograd_weights)(const float *w, int64_t in, int64_t out, int flipped, float *panels,
                              int64_t slots) {
    struct weights call = {.w = w, .panels = panels, .in = in, .out = out, .flipped = flipped};
    gt_parallel(parts(out, TILE_COLUMNS) * TILE_VECTORS, weights_chunk, &call, slots);
}

void SHARED(winograd_gradient)(const struct plane *sums, int64_t in, int64_t out, float *dw,
                               int64_t slots) {
    struct weights call = {.sums = sums, .in = in, .out = out, .dw = dw};
    gt_parallel(parts(in, LANES) * parts(out, LANES), gradient_chunk, &call, slots);
}
