/* The least cut between two nodes, with exact 64-bit capacities.
 *
 * Arcs are sorted by their tails (`starts`), and each has its reverse (`back`); `left` is what each
 * may still take, and becomes what is left.  `side` becomes 1 for what the source then reaches: of
 * all least cuts that of the fewest nodes, whatever flow was found.  value[0] becomes the flow, or
 * -1 if some way has no limit (2^61 or more).
 * Source: Dinic 1970, with the levels counted from the sink.
 * Workspace in bytes: 32 nodes.
 */
#include "gradtool.h"

#define UNLIMITED (INT64_C(1) << 61)

struct min_cut {
    const int64_t *heads, *starts, *back;
    int64_t *left, *value, *work;
    uint8_t *side;
    int64_t nodes, source, sink;
};

/* Levels from the sink over arcs with room, backwards; whether the source has one. */
static int levels(const struct min_cut *call, int64_t *level, int64_t *queue) {
    for (int64_t v = 0; v < call->nodes; v++) level[v] = -1;
    int64_t first = 0, last = 0;
    queue[last++] = call->sink;
    level[call->sink] = 0;
    while (first < last && level[call->source] < 0) {
        const int64_t v = queue[first++];
        for (int64_t a = call->starts[v]; a < call->starts[v + 1]; a++) {
            const int64_t u = call->heads[a];
            if (level[u] < 0 && call->left[call->back[a]] > 0) {
                level[u] = level[v] + 1;
                queue[last++] = u;
            }
        }
    }
    return level[call->source] >= 0;
}

/* Flows along ways that descend the levels until none is left; -1 if one has no limit. */
static int64_t blocking(const struct min_cut *call, int64_t *level, int64_t *next, int64_t *way) {
    int64_t total = 0, depth = 0, v = call->source;
    for (int64_t u = 0; u < call->nodes; u++) next[u] = call->starts[u];
    for (;;) {
        if (v == call->sink) {
            int64_t room = INT64_MAX;
            for (int64_t i = 0; i < depth; i++) room = least(room, call->left[way[i]]);
            if (room >= UNLIMITED) return -1;
            int64_t full = depth;
            for (int64_t i = depth; i-- > 0;) {
                call->left[way[i]] -= room;
                call->left[call->back[way[i]]] += room;
                if (call->left[way[i]] == 0) full = i;
            }
            total += room;
            depth = full;
            v = call->heads[call->back[way[full]]];
            continue;
        }
        int64_t a = next[v];
        while (a < call->starts[v + 1] &&
               (call->left[a] <= 0 || level[call->heads[a]] != level[v] - 1))
            a++;
        next[v] = a;
        if (a < call->starts[v + 1]) {
            way[depth++] = a;
            v = call->heads[a];
        } else if (v == call->source) {
            return total;
        } else {
            level[v] = -1;
            v = call->heads[call->back[way[--depth]]];
        }
    }
}

KERNEL(min_cut)(const struct min_cut *call) {
    int64_t *level = call->work, *next = level + call->nodes, *way = next + call->nodes;
    int64_t *queue = way + call->nodes;
    int64_t total = 0;
    while (levels(call, level, queue)) {
        const int64_t more = blocking(call, level, next, way);
        if (more < 0) {
            call->value[0] = -1;
            return;
        }
        total += more;
    }
    call->value[0] = total;
    for (int64_t v = 0; v < call->nodes; v++) call->side[v] = 0;
    int64_t first = 0, last = 0;
    queue[last++] = call->source;
    call->side[call->source] = 1;
    while (first < last) {
        const int64_t v = queue[first++];
        for (int64_t a = call->starts[v]; a < call->starts[v + 1]; a++)
            if (call->left[a] > 0 && !call->side[call->heads[a]]) {
                call->side[call->heads[a]] = 1;
                queue[last++] = call->heads[a];
            }
    }
}
