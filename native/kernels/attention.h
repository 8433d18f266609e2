/* Scores of a block of attention: scaled products of queries and keys, then what masks say.
 *
 * Columns at the end of a block that a mask hides from all of its rows are left out where each row
 * has seen something else: they would add exp(hidden - seen) = 0.
 */
#ifndef GRADTOOL_ATTENTION_H
#define GRADTOOL_ATTENTION_H

#include "panels.h"

#define LOWEST (-3.40282347e38f)
#define HIDDEN (-1e30f) /* what masks add is less, and what rows have seen is more */
#define STRETCH 32      /* columns that are left out together */

/* Float masks are added, boolean ones put `fill` where they are false.  Strides in elements. */
struct mask {
    const void *at;
    int64_t flags, batch_step, head_step, row_step, column_step;
};

/* Where rows of an operand lie: head h of batch b begins b batch_step + h head_step floats on. */
struct layout {
    int64_t batch_step, head_step, row_step;
};

struct scores {
    const struct mask *masks;
    int64_t mask_count, causal, size, q_row;
    float scale, fill;
};

/* The part of a score matrix with rows `row` to `row + rows` and columns likewise, of one head. */
struct block {
    int64_t batch, head, row, rows, column, columns;
};

INLINE int64_t head_at(const struct layout *layout, int64_t batch, int64_t head) {
    return batch * layout->batch_step + head * layout->head_step;
}

INLINE void put_mask(const struct mask *mask, const struct block *at, float fill, float *to) {
    const int64_t first = at->batch * mask->batch_step + at->head * mask->head_step +
                          at->column * mask->column_step;
    for (int64_t i = 0; i < at->rows; i++) {
        const int64_t begin = first + (at->row + i) * mask->row_step;
        float *line = to + i * at->columns;
        if (mask->flags) {
            const uint8_t *flags = (const uint8_t *)mask->at + begin;
            for (int64_t j = 0; j < at->columns; j++)
                line[j] = flags[j * mask->column_step] ? line[j] : fill;
        } else {
            const float *more = (const float *)mask->at + begin;
            for (int64_t j = 0; j < at->columns; j++) line[j] += more[j * mask->column_step];
        }
    }
}

/* q: the first of the rows; k: panels of the columns.  to: [rows, columns]. */
INLINE void score(const struct scores *s, const struct block *at, const float *q, struct panels k,
                  float *to) {
    by_panels(at->rows, at->columns, s->size, q, s->q_row, 0, k, to, at->columns, s->scale, 0);
    for (int64_t i = 0; i < s->mask_count; i++) put_mask(s->masks + i, at, s->fill, to);
    if (!s->causal || at->column + at->columns <= at->row + 1) return;
    for (int64_t i = 0; i < at->rows; i++)
        for (int64_t j = most(0, at->row + i + 1 - at->column); j < at->columns; j++)
            to[i * at->columns + j] = -__builtin_inff();
}

/* Columns that any row before `end` may see. */
INLINE int64_t reach(const struct scores *s, int64_t end, int64_t keys) {
    return s->causal ? least(keys, end) : keys;
}

/* Whether a mask leaves anything of some columns of a row. */
INLINE int leaves_any(const struct mask *mask, int64_t first, int64_t columns) {
    int any = 0;
    if (mask->flags)
        for (int64_t j = 0; j < columns; j++)
            any |= ((const uint8_t *)mask->at)[first + j * mask->column_step];
    else
        for (int64_t j = 0; j < columns; j++)
            any |= !(((const float *)mask->at)[first + j * mask->column_step] < HIDDEN);
    return any;
}

/* Whether each row has seen something, by the greatest of its scores or the logarithm of their sum. */
INLINE int saw_all(const float *rows, int64_t count, int64_t step) {
    int all = 1;
    for (int64_t i = 0; i < count; i++) all &= rows[i * step] > HIDDEN;
    return all;
}

/* Of the columns of a block as many as masks leave to any of its rows, by STRETCH. */
INLINE int64_t unmasked(const struct scores *s, const struct block *at) {
    int64_t columns = at->columns;
    for (int64_t m = 0; m < s->mask_count; m++) {
        const struct mask *mask = s->masks + m;
        if (mask->flags && s->fill > HIDDEN) continue;
        int64_t seen = at->column == 0 ? least(1, columns) : 0; /* what is first has to be written */
        for (int64_t row = at->row + at->rows - 1; row >= at->row && seen < columns; row--) {
            const int64_t first = at->batch * mask->batch_step + at->head * mask->head_step +
                                  row * mask->row_step + at->column * mask->column_step;
            for (int64_t end = columns; end > seen; end -= least(STRETCH, end - seen)) {
                const int64_t from = end - least(STRETCH, end - seen);
                if (leaves_any(mask, first + from * mask->column_step, end - from)) seen = end;
            }
        }
        columns = seen;
    }
    return columns;
}

#endif
