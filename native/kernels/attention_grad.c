/* Gradients of attention by q, k, v and float masks, from p = exp(s - lse) / sum exp(s - lse).
 *
 *     dv = p^T dy    dp = dy v^T    ds = p (dp - sum p dp + dlse)    dq = scale ds k
 *
 * A head of keys comes with the heads of queries that read it, some rows of one after the other
 * against all keys they see, so that what they add to dk and dv is added in order.  A chunk is one
 * of these, or, where several add to the same places of a gradient by a mask, a part of them in
 * order: `member_step` lies between them, `class_step` between the first of those that add to
 * others.  Each output may be NULL, dmasks, and dlse.
 * Source: Dao 2023, FlashAttention-2, algorithm 2; unlike there, y is not read: a block has all
 * scores of its rows, and both sums are taken from it.  The sum of p is not quite one: lse has the
 * digits of the scores, of which masks of -1e9 leave none to the logarithm.
 * Workspace: gradtool.native.attention.grad_work.
 */
#include "mask_grad.h"
#include "pool.h"
#include "softmax.h"

#define SCORES 32768 /* of a block, about */
#define STRIP 56     /* rows come in multiples of it, for tiles */
#define MOST 224

struct attention_grad {
    const float *q, *k, *v, *lse, *dy, *dlse;
    const void *masks, *dmasks;
    float *dq, *dk, *dv, *work;
    int64_t batch, groups, heads, queries, keys, size, value_size;
    int64_t q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row;
    int64_t y_batch, y_head, y_row, lse_batch, lse_head, lse_row;
    int64_t mask_count, causal, members, member_step, class_step, parts, slots;
    double scale, fill;
};

static int64_t rows_at_once(const struct attention_grad *call) {
    const int64_t rows = most(1, SCORES / most(call->keys, 1) / STRIP) * STRIP;
    return least(least(MOST, rows), most(call->queries, 1));
}

/* Floats of each part of a slot, in the order in which they lie there. */
struct rooms {
    int64_t scores, keys, values, key_places, query_places, dy_places;
};

static struct rooms rooms_of(const struct attention_grad *call) {
    const int64_t r = rows_at_once(call), t = call->keys, d = call->size, e = call->value_size;
    return (struct rooms){r * t, panel_room(d, t), panel_room(e, t), places_room(t, d),
                          places_room(r, d), places_room(r, e)};
}

static int64_t slot_room(const struct rooms *r) {
    return 2 * r->scores + r->keys + r->values + r->key_places + r->query_places + r->dy_places;
}

/* p, where s is; a row that sees nothing is zero. */
static void weigh(float *s, int64_t n, float lse) {
    vec sums = splat(0);
    for (int64_t i = 0; i < n; i += LANES) {
        store_left(s, vec_exp_below(load_left(s, i, n, 0) - lse), i, n);
        sums += load_left(s, i, n, 0);
    }
    const float sum = sum_lanes(sums), factor = sum == 0 ? 0 : 1 / sum;
    for (int64_t i = 0; i < n; i += LANES)
        store_left(s, load_left(s, i, n, 0) * factor, i, n);
}

/* ds = p (dp - sum p dp + dlse), where dp is. */
static void slope(const float *p, float *dp, int64_t n, float dlse) {
    vec sums = splat(0);
    for (int64_t i = 0; i < n; i += LANES) sums += load_left(p, i, n, 0) * load_left(dp, i, n, 0);
    const float sum = sum_lanes(sums) - dlse;
    for (int64_t i = 0; i < n; i += LANES)
        store_left(dp, load_left(p, i, n, 0) * (load_left(dp, i, n, 0) - sum), i, n);
}

static void clear(float *rows, int64_t count, int64_t step, int64_t size) {
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < size; j++) rows[i * step + j] = 0;
}

static struct mask_grads mask_grads_of(const struct attention_grad *call) {
    return (struct mask_grads){call->masks,      call->dmasks, call->work,
                               call->mask_count, call->parts,  call->slots};
}

static void one_head(const struct attention_grad *call, int64_t pair, int64_t part, int64_t slot) {
    const struct layout q = {call->q_batch, call->q_head, call->q_row};
    const struct layout k = {call->k_batch, call->k_head, call->k_row};
    const struct layout v = {call->v_batch, call->v_head, call->v_row};
    const struct layout y = {call->y_batch, call->y_head, call->y_row};
    const struct layout lse = {call->lse_batch, call->lse_head, call->lse_row};
    const struct scores s = {call->masks, call->mask_count, call->causal, call->size,
                             q.row_step,  (float)call->scale, (float)call->fill};
    const int64_t rows = rows_at_once(call), d = call->size, e = call->value_size;
    const int64_t batch = pair / call->groups, group = pair % call->groups;
    const int64_t keys_at = head_at(&k, batch, group), values_at = head_at(&v, batch, group);
    const float *keys = call->k + keys_at, *values = call->v + values_at;
    float *dk = call->dk ? call->dk + keys_at : NULL, *dv = call->dv ? call->dv + values_at : NULL;
    const struct rooms room = rooms_of(call);
    float *p = call->work + slot * slot_room(&room), *ds = p + room.scores;
    float *work = ds + room.scores;
    const struct panels key_lines = panels_of_lines(keys, k.row_step, d, call->keys, work);
    const struct panels value_lines =
        panels_of_lines(values, v.row_step, e, call->keys, work += room.keys);
    const struct panels key_places =
        panels_of_places(keys, k.row_step, call->keys, d, work += room.values);
    float *query_room = work + room.key_places, *dy_room = query_room + room.query_places;
    const struct mask_grads masks = mask_grads_of(call);
    clear_own(&masks, batch, group * call->heads, call->heads);
    if (dk) clear(dk, call->keys, k.row_step, d);
    if (dv) clear(dv, call->keys, v.row_step, e);
    struct block at = {.batch = batch, .head = group * call->heads};
    for (; at.head < (group + 1) * call->heads; at.head++)
        for (at.row = 0; at.row < call->queries; at.row += rows) {
            at.rows = least(rows, call->queries - at.row);
            const int64_t queries_at = head_at(&q, batch, at.head) + at.row * q.row_step;
            const float *queries = call->q + queries_at;
            const float *dy = call->dy + head_at(&y, batch, at.head) + at.row * y.row_step;
            const int64_t stat = head_at(&lse, batch, at.head) + at.row * lse.row_step;
            at.columns = reach(&s, at.row + at.rows, call->keys);
            if (saw_all(call->lse + stat, at.rows, lse.row_step)) at.columns = unmasked(&s, &at);
            const int64_t m = at.rows, n = at.columns;
            score(&s, &at, queries, key_lines, p);
            for (int64_t i = 0; i < m; i++) weigh(p + i * n, n, call->lse[stat + i * lse.row_step]);
            if (dv)
                by_panels(n, e, m, p, n, 1, panels_of_places(dy, y.row_step, m, e, dy_room), dv,
                          v.row_step, 1, 1);
            if (!dk && !call->dq && !call->dmasks) continue;
            by_panels(m, n, e, dy, y.row_step, 0, value_lines, ds, n, 1, 0);
            for (int64_t i = 0; i < m; i++)
                slope(p + i * n, ds + i * n, n,
                      call->dlse ? call->dlse[stat + i * lse.row_step] : 0);
            through_masks(&masks, &at, part, ds);
            if (dk)
                by_panels(n, d, m, ds, n, 1,
                          panels_of_places(queries, q.row_step, m, d, query_room), dk, k.row_step,
                          s.scale, 1);
            if (call->dq)
                by_panels(m, d, n, ds, n, 0, key_places, call->dq + queries_at, q.row_step,
                          s.scale, 0);
        }
}

static void some_heads(void *argument, int64_t chunk, int64_t slot) {
    const struct attention_grad *call = argument;
    const int64_t first = chunk / call->parts * call->class_step, part = chunk % call->parts;
    const int64_t end = (part + 1) * call->members / call->parts;
    for (int64_t i = part * call->members / call->parts; i < end; i++)
        one_head(call, first + i * call->member_step, part, slot);
}

KERNEL(attention_grad)(const struct attention_grad *call) {
    const struct mask_grads masks = mask_grads_of(call);
    const int64_t classes = call->batch * call->groups / call->members;
    SHARED(clear_shared)(&masks);
    gt_parallel(classes * call->parts, some_heads, (void *)call, call->slots);
    SHARED(sum_parts)(&masks);
}
