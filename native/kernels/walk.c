/* Down to a budget by running steps again, and to the least work within it; see line.h.
 *
 * At the entry that is most above the budget all storages are scored that lie idle there: what their
 * step costs for each byte and entry that is relieved.  The best few are tried on the line, which
 * follows a change at the cost of what it touches.  Where none lowers the excess, the entries above
 * the budget weigh more and more, so that the search leaves a local minimum through what weighs
 * less: the breakout method for constraint satisfaction (Morris 1993, The Breakout Method for
 * Escaping from Local Minima, AAAI).
 */
#include "item_heap.h"

#define SCORED 32     /* storages of which it is found out what they cost */
#define VAIN 48       /* changes that are tried until one helps */
#define EACH_TRIAL 50 /* entries that a trial counts for, and each run that it put in or took out */
#define EACH_CHANGE 15
#define ALIKE 1.2 /* as cheap as the best change: layers that are alike change together */
#define READERS 4 /* of a storage that run before another entry */
#define TRIED (3 * VAIN)

/* Bytes above the budget, weighted and summed over a schedule. */
typedef __int128 excess_t;

enum kind { AGAIN, PULL, AHEAD, PUSH, END };

/* What may be done at an entry: a step again before it, with room for what it reads; or a move. */
struct trial {
    enum kind kind;
    int64_t step, room;
    entry_t entry, before;
    double price;
    excess_t gain;
};

struct walk_fit {
    struct line *line;
    int64_t budget, worth, patience, trials, ends;
};
struct walk_trim {
    struct line *line;
    int64_t budget;
};
struct walk_rerun_idle {
    struct line *line;
    int64_t root, room;
};
struct walk_each {
    struct line *line;
    int64_t number, count;
};

static void commit(struct line *line) { line->now->begun = line->now->logged = 0; }

static void pay(struct line *line) {
    struct stand *now = line->now;
    now->left -= EACH_TRIAL + now->count / 32 + EACH_CHANGE * now->changes;
}

/* Weighted bytes above the budget, entry by entry; their sum. */
static excess_t weigh(struct line *line, int64_t budget) {
    excess_t sum = 0;
    for (int64_t i = 0; i < line->now->count; i++) {
        const int64_t over = line->alive[i] - budget;
        line->over[i] = over > 0 ? over * line->weights[line->place[i]] : 0;
        sum += line->over[i];
    }
    return sum;
}

/* Lets all that reads an instance of a storage after an entry run before that. */
static int end(struct line *line, int64_t r, entry_t last, int64_t room) {
    for (int k = 0; k < READERS; k++) {
        const entry_t reader = from(line, uses(line, r), last + 1);
        if (reader == BEYOND || reader >= from(line, line->maker[r], last + 1)) return 1;
        if (!SHARED(line_ahead)(line, reader, last, room)) return 0;
    }
    return 0;
}

/* Makes a change; whether it lowers the excess, then with its price. */
static int is_better(struct line *line, struct trial *trial, int64_t budget, excess_t excess) {
    const int64_t extra = line->now->extra;
    SHARED(line_begin)(line);
    int is_done;
    if (trial->kind == AGAIN)
        is_done = is_there(line, trial->entry) &&
                  SHARED(line_again)(line, trial->step, trial->entry, trial->room, 0);
    else if (trial->kind == PULL)
        is_done = SHARED(line_pull)(line, trial->entry, trial->before);
    else if (trial->kind == AHEAD)
        is_done = SHARED(line_ahead)(line, trial->entry, trial->before, trial->room);
    else if (trial->kind == END)
        is_done = end(line, trial->step, trial->before, trial->room);
    else
        is_done = SHARED(line_push)(line, trial->entry, trial->before);
    pay(line);
    line->now->deep = line->now->changes > 1;
    if (!is_done) return 0;
    const double cost = (double)(line->now->extra - extra);
    const excess_t gain = trial->gain = excess - weigh(line, budget);
    if (gain > 0) trial->price = cost > 0 ? cost / (double)gain : cost * (double)gain;
    return gain > 0;
}

/* The storages idle at an entry as a heap of what they seem to cost; how many. */
static int64_t seeming(struct line *line, int64_t worst) {
    line->above[0] = 0;
    for (int64_t i = 0; i < line->now->count; i++)
        line->above[i + 1] = line->above[i] + (line->over[i] > 0);
    const int64_t count = SHARED(line_idle)(line, worst);
    for (int64_t i = 0; i < count; i++) {
        struct item *one = &line->seeming[i];
        *one = line->idle[i];
        const int64_t relief =
            line->above[at(line, one->reader)] - line->above[at(line, one->last + 1)];
        one->relieved = relief > 0 ? (double)relief * (double)line->bytes[one->root] : 1;
        const int64_t cost = SHARED(line_near)(line, line->maker[one->root], one->reader);
        one->price = (double)cost / one->relieved;
    }
    heapify(line->seeming, count);
    return count;
}

/* The next storage of those that seem cheapest, by what it really costs. */
static struct item next_of(struct line *line, int64_t *left, int64_t *known, int64_t budget) {
    while (*left && !(*known && line->idle[0].price <= line->seeming[0].price)) {
        struct item one = pop(line->seeming, left);
        const int64_t p = line->maker[one.root];
        const int64_t cost = SHARED(line_cost)(line, p, one.reader, budget);
        one.price = (double)cost / one.relieved;
        push(line->idle, known, one);
    }
    return pop(line->idle, known);
}

/* What helped, the cheapest first, in the order in which it was tried among equals. */
static int64_t rank(struct trial *helped, int64_t count, const struct trial *one) {
    int64_t i = count;
    for (; i; i--) {
        const struct trial *before = &helped[i - 1];
        if (before->price < one->price ||
            (before->price == one->price && before->gain >= one->gain))
            break;
        helped[i] = *before;
    }
    helped[i] = *one;
    return count + 1;
}

/* Tries what may lower the excess at the worst entry; how much of it helps. */
static int64_t try_all(struct line *line, const struct walk_fit *call, int64_t worst,
                       excess_t excess, struct trial *helped) {
    const entry_t peak = line->entries[worst];
    int64_t left = seeming(line, worst), known = 0, tried = 0, shifts = 0, found = 0;
    const int64_t ranked = least(SCORED, left);
    for (int64_t i = 0; i < ranked; i++) {
        const struct item one = next_of(line, &left, &known, call->budget);
        const int64_t p = line->maker[one.root];
        const struct trial again = {.kind = AGAIN, .step = p, .room = call->budget,
                                    .entry = one.reader};
        struct trial tries[5] = {again};
        for (int64_t t = 0, count = 1; t < count; t++) {
            if (tried++ >= (found ? call->trials : VAIN)) return found;
            const int helps = is_better(line, &tries[t], call->budget, excess);
            SHARED(line_rollback)(line);
            if (helps) found = rank(helped, found, &tries[t]);
            if (!t && line->now->deep) {
                tries[count] = again;
                tries[count++].room = INT64_MAX;
            }
            if (!t && shifts++ < call->trials)
                tries[count++] = (struct trial){.kind = PULL, .entry = one.reader, .before = peak};
            if (tries[t].kind != PULL) continue;
            const int is_made = one.last == run_of(line, one.root, one.reader);
            if (!helps)
                tries[count++] = (struct trial){.kind = AHEAD, .room = call->budget,
                                                .entry = one.reader, .before = peak};
            if (!helps && call->ends && !is_made)
                tries[count++] = (struct trial){.kind = END, .step = one.root,
                                                .room = call->budget, .before = one.last};
            if (is_made)
                tries[count++] =
                    (struct trial){.kind = PUSH, .entry = one.last, .before = one.reader};
        }
    }
    return found;
}

/* The entry that is most above the budget but for so many that are more, as often as there are. */
static int64_t worst_but(const struct line *line, int64_t vain) {
    int64_t count = 0, worst = -1;
    for (int64_t i = 0; i < line->now->count; i++) count += line->over[i] > 0;
    for (int64_t passed = vain % count; passed >= 0; passed--) {
        int64_t next = -1;
        for (int64_t i = 0; i < line->now->count; i++) {
            const int is_after = worst < 0 || line->over[i] < line->over[worst] ||
                                 (line->over[i] == line->over[worst] && i > worst);
            if (is_after && (next < 0 || line->over[i] > line->over[next])) next = i;
        }
        worst = next;
    }
    return worst;
}

/* Makes the best of what is tried where the excess is worst, and others that are as cheap. */
static int step(struct line *line, const struct walk_fit *call, int64_t vain) {
    struct trial helped[TRIED];
    excess_t excess = weigh(line, call->budget);
    const int64_t worst = worst_but(line, vain);
    const int64_t found = try_all(line, call, worst, excess, helped);
    const double dearest = found ? ALIKE * (helped[0].price > 0 ? helped[0].price : 0) : 0;
    for (int64_t n = 0; n < found; n++) {
        if (n && (helped[n].price > dearest || peak(line) <= call->budget)) break;
        const int helps = is_better(line, &helped[n], call->budget, excess);
        if (n && !(helps && helped[n].price <= dearest)) {
            SHARED(line_rollback)(line);
            continue;
        }
        commit(line);
        excess = weigh(line, call->budget);
    }
    return found > 0;
}

static void weigh_more(struct line *line, int64_t budget) {
    const int64_t stamp = ++line->now->stamp;
    for (int64_t i = 0; i < line->now->count; i++) {
        const int64_t p = line->place[i];
        if (line->alive[i] <= budget || line->marks[p] == stamp) continue;
        line->marks[p] = stamp;
        line->weights[p]++;
    }
}

KERNEL(walk_fit)(const struct walk_fit *call) {
    struct line *line = call->line;
    int64_t patience = call->patience, vain = 0;
    line->now->answer = 0;
    for (int64_t p = 0; p < line->steps; p++) line->weights[p] = 1;
    while (peak(line) > call->budget) {
        if (line->now->left <= 0 || line->now->extra >= call->worth) return;
        line->now->left -= line->now->count;
        if (step(line, call, vain)) {
            vain = 0;
            continue;
        }
        if (!patience--) return;
        vain++;
        weigh_more(line, call->budget);
    }
    line->now->answer = 1;
}

/* Whether what a repeat makes could have stayed alive. */
static int could_stay(const struct line *line, entry_t entry, int64_t budget) {
    EACH(i, r, fleeting, place(line, entry)) {
        const entry_t run = run_of(line, r, entry);
        if (!run || end_of(line, r, entry) == entry) continue;
        if (most_between(line, end_of(line, r, run), entry) + line->bytes[r] > budget) return 0;
    }
    return 1;
}

KERNEL(walk_trim)(const struct walk_trim *call) {
    struct line *line = call->line;
    struct stand *now = line->now;
    for (int is_less_work = 1; is_less_work;) {
        is_less_work = 0;
        int64_t count = 0;
        for (int64_t i = 0; i < now->count; i++)
            if (!is_first(line, line->entries[i]))
                line->seeming[count++] = (struct item){.price = (double)line->rank[line->place[i]],
                                                       .last = line->entries[i]};
        heapify(line->seeming, count);
        while (count) {
            const entry_t entry = pop(line->seeming, &count).last;
            if (!is_there(line, entry) || is_first(line, entry) ||
                !could_stay(line, entry, call->budget))
                continue;
            if (now->left <= 0) return;
            const int64_t before = now->extra;
            SHARED(line_begin)(line);
            SHARED(line_remove)(line, entry);
            pay(line);
            if (now->extra < before && peak(line) <= call->budget) {
                commit(line);
                is_less_work = 1;
            } else {
                SHARED(line_rollback)(line);
            }
        }
    }
}

/* Computes again one of the storages that were found idle. */
KERNEL(walk_rerun_idle)(const struct walk_rerun_idle *call) {
    struct line *line = call->line;
    const struct item one = line->idle[call->root];
    SHARED(line_begin)(line);
    const int is_done = is_there(line, one.reader) &&
                        SHARED(line_again)(line, line->maker[one.root], one.reader, call->room, 0);
    pay(line);
    if (is_done)
        commit(line);
    else
        SHARED(line_rollback)(line);
}

KERNEL(walk_idle)(const struct walk_each *call) {
    SHARED(line_idle)(call->line, call->number);
}

/* Leaves out some repeats that follow each other, from one number on. */
KERNEL(walk_leave_out)(const struct walk_each *call) {
    struct line *line = call->line;
    int64_t found = 0, count = 0;
    for (int64_t i = 0; i < line->now->count && count < call->count; i++)
        if (!is_first(line, line->entries[i]) && found++ >= call->number)
            line->seeming[count++].last = line->entries[i];
    for (int64_t i = 0; i < count; i++) {
        const entry_t entry = line->seeming[i].last;
        if (is_there(line, entry) && !is_first(line, entry)) SHARED(line_remove)(line, entry);
    }
}
