/* A product of matrices by packed panels.
 *
 * For each block of DEPTH places of k and WIDTH columns of b: the block of b is packed into panels
 * as wide as a tile, shared by all threads; then each chunk packs its HEIGHT rows of a and runs
 * tiles over the panels.  Blocks are cut by shape alone, and k is summed in order.
 *
 * Source: Goto & van de Geijn 2008.  Workspace, in floats, with d = min(k, DEPTH):
 * d (min(n, WIDTH) + 32) + s (d min(m, 56) + 16) + 16, where s is one
 * for each GRAIN of the m n k multiplications, and at most `slots`.
 */
#include "gemm.h"
#include "low_bits.h"
#include "packing.h"
#include "pool.h"
#include "tiles.h"

#define DEPTH 512
#define WIDTH 768
#define HIGHEST 56
#define HEIGHT (HIGHEST / TILE_ROWS * TILE_ROWS)
#define NARROW 512 /* columns for which a turned a is not packed */
#define SETS 4096  /* bytes after which lines fall into the same set of a first cache */
#define PLACES 64 /* of a chunk of packing */
#define SPARE 16
#define WIDEST 32  /* columns of the widest tile */
#define GRAIN (1 << 21) /* of gradtool.native.slots */
#define STRETCH 64 /* places of a line that are decoded at a time, in the first cache */
#define CHUNKS 8   /* as many as a product is cut into, if it is large enough */

struct block {
    const struct product *product;
    struct finish finish;
    int64_t from_k, depth, from_n, width;
    int64_t row_tiles, row_blocks;         /* tiles of rows, spread over blocks of rows */
    int64_t panels, column_blocks;         /* panels of a block of columns */
    float *b, *a;                                      /* packed */
    int64_t a_room;                                    /* of one slot */
};

/* Lines of a b of few bits; numbers that are looked up go through a stretch of each. */
static void pack_coded_lines(const struct block *block, int64_t line, int64_t lines, float *panel) {
    const struct coded *coded = block->product->coded;
    float stretch[TILE_COLUMNS * STRETCH];
    if (!coded->table && !coded->groups) {
        for (int64_t i = 0; i < TILE_COLUMNS; i += LANES) {
            const int64_t there = most(0, lines - i), first = there ? line + i : line;
            BY_BITS(decode_lines, coded, first, there, block->from_k, block->depth, panel + i);
        }
        return;
    }
    for (int64_t k = 0; k < block->depth; k += STRETCH) {
        const int64_t count = least(STRETCH, block->depth - k);
        for (int64_t i = 0; i < lines; i++)
            decode(coded, line + i, block->from_k + k, count, stretch + i * STRETCH, TILE_COLUMNS);
        pack_lines(stretch, STRETCH, lines, count, panel + k * TILE_COLUMNS, TILE_COLUMNS);
    }
}

/* Places of a b of few bits: what the last panel lacks of its width is zero. */
static void pack_coded_places(const struct block *block, int64_t first, int64_t end) {
    const struct coded *coded = block->product->coded;
    const int64_t line = coded->blocks * coded->block * coded->bits / 8, jump = block->depth * TILE_COLUMNS;
    for (int64_t from_k = first; from_k < end; from_k += TURN)
        for (int64_t j = 0; j < block->width; j += STRETCH) {
            const int64_t count = least(STRETCH, block->width - j), whole = parts(count, TILE_COLUMNS) * TILE_COLUMNS;
            const uint8_t *ahead = coded->codes + (block->from_n + j) * coded->bits / 8;
            for (int64_t k = from_k; k < least(end, from_k + TURN); k++) {
                float *to = block->b + j * block->depth + k * TILE_COLUMNS;
                __builtin_prefetch(ahead + (block->from_k + k + TURN) * line);
                decode(coded, block->from_k + k, block->from_n + j, count, to, jump);
                for (int64_t c = count; c < whole; c++) *panel_at(to, c, jump) = 0;
            }
        }
}

/* One panel of lines of b. */
static void pack_panel(void *argument, int64_t panel, int64_t slot) {
    const struct block *block = argument;
    const struct product *product = block->product;
    const int64_t j = panel * TILE_COLUMNS, lines = least(TILE_COLUMNS, block->width - j);
    (void)slot;
    if (product->coded) {
        pack_coded_lines(block, block->from_n + j, lines, block->b + j * block->depth);
        return;
    }
    pack_lines(product->b + (block->from_n + j) * product->b_row + block->from_k, product->b_row,
               lines, block->depth, block->b + j * block->depth, TILE_COLUMNS);
}

/* Some places of b, in all panels. */
static void pack_rows(void *argument, int64_t chunk, int64_t slot) {
    const struct block *block = argument;
    const struct product *product = block->product;
    const int64_t first = chunk * PLACES, end = least(block->depth, first + PLACES);
    (void)slot;
    if (product->coded) {
        pack_coded_places(block, first, end);
        return;
    }
    pack_places(product->b + block->from_k * product->b_row + block->from_n, product->b_row,
                block->width, first, end, block->depth, block->b, TILE_COLUMNS, 1);
}

static void pack_a(const struct block *block, int64_t from, int64_t rows, float *to) {
    const struct product *product = block->product;
    if (product->a_turned) {
        pack_places(product->a + block->from_k * product->a_row + from, product->a_row, rows, 0,
                    block->depth, block->depth, to, TILE_ROWS, 0);
        return;
    }
    for (int64_t i = 0; i < rows; i += TILE_ROWS) {
        const int64_t lines = least(TILE_ROWS, rows - i);
        pack_lines(product->a + (from + i) * product->a_row + block->from_k, product->a_row, lines,
                   block->depth, to + i * block->depth, lines);
    }
}

/* An a that need not be packed, as a block of columns reads it few times: its rows do not share
 * cache sets, and if it is turned, of whose lines a tile takes a part, it is read fewer times yet. */
static int lies_well(const struct block *block) {
    const struct product *product = block->product;
    const int64_t page = SETS / sizeof(float);
    if (product->a_row % page == 0) return 0;
    return !product->a_turned || (product->n <= NARROW && product->a_row <= page);
}

/* The first row of a block of rows: as many tiles in each, but for one, so that no thread waits. */
static int64_t row_of(const struct block *block, int64_t index) {
    return least(block->row_tiles * index / block->row_blocks * TILE_ROWS, block->product->m);
}

static void multiply_chunk(void *argument, int64_t chunk, int64_t slot) {
    const struct block *block = argument;
    const struct product *product = block->product;
    const int64_t row = row_of(block, chunk / block->column_blocks);
    const int64_t rows = row_of(block, chunk / block->column_blocks + 1) - row;
    const int64_t step = block->panels * TILE_COLUMNS;
    const int64_t column = chunk % block->column_blocks * step;
    const int64_t end = least(block->width, column + step);
    float *a = block->a + slot * block->a_room;
    const int direct = lies_well(block);
    const int64_t line = product->a_turned ? 1 : product->a_row;
    const float *from = product->a + row * line + block->from_k * (product->a_turned ? product->a_row : 1);
    if (!direct) pack_a(block, row, rows, a);
    for (int64_t j = column; j < end; j += TILE_COLUMNS) {
        struct finish finish = block->finish;
        if (finish.bias) finish.bias += block->from_n + j;
        for (int64_t i = 0; i < rows; i += TILE_ROWS)
            multiply_tile(!direct || product->a_turned, least(TILE_ROWS, rows - i), block->depth,
                          direct ? from + i * line : a + i * block->depth,
                          direct ? product->a_row : least(TILE_ROWS, rows - i), block->b + j * block->depth, TILE_COLUMNS,
                          product->c + (row + i) * product->c_row + block->from_n + j,
                          product->c_row, least(TILE_COLUMNS, block->width - j), &finish);
    }
}

static int64_t slots_of(int64_t m, int64_t n, int64_t k, int64_t slots) {
    return most(1, least(slots, parts(m * n * k, GRAIN)));
}

int64_t SHARED(multiply_work)(int64_t m, int64_t n, int64_t k, int64_t slots) {
    const int64_t depth = least(k, DEPTH);
    return depth * (least(n, WIDTH) + WIDEST) + slots_of(m, n, k, slots) * (depth * least(m, HIGHEST) + SPARE) + SPARE;
}

static void multiply_block(struct block *block, int64_t slots) {
    const struct product *product = block->product;
    const int64_t panels = parts(block->width, TILE_COLUMNS);
    if (product->b_turned)
        gt_parallel(panels, pack_panel, block, slots);
    else
        gt_parallel(parts(block->depth, PLACES), pack_rows, block, slots);
    block->column_blocks = least(panels, parts(CHUNKS, block->row_blocks));
    block->panels = parts(panels, block->column_blocks);
    block->column_blocks = parts(panels, block->panels);
    const int first = block->from_k == 0;
    block->finish.alpha = product->alpha;
    block->finish.beta = first ? product->beta : 1;
    block->finish.bias = first ? product->bias : NULL;
    gt_parallel(block->row_blocks * block->column_blocks, multiply_chunk, block, slots);
}

void SHARED(multiply)(const struct product *product, float *work, int64_t slots) {
    if (product->m == 0 || product->n == 0) return;
    if (!product->coded && SHARED(multiply_thin)(product, slots)) return;
    struct block block = {.product = product, .b = work};
    slots = slots_of(product->m, product->n, product->k, slots);
    block.row_tiles = parts(product->m, TILE_ROWS);
    block.row_blocks = parts(product->m, HEIGHT);
    const int64_t deepest = least(product->k, DEPTH);
    block.a = work + deepest * (least(product->n, WIDTH) + WIDEST) + SPARE;
    block.a_room = deepest * least(product->m, HIGHEST) + SPARE;
    for (block.from_n = 0; block.from_n < product->n; block.from_n += WIDTH) {
        block.width = least(WIDTH, product->n - block.from_n);
        block.from_k = 0;
        do { /* once for an empty sum, too */
            block.depth = least(DEPTH, product->k - block.from_k);
            multiply_block(&block, slots);
            block.from_k += DEPTH;
        } while (block.from_k < product->k);
    }
}
