/* LSTM, of sigmoid and tanh: gates in the order i, o, f, c in the rows of W and R.
 *
 *     i, f = sigmoid(W x + R h + b + p c)    g = tanh(W x + R h + b)    c' = f c + i g
 *     o = sigmoid(W x + R h + b + p c')      h' = o tanh(c')
 *
 * A sample that has ended keeps its states and shows 0.
 * What lstm_grad reads of `kept`, if it is not NULL, is written there; see lstm.h.
 * Source: ONNX LSTM-22; gradtool's numpy kernels.  Workspace: gradtool.native.recurrent.lstm_work.
 */
#include "lstm.h"

struct lstm {
    const float *x, *w, *r, *b;
    const void *lens;
    const float *h0, *c0, *p;
    float *y, *y_h, *y_c, *kept, *work;
    int64_t times, batch, inputs, hidden, directions, reverse, layout, slots;
};

struct step {
    const struct lstm *call;
    const struct recurrence *n;
    const float *p;
    struct panels r[4];
    float *gates, *h, *next, *c, *after; /* the cell states after the step, or NULL */
    int64_t t, d;
};

static void strip(void *argument, int64_t chunk, int64_t slot) {
    const struct step *step = argument;
    const struct recurrence *n = step->n;
    const int64_t size = n->hidden, j = chunk * TILE_COLUMNS, end = least(size, j + TILE_COLUMNS);
    (void)slot;
    for (int64_t gate = 0; gate < 4; gate++)
        by_panels(n->batch, end - j, size, step->h, size, 0, one_panel(step->r[gate], chunk),
                  step->gates + gate * size + j, 4 * size, 1, 1);
    for (int64_t b = 0; b < n->batch; b++) {
        const int ended = over(n, step->t, b);
        float *y = step->call->y ? step->call->y + y_at(n, step->t, b, step->d) : NULL;
        float *state = step->c + b * size;
        for (int64_t i = j; i < end; i += LANES) {
            const vec c = load_left(state, i, end, 0);
            float *a = step->gates + 4 * b * size;
            const struct cell cell = activate(a, c, step->p, i, size);
            const vec h = ended ? load_left(step->h + b * size, i, end, 0)
                                : cell.o * vec_tanh(cell.next);
            store_left(step->next + b * size, h, i, end);
            if (!ended) store_left(state, cell.next, i, end);
            if (step->after) {
                store_gates(a, &cell, i, end, size);
                store_left(step->after + b * size, ended ? c : cell.next, i, end);
            }
            if (y) store_left(y, ended ? splat(0) : h, i, end);
        }
    }
}

KERNEL(lstm)(const struct lstm *call) {
    const struct recurrence n = {call->times,      call->batch,   call->inputs, call->hidden,
                                 call->directions, call->reverse, call->layout, call->slots,
                                 call->lens};
    const int64_t size = n.hidden, state = n.batch * size, many = at_once(&n);
    float *bias = call->work, *h = bias + 4 * size, *next = h + state, *c = next + state;
    float *room = c + state, *rows = room + (call->kept ? 0 : many * n.batch * 4 * size);
    float *panels = rows + (n.layout ? many * n.batch * n.inputs : 0);
    float *work = panels + 4 * panel_room(size, size);
    for (int64_t d = 0; d < n.directions; d++) {
        struct step step = {.call = call, .n = &n, .h = h, .next = next, .c = c, .d = d};
        const struct kept kept = kept_of(&n, call->kept, d);
        step.p = call->p ? call->p + 3 * d * size : NULL;
        for (int64_t gate = 0; gate < 4; gate++)
            step.r[gate] = panels_of_lines(call->r + (4 * d + gate) * size * size, size, size, size,
                                           panels + gate * panel_room(size, size));
        if (call->b) both_biases(&n, call->b, d, 4, 0, bias);
        read_state(&n, call->h0, d, step.h);
        read_state(&n, call->c0, d, c);
        if (kept.cells) read_state(&n, call->c0, d, kept.cells);
        for (int64_t start = 0; start < n.times; start += many) {
            const int64_t count = least(many, n.times - start);
            const int64_t low = backwards(&n, d) ? n.times - start - count : start;
            float *gates = kept.gates ? kept.gates + low * n.batch * 4 * size : room;
            multiply_all(&n, count * n.batch, 4 * size, n.inputs,
                         x_rows(&n, call->x, low, count, rows), n.inputs, 0,
                         call->w + 4 * d * size * n.inputs, n.inputs, 1, gates, 4 * size, 0,
                         call->b ? bias : NULL, work);
            for (int64_t k = 0; k < count; k++) {
                const int64_t place = backwards(&n, d) ? count - 1 - k : k;
                step.t = low + place;
                step.gates = gates + place * n.batch * 4 * size;
                step.after = kept.cells ? kept.cells + (start + k + 1) * state : NULL;
                gt_parallel(parts(size, TILE_COLUMNS), strip, &step, n.slots);
                float *last = step.h;
                step.h = step.next, step.next = last;
            }
        }
        write_state(&n, step.h, d, call->y_h, 1);
        write_state(&n, c, d, call->y_c, 1);
    }
}
