/* Scores of a block of attention: scaled products of queries and keys, then what masks say. */
#ifndef GRADTOOL_ATTENTION_H
#define GRADTOOL_ATTENTION_H

#include "panels.h"

#define LOWEST (-3.40282347e38f)

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

#endif
