/* Packing of buffers: the inner loops of gradtool/planning/packing, in integers.
 *
 * fill_gaps places buffers one by one into a gap between those that live with them: the lowest, the
 * tightest, or the highest below the capacity.  repeat_gaps does so again and again, with what ended
 * too high placed earlier.  skyline places next whichever can lie lowest on what is placed.  All
 * decide as their twins in numpy do: the same offsets, tie by tie.
 * Workspace in bytes: 24 (fixed + count), 24 count, and 40 count.
 */
#include "gradtool.h"

#include <string.h>

enum { LOWEST, TIGHTEST, HIGHEST };

/* Placed buffers by bottom, in arrays of their own, so that a run of them is compared at once. */
struct placed {
    int64_t *bottom, *top;
    int32_t *begin, *end;
};

struct fill_gaps {
    const int64_t *start, *stop, *size, *order, *around;
    int64_t *found, *left, *counts;
    int64_t *work;
    int64_t count, fixed, capacity, most, rule;
};

enum { RUN = 64 };

/* Where `size` fits, or -1; what is placed is sorted by its bottom. */
static int64_t gap(const struct placed *seen, int64_t count, int32_t begin, int32_t end,
                   int64_t size, int64_t capacity, int64_t rule) {
    int64_t reach = 0, found = -1, tightest = INT64_MAX;
    for (int64_t from = 0; from < count; from += RUN) {
        const int32_t *const begins = seen->begin + from, *const ends = seen->end + from;
        const int64_t here = least(count - from, RUN);
        uint8_t meets[RUN] = {0};
        for (int64_t i = 0; i < here; i++) meets[i] = (begins[i] < end) & (ends[i] > begin);
        for (int64_t word = 0; word < RUN / 8; word++) {
            uint64_t eight; /* the lowest byte is the first: little-endian, as all platforms are */
            memcpy(&eight, meets + 8 * word, sizeof eight);
            for (; eight; eight &= eight - 1) {
                const int64_t i = from + 8 * word + __builtin_ctzll(eight) / 8;
                const int64_t limit = seen->bottom[i], room = limit - reach;
                if (room >= size) {
                    if (rule == LOWEST) return reach;
                    if (rule == HIGHEST) found = limit - size;
                    if (rule == TIGHTEST && room < tightest) {
                        found = reach;
                        tightest = room;
                    }
                }
                reach = most(reach, seen->top[i]);
            }
        }
    }
    const int64_t room = capacity - reach;
    if (room < size || (rule == TIGHTEST && room >= tightest)) return found;
    return rule == HIGHEST ? capacity - size : reach;
}

/* The first place whose bottom is no less. */
static int64_t slot_of(const struct placed *seen, int64_t count, int64_t bottom) {
    int64_t low = 0, high = count;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (seen->bottom[middle] < bottom) low = middle + 1;
        else high = middle;
    }
    return low;
}

#define INSERT(array, slot, count, value)                                                  \
    do {                                                                                   \
        memmove((array) + (slot) + 1, (array) + (slot),                                    \
                (size_t)((count) - (slot)) * sizeof *(array));                             \
        (array)[slot] = (value);                                                           \
    } while (0)

/* counts: how many found no place, listed in `left`; the sum over those that were tried of what was
 * placed before; how many were tried. */
static void fill(const struct fill_gaps *call) {
    const int64_t all = call->fixed + call->count;
    int64_t *const sections = call->work + 2 * all;
    const struct placed seen = {call->work, call->work + all, (int32_t *)sections,
                                (int32_t *)sections + all};
    int64_t count = call->fixed, lost = 0, pairs = 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t item = call->around[i], bottom = call->found[item];
        seen.bottom[i] = bottom;
        seen.top[i] = bottom + call->size[item];
        seen.begin[i] = (int32_t)call->start[item];
        seen.end[i] = (int32_t)call->stop[item];
    }
    for (int64_t i = 0; i < call->count; i++) {
        const int64_t item = call->order[i], size = call->size[item];
        const int32_t begin = (int32_t)call->start[item], end = (int32_t)call->stop[item];
        pairs += count;
        call->counts[2] = i + 1;
        const int64_t offset = gap(&seen, count, begin, end, size, call->capacity, call->rule);
        if (offset < 0) {
            call->left[lost++] = item;
            if (lost > call->most) break;
            continue;
        }
        call->found[item] = offset;
        const int64_t slot = slot_of(&seen, count, offset);
        INSERT(seen.bottom, slot, count, offset);
        INSERT(seen.top, slot, count, offset + size);
        INSERT(seen.begin, slot, count, begin);
        INSERT(seen.end, slot, count, end);
        count++;
    }
    call->counts[0] = lost;
    call->counts[1] = pairs;
}

KERNEL(fill_gaps)(const struct fill_gaps *call) { fill(call); }

struct repeat_gaps {
    const int64_t *start, *stop, *size, *ranked;
    int64_t *blamed, *best, *lowest, *found, *order, *work, *bins;
    int64_t count, least, quarters, turns, levels;
};

/* What was blamed most first, of those blamed alike what is ranked first. */
static void blame_first(const struct repeat_gaps *call) {
    int64_t *const bins = call->bins;
    memset(bins, 0, (size_t)call->levels * sizeof *bins);
    for (int64_t i = 0; i < call->count; i++) bins[call->blamed[i]]++;
    for (int64_t level = call->levels - 1, before = 0; level >= 0; level--) {
        const int64_t here = bins[level];
        bins[level] = before;
        before += here;
    }
    for (int64_t i = 0; i < call->count; i++) {
        const int64_t item = call->ranked[i];
        call->order[bins[call->blamed[item]]++] = item;
    }
}

/* Packs so many times, or until `least` is reached, and blames each time what ends above a line:
 * quarters of the way from `least` to the top.  No buffer is blamed as often as there are levels.
 */
KERNEL(repeat_gaps)(const struct repeat_gaps *call) {
    int64_t counts[3], unused;
    const struct fill_gaps once = {
        .start = call->start, .stop = call->stop, .size = call->size, .order = call->order,
        .found = call->found, .left = &unused, .counts = counts, .work = call->work,
        .count = call->count, .capacity = INT64_MAX, .most = INT64_MAX, .rule = LOWEST,
    };
    for (int64_t turn = 0; turn < call->turns && *call->lowest > call->least; turn++) {
        blame_first(call);
        fill(&once);
        int64_t height = 0;
        for (int64_t i = 0; i < call->count; i++)
            height = most(height, call->found[i] + call->size[i]);
        if (height < *call->lowest) {
            *call->lowest = height;
            memcpy(call->best, call->found, (size_t)call->count * sizeof *call->best);
        }
        const int64_t line = call->least + call->quarters * (height - call->least) / 4;
        for (int64_t i = 0; i < call->count; i++)
            call->blamed[i] += call->found[i] + call->size[i] > line;
    }
}

struct skyline {
    const int64_t *start, *stop, *size, *order;
    int64_t *found;
    int64_t *work;
    int64_t count;
};

/* What is placed counts as infinitely high until half is; then it goes. */
KERNEL(skyline)(const struct skyline *call) {
    int64_t count = call->count, left = count;
    int64_t *const item = call->work, *const begin = item + count, *const end = begin + count,
                  *const size = end + count, *const low = size + count;
    for (int64_t i = 0; i < count; i++) {
        item[i] = call->order[i];
        begin[i] = call->start[item[i]];
        end[i] = call->stop[item[i]];
        size[i] = call->size[item[i]];
        low[i] = 0;
    }
    for (; left > 0; left--) {
        if (2 * left <= count) {
            int64_t kept = 0;
            for (int64_t i = 0; i < count; i++) {
                if (low[i] == INT64_MAX) continue;
                item[kept] = item[i];
                begin[kept] = begin[i];
                end[kept] = end[i];
                size[kept] = size[i];
                low[kept++] = low[i];
            }
            count = kept;
        }
        int64_t lowest = INT64_MAX, next = 0;
        for (int64_t i = 0; i < count; i++) lowest = least(lowest, low[i]);
        while (low[next] != lowest) next++;
        const int64_t top = lowest + size[next], from = begin[next], until = end[next];
        call->found[item[next]] = lowest;
        low[next] = INT64_MAX;
        for (int64_t i = 0; i < count; i++) {
            const int64_t raised = most(low[i], top);
            low[i] = ((begin[i] < until) & (end[i] > from)) ? raised : low[i];
        }
    }
}
