/* Gradients of attention by q, k and v, from p = exp(s - lse).
 *
 *     dv = p^T dy    dp = dy v^T    ds = p (dp - sum p dp + dlse)    dq = scale ds k
 *
 * A chunk is a head of keys with the heads of queries that read it, some rows of one after the
 * other against all keys they see, so that what they add to dk and dv is added in order.  Each
 * output may be NULL, and dlse.
 * Source: Dao 2023, FlashAttention-2, algorithm 2; unlike there, y is not read: a block has all
 * scores of its rows, and sum p dp is taken from it.  Workspace: gradtool.native.attention.grad_work.
 */
#include "attention.h"
#include "pool.h"
#include "softmax.h"

#define SCORES 131072 /* of a block */
#define FEWEST 32     /* rows */
#define MOST 256

struct attention_grad {
    const float *q, *k, *v, *lse, *dy, *dlse;
    const void *masks;
    float *dq, *dk, *dv, *work;
    int64_t batch, groups, heads, queries, keys, size, value_size;
    int64_t q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row;
    int64_t y_batch, y_head, y_row, lse_batch, lse_head, lse_row;
    int64_t mask_count, causal, slots;
    double scale, fill;
};

static int64_t rows_at_once(const struct attention_grad *call) {
    const int64_t rows = least(MOST, most(FEWEST, SCORES / most(call->keys, 1)));
    return least(rows, most(call->queries, 1));
}

static int64_t product_room(const struct attention_grad *call) {
    const int64_t r = rows_at_once(call), t = call->keys, d = call->size, e = call->value_size;
    const int64_t forward = most(SHARED(multiply_work)(r, t, d, 1),
                                 SHARED(multiply_work)(r, t, e, 1));
    const int64_t back = most(SHARED(multiply_work)(t, d, r, 1), SHARED(multiply_work)(t, e, r, 1));
    return most(most(forward, back), SHARED(multiply_work)(r, d, t, 1));
}

/* c = alpha op(a) op(b), or added to it. */
static void multiply(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row, int a_turned,
                     const float *b, int64_t b_row, int b_turned, float *c, int64_t c_row,
                     float alpha, float beta, float *work) {
    const struct product product = {
        .a = a, .b = b, .c = c, .m = m, .n = n, .k = k, .a_row = a_row, .b_row = b_row,
        .c_row = c_row, .a_turned = a_turned, .b_turned = b_turned, .alpha = alpha, .beta = beta,
    };
    SHARED(multiply)(&product, work, 1);
}

/* p = exp(s - lse), where s is. */
static void weigh(float *s, int64_t n, float lse) {
    for (int64_t i = 0; i < n; i += LANES)
        store_left(s, vec_exp_below(load_left(s, i, n, 0) - lse), i, n);
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

static void one_head(void *argument, int64_t chunk, int64_t slot) {
    const struct attention_grad *call = argument;
    const struct layout q = {call->q_batch, call->q_head, call->q_row};
    const struct layout k = {call->k_batch, call->k_head, call->k_row};
    const struct layout v = {call->v_batch, call->v_head, call->v_row};
    const struct layout y = {call->y_batch, call->y_head, call->y_row};
    const struct layout lse = {call->lse_batch, call->lse_head, call->lse_row};
    const struct scores s = {call->masks, call->mask_count, call->causal, call->size,
                             q.row_step,  k.row_step, (float)call->scale, (float)call->fill};
    const int64_t rows = rows_at_once(call), d = call->size, e = call->value_size;
    const int64_t batch = chunk / call->groups, group = chunk % call->groups;
    const int64_t keys_at = head_at(&k, batch, group), values_at = head_at(&v, batch, group);
    const float *keys = call->k + keys_at, *values = call->v + values_at;
    float *dk = call->dk ? call->dk + keys_at : NULL, *dv = call->dv ? call->dv + values_at : NULL;
    float *p = call->work + slot * (2 * rows * call->keys + product_room(call));
    float *ds = p + rows * call->keys, *work = ds + rows * call->keys;
    if (dk) clear(dk, call->keys, k.row_step, d);
    if (dv) clear(dv, call->keys, v.row_step, e);
    struct block at = {.batch = batch, .head = group * call->heads};
    for (; at.head < (group + 1) * call->heads; at.head++)
        for (at.row = 0; at.row < call->queries; at.row += rows) {
            at.rows = least(rows, call->queries - at.row);
            at.columns = reach(&s, at.row + at.rows, call->keys);
            const int64_t queries_at = head_at(&q, batch, at.head) + at.row * q.row_step;
            const float *queries = call->q + queries_at;
            const float *dy = call->dy + head_at(&y, batch, at.head) + at.row * y.row_step;
            const int64_t stat = head_at(&lse, batch, at.head) + at.row * lse.row_step;
            const int64_t m = at.rows, n = at.columns;
            score(&s, &at, queries, keys, p, work);
            for (int64_t i = 0; i < m; i++) weigh(p + i * n, n, call->lse[stat + i * lse.row_step]);
            if (dv) multiply(n, e, m, p, n, 1, dy, y.row_step, 0, dv, v.row_step, 1, 1, work);
            if (!dk && !call->dq) continue;
            multiply(m, n, e, dy, y.row_step, 0, values, v.row_step, 1, ds, n, 1, 0, work);
            for (int64_t i = 0; i < m; i++)
                slope(p + i * n, ds + i * n, n,
                      call->dlse ? call->dlse[stat + i * lse.row_step] : 0);
            for (int64_t i = 0; i < s.mask_count; i++)
                if (s.masks[i].flags) put_mask(s.masks + i, &at, 0, ds);
            if (dk)
                multiply(n, d, m, ds, n, 1, queries, q.row_step, 0, dk, k.row_step, s.scale, 1,
                         work);
            if (call->dq)
                multiply(m, d, n, ds, n, 0, keys, k.row_step, 0, call->dq + queries_at, q.row_step,
                         s.scale, 0, work);
        }
}

KERNEL(attention_grad)(const struct attention_grad *call) {
    gt_parallel(call->batch * call->groups, one_head, (void *)call, call->slots);
}
