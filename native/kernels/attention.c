/* Attention: y = softmax(masked(scale q k^T)) v and lse = log sum exp of the scores of a row.
 *
 * A chunk is ROWS rows of a head, against KEYS keys after the other: the greatest score and the sum
 * so far are kept per row, and y is scaled when the former moves.  `heads` heads of queries read
 * each of `groups` heads of keys.  A row that sees nothing is NaN; with `safe` it is 0 and its lse
 * infinite.  y and lse may each be NULL.
 * Source: Dao 2023, FlashAttention-2, algorithm 1.  Workspace: gradtool.native.attention.work.
 */
#include "attention.h"
#include "pool.h"
#include "softmax.h"

#define ROWS 256
#define CAUSAL_ROWS 64
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
    return least(call->causal ? CAUSAL_ROWS : ROWS, most(call->queries, 1));
}

static int64_t slot_room(const struct attention *call) {
    const int64_t keys = least(KEYS, call->keys);
    return rows_at_once(call) * (keys + 2) + panel_room(call->size, keys) +
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

static void some_rows(void *argument, int64_t chunk, int64_t slot) {
    const struct attention *call = argument;
    const struct layout q = {call->q_batch, call->q_head, call->q_row};
    const struct layout k = {call->k_batch, call->k_head, call->k_row};
    const struct layout v = {call->v_batch, call->v_head, call->v_row};
    const struct layout y = {call->y_batch, call->y_head, call->y_row};
    const struct layout lse = {call->lse_batch, call->lse_head, call->lse_row};
    const struct scores s = {call->masks,   call->mask_count,   call->causal,     call->size,
                             call->q_row, (float)call->scale, (float)call->fill};
    const int64_t size = rows_at_once(call), blocks = parts(call->queries, size);
    const int64_t keys_at_once = least(KEYS, call->keys), all = call->groups * call->heads;
    struct block at = {.batch = chunk / blocks / all, .head = chunk / blocks % all};
    at.row = chunk % blocks * size;
    at.rows = least(size, call->queries - at.row);
    const int64_t group = at.head / call->heads;
    const int64_t end = reach(&s, at.row + at.rows, call->keys);
    float *scores = call->work + slot * slot_room(call);
    float *top = scores + size * keys_at_once, *total = top + size;
    float *key_panels = total + size, *value_panels = key_panels + panel_room(call->size, keys_at_once);
    float *to = call->y ? call->y + head_at(&y, at.batch, at.head) + at.row * y.row_step : NULL;
    const float *queries = call->q + head_at(&q, at.batch, at.head) + at.row * q.row_step;
    for (int64_t i = 0; i < at.rows; i++) top[i] = LOWEST, total[i] = 0;
    for (; at.column < end; at.column += KEYS) {
        at.columns = least(KEYS, end - at.column);
        const int first = at.column == 0;
        const float *keys = call->k + head_at(&k, at.batch, group) + at.column * k.row_step;
        score(&s, &at, queries,
              panels_of_lines(keys, k.row_step, call->size, at.columns, key_panels), scores);
        for (int64_t i = 0; i < at.rows; i++)
            soften(scores + i * at.columns, at.columns, first, top + i, total + i,
                   to ? to + i * y.row_step : NULL, call->value_size);
        if (to == NULL) continue;
        const float *values = call->v + head_at(&v, at.batch, group) + at.column * v.row_step;
        by_panels(at.rows, call->value_size, at.columns, scores, at.columns, 0,
                  panels_of_places(values, v.row_step, at.columns, call->value_size, value_panels),
                  to, y.row_step, 1, !first);
    }
    for (int64_t i = 0; i < at.rows; i++)
        finish(call, top[i], total[i], to ? to + i * y.row_step : NULL,
               call->lse ? call->lse + head_at(&lse, at.batch, at.head) +
                               (at.row + i) * lse.row_step
                         : NULL);
}

KERNEL(attention)(const struct attention *call) {
    const int64_t blocks = parts(call->queries, rows_at_once(call));
    gt_parallel(call->batch * call->groups * call->heads * blocks, some_rows, (void *)call,
                call->slots);
}
