/* Copies of an array into another that lies otherwise.
 *
 * Axes are those of the target, outermost first, in the order in which it lies; steps are in
 * elements of 1, 2, 4 or 8 bytes.  A chunk is blocks of two axes: the last, and `across`, along which
 * the source lies if that is another one; lines of the cache are used up while they are there.
 * Workspace: none.
 */
#include <string.h>

#include "packing.h"
#include "pool.h"
#include "strided.h"

#define TILE 16
#define LEAST 16384 /* elements of a chunk */

/* `table` is sizes, the source's steps, the target's steps, AXES of each.  There are two axes or more. */
struct copy {
    const void *from;
    void *to;
    const int64_t *table;
    int64_t axes, across, bytes, slots;
};

/* A block of `rows` and `columns`, along `across` and the last axis. */
struct block {
    int64_t rows, columns, from_row, from_column, to_row, to_column;
};

#define MOVE(type)                                                                                \
    static void move_##type(const struct block *b, const type *from, type *to) {                  \
        if (b->from_column == 1 && b->to_column == 1) {                                           \
            for (int64_t i = 0; i < b->rows; i++)                                                 \
                memcpy(to + i * b->to_row, from + i * b->from_row, b->columns * sizeof(type));    \
            return;                                                                               \
        }                                                                                         \
        for (int64_t first = 0; first < b->columns; first += TILE) {                              \
            const int64_t end = least(b->columns, first + TILE);                                  \
            for (int64_t i = 0; i < b->rows; i++)                                                 \
                for (int64_t j = first; j < end; j++)                                             \
                    to[i * b->to_row + j * b->to_column] =                                        \
                        from[i * b->from_row + j * b->from_column];                               \
        }                                                                                         \
    }
MOVE(uint8_t)
MOVE(uint16_t)
MOVE(uint32_t)
MOVE(uint64_t)

/* Rows become columns, by registers where there are whole ones of both. */
static void turn(const struct block *b, const uint32_t *from, uint32_t *to) {
    const int64_t rows = b->rows / LANES * LANES, columns = b->columns / LANES * LANES;
    for (int64_t j = 0; j < columns; j += LANES)
        for (int64_t i = 0; i < rows; i += LANES) {
            vec lines[LANES];
            FLAT for (int r = 0; r < LANES; r++)
                lines[r] = load((const float *)from + (j + r) * b->from_column + i);
            transpose(lines);
            FLAT for (int r = 0; r < LANES; r++)
                store((float *)to + (i + r) * b->to_row + j, lines[r]);
        }
    struct block rest = *b;
    rest.columns = b->columns - columns;
    move_uint32_t(&rest, from + columns * b->from_column, to + columns);
    rest.columns = columns;
    rest.rows = b->rows - rows;
    move_uint32_t(&rest, from + rows, to + rows * b->to_row);
}

static void move(const struct copy *call, const struct block *block, int64_t from, int64_t to) {
    const char *source = (const char *)call->from + from * call->bytes;
    char *target = (char *)call->to + to * call->bytes;
    if (call->bytes == 1)
        move_uint8_t(block, (const uint8_t *)source, (uint8_t *)target);
    else if (call->bytes == 2)
        move_uint16_t(block, (const uint16_t *)source, (uint16_t *)target);
    else if (call->bytes == 4 && block->from_row == 1 && block->to_column == 1)
        turn(block, (const uint32_t *)source, (uint32_t *)target);
    else if (call->bytes == 4)
        move_uint32_t(block, (const uint32_t *)source, (uint32_t *)target);
    else
        move_uint64_t(block, (const uint64_t *)source, (uint64_t *)target);
}

/* Rows of a block, how many blocks of them there are for each of the other axes, and blocks of a
 * chunk. */
struct cut {
    int64_t rows, blocks, together, all;
};

static struct cut cut_of(const struct copy *call) {
    const int64_t *sizes = call->table, last = call->axes - 1;
    const int64_t high = sizes[call->across];
    const int64_t rows = least(high, most(TILE, parts(LEAST, most(1, sizes[last]))));
    struct cut cut = {rows, parts(high, rows), 1, 0};
    int64_t others = 1;
    for (int64_t axis = 0; axis < last; axis++)
        if (axis != call->across) others *= sizes[axis];
    cut.together = most(1, LEAST / most(1, rows * sizes[last]));
    cut.all = others * cut.blocks;
    return cut;
}

static void copy_chunk(void *argument, int64_t chunk, int64_t slot) {
    const struct copy *call = argument;
    const int64_t *sizes = call->table, *from = sizes + AXES, *to = from + AXES;
    const int64_t last = call->axes - 1, across = call->across;
    const struct cut cut = cut_of(call);
    const int64_t end = least(cut.all, (chunk + 1) * cut.together);
    (void)slot;
    for (int64_t number = chunk * cut.together; number < end; number++) {
        const int64_t first = number % cut.blocks * cut.rows;
        int64_t rest = number / cut.blocks, source = 0, target = 0;
        for (int64_t axis = last - 1; axis >= 0; axis--) {
            if (axis == across) continue;
            source += rest % sizes[axis] * from[axis];
            target += rest % sizes[axis] * to[axis];
            rest /= sizes[axis];
        }
        const struct block block = {least(cut.rows, sizes[across] - first), sizes[last],
                                    from[across], from[last], to[across], to[last]};
        move(call, &block, source + first * from[across], target + first * to[across]);
    }
}

KERNEL(copy)(const struct copy *call) {
    const struct cut cut = cut_of(call);
    gt_parallel(parts(cut.all, cut.together), copy_chunk, (void *)call, call->slots);
}
