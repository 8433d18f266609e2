/* Rows of a table by their numbers, and the table's gradient.
 *
 * y[i] = table[index[i]];  dtable[v] = sum over i, in order, of dy[i] where index[i] = v.
 * A chunk of the gradient is a range of the table's rows; it looks at every index.  Negative numbers
 * count from the end; `wrong` becomes the number of those beyond the table, whose rows are 0 and
 * whose gradients go nowhere.  Workspace: none.
 */
#include "gradtool.h"
#include "pool.h"

#define ROWS 64 /* of y in a chunk */
#define RANGES 8

struct gather_rows {
    const float *table;
    const int64_t *index;
    float *y;
    int64_t *wrong;
    int64_t count, rows, width, slots;
};

struct scatter_rows {
    const float *dy;
    const int64_t *index;
    float *dtable;
    int64_t *wrong;
    int64_t count, rows, width, slots;
};

INLINE int64_t row_of(int64_t index, int64_t rows) { return index < 0 ? index + rows : index; }

static int64_t count_wrong(const int64_t *index, int64_t count, int64_t rows) {
    int64_t wrong = 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t row = row_of(index[i], rows);
        wrong += row < 0 || row >= rows;
    }
    return wrong;
}

static void gather_chunk(void *argument, int64_t chunk, int64_t slot) {
    const struct gather_rows *call = argument;
    const int64_t end = least(call->count, (chunk + 1) * ROWS), width = call->width;
    (void)slot;
    for (int64_t i = chunk * ROWS; i < end; i++) {
        const int64_t row = row_of(call->index[i], call->rows);
        const int there = row >= 0 && row < call->rows;
        float *y = call->y + i * width;
        for (int64_t c = 0; c < width; c += LANES)
            store_some(y + c, there ? load_some(call->table + row * width + c, width - c) : splat(0),
                       width - c);
    }
}

static void scatter_chunk(void *argument, int64_t chunk, int64_t slot) {
    const struct scatter_rows *call = argument;
    const int64_t step = parts(call->rows, RANGES), width = call->width;
    const int64_t from = least(call->rows, chunk * step), to = least(call->rows, from + step);
    (void)slot;
    for (int64_t c = from * width; c < to * width; c += LANES)
        store_some(call->dtable + c, splat(0), to * width - c);
    for (int64_t i = 0; i < call->count; i++) {
        const int64_t row = row_of(call->index[i], call->rows);
        if (row < from || row >= to) continue;
        const float *dy = call->dy + i * width;
        float *sum = call->dtable + row * width;
        for (int64_t c = 0; c < width; c += LANES)
            store_some(sum + c, load_some(sum + c, width - c) + load_some(dy + c, width - c),
                       width - c);
    }
}

KERNEL(gather_rows)(const struct gather_rows *call) {
    *call->wrong = count_wrong(call->index, call->count, call->rows);
    gt_parallel(parts(call->count, ROWS), gather_chunk, (void *)call, call->slots);
}

KERNEL(scatter_rows)(const struct scatter_rows *call) {
    *call->wrong = count_wrong(call->index, call->count, call->rows);
    gt_parallel(RANGES, scatter_chunk, (void *)call, call->slots);
}
