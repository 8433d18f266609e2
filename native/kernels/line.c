/* Runs that are put in and taken out, and the bytes alive that follow; see line.h. */
#include <string.h>

#include "line.h"

static void note(struct line *line, int64_t sign, entry_t entry, int64_t p) {
    line->now->changes++;
    if (line->now->begun) line->log[line->now->logged++] = (struct change){entry, p, sign};
}

void SHARED(line_put)(struct line *line, int64_t list, entry_t entry) {
    const int64_t n = line->now->free;
    line->now->free = line->next[n];
    int64_t *link = &line->heads[list];
    while (*link >= 0 && line->node[*link] < entry) link = &line->next[*link];
    line->node[n] = entry;
    line->next[n] = *link;
    *link = n;
    if (line->tails[list] < entry) line->tails[list] = entry;
}

static void take(struct line *line, int64_t list, entry_t entry) {
    int64_t *link = &line->heads[list];
    entry_t before = 0;
    while (line->node[*link] < entry) {
        before = line->node[*link];
        link = &line->next[*link];
    }
    const int64_t n = *link;
    *link = line->next[n];
    if (*link < 0) line->tails[list] = before;
    line->next[n] = line->now->free;
    line->now->free = n;
}

/* Says that entries from number i on are no longer as they are remembered. */
static void differ(struct line *line, int64_t i) { line->now->same = least(line->now->same, i); }

/* Adds bytes from one entry to another, both included. */
static void change(struct line *line, entry_t first, entry_t last, int64_t size) {
    const int64_t begin = at(line, first), end = at(line, last + 1);
    differ(line, begin);
    for (int64_t i = begin; i < end; i++) line->alive[i] += size;
}

static void touch(struct line *line, entry_t entry) {
    line->dirty[line->now->dirty++] = entry;
}

/* The first entry at which an instance that ended or ran there is not yet counted. */
static entry_t after(entry_t run, entry_t end) { return end == run ? run : end + 1; }

static int is_made(const struct line *line, int64_t r, entry_t entry) {
    if (line->stays[r]) return is_first(line, entry);
    return !line->is_read[r] || end_of(line, r, entry) > entry;
}

/* Counts what an entry saves by writing over an input that ends there. */
void SHARED(line_save)(struct line *line, entry_t entry) {
    const int64_t here = at(line, entry), p = line->place[here], target = line->targets[p];
    if (line->donates_at[p] == line->donates_at[p + 1]) return;
    int64_t saved = 0;
    if (is_made(line, target, entry))
        EACH(i, r, donates, p)
            if (!saved && ends(line, r, entry)) saved = line->bytes[target];
    differ(line, here);
    line->alive[here] += line->saved[here] - saved;
    line->saved[here] = saved;
}

static void use(struct line *line, int64_t r, entry_t entry) {
    const entry_t run = run_of(line, r, entry), end = end_of(line, r, run);
    SHARED(line_put)(line, uses(line, r), entry);
    if (end < entry && !line->stays[r]) change(line, after(run, end), entry, line->bytes[r]);
    touch(line, run);
    touch(line, end);
    touch(line, entry);
}

static void unuse(struct line *line, int64_t r, entry_t entry) {
    take(line, uses(line, r), entry);
    const entry_t run = run_of(line, r, entry), end = end_of(line, r, run);
    if (end < entry && !line->stays[r]) {
        change(line, after(run, end), entry, -line->bytes[r]);
        if (end == run) line->dead[line->now->dead++] = run;
    }
    touch(line, run);
    touch(line, end);
}

/* From a new run on, whoever reads a storage later reads that. */
static void divide(struct line *line, int64_t r, entry_t entry) {
    const entry_t run = run_of(line, r, entry), end = end_of(line, r, entry);
    if (end == entry) return;
    touch(line, end);
    if (!run) {
        change(line, entry, end, line->bytes[r]);
        return;
    }
    const entry_t last = end_of(line, r, run);
    change(line, after(run, last), entry - 1, -line->bytes[r]);
    touch(line, run);
    touch(line, last);
    if (last == run) line->dead[line->now->dead++] = run;
}

/* A run is gone: whoever read it until `end` reads the one before it, if there is one. */
static void join(struct line *line, int64_t r, entry_t run, entry_t entry, entry_t end) {
    if (end == entry) return;
    touch(line, end);
    if (!run) {
        change(line, entry, end, -line->bytes[r]);
        return;
    }
    const entry_t use = below(line, uses(line, r), entry), last = use > run ? use : run;
    change(line, after(run, last), entry - 1, line->bytes[r]);
    touch(line, run);
    touch(line, last);
}

/* Results live from the first run: counts where a run is before all others. */
static void stay(struct line *line, int64_t p, entry_t entry, int64_t sign) {
    const int64_t head = line->heads[p];
    const entry_t first = head < 0 ? BEYOND : line->node[head];
    if (!line->staying[p] || entry >= first) return;
    const entry_t last = head < 0 ? line->entries[line->now->count - 1] : first - 1;
    change(line, entry, last, sign * line->staying[p]);
}

/* Bytes alive between entry number i and the one before. */
static int64_t between(const struct line *line, int64_t i) {
    if (!i) return line->fixed;
    const int64_t p = line->place[i - 1];
    int64_t alive = line->alive[i - 1] - line->beside[p] + line->saved[i - 1];
    EACH(j, r, reads, p)
        if (!line->stays[r] && ends(line, r, line->entries[i - 1])) alive -= line->bytes[r];
    return alive;
}

/* Moves what is from entry number i on to number i + by. */
static void shift(struct line *line, int64_t i, int64_t by) {
    const size_t count = (size_t)(line->now->count - i);
    differ(line, least(i, i + by));
    memmove(line->entries + i + by, line->entries + i, count * sizeof(entry_t));
    memmove(line->place + i + by, line->place + i, count * sizeof(int64_t));
    memmove(line->alive + i + by, line->alive + i, count * sizeof(int64_t));
    memmove(line->saved + i + by, line->saved + i, count * sizeof(int64_t));
    line->now->count += by;
}

static void insert(struct line *line, entry_t entry, int64_t p) {
    const int64_t i = at(line, entry), alive = between(line, i);
    shift(line, i, 1);
    line->alive[i] = alive + line->beside[p];
    line->entries[i] = entry;
    line->place[i] = p;
    line->saved[i] = 0;
    EACH(j, r, reads, p) use(line, r, entry);
    stay(line, p, entry, 1);
    SHARED(line_put)(line, p, entry);
    EACH(j, r, fleeting, p) divide(line, r, entry);
    line->now->extra += line->costs[p];
    line->now->used += line->links[p];
    note(line, 1, entry, p);
}

static void erase(struct line *line, entry_t entry) {
    const int64_t p = place(line, entry);
    entry_t *run = line->passed, *end = run + line->fleeting_at[p + 1] - line->fleeting_at[p];
    const int64_t first = line->fleeting_at[p];
    EACH(j, r, fleeting, p) {
        run[j - first] = run_of(line, r, entry);
        end[j - first] = end_of(line, r, entry);
    }
    take(line, p, entry);
    stay(line, p, entry, -1);
    EACH(j, r, fleeting, p) join(line, r, run[j - first], entry, end[j - first]);
    EACH(j, r, reads, p) unuse(line, r, entry);
    shift(line, at(line, entry) + 1, -1);
    line->now->extra -= line->costs[p];
    line->now->used -= line->links[p];
    note(line, -1, entry, p);
}

/* Whether nobody reads what an entry makes, which is no result either. */
static int is_idle(const struct line *line, entry_t entry) {
    const int64_t p = place(line, entry);
    if (line->is_result[p] && is_first(line, entry)) return 0;
    EACH(i, r, fleeting, p)
        if (end_of(line, r, entry) != entry) return 0;
    return 1;
}

/* Takes out what nobody reads any more, and counts what is written in place. */
static void settle(struct line *line) {
    while (line->now->dead) {
        const entry_t entry = line->dead[--line->now->dead];
        if (is_there(line, entry) && is_idle(line, entry)) erase(line, entry);
    }
    while (line->now->dirty) {
        const entry_t entry = line->dirty[--line->now->dirty];
        if (is_there(line, entry)) SHARED(line_save)(line, entry);
    }
}

/* Lets a step run at a free number. All that it reads has run before. */
void SHARED(line_add)(struct line *line, entry_t entry, int64_t p) {
    touch(line, entry);
    insert(line, entry, p);
    settle(line);
}

/* Lets a step no longer run at an entry. Who reads it finds an earlier run. */
void SHARED(line_remove)(struct line *line, entry_t entry) {
    erase(line, entry);
    settle(line);
}

static void copy(void *to, const void *from, int64_t begin, int64_t end, size_t size) {
    const size_t bytes = (size_t)most(end - begin, 0) * size;
    memcpy((char *)to + (size_t)begin * size, (const char *)from + (size_t)begin * size, bytes);
}

/* Remembers how things stand: the first `same` entries already are. */
void SHARED(line_begin)(struct line *line) {
    struct stand *now = line->now;
    copy(line->entries_before, line->entries, now->same, now->count, sizeof(entry_t));
    copy(line->place_before, line->place, now->same, now->count, sizeof(int64_t));
    copy(line->alive_before, line->alive, now->same, now->count, sizeof(int64_t));
    copy(line->saved_before, line->saved, now->same, now->count, sizeof(int64_t));
    now->same = now->count_before = now->count;
    now->extra_before = now->extra;
    now->used_before = now->used;
    now->logged = now->changes = 0;
    now->begun = 1;
}

/* Undoes what was changed. */
void SHARED(line_rollback)(struct line *line) {
    struct stand *now = line->now;
    while (now->logged) {
        const struct change *last = &line->log[--now->logged];
        void (*undo)(struct line *, int64_t, entry_t) = last->sign > 0 ? take : SHARED(line_put);
        undo(line, last->step, last->entry);
        EACH(j, r, reads, last->step) undo(line, uses(line, r), last->entry);
    }
    now->count = now->count_before;
    now->extra = now->extra_before;
    now->used = now->used_before;
    now->begun = 0;
    copy(line->entries, line->entries_before, now->same, now->count, sizeof(entry_t));
    copy(line->place, line->place_before, now->same, now->count, sizeof(int64_t));
    copy(line->alive, line->alive_before, now->same, now->count, sizeof(int64_t));
    copy(line->saved, line->saved_before, now->same, now->count, sizeof(int64_t));
    now->same = now->count;
}
