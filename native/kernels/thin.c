/* Products with few rows: b is read once, where it lies, and nothing is packed.
 *
 * By columns of b (not turned): a strip of c stays in registers while k runs.  By lines of b (turned):
 * each number of c is a sum of LANES partial sums over k.  Source: none; a matrix times a vector.
 * Workspace: none.
 */
#include "gemm.h"
#include "pool.h"

#define STRIP (LANES == 8 ? 8 : 16) /* vectors of c in registers, of one row */
#define LINES 4   /* lines of b at a time */
#define COLUMNS 512 /* of a chunk */

INLINE float finished(const struct product *p, float sum, int64_t i, int64_t j) {
    float value = p->alpha * sum;
    if (p->beta != 0) value += p->beta * p->c[i * p->c_row + j];
    return p->bias ? value + p->bias[j] : value;
}

INLINE void strip(const struct product *p, int rows, int vectors, int64_t j) {
    const int64_t a_line = p->a_turned ? 1 : p->a_row, a_place = p->a_turned ? p->a_row : 1;
    vec sums[4][STRIP];
    for (int i = 0; i < rows; i++) for (int v = 0; v < vectors; v++) sums[i][v] = splat(0);
    for (int64_t k = 0; k < p->k; k++) {
        const float *b = p->b + k * p->b_row + j, *a = p->a + k * a_place;
        for (int v = 0; v < vectors; v++) {
            const vec line = load(b + v * LANES);
            for (int i = 0; i < rows; i++) sums[i][v] += splat(a[i * a_line]) * line;
        }
    }
    for (int i = 0; i < rows; i++) for (int v = 0; v < vectors; v++) {
        float lanes[LANES];
        store(lanes, sums[i][v]);
        for (int l = 0; l < LANES; l++) {
            const int64_t column = j + v * LANES + l;
            p->c[i * p->c_row + column] = finished(p, lanes[l], i, column);
        }
    }
}

static void one_column(const struct product *p, int64_t j) {
    const int64_t a_line = p->a_turned ? 1 : p->a_row, a_place = p->a_turned ? p->a_row : 1;
    for (int64_t i = 0; i < p->m; i++) {
        float sum = 0;
        for (int64_t k = 0; k < p->k; k++)
            sum = __builtin_fmaf(p->a[i * a_line + k * a_place], p->b[k * p->b_row + j], sum);
        p->c[i * p->c_row + j] = finished(p, sum, i, j);
    }
}

static void strips(void *argument, int64_t chunk, int64_t slot) {
    const struct product *p = argument;
    const int64_t end = least(p->n, (chunk + 1) * COLUMNS);
    int64_t j = chunk * COLUMNS;
    (void)slot;
#define ALONG(rows, vectors)                                                                      \
    for (; j + vectors * LANES <= end; j += vectors * LANES) strip(p, rows, vectors, j)
    switch (p->m) {
        case 1: ALONG(1, STRIP); ALONG(1, 1); break;
        case 2: ALONG(2, STRIP / 2); ALONG(2, 1); break;
        case 3: ALONG(3, STRIP / 4); ALONG(3, 1); break;
        case 4: ALONG(4, STRIP / 4); ALONG(4, 1); break;
    }
    for (; j < end; j++) one_column(p, j);
}

INLINE void lines(const struct product *p, int rows, int count, int64_t j) {
    vec sums[4][LINES];
    const int64_t whole = p->k / LANES * LANES;
    for (int i = 0; i < rows; i++) for (int l = 0; l < count; l++) sums[i][l] = splat(0);
    for (int64_t k = 0; k < whole; k += LANES)
        for (int l = 0; l < count; l++) {
            const vec line = load(p->b + (j + l) * p->b_row + k);
            for (int i = 0; i < rows; i++) sums[i][l] += load(p->a + i * p->a_row + k) * line;
        }
    for (int i = 0; i < rows; i++) for (int l = 0; l < count; l++) {
        float sum = sum_lanes(sums[i][l]);
        for (int64_t k = whole; k < p->k; k++)
            sum = __builtin_fmaf(p->a[i * p->a_row + k], p->b[(j + l) * p->b_row + k], sum);
        p->c[i * p->c_row + j + l] = finished(p, sum, i, j + l);
    }
}

static void all_lines(void *argument, int64_t chunk, int64_t slot) {
    const struct product *p = argument;
    const int64_t end = least(p->n, (chunk + 1) * COLUMNS);
    int64_t j = chunk * COLUMNS;
    (void)slot;
#define DOWN(rows)                                                                                \
    for (; j + LINES <= end; j += LINES) lines(p, rows, LINES, j);                                \
    for (; j < end; j++) lines(p, rows, 1, j)
    switch (p->m) {
        case 1: DOWN(1); break;
        case 2: DOWN(2); break;
        case 3: DOWN(3); break;
        case 4: DOWN(4); break;
    }
}

int SHARED(multiply_thin)(const struct product *product, int64_t slots) {
    struct product p = *product;
    if (p.n == 1 && p.c_row == 1 && p.bias == NULL && (p.b_turned || p.b_row == 1)) {
        /* A column is the row of the turned product. */
        p.m = 1, p.n = product->m, p.c_row = p.n;
        p.a = product->b, p.a_turned = 0, p.a_row = p.k;
        p.b = product->a, p.b_row = product->a_row, p.b_turned = !product->a_turned;
    }
    if (p.m > 4) return 0;
    if (p.a_turned && p.b_turned) {
        if (p.m > 1 || p.a_row != 1) return 0;
        p.a_turned = 0;
    }
    gt_parallel(parts(p.n, COLUMNS), p.b_turned ? all_lines : strips, &p, slots);
    return 1;
}
