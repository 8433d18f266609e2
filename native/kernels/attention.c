/* Attention: y = softmax(masked(scale q k^T)) v and lse = log sum exp of the scores of a row.
 *
 * A chunk is ROWS rows of a head, against KEYS keys after the other, STRIP rows at a time while
 * their scores are in cache: the greatest score and the sum so far are kept per row, and y is scaled
 * when the former moves.  `heads` heads of queries read
 * each of `groups` heads of keys.  A row that sees nothing is NaN; with `safe` it is 0 and its lse
 * infinite.  y and lse may each be NULL.
 * Source: Dao 2023, FlashAttention-2, algorithm 1.  Workspace: gradtool.native.attention.work.
 */
#include "attention.h"
#include "pool.h"
#include "softmax.h"

#define ROWS 256
#define STRIP 56
#define KEYS 256

struct attention {
    const float *q, *k, *v;
    const void *masks;
    float *y, *lse, *work;
    int64_t batch, groups, heads, queries, keys, size, value_size;
    int64_t q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row;
    int64_t y_batch, y_head, y_row, lse_batch, lse_head, lse_row;
    int64_t mask_count, causal, safe, slots;
    double scale, fill;
};

static int64_t rows_at_once(const struct attention *call) {
    return least(ROWS, most(call->queries, 1));
}

static int64_t slot_room(const struct attention *call) {
    const int64_t keys = least(KEYS, call->keys);
    return STRIP * keys + 2 * rows_at_once(call) + panel_room(call->size, keys) +
           places_room(keys, call->value_size);
}

/* Scores become exp(score - top), and y what it is by the new top. */
static void soften(float *scores, int64_t columns, int first, float *top, float *total, float *y,
                   int64_t size) {
    const float found = row_max(scores, columns);
    const float next = found > *top ? found : *top;
    const float sum = row_exp(scores, next, columns, scores);
    if (first) {
        *total = sum;
    } else if (next > *top) {
        const float factor = vec_exp_below(splat(*top - next))[0];
        *total = *total * factor + sum;
        for (int64_t i = 0; y && i < size; i += LANES)
            store_left(y, load_left(y, i, size, 0) * factor, i, size);
    } else {
        *total += sum;
    }
    *top = next;
}

static void finish(const struct attention *call, float top, float total, float *y, float *lse) {
    const int nothing = total == 0;
    const float none = call->safe ? 0 : __builtin_nanf("");
    for (int64_t i = 0; y && i < call->value_size; i += LANES) {
        const vec sum = load_left(y, i, call->value_size, 0);
        store_left(y, nothing ? splat(none) : sum * (1 / total), i, call->value_size);
    }
    if (lse == NULL) return;
    *lse = nothing ? (call->safe ? __builtin_inff() : none) : top + scalar_log(total);
}

/* Some rows against some keys: what they add to y, by way of `scores`. */
static void strip(const struct attention *call, const struct scores *s, const struct block *at,
                  const float *q, struct panels keys, struct panels values, float *scores,
                  float *top, float *total, float *y) {
    const int first = at->column == 0;
    score(s, at, q, keys, scores);
    for (int64_t i = 0; i < at->rows; i++)
        soften(scores + i * at->columns, at->columns, first, top + i, total + i,
               y ? y + i * call->y_row : NULL, call->value_size);
    if (y)
        by_panels(at->rows, call->value_size, at->columns, scores, at->columns, 0, values, y,
                  call->y_row, 1, !first);
}

/* The same, but for what masks hide, which is added where a row has nothing else. */
static void strips(const struct attention *call, const struct scores *s, const struct block *at,
                   const float *q, struct panels keys, struct panels values, float *scores,
                   float *top, float *total, float *y) {
    struct block open = *at;
    const int first = at->column == 0;
    if (first || saw_all(top, at->rows, 1)) open.columns = unmasked(s, at);
    if (open.columns > 0) strip(call, s, &open, q, keys, values, scores, top, total, y);
    if (!first || open.columns == at->columns || saw_all(top, at->rows, 1)) return;
    for (int64_t i = 0; i < at->rows; i++) top[i] = LOWEST;
    strip(call, s, at, q, keys, values, scores, top, total, y);
}

static void some_rows(void *argument, int64_t chunk, int64_t slot) {
    const struct attention *call = argument;
    const struct layout q = {call->q_batch, call->q_head, call->q_row};
    const struct layout k = {call->k_batch, call->k_head, call->k_row};
    const struct layout v = {call->v_batch, call->v_head, call->v_row};
    const struct layout y = {call->y_batch, call->y_head, call->y_row};
    const struct layout lse = {call->lse_batch, call->lse_head, call->lse_row};
    const struct scores s = {call->masks, call->mask_count, call->causal, call->size, call->q_row,
                             (float)call->scale, (float)call->fill};
    const int64_t size = rows_at_once(call), blocks = parts(call->queries, size);
    const int64_t keys_at_once = least(KEYS, call->keys), all = call->groups * call->heads;
    const int64_t batch = chunk / blocks / all, head = chunk / blocks % all;
    const int64_t group = head / call->heads, from = chunk % blocks * size;
    const int64_t end = least(call->queries, from + size), seen = reach(&s, end, call->keys);
    float *scores = call->work + slot * slot_room(call), *top = scores + STRIP * keys_at_once;
    float *total = top + size, *key_room = total + size;
    float *value_room = key_room + panel_room(call->size, keys_at_once);
    float *to = call->y ? call->y + head_at(&y, batch, head) : NULL;
    for (int64_t i = 0; i < end - from; i++) top[i] = LOWEST, total[i] = 0;
    for (int64_t column = 0; column < seen; column += KEYS) {
        const int64_t columns = least(KEYS, seen - column);
        const float *keys = call->k + head_at(&k, batch, group) + column * k.row_step;
        const float *values = call->v + head_at(&v, batch, group) + column * v.row_step;
        const struct panels key_panels =
            panels_of_lines(keys, k.row_step, call->size, columns, key_room);
        const struct panels value_panels =
            panels_of_places(values, v.row_step, columns, call->value_size, value_room);
        for (int64_t row = from; row < end; row += STRIP) {
            const int64_t rows = least(STRIP, end - row);
            const int64_t here = least(columns, reach(&s, row + rows, call->keys) - column);
            const struct block at = {batch, head, row, rows, column, here};
            if (here > 0)
                strips(call, &s, &at, call->q + head_at(&q, batch, head) + row * q.row_step,
                       key_panels, value_panels, scores, top + row - from, total + row - from,
                       to ? to + row * y.row_step : NULL);
        }
    }
    for (int64_t row = from; row < end; row++)
        finish(call, top[row - from], total[row - from], to ? to + row * y.row_step : NULL,
               call->lse ? call->lse + head_at(&lse, batch, head) + row * lse.row_step : NULL);
}

KERNEL(attention)(const struct attention *call) {
    const int64_t blocks = parts(call->queries, rows_at_once(call));
    gt_parallel(call->batch * call->groups * call->heads * blocks, some_rows, (void *)call,
                call->slots);
}
