/* Weights of a 3 x 3 convolution into the points of F(4x4, 3x3), and gradients back.
 *
 * Outputs run along vectors.  Nine taps of LANES x LANES weights are turned by shuffles, in a
 * buffer on the stack: taps[(input * 9 + tap) * LANES + output].  Workspace: none.
 */
#include "packing.h"
#include "pool.h"
#include "tiles.h"
#include "winograd.h"

struct weights {
    const struct filters *filters;
    int64_t first, count;
    float *panels;
};

/* Nine taps of LANES outputs of one input, backwards: of 9 floats in a row for each output. */
static void turn_taps(const float *from, const float *end, int64_t outputs, float *taps) {
    if (from + LANES * 9 + LANES > end || outputs < LANES) {
        for (int64_t tap = 0; tap < 9; tap++)
            for (int64_t output = 0; output < LANES; output++)
                taps[tap * LANES + output] = output < outputs ? from[output * 9 + 8 - tap] : 0;
        return;
    }
    for (int64_t tap = 0; tap < 9; tap += LANES) {
        vec rows[LANES];
        for (int r = 0; r < LANES; r++) rows[r] = load(from + r * 9 + tap);
        transpose(rows);
        for (int r = 0; r < LANES && tap + r < 9; r++) store(taps + (8 - tap - r) * LANES, rows[r]);
    }
}

/* Taps of `inputs` inputs from `i` on and `outputs` outputs from `o` on. */
static void read_taps(const struct filters *filters, int64_t i, int64_t inputs, int64_t o,
                      int64_t outputs, float *taps) {
    if (!filters->flipped) {
        pack_lines(filters->w + (o * filters->in + i) * 9, filters->in * 9, outputs, inputs * 9, taps,
                   LANES);
        return;
    }
    for (int64_t input = 0; input < inputs; input++)
        turn_taps(filters->w + ((i + input) * filters->out + o) * 9,
                  filters->w + filters->in * filters->out * 9, outputs, taps + input * 9 * LANES);
}

/* One chunk is LANES outputs of one panel and LANES inputs. */
static void weights_chunk(void *argument, int64_t chunk, int64_t slot) {
    const struct weights *call = argument;
    const struct filters *filters = call->filters;
    const int64_t blocks = parts(filters->in, LANES);
    const int64_t o = chunk / blocks * LANES, outputs = most(0, least(LANES, call->count - o));
    const int64_t panel = filters->in * TILE_COLUMNS;
    const int64_t step = parts(call->count, TILE_COLUMNS) * panel;
    const int64_t i = chunk % blocks * LANES, inputs = least(LANES, filters->in - i);
    float *to = call->panels + o / TILE_COLUMNS * panel + o % TILE_COLUMNS;
    float taps[LANES * 9 * LANES + LANES];
    (void)slot;
    read_taps(filters, i, inputs, call->first + o, outputs, taps);
    for (int64_t input = 0; input < inputs; input++) {
        vec half[6][3];
        for (int x = 0; x < 3; x++) {
            vec g[3], u[6];
            FLAT for (int y = 0; y < 3; y++) g[y] = load(taps + (input * 9 + y * 3 + x) * LANES);
            times_g(g, u);
            FLAT for (int y = 0; y < 6; y++) half[y][x] = u[y];
        }
        for (int y = 0; y < 6; y++) {
            vec u[6];
            times_g(half[y], u);
            FLAT for (int x = 0; x < 6; x++)
                store(to + (6 * y + x) * step + (i + input) * TILE_COLUMNS, u[x]);
        }
    }
}

struct gradient {
    const struct plane *sums;
    int64_t in, out;
    float *dw;
};

static void write_taps(const struct gradient *call, int64_t i, int64_t inputs, int64_t o,
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
    const struct gradient *call = argument;
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
            FLAT for (int y = 0; y < 6; y++) v[y] = load(from + (6 * y + x) * sums->per_point);
            times_g_turned(v, g);
            FLAT for (int y = 0; y < 3; y++) half[y][x] = g[y];
        }
        for (int y = 0; y < 3; y++) {
            vec g[3];
            times_g_turned(half[y], g);
            FLAT for (int x = 0; x < 3; x++) store(taps + (input * 9 + y * 3 + x) * LANES, g[x]);
        }
    }
    write_taps(call, i, inputs, o, outputs, taps);
}

void SHARED(winograd_weights)(const struct filters *filters, int64_t first, int64_t count,
                              float *panels, int64_t slots) {
    struct weights call = {filters, first, count, panels};
    const int64_t vectors = parts(count, TILE_COLUMNS) * TILE_VECTORS;
    gt_parallel(vectors * parts(filters->in, LANES), weights_chunk, &call, slots);
}

void SHARED(winograd_gradient)(const struct plane *sums, int64_t in, int64_t out, float *dw,
                               int64_t slots) {
    struct gradient call = {sums, in, out, dw};
    gt_parallel(parts(in, LANES) * parts(out, LANES), gradient_chunk, &call, slots);
}
