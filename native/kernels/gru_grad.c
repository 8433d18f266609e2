/* Gradients of GRU by X, W, R, B and the initial state, from Y and its gradients.
 *
 * The gates of all times are computed again (Y holds every hidden state), and q: R h_ + Rb if
 * `linear`, else r h_.  The walk backwards replaces gates by the gradients of their
 * pre-activations, and the former q by its gradient:
 *
 *     dz = dh (h_ - n) z'    dn = dh (1 - z) n'
 *     linear:  dq = dn r     dr = dn q r'       dh_ = dh z + [dz, dr, dq] R
 *     else:    ds = dn R     dr = ds h_ r'      dh_ = dh z + [dz, dr] R + ds r
 *
 * Every output may be NULL, and so may each given gradient.
 * Source: gradtool's numpy kernels.  Workspace: gradtool.native.recurrent.gru_grad_work.
 */
#include "recurrent.h"

struct gru_grad {
    const float *x, *w, *r, *b;
    const void *lens;
    const float *h0, *y, *dy, *dy_h;
    float *dx, *dw, *dr, *db, *dh0, *work;
    int64_t times, batch, inputs, hidden, directions, reverse, layout, linear, slots;
};

struct walk {
    const struct gru_grad *call;
    const struct recurrence *n;
    struct panels gates_r, new_r; /* of R: its first two gates, and the last */
    float *slab, *q, *dh;
    const float *before, *inner;
    int64_t t, after, d; /* the time, and the one after it in the order of forward or -1 */
};

/* z and r; q too, but for the product that is in it or that it is in. */
static void gates_of(void *argument, int64_t row, int64_t slot) {
    const struct walk *walk = argument;
    const int64_t size = walk->n->hidden, linear = walk->call->linear;
    float *a = walk->slab + 3 * row * size, *q = walk->q + row * size;
    (void)slot;
    for (int64_t j = 0; j < size; j += LANES) {
        const vec r = vec_sigmoid(load_left(a + size, j, size, 0));
        store_left(a, vec_sigmoid(load_left(a, j, size, 0)), j, size);
        store_left(a + size, r, j, size);
        if (!linear) {
            store_left(q, r * load_left(walk->before + row * size, j, size, 0), j, size);
            continue;
        }
        vec link = load_left(q, j, size, 0);
        if (walk->inner) link += load_left(walk->inner, j, size, 0);
        store_left(q, link, j, size);
        store_left(a + 2 * size, vec_tanh(load_left(a + 2 * size, j, size, 0) + link * r), j, size);
    }
}

static void bend(void *argument, int64_t row, int64_t slot) {
    const struct walk *walk = argument;
    const int64_t size = walk->n->hidden;
    float *a = walk->slab + (3 * row + 2) * size;
    (void)slot;
    for (int64_t j = 0; j < size; j += LANES)
        store_left(a, vec_tanh(load_left(a, j, size, 0)), j, size);
}

/* What the time after gives to the state of some units; then dz and dn, and if linear dr and dq.
 * dh becomes what passes to the time before, but for products. */
static void first(void *argument, int64_t chunk, int64_t slot) {
    const struct walk *walk = argument;
    const struct recurrence *n = walk->n;
    const int64_t size = n->hidden, j = chunk * TILE_COLUMNS, end = least(size, j + TILE_COLUMNS);
    const int64_t linear = walk->call->linear;
    (void)slot;
    if (walk->after >= 0) {
        const int64_t rows = walk->after * n->batch;
        by_panels(n->batch, end - j, 2 * size, walk->slab + 3 * rows * size, 3 * size, 0,
                  one_panel(walk->gates_r, chunk), walk->dh + j, size, 1, 1);
        if (linear)
            by_panels(n->batch, end - j, size, walk->q + rows * size, size, 0,
                      one_panel(walk->new_r, chunk), walk->dh + j, size, 1, 1);
    }
    if (walk->t < 0) return;
    for (int64_t b = 0; b < n->batch; b++) {
        const int64_t row = walk->t * n->batch + b;
        float *a = walk->slab + 3 * row * size, *q = walk->q + row * size;
        float *dh = walk->dh + b * size;
        const float *dy = walk->call->dy ? walk->call->dy + y_at(n, walk->t, b, walk->d) : NULL;
        for (int64_t i = j; i < end; i += LANES) {
            if (over(n, walk->t, b)) { /* dh passes */
                for (int64_t gate = 0; gate < 3; gate++)
                    store_left(a + gate * size, splat(0), i, end);
                store_left(q, splat(0), i, end);
                continue;
            }
            vec d = load_left(dh, i, end, 0);
            if (dy) d += load_left(dy, i, end, 0);
            const vec z = load_left(a, i, end, 0), new = load_left(a + 2 * size, i, end, 0);
            const vec h = load_left(walk->before + row * size, i, end, 0);
            const vec dn = d * (1.0f - z) * (1.0f - new * new);
            store_left(a, d * (h - new) * (1.0f - z) * z, i, end);
            store_left(a + 2 * size, dn, i, end);
            store_left(dh, d * z, i, end);
            if (!linear) continue;
            const vec r = load_left(a + size, i, end, 0);
            store_left(a + size, dn * load_left(q, i, end, 0) * (1.0f - r) * r, i, end);
            store_left(q, dn * r, i, end);
        }
    }
}

/* Not linear: ds, in `ds`, and from it dr. */
static void second(void *argument, int64_t chunk, int64_t slot) {
    const struct walk *walk = argument;
    const struct recurrence *n = walk->n;
    const int64_t size = n->hidden, j = chunk * TILE_COLUMNS, end = least(size, j + TILE_COLUMNS);
    float *slab = walk->slab + 3 * walk->t * n->batch * size, *ds = walk->dh + n->batch * size;
    (void)slot;
    by_panels(n->batch, end - j, size, slab + 2 * size, 3 * size, 0, one_panel(walk->new_r, chunk),
              ds + j, size, 1, 0);
    for (int64_t b = 0; b < n->batch; b++) {
        if (over(n, walk->t, b)) continue;
        float *r_at = slab + (3 * b + 1) * size, *dh = walk->dh + b * size;
        const float *before = walk->before + (walk->t * n->batch + b) * size;
        for (int64_t i = j; i < end; i += LANES) {
            const vec r = load_left(r_at, i, end, 0), d = load_left(ds + b * size, i, end, 0);
            store_left(r_at, d * load_left(before, i, end, 0) * (1.0f - r) * r, i, end);
            store_left(dh, load_left(dh, i, end, 0) + d * r, i, end);
        }
    }
}

/* The gates and q of every time. */
static void again(struct walk *walk, const float *x, const float *w, const float *r,
                  const float *bias, float *work) {
    const struct recurrence *n = walk->n;
    const int64_t size = n->hidden, all = n->times * n->batch, linear = walk->call->linear;
    const float *last = r + 2 * size * size;
    multiply_all(n, all, 3 * size, n->inputs, x, n->inputs, 0, w, n->inputs, 1, walk->slab,
                 3 * size, 0, bias, work);
    multiply_all(n, all, 2 * size, size, walk->before, size, 0, r, size, 1, walk->slab, 3 * size, 1,
                 NULL, work);
    if (linear)
        multiply_all(n, all, size, size, walk->before, size, 0, last, size, 1, walk->q, size, 0,
                     NULL, work);
    gt_parallel(all, gates_of, walk, n->slots);
    if (linear) return;
    multiply_all(n, all, size, size, walk->q, size, 0, last, size, 1, walk->slab + 2 * size,
                 3 * size, 1, NULL, work);
    gt_parallel(all, bend, walk, n->slots);
}

static void walk_back(struct walk *walk) {
    const struct recurrence *n = walk->n;
    const int64_t strips = parts(n->hidden, TILE_COLUMNS);
    walk->after = -1;
    for (int64_t k = n->times - 1; k >= -1; k--) {
        walk->t = k < 0 ? -1 : backwards(n, walk->d) ? n->times - 1 - k : k;
        gt_parallel(strips, first, walk, n->slots);
        if (k >= 0 && !walk->call->linear) gt_parallel(strips, second, walk, n->slots);
        walk->after = walk->t;
    }
}

KERNEL(gru_grad)(const struct gru_grad *call) {
    const struct recurrence n = {call->times,      call->batch,   call->inputs, call->hidden,
                                 call->directions, call->reverse, call->layout, call->slots,
                                 call->lens};
    const int64_t size = n.hidden, gates = 3 * size, state = n.batch * size;
    const int64_t all = n.times * n.batch, linear = call->linear;
    float *bias = call->work, *dh = bias + gates, *slab = dh + 2 * state, *q = slab + all * gates;
    float *before = q + all * size, *rows = before + all * size;
    float *places = rows + (n.layout ? all * n.inputs : 0);
    float *new_places = places + panel_room(2 * size, size);
    float *work = new_places + panel_room(size, size);
    for (int64_t d = 0; d < n.directions; d++) {
        const float *w = call->w + d * gates * n.inputs, *r = call->r + d * gates * size;
        struct walk walk = {.call = call, .n = &n, .slab = slab, .q = q, .dh = dh, .d = d,
                            .before = before};
        if (call->b && linear) walk.inner = call->b + (6 * d + 5) * size;
        const float *x = x_rows(&n, call->x, 0, n.times, rows);
        states_before(&n, call->y, call->h0, d, before);
        if (call->b) both_biases(&n, call->b, d, 3, linear, bias);
        again(&walk, x, w, r, call->b ? bias : NULL, work);
        read_state(&n, call->dy_h, d, dh);
        for (int64_t b = 0; b < n.batch; b++)
            if (over(&n, 0, b)) copy(dh + b * size, NULL, size);
        walk.gates_r = packed_places(r, size, 2 * size, size, places);
        walk.new_r = packed_places(r + 2 * size * size, size, size, size, new_places);
        walk_back(&walk);
        write_state(&n, dh, d, call->dh0, 0);
        if (call->dw)
            multiply_all(&n, gates, n.inputs, all, slab, gates, 1, x, n.inputs, 0,
                         call->dw + d * gates * n.inputs, n.inputs, 0, NULL, work);
        if (call->dr) {
            float *dr = call->dr + d * gates * size, *last = dr + 2 * size * size;
            multiply_all(&n, 2 * size, size, all, slab, gates, 1, before, size, 0, dr, size, 0,
                         NULL, work);
            multiply_all(&n, size, size, all, linear ? q : slab + 2 * size, linear ? size : gates,
                         1, linear ? before : q, size, 0, last, size, 0, NULL, work);
        }
        if (call->db) {
            float *db = call->db + 2 * d * gates;
            sum_rows(slab, gates, NULL, 0, all, gates, db);
            copy(db + gates, db, gates);
            if (linear) sum_rows(q, size, NULL, 0, all, size, db + gates + 2 * size);
        }
        if (call->dx) input_gradient(&n, d, slab, gates, w, call->dx, rows, work);
    }
}
