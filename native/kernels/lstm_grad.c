/* Gradients of LSTM by X, W, R, B, the initial states and P, from Y and its gradients.
 *
 * The gates of all times are computed again (Y holds every hidden state), then the cell states,
 * unless forward `kept` both; the walk backwards replaces gates by the gradients of their
 * pre-activations.  With
 * dc += dh o (1 - tanh(c)^2):
 *
 *     do = dh tanh(c) o'    di = dc g i'    df = dc c_ f'    dg = dc i g'
 *     dc_ = dc f            dh_ = da R
 *
 * Every output may be NULL, and so may each given gradient.
 * Source: gradtool's numpy kernels.  Workspace: gradtool.native.recurrent.lstm_grad_work.
 */
#include "lstm.h"

struct lstm_grad {
    const float *x, *w, *r, *b;
    const void *lens;
    const float *h0, *c0, *p, *y, *dy, *dy_h, *dy_c;
    float *kept, *dx, *dw, *dr, *db, *dh0, *dc0, *dp, *work;
    int64_t times, batch, inputs, hidden, directions, reverse, layout, slots;
};

struct walk {
    const struct lstm_grad *call;
    const struct recurrence *n;
    const float *p;
    struct panels r;
    const float *gates; /* activated; those of `slab` are the gradients of pre-activations */
    float *slab, *cells, *dh, *dc;
    int64_t k, d; /* the step in the order of forward, and the direction */
};

INLINE int64_t time_of(const struct walk *walk, int64_t k) {
    return backwards(walk->n, walk->d) ? walk->n->times - 1 - k : k;
}

/* Activate the gates of a sample at every time, and compute its cell states. */
static void states(void *argument, int64_t b, int64_t slot) {
    const struct walk *walk = argument;
    const struct recurrence *n = walk->n;
    const int64_t size = n->hidden, state = n->batch * size;
    (void)slot;
    for (int64_t k = 0; k < n->times; k++) {
        const int64_t t = time_of(walk, k);
        float *a = walk->slab + (t * n->batch + b) * 4 * size;
        float *c = walk->cells + k * state + b * size;
        for (int64_t j = 0; j < size; j += LANES) {
            const vec before = load_left(c, j, size, 0);
            const struct cell cell = activate(a, before, walk->p, j, size);
            store_gates(a, &cell, j, size, size);
            store_left(c + state, over(n, t, b) ? before : cell.next, j, size);
        }
    }
}

/* The gradients `da` of the pre-activations of the gates `a` of some units of a sample. */
INLINE void back(const struct walk *walk, const float *a, float *da, const float *c, int64_t j,
                 vec dh, vec *dc) {
    const int64_t size = walk->n->hidden, state = walk->n->batch * size;
    const float *p = walk->p;
    const vec i = load_left(a, j, size, 0), o = load_left(a + size, j, size, 0);
    const vec f = load_left(a + 2 * size, j, size, 0), g = load_left(a + 3 * size, j, size, 0);
    const vec before = load_left(c, j, size, 0), shown = vec_tanh(load_left(c + state, j, size, 0));
    const vec da_o = dh * shown * (1.0f - o) * o;
    vec d = *dc + dh * o * (1.0f - shown * shown);
    if (p) d += da_o * load_left(p + size, j, size, 0);
    const vec da_i = d * g * (1.0f - i) * i;
    const vec da_f = d * before * (1.0f - f) * f;
    store_left(da, da_i, j, size);
    store_left(da + size, da_o, j, size);
    store_left(da + 2 * size, da_f, j, size);
    store_left(da + 3 * size, d * i * (1.0f - g * g), j, size);
    *dc = d * f;
    if (p)
        *dc += da_i * load_left(p, j, size, 0) + da_f * load_left(p + 2 * size, j, size, 0);
}

/* What the step after gives to the hidden state of some units, then their gradients at this one. */
static void strip(void *argument, int64_t chunk, int64_t slot) {
    const struct walk *walk = argument;
    const struct recurrence *n = walk->n;
    const int64_t size = n->hidden, j = chunk * TILE_COLUMNS, end = least(size, j + TILE_COLUMNS);
    (void)slot;
    if (walk->k + 1 < n->times) {
        const float *da = walk->slab + time_of(walk, walk->k + 1) * n->batch * 4 * size;
        by_panels(n->batch, end - j, 4 * size, da, 4 * size, 0, one_panel(walk->r, chunk),
                  walk->dh + j, size, 1, 1);
    }
    if (walk->k < 0) return;
    const int64_t t = time_of(walk, walk->k);
    for (int64_t b = 0; b < n->batch; b++) {
        const int64_t row = (t * n->batch + b) * 4 * size;
        const float *a = walk->gates + row;
        float *da = walk->slab + row;
        const float *c = walk->cells + (walk->k * n->batch + b) * size;
        const float *dy = walk->call->dy ? walk->call->dy + y_at(n, t, b, walk->d) : NULL;
        float *dh = walk->dh + b * size, *dc = walk->dc + b * size;
        for (int64_t i = j; i < end; i += LANES) {
            if (over(n, t, b)) { /* dh and dc pass */
                for (int64_t gate = 0; gate < 4; gate++)
                    store_left(da + gate * size, splat(0), i, end);
                continue;
            }
            vec given = load_left(dh, i, end, 0), state = load_left(dc, i, end, 0);
            if (dy) given += load_left(dy, i, end, 0);
            back(walk, a, da, c, i, given, &state);
            store_left(dc, state, i, end);
            store_left(dh, splat(0), i, end);
        }
    }
}

static void peepholes(const struct walk *walk, float *dp, float *sum) {
    const struct recurrence *n = walk->n;
    const int64_t size = n->hidden, state = n->batch * size;
    const int64_t after[3] = {0, 1, 0};
    copy(dp, NULL, 3 * size);
    for (int64_t gate = 0; gate < 3; gate++)
        for (int64_t k = 0; k < n->times; k++) {
            sum_rows(walk->slab + time_of(walk, k) * 4 * state + gate * size, 4 * size,
                     walk->cells + (k + after[gate]) * state, size, n->batch, size, sum);
            for (int64_t j = 0; j < size; j++) dp[gate * size + j] += sum[j];
        }
}

/* The gates and the cell states of all times. */
static void compute_again(struct walk *walk, const float *x, const float *w, const float *r,
                          const float *before, float *bias, float *work) {
    const struct recurrence *n = walk->n;
    const int64_t size = n->hidden, gates = 4 * size, all = n->times * n->batch;
    const float *b = walk->call->b;
    if (b) both_biases(n, b, walk->d, 4, 0, bias);
    multiply_all(n, all, gates, n->inputs, x, n->inputs, 0, w, n->inputs, 1, walk->slab, gates, 0,
                 b ? bias : NULL, work);
    multiply_all(n, all, gates, size, before, size, 0, r, size, 1, walk->slab, gates, 1, NULL,
                 work);
    read_state(n, walk->call->c0, walk->d, walk->cells);
    gt_parallel(n->batch, states, walk, n->slots);
}

KERNEL(lstm_grad)(const struct lstm_grad *call) {
    const struct recurrence n = {call->times,      call->batch,   call->inputs, call->hidden,
                                 call->directions, call->reverse, call->layout, call->slots,
                                 call->lens};
    const int64_t size = n.hidden, gates = 4 * size, state = n.batch * size;
    const int64_t all = n.times * n.batch;
    float *bias = call->work, *dh = bias + gates, *dc = dh + state, *slab = dc + state;
    float *cells = slab + all * gates;
    float *before = cells + (call->kept ? 0 : (n.times + 1) * state);
    float *rows = before + all * size, *places = rows + (n.layout ? all * n.inputs : 0);
    float *work = places + panel_room(gates, size);
    for (int64_t d = 0; d < n.directions; d++) {
        const float *w = call->w + d * gates * n.inputs, *r = call->r + d * gates * size;
        const struct kept kept = kept_of(&n, call->kept, d);
        struct walk walk = {.call = call, .n = &n, .slab = slab, .dh = dh, .dc = dc, .d = d,
                            .gates = kept.gates ? kept.gates : slab,
                            .cells = kept.cells ? kept.cells : cells,
                            .p = call->p ? call->p + 3 * d * size : NULL};
        const float *x = x_rows(&n, call->x, 0, n.times, rows);
        states_before(&n, call->y, call->h0, d, before);
        if (!call->kept) compute_again(&walk, x, w, r, before, bias, work);
        read_state(&n, call->dy_h, d, dh);
        read_state(&n, call->dy_c, d, dc);
        for (int64_t b = 0; b < n.batch; b++)
            if (over(&n, 0, b)) copy(dh + b * size, NULL, size), copy(dc + b * size, NULL, size);
        walk.r = packed_places(r, size, gates, size, places);
        for (walk.k = n.times - 1; walk.k >= -1; walk.k--)
            gt_parallel(parts(size, TILE_COLUMNS), strip, &walk, n.slots);
        write_state(&n, dh, d, call->dh0, 0);
        write_state(&n, dc, d, call->dc0, 0);
        if (call->dw)
            multiply_all(&n, gates, n.inputs, all, slab, gates, 1, x, n.inputs, 0,
                         call->dw + d * gates * n.inputs, n.inputs, 0, NULL, work);
        if (call->dr)
            multiply_all(&n, gates, size, all, slab, gates, 1, before, size, 0,
                         call->dr + d * gates * size, size, 0, NULL, work);
        if (call->db) {
            float *db = call->db + 2 * d * gates;
            sum_rows(slab, gates, NULL, 0, all, gates, db);
            copy(db + gates, db, gates);
        }
        if (call->dp) peepholes(&walk, call->dp + 3 * d * size, bias);
        if (call->dx) input_gradient(&n, d, slab, gates, w, call->dx, rows, work);
    }
}
