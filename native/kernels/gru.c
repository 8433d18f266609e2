/* GRU, of sigmoid and tanh: gates in the order z, r, h in the rows of W and R.
 *
 *     z, r = sigmoid(W x + R h + b)        h' = (h - n) z + n
 *     linear:  n = tanh(W x + Wb + r (R h + Rb))      else  n = tanh(W x + R (r h) + Wb + Rb)
 *
 * A sample that has ended keeps its state and shows 0.
 * Source: ONNX GRU-22; gradtool's numpy kernels.  Workspace: gradtool.native.recurrent.gru_work.
 */
#include "recurrent.h"

struct gru {
    const float *x, *w, *r, *b;
    const void *lens;
    const float *h0;
    float *y, *y_h, *work;
    int64_t times, batch, inputs, hidden, directions, reverse, layout, linear, slots;
};

struct step {
    const struct gru *call;
    const struct recurrence *n;
    const float *inner; /* the bias of R h where it is apart, or NULL */
    struct panels r[3];
    float *gates, *h, *next, *q;
    int64_t t, d;
};

INLINE void advance(const struct step *step, int64_t b, int64_t i, int64_t end, vec link) {
    const struct recurrence *n = step->n;
    const int64_t size = n->hidden;
    const float *a = step->gates + 3 * b * size;
    const vec h = load_left(step->h + b * size, i, end, 0);
    const vec z = vec_sigmoid(load_left(a, i, end, 0));
    const vec new = vec_tanh(load_left(a + 2 * size, i, end, 0) + link);
    const int ended = over(n, step->t, b);
    const vec next = ended ? h : (h - new) * z + new;
    store_left(step->next + b * size, next, i, end);
    if (step->call->y)
        store_left(step->call->y + y_at(n, step->t, b, step->d), ended ? splat(0) : next, i, end);
}

/* Gates z and r; then the state, or what R is multiplied by for it. */
static void first(void *argument, int64_t chunk, int64_t slot) {
    const struct step *step = argument;
    const struct recurrence *n = step->n;
    const int64_t size = n->hidden, j = chunk * TILE_COLUMNS, end = least(size, j + TILE_COLUMNS);
    const int64_t linear = step->call->linear;
    (void)slot;
    for (int64_t gate = 0; gate < 2; gate++)
        by_panels(n->batch, end - j, size, step->h, size, 0, one_panel(step->r[gate], chunk),
                  step->gates + gate * size + j, 3 * size, 1, 1);
    if (linear)
        by_panels(n->batch, end - j, size, step->h, size, 0, one_panel(step->r[2], chunk),
                  step->q + j, size, 1, 0);
    for (int64_t b = 0; b < n->batch; b++)
        for (int64_t i = j; i < end; i += LANES) {
            float *q = step->q + b * size;
            const vec r = vec_sigmoid(load_left(step->gates + (3 * b + 1) * size, i, end, 0));
            if (!linear) {
                store_left(q, r * load_left(step->h + b * size, i, end, 0), i, end);
                continue;
            }
            vec link = load_left(q, i, end, 0);
            if (step->inner) link += load_left(step->inner, i, end, 0);
            advance(step, b, i, end, link * r);
        }
}

static void second(void *argument, int64_t chunk, int64_t slot) {
    const struct step *step = argument;
    const struct recurrence *n = step->n;
    const int64_t size = n->hidden, j = chunk * TILE_COLUMNS, end = least(size, j + TILE_COLUMNS);
    (void)slot;
    by_panels(n->batch, end - j, size, step->q, size, 0, one_panel(step->r[2], chunk),
              step->gates + 2 * size + j, 3 * size, 1, 1);
    for (int64_t b = 0; b < n->batch; b++)
        for (int64_t i = j; i < end; i += LANES) advance(step, b, i, end, splat(0));
}

KERNEL(gru)(const struct gru *call) {
    const struct recurrence n = {call->times,      call->batch,   call->inputs, call->hidden,
                                 call->directions, call->reverse, call->layout, call->slots,
                                 call->lens};
    const int64_t size = n.hidden, state = n.batch * size, many = at_once(&n);
    float *bias = call->work, *h = bias + 3 * size, *next = h + state, *q = next + state;
    float *gates = q + state, *rows = gates + many * n.batch * 3 * size;
    float *panels = rows + (n.layout ? many * n.batch * n.inputs : 0);
    float *work = panels + 3 * panel_room(size, size);
    for (int64_t d = 0; d < n.directions; d++) {
        struct step step = {.call = call, .n = &n, .h = h, .next = next, .q = q, .d = d};
        if (call->b && call->linear) step.inner = call->b + (6 * d + 5) * size;
        for (int64_t gate = 0; gate < 3; gate++)
            step.r[gate] = panels_of_lines(call->r + (3 * d + gate) * size * size, size, size, size,
                                           panels + gate * panel_room(size, size));
        if (call->b) both_biases(&n, call->b, d, 3, call->linear, bias);
        read_state(&n, call->h0, d, step.h);
        for (int64_t start = 0; start < n.times; start += many) {
            const int64_t count = least(many, n.times - start);
            const int64_t low = backwards(&n, d) ? n.times - start - count : start;
            multiply_all(&n, count * n.batch, 3 * size, n.inputs,
                         x_rows(&n, call->x, low, count, rows), n.inputs, 0,
                         call->w + 3 * d * size * n.inputs, n.inputs, 1, gates, 3 * size, 0,
                         call->b ? bias : NULL, work);
            for (int64_t k = 0; k < count; k++) {
                const int64_t place = backwards(&n, d) ? count - 1 - k : k;
                step.t = low + place;
                step.gates = gates + place * n.batch * 3 * size;
                gt_parallel(parts(size, TILE_COLUMNS), first, &step, n.slots);
                if (!call->linear) gt_parallel(parts(size, TILE_COLUMNS), second, &step, n.slots);
                float *last = step.h;
                step.h = step.next, step.next = last;
            }
        }
        write_state(&n, step.h, d, call->y_h, 1);
    }
}
