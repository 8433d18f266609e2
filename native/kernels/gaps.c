/* Packing of buffers: the inner loops of gradtool/planning/packing, in integers.
 *
 * fill_gaps places buffers one by one into a gap between those that live with them: the lowest, the
 * tightest, or the highest below the capacity.  skyline places next whichever can lie lowest on
 * what is placed.  Both decide as their twins in numpy do: the same offsets, tie by tie.
 * Workspace in bytes: 32 (fixed + count), and 40 count.
 */
#include "gradtool.h"

#include <string.h>

enum { LOWEST, TIGHTEST, HIGHEST };

struct placed {
    int64_t begin, end, bottom, top;
};

struct fill_gaps {
    const int64_t *start, *stop, *size, *order, *around;
    int64_t *found, *left, *counts;
    struct placed *work;
    int64_t count, fixed, capacity, most, rule;
};

/* Where `size` fits, or -1; what is placed is sorted by its bottom. */
static int64_t gap(const struct placed *seen, int64_t count, int64_t begin, int64_t end,
                   int64_t size, int64_t capacity, int64_t rule) {
    int64_t reach = 0, found = -1, tightest = INT64_MAX;
    for (int64_t i = 0; i <= count; i++) {
        const int last = i == count;
        if (!last && (seen[i].begin >= end || seen[i].end <= begin)) continue;
        const int64_t limit = last ? capacity : seen[i].bottom, room = limit - reach;
        if (room >= size) {
            if (rule == LOWEST) return reach;
            if (rule == HIGHEST) found = limit - size;
            if (rule == TIGHTEST && room < tightest) {
                found = reach;
                tightest = room;
            }
        }
        if (!last) reach = most(reach, seen[i].top);
    }
    return found;
}

/* The first place whose bottom is no less. */
static int64_t slot_of(const struct placed *seen, int64_t count, int64_t bottom) {
    int64_t low = 0, high = count;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (seen[middle].bottom < bottom) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* counts: how many found no place, listed in `left`; the sum over those that were tried of what was
 * placed before; how many were tried. */
KERNEL(fill_gaps)(const struct fill_gaps *call) {
    struct placed *seen = call->work;
    int64_t count = call->fixed, lost = 0, pairs = 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t item = call->around[i], bottom = call->found[item];
        seen[i] = (struct placed){call->start[item], call->stop[item], bottom,
                                  bottom + call->size[item]};
    }
    for (int64_t i = 0; i < call->count; i++) {
        const int64_t item = call->order[i], size = call->size[item];
        pairs += count;
        call->counts[2] = i + 1;
        const int64_t offset = gap(seen, count, call->start[item], call->stop[item], size,
                                   call->capacity, call->rule);
        if (offset < 0) {
            call->left[lost++] = item;
            if (lost > call->most) break;
            continue;
        }
        call->found[item] = offset;
        const int64_t slot = slot_of(seen, count, offset);
        memmove(seen + slot + 1, seen + slot, (size_t)(count - slot) * sizeof *seen);
        seen[slot] = (struct placed){call->start[item], call->stop[item], offset, offset + size};
        count++;
    }
    call->counts[0] = lost;
    call->counts[1] = pairs;
}

struct resting {
    int64_t item, begin, end, size, low;
};

struct skyline {
    const int64_t *start, *stop, *size, *order;
    int64_t *found;
    struct resting *work;
    int64_t count;
};

KERNEL(skyline)(const struct skyline *call) {
    struct resting *rest = call->work;
    int64_t count = call->count;
    for (int64_t i = 0; i < count; i++) {
        const int64_t item = call->order[i];
        rest[i] = (struct resting){item, call->start[item], call->stop[item], call->size[item], 0};
    }
    for (; count > 0; count--) {
        int64_t next = 0;
        for (int64_t i = 1; i < count; i++)
            if (rest[i].low < rest[next].low) next = i;
        const struct resting here = rest[next];
        const int64_t top = here.low + here.size;
        call->found[here.item] = here.low;
        memmove(rest + next, rest + next + 1, (size_t)(count - next - 1) * sizeof *rest);
        for (int64_t i = 0; i < count - 1; i++)
            if (rest[i].begin < here.end && rest[i].end > here.begin)
                rest[i].low = most(rest[i].low, top);
    }
}
