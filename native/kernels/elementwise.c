/* Programs of elementwise steps, run on a block of BLOCK elements after the other: one pass.
 *
 * Registers are numbered: inputs, outputs, then temporaries.  A step is `op, to, a, b`; it reads
 * inputs and writes outputs where they lie.  An input of `period` elements is broadcast: element i
 * of a result sees its element (i / repeat) % period, so 1, 1 is a number, 1, D a vector along the
 * last axis and H W, C one number per channel of [N, C, H, W].  Period 0 is an input of full size.
 *
 * An output may be an input of full size which no later step reads.
 * Workspace in bytes: 4 BLOCK slots (broadcast inputs + temporaries).
 */
#include "activations.h"
#include "ends.h"
#include "pool.h"

#define BLOCK 1024
#define BLOCKS 16 /* of a chunk */
#define REGISTERS 64

struct elementwise {
    const void *code, *operands, *results;
    float *work;
    int64_t count, steps, inputs, outputs, spares, temporaries, slots;
};

struct step {
    int32_t op, to, a, b;
};

struct operand {
    const float *at;
    int64_t repeat, period;
};

typedef void loop(const float *a, const float *b, float *out, int64_t count);

#define UNARY(name, value)                                                                        \
    INLINE vec name##_of(vec a, vec b) {                                                          \
        (void)b;                                                                                  \
        return value;                                                                             \
    }                                                                                             \
    LOOP(name, name##_of)
#define BINARY(name, value)                                                                       \
    INLINE vec name##_of(vec a, vec b) { return value; }                                          \
    LOOP(name, name##_of)
#define LOOP(name, f)                                                                             \
    static void name##_loop(const float *a, const float *b, float *out, int64_t count) {          \
        map(a, b, out, count, f);                                                                 \
    }

BINARY(add, a + b)
BINARY(sub, a - b)
BINARY(mul, a *b)
BINARY(div, a / b)
BINARY(min, choose((ivec)(a < b) | (ivec)(a != a), a, b))
BINARY(max, choose((ivec)(a > b) | (ivec)(a != a), a, b))
BINARY(relu_grad, relu_grad(a, b))
BINARY(sigmoid_grad, sigmoid_grad(a, b))
BINARY(tanh_grad, tanh_grad(a, b))
BINARY(gelu_grad, gelu_grad(a, b))
BINARY(gelu_tanh_grad, gelu_tanh_grad(a, b))
BINARY(silu_grad, silu_grad(a, b))
UNARY(neg, -a)
UNARY(abs, magnitude(a))
UNARY(sqrt, __builtin_elementwise_sqrt(a))
UNARY(exp, vec_exp(a))
UNARY(log, vec_log(a))
UNARY(tanh, vec_tanh(a))
UNARY(sigmoid, vec_sigmoid(a))
UNARY(erf, vec_erf(a))
UNARY(relu, vec_relu(a))
UNARY(gelu, vec_gelu(a))
UNARY(gelu_tanh, vec_gelu_tanh(a))
UNARY(silu, vec_silu(a))

/* In the order of gradtool.native.elementwise.OPERATORS. */
static loop *const loops[] = {
    add_loop,       sub_loop,          mul_loop,       div_loop,  min_loop,  max_loop,
    relu_grad_loop, sigmoid_grad_loop, tanh_grad_loop, gelu_grad_loop, gelu_tanh_grad_loop,
    silu_grad_loop, neg_loop,          abs_loop,       sqrt_loop, exp_loop,  log_loop,
    tanh_loop,      sigmoid_loop,      erf_loop,       relu_loop, gelu_loop, gelu_tanh_loop,
    silu_loop,
};

/* What elements `from` to `from + count` see of a broadcast operand, in `room` where it must. */
static const float *spread(const struct operand *operand, int64_t from, int64_t count,
                           float *room) {
    const int64_t repeat = operand->repeat, period = operand->period;
    if (period == 0) return operand->at + from;
    int64_t index = from / repeat % period, left = repeat - from % repeat;
    if (repeat == 1 && index + count <= period) return operand->at + index;
    for (int64_t i = 0; i < count;) {
        const int64_t run = least(repeat == 1 ? period - index : left, count - i);
        if (repeat == 1)
            for (int64_t j = 0; j < run; j++) room[i + j] = operand->at[index + j];
        else
            for (int64_t j = 0; j < run; j++) room[i + j] = operand->at[index];
        i += run;
        left = repeat;
        index = repeat == 1 || index + 1 == period ? 0 : index + 1;
    }
    return room;
}

static void run_chunk(void *argument, int64_t chunk, int64_t slot) {
    const struct elementwise *call = argument;
    const struct operand *operands = call->operands;
    const struct step *code = call->code;
    float *const *results = call->results;
    const float *at[REGISTERS];
    float *room = call->work + slot * (call->spares + call->temporaries) * BLOCK;
    const int64_t first = call->inputs + call->outputs, begin = chunk * BLOCKS * BLOCK;
    const int64_t end = least(call->count, begin + BLOCKS * BLOCK);
    for (int64_t i = 0; i < call->temporaries; i++) at[first + i] = room + i * BLOCK;
    for (int64_t from = begin; from < end; from += BLOCK) {
        const int64_t count = least(BLOCK, end - from);
        float *spare = room + call->temporaries * BLOCK;
        for (int64_t i = 0; i < call->inputs; i++) {
            const int64_t period = operands[i].period;
            const int same = period && BLOCK % period == 0 && operands[i].repeat == 1;
            if (!same || from == begin) at[i] = spread(operands + i, from, count, spare);
            if (period) spare += BLOCK;
        }
        for (int64_t i = 0; i < call->outputs; i++) at[call->inputs + i] = results[i] + from;
        for (const struct step *step = code; step < code + call->steps; step++)
            loops[step->op](at[step->a], at[step->b], (float *)at[step->to], count);
    }
}

KERNEL(elementwise)(const struct elementwise *call) {
    gt_parallel(parts(call->count, BLOCKS * BLOCK), run_chunk, (void *)call, call->slots);
}
