/* Running a step again right before an entry, or an entry elsewhere; see line.h.
 *
 * Steps that draw at random never pass each other, nor does what reads a parameter pass what
 * overwrites it.
 */
#include "line.h"

#define DEPTH 200
#define MOST 256   /* runs that one change puts in */
#define COUNTED 64 /* steps of which it is found out what they cost together */
#define GROUP 6    /* runs that go before an entry together */

/* Whether what a storage holds is alive at a reader, or there is room to keep it until then. */
static int is_kept(const struct line *line, int64_t r, entry_t end, entry_t reader, int64_t room) {
    return end >= reader || most_between(line, end, reader) + line->bytes[r] <= room;
}

/* Runs a step again right before an entry.  What it reads and is not alive there stays alive where
 * memory has room for it, and is else computed again too. */
int SHARED(line_again)(struct line *line, int64_t p, entry_t reader, int64_t room, int64_t depth) {
    const entry_t entry = free_before(line, reader);
    if (!entry || depth > DEPTH) return 0;
    EACH(i, r, reads, p) {
        const entry_t end = until(line, r, entry);
        if (end) {
            if (!line->drops[r] || is_kept(line, r, end, entry, room)) continue;
        } else if (!line->may_drop[r]) {
            return 0;
        }
        if (!SHARED(line_again)(line, line->maker[r], entry, room, depth + 1)) return 0;
    }
    if (!free_before(line, reader) || is_there(line, entry) || line->now->changes >= MOST ||
        !has_room(line, p))
        return 0;
    SHARED(line_add)(line, entry, p);
    return 1;
}

/* What a step costs with those whose results it reads that are not alive at an entry. */
int64_t SHARED(line_near)(const struct line *line, int64_t p, entry_t reader) {
    int64_t cost = line->costs[p];
    EACH(i, r, reads, p)
        if (line->drops[r] && line->tails[uses(line, r)] < reader)
            cost += line->costs[line->maker[r]];
    return cost;
}

/* What it costs to run a step again before an entry, with what is missing there.  Of a great many
 * steps that are missing, some are left out. */
int64_t SHARED(line_cost)(struct line *line, int64_t p, entry_t reader, int64_t room) {
    const int64_t stamp = ++line->now->stamp;
    int64_t waiting[COUNTED], count = 0, seen = 1, cost = 0;
    waiting[count++] = p;
    line->marks[p] = stamp;
    while (count) {
        const int64_t q = waiting[--count];
        cost += line->costs[q];
        EACH(i, r, reads, q) {
            const int64_t maker = line->maker[r];
            if (line->marks[maker] == stamp || !line->drops[r] || seen >= COUNTED) continue;
            const entry_t end = until(line, r, reader);
            if (end && is_kept(line, r, end, reader, room)) continue;
            line->marks[maker] = stamp;
            seen++;
            waiting[count++] = maker;
        }
    }
    return cost;
}

/* Finds the storages that are alive over entry number i and not touched there; how many. */
int64_t SHARED(line_idle)(struct line *line, int64_t i) {
    const entry_t entry = line->entries[i];
    const int64_t here = line->place[i], stamp = ++line->now->stamp;
    int64_t found = 0;
    EACH(j, r, reads, here) line->marks[r] = stamp;
    EACH(j, r, writes, here) line->marks[r] = stamp;
    for (int64_t k = 0; k < line->storages; k++) {
        const int64_t r = line->made[k], list = uses(line, r);
        if (line->tails[list] <= entry || !line->drops[r] || line->marks[r] == stamp) continue;
        const entry_t run = run_of(line, r, entry), reader = from(line, list, entry + 1);
        if (!run || reader >= from(line, line->maker[r], entry)) continue;
        const entry_t use = below(line, list, entry + 1);
        line->idle[found++] =
            (struct item){.root = r, .last = use > run ? use : run, .reader = reader};
    }
    line->now->idle = found;
    return found;
}

/* Whether the steps of some entries may pass those of entries from number i to j, but each other. */
static int may_pass(struct line *line, const entry_t *group, int64_t count, int64_t i, int64_t j) {
    const int64_t stamp = ++line->now->stamp;
    int is_random = 0, is_apart = 0;
    for (int64_t k = 0; k < count; k++) {
        const int64_t p = place(line, group[k]);
        is_random |= line->is_random[p] != 0;
        EACH(a, q, apart, p) {
            line->marks[q] = stamp;
            is_apart = 1;
        }
    }
    if (!is_random && !is_apart) return 1;
    for (; i < j; i++) {
        int is_moved = 0;
        for (int64_t k = 0; k < count; k++) is_moved |= group[k] == line->entries[i];
        const int64_t q = line->place[i];
        if (!is_moved && (line->marks[q] == stamp || (is_random && line->is_random[q]))) return 0;
    }
    return 1;
}

static int move(struct line *line, entry_t entry, entry_t before) {
    const entry_t free = free_before(line, before);
    const int64_t p = place(line, entry);
    if (!free || !has_room(line, p)) return 0;
    SHARED(line_add)(line, free, p);
    if (is_there(line, entry)) SHARED(line_remove)(line, entry);
    return 1;
}

static int is_among(const entry_t *group, int64_t count, entry_t entry) {
    for (int64_t k = 0; k < count; k++)
        if (group[k] == entry) return 1;
    return 0;
}

/* Lets an entry run before another, with what it needs from behind, if that is little. */
int SHARED(line_pull)(struct line *line, entry_t entry, entry_t before) {
    if (!is_there(line, entry) || !is_there(line, before) || entry < before) return 0;
    entry_t group[GROUP] = {entry}, waiting[GROUP] = {entry};
    int64_t count = 1, left = 1;
    while (left) {
        const entry_t other = waiting[--left];
        EACH(i, r, reads, place(line, other)) {
            const entry_t run = run_of(line, r, other);
            if (!run || run == before || (run > before && count == GROUP)) return 0;
            if (run > before && !is_among(group, count, run))
                group[count++] = waiting[left++] = run;
        }
    }
    if (!may_pass(line, group, count, at(line, before), at(line, entry))) return 0;
    for (entry_t done = 0; count--;) { /* in increasing order */
        entry_t least_left = BEYOND;
        for (int64_t k = 0; k < GROUP; k++)
            if (group[k] > done && group[k] < least_left) least_left = group[k];
        if (!move(line, least_left, before)) return 0;
        done = least_left;
    }
    return 1;
}

/* Lets a reader run before an entry, with what it reads computed again where it is gone. */
int SHARED(line_ahead)(struct line *line, entry_t entry, entry_t before, int64_t room) {
    if (!is_there(line, entry) || !is_there(line, before) || entry < before) return 0;
    const int64_t p = place(line, entry);
    EACH(i, r, reads, p)
        if (!run_of(line, r, before)) return 0;
    if (!may_pass(line, &entry, 1, at(line, before), at(line, entry)) ||
        !SHARED(line_again)(line, p, before, room, 0))
        return 0;
    if (is_there(line, entry)) SHARED(line_remove)(line, entry);
    return 1;
}

/* Lets an entry run later, right before another, which nobody needs it for earlier. */
int SHARED(line_push)(struct line *line, entry_t entry, entry_t before) {
    if (!is_there(line, entry) || !is_there(line, before)) return 0;
    EACH(i, r, writes, place(line, entry))
        if (before > from(line, uses(line, r), entry + 1)) return 0;
    if (!may_pass(line, &entry, 1, at(line, entry) + 1, at(line, before))) return 0;
    return move(line, entry, before);
}
