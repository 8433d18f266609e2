/* A line of a whole schedule: its lists, and all bytes counted anew; see line.h. */
#include "line.h"

struct walk_load {
    struct line *line;
};

/* Sets up the entries of `place`, the lists, and all bytes. */
KERNEL(walk_load)(const struct walk_load *call) {
    struct line *line = call->line;
    struct stand *now = line->now;
    const int64_t count = now->count;
    now->same = now->used = now->free = now->logged = now->begun = now->dirty = now->dead = 0;
    now->extra = -line->total;
    for (int64_t n = 0; n < line->room; n++) line->next[n] = n + 1;
    for (int64_t list = 0; list < line->steps + line->storages; list++) {
        line->heads[list] = -1;
        line->tails[list] = 0;
    }
    for (int64_t i = 0; i < count; i++) {
        line->entries[i] = (entry_t)(i + 1) << 60;
        line->alive[i] = line->saved[i] = 0;
    }
    for (int64_t i = count; i-- > 0;) {
        const int64_t p = line->place[i];
        SHARED(line_put)(line, p, line->entries[i]);
        EACH(j, r, reads, p) SHARED(line_put)(line, uses(line, r), line->entries[i]);
        now->extra += line->costs[p];
        now->used += line->links[p];
    }
    line->above[count] = 0;
    for (int64_t i = 0; i < count; i++) line->above[i] = 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t p = line->place[i];
        const entry_t entry = line->entries[i];
        if (is_first(line, entry)) line->above[i] += line->staying[p];
        EACH(j, r, fleeting, p) {
            const entry_t end = end_of(line, r, entry);
            if (end == entry) continue;
            line->above[i] += line->bytes[r];
            line->above[at(line, end) + 1] -= line->bytes[r];
        }
    }
    int64_t alive = line->fixed;
    for (int64_t i = 0; i < count; i++) {
        alive += line->above[i];
        line->alive[i] = alive + line->beside[line->place[i]];
    }
    for (int64_t i = 0; i < count; i++) SHARED(line_save)(line, line->entries[i]);
}
