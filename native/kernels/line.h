/* A schedule that is changed run by run: the bytes alive at each entry follow every change.
 *
 * An entry is a number of 128 bits, as each of many steps has 60 halvings before it; 0 is none.
 * An instance of a storage lives from a run of its step to the last use before the next run; what
 * nobody reads is taken out at once.  What a change costs does not depend on the length of the
 * schedule, but for moving the tails of arrays.
 * `entries` are sorted, with the step (`place`), the bytes alive and those saved at each.  The
 * entries at which a step runs and those that read a storage are sorted lists of nodes: list p is
 * of step p, list steps + r of storage r.
 */
#ifndef GRADTOOL_LINE_H
#define GRADTOOL_LINE_H

#include "gradtool.h"

typedef unsigned __int128 entry_t __attribute__((aligned(8)));
#define BEYOND (~(entry_t)0)

/* What Python reads and writes of a line: words in this order, see native/walk.py. */
struct stand {
    int64_t count, extra, used, changes, left; /* entries, work, links, since begun, effort */
    int64_t free, logged, dirty, dead, begun, deep, stamp; /* ends of lists; 1 or 0; marks */
    int64_t same, count_before, extra_before, used_before; /* `same`: see line_begin */
    int64_t idle, answer;
};

/* What may be taken next: the least price, then the least entry, then the least storage. */
struct item {
    double price, relieved;
    int64_t root;
    entry_t last, reader;
};

struct change {
    entry_t entry;
    int64_t step, sign;
};

/* Several numbers of each step or storage: `of` from at[i] to at[i + 1]. */
struct line {
    const int64_t *reads_at, *reads, *writes_at, *writes, *fleeting_at, *fleeting;
    const int64_t *donates_at, *donates, *apart_at, *apart;
    const int64_t *targets, *costs, *rank, *links, *staying, *beside, *is_result, *is_random;
    const int64_t *maker, *bytes, *stays, *is_read, *may_drop, *drops, *made; /* of storages */
    struct stand *now;
    entry_t *entries, *entries_before;
    int64_t *place, *alive, *saved, *place_before, *alive_before, *saved_before;
    entry_t *node;
    int64_t *next, *heads;
    entry_t *tails;
    struct change *log;
    entry_t *dirty, *dead;
    int64_t *marks, *weights, *over, *above; /* of steps and storages; of steps; of entries twice */
    entry_t *passed;                         /* two for each output of one step */
    struct item *idle, *seeming;
    int64_t steps, storages, room, fixed, total;
};

#define EACH(i, r, name, p)                                                             \
    for (int64_t i = line->name##_at[p], r; i < line->name##_at[(p) + 1] && (r = line->name[i], 1); \
         i++)

/* How many entries are before one. */
INLINE int64_t at(const struct line *line, entry_t entry) {
    int64_t low = 0, high = line->now->count;
    while (low < high) {
        const int64_t half = (low + high) / 2;
        if (line->entries[half] < entry)
            low = half + 1;
        else
            high = half;
    }
    return low;
}

INLINE int is_there(const struct line *line, entry_t entry) {
    const int64_t i = at(line, entry);
    return i < line->now->count && line->entries[i] == entry;
}

INLINE int64_t place(const struct line *line, entry_t entry) {
    return line->place[at(line, entry)];
}

/* The last of a list before an entry; 0 if there is none. */
INLINE entry_t below(const struct line *line, int64_t list, entry_t entry) {
    if (line->tails[list] < entry) return line->tails[list];
    entry_t found = 0;
    for (int64_t n = line->heads[list]; n >= 0 && line->node[n] < entry; n = line->next[n])
        found = line->node[n];
    return found;
}

/* The first of a list that is not before an entry; beyond all if there is none. */
INLINE entry_t from(const struct line *line, int64_t list, entry_t entry) {
    if (line->tails[list] < entry) return BEYOND;
    int64_t n = line->heads[list];
    while (n >= 0 && line->node[n] < entry) n = line->next[n];
    return n < 0 ? BEYOND : line->node[n];
}

INLINE int64_t uses(const struct line *line, int64_t r) { return line->steps + r; }

/* The run that makes the instance of a storage which an entry reads, or would read. */
INLINE entry_t run_of(const struct line *line, int64_t r, entry_t entry) {
    return below(line, line->maker[r], entry);
}

/* The last use of an instance; its run if nobody reads it. */
INLINE entry_t end_of(const struct line *line, int64_t r, entry_t run) {
    const entry_t next = from(line, line->maker[r], run + 1);
    const entry_t use = below(line, uses(line, r), next);
    return use > run ? use : run;
}

/* The last use of the instance that an entry reads, or would read; 0 if there is none. */
INLINE entry_t until(const struct line *line, int64_t r, entry_t entry) {
    const entry_t run = run_of(line, r, entry);
    if (!run) return 0;
    const entry_t use = below(line, uses(line, r), from(line, line->maker[r], entry));
    return use > run ? use : run;
}

/* Whether an instance ends where an entry reads it. */
INLINE int ends(const struct line *line, int64_t r, entry_t entry) {
    if (from(line, uses(line, r), entry) != entry || !run_of(line, r, entry)) return 0;
    return from(line, uses(line, r), entry + 1) >= from(line, line->maker[r], entry);
}

INLINE int is_first(const struct line *line, entry_t entry) {
    return line->node[line->heads[place(line, entry)]] == entry;
}

/* The most bytes alive at an entry between two others; 0 if there is none. */
INLINE int64_t most_between(const struct line *line, entry_t after, entry_t before) {
    int64_t found = 0;
    const int64_t last = at(line, before);
    for (int64_t i = at(line, after + 1); i < last; i++) found = most(found, line->alive[i]);
    return found;
}

INLINE int64_t peak(const struct line *line) {
    int64_t found = line->fixed;
    for (int64_t i = 0; i < line->now->count; i++) found = most(found, line->alive[i]);
    return found;
}

/* A free number right before an entry; 0 if there is no room. */
INLINE entry_t free_before(const struct line *line, entry_t entry) {
    const int64_t i = at(line, entry);
    const entry_t previous = i ? line->entries[i - 1] : 0, free = (previous + entry) / 2;
    return free > previous ? free : 0;
}

INLINE int has_room(const struct line *line, int64_t p) {
    return line->now->used + line->links[p] <= line->room;
}

/* line.c */
void SHARED(line_add)(struct line *line, entry_t entry, int64_t p);
void SHARED(line_remove)(struct line *line, entry_t entry);
void SHARED(line_begin)(struct line *line);
void SHARED(line_rollback)(struct line *line);
void SHARED(line_put)(struct line *line, int64_t list, entry_t entry);
void SHARED(line_save)(struct line *line, entry_t entry);

/* reruns.c: whether a change could be made; what it made until it could not is undone by who asked */
int SHARED(line_again)(struct line *line, int64_t p, entry_t reader, int64_t room, int64_t depth);
int64_t SHARED(line_cost)(struct line *line, int64_t p, entry_t reader, int64_t room);
int64_t SHARED(line_near)(const struct line *line, int64_t p, entry_t reader);
int64_t SHARED(line_idle)(struct line *line, int64_t i);
int SHARED(line_pull)(struct line *line, entry_t entry, entry_t before);
int SHARED(line_ahead)(struct line *line, entry_t entry, entry_t before, int64_t room);
int SHARED(line_push)(struct line *line, entry_t entry, entry_t before);

#endif
