/* The cell of LSTM: gates i, o, f, c of some units of a sample, and what is kept of all of them. */
#ifndef GRADTOOL_LSTM_H
#define GRADTOOL_LSTM_H

#include "recurrent.h"

struct cell {
    vec i, o, f, g, next; /* activated gates and the new cell state */
};

/* From pre-activations `a`, the cell state before, and weights of peepholes or NULL. */
INLINE struct cell activate(const float *a, vec c, const float *p, int64_t j, int64_t hidden) {
    struct cell cell;
    vec i = load_left(a, j, hidden, 0), o = load_left(a + hidden, j, hidden, 0);
    vec f = load_left(a + 2 * hidden, j, hidden, 0);
    if (p) {
        i += c * load_left(p, j, hidden, 0);
        f += c * load_left(p + 2 * hidden, j, hidden, 0);
    }
    cell.i = vec_sigmoid(i);
    cell.f = vec_sigmoid(f);
    cell.g = vec_tanh(load_left(a + 3 * hidden, j, hidden, 0));
    cell.next = cell.f * c + cell.i * cell.g;
    if (p) o += cell.next * load_left(p + hidden, j, hidden, 0);
    cell.o = vec_sigmoid(o);
    return cell;
}

/* Activated gates in place of the pre-activations `a`. */
INLINE void store_gates(float *a, const struct cell *cell, int64_t j, int64_t end, int64_t hidden) {
    store_left(a, cell->i, j, end);
    store_left(a + hidden, cell->o, j, end);
    store_left(a + 2 * hidden, cell->f, j, end);
    store_left(a + 3 * hidden, cell->g, j, end);
}

/* Of a direction the activated gates [T, B, 4H], and the cell states [T + 1, B, H] in the order in
 * which forward takes the times: the first is the initial one.  Neither if nothing is kept. */
struct kept {
    float *gates, *cells;
};

INLINE struct kept kept_of(const struct recurrence *n, float *from, int64_t d) {
    const int64_t state = n->batch * n->hidden, gates = n->times * 4 * state;
    if (!from) return (struct kept){NULL, NULL};
    float *own = from + d * (gates + (n->times + 1) * state);
    return (struct kept){own, own + gates};
}

#endif
