/* The gradient of f(x + bias) on rows, for activations f whose slope follows from their argument.
 *
 *     dx = f'(x + bias) dy        dbias = sum over rows of dx
 *
 * Forward is a program of elementwise.c.  dx may be x or dy, and each output NULL.
 * Source: gradtool's numpy kernels.  Workspace in floats: channel_room(n) parts.
 */
#include "activations.h"
#include "channels.h"
#include "pool.h"

struct bias_grad {
    const float *x, *bias, *dy;
    float *dx, *dbias, *work;
    int64_t rows, n, function, slots;
};

INLINE struct images rows_of(const struct bias_grad *call) {
    return (struct images){call->rows, call->n, 1, call->slots};
}

INLINE void one_part(const struct bias_grad *call, int64_t part, vec (*slope)(vec, vec)) {
    const struct images rows = rows_of(call);
    const int64_t n = call->n, room = channel_room(n), size = rows_of_part(&rows);
    const int64_t end = least(call->rows, (part + 1) * size);
    float *sums = call->work + part * room;
    for (int64_t j = 0; j < room; j++) sums[j] = 0;
    for (int64_t at = part * size * n; at < end * n; at += n)
        for (int64_t j = 0; j < n; j += LANES) {
            const vec x = load_left(call->x + at, j, n, 0) + load_left(call->bias, j, n, 0);
            const vec dx = slope(x, load_left(call->dy + at, j, n, 0));
            store(sums + j, load(sums + j) + dx);
            if (call->dx) store_left(call->dx + at, dx, j, n);
        }
}

#define PART(name)                                                                                \
    static void name##_part(void *argument, int64_t part, int64_t slot) {                         \
        (void)slot;                                                                               \
        one_part(argument, part, name##_grad);                                                    \
    }

PART(gelu)
PART(gelu_tanh)
PART(silu)
PART(relu)

/* In the order of gradtool.native.bias.FUNCTIONS. */
static gt_task *const functions[] = {gelu_part, gelu_tanh_part, silu_part, relu_part};

KERNEL(bias_grad)(const struct bias_grad *call) {
    const struct images rows = rows_of(call);
    const int64_t count = parts_of(&rows), room = channel_room(call->n);
    gt_parallel(count, functions[call->function], (void *)call, call->slots);
    for (int64_t j = 0; call->dbias && j < call->n; j++) {
        double sum = 0;
        for (int64_t part = 0; part < count; part++) sum += call->work[part * room + j];
        call->dbias[j] = (float)sum;
    }
}
