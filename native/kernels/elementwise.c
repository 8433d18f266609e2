/* Programs of elementwise steps, run on a block of BLOCK elements after the other: one pass.
 *
 * Registers are numbered: inputs, outputs, then temporaries.  A step is `op, to, a, b`; it reads
 * inputs and writes outputs where they lie.  Inputs are strided arrays of as many elements as the
 * results, which lie together; what does not lie together is copied a block at a time.
 *
 * Inputs and results of one byte an element are booleans; in registers true is all bits.
 *
 * An output may be an input that lies together and that no later step reads.
 * Workspace in floats: (inputs that do not lie together + booleans + temporaries) times the elements
 * of a block, and times the chunks if these are fewer than slots.
 */
#include "activations.h"
#include "ends.h"
#include "pool.h"
#include "strided.h"

#define BLOCK 1024
#define BLOCKS 16 /* of a chunk */
#define REGISTERS 64

struct elementwise {
    const void *code, *operands, *results;
    float *work;
    int64_t count, steps, inputs, outputs, spares, temporaries, slots;
};

struct result {
    void *at;
    int64_t is_bool;
};

struct step {
    int32_t op, to, a, b;
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
BINARY(hard_swish_grad, hard_swish_grad(a, b))
BINARY(pow, vec_pow(a, b))
BINARY(greater, (vec)(a > b))
BINARY(equal, (vec)(a == b))
BINARY(both, (vec)((ivec)a & (ivec)b))
BINARY(but, (vec)(~(ivec)a & (ivec)b))
BINARY(either, (vec)((ivec)a | (ivec)b))
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
UNARY(hard_swish, vec_hard_swish(a))
UNARY(fall, vec_fall(a))
UNARY(softplus, vec_softplus(a))
UNARY(sign, vec_sign(a))
UNARY(inverse, 1.0f / a)
UNARY(not, (vec)(~(ivec)a))

/* In the order of gradtool.native.elementwise.OPERATORS. */
static loop *const loops[] = {
    add_loop, sub_loop, mul_loop, div_loop, min_loop, max_loop, relu_grad_loop, sigmoid_grad_loop,
    tanh_grad_loop, gelu_grad_loop, gelu_tanh_grad_loop, silu_grad_loop, hard_swish_grad_loop,
    pow_loop, greater_loop, equal_loop, both_loop, but_loop, either_loop, neg_loop, abs_loop,
    sqrt_loop, exp_loop, log_loop, tanh_loop, sigmoid_loop, erf_loop, relu_loop, gelu_loop,
    gelu_tanh_loop, silu_loop, hard_swish_loop, fall_loop, softplus_loop, sign_loop, inverse_loop,
    not_loop,
};

/* Whether every whole block sees the same of an operand: a number, or a row that divides a block. */
static int is_periodic(const struct strided *a) {
    if (a->axes == 1) return a->steps[0] == 0;
    return a->axes == 2 && a->steps[0] == 0 && BLOCK % a->sizes[1] == 0;
}

static void to_bools(const int32_t *masks, uint8_t *bools, int64_t count) {
    for (int64_t i = 0; i < count; i++) bools[i] = (uint8_t)(masks[i] & 1);
}

static void run_chunk(void *argument, int64_t chunk, int64_t slot) {
    const struct elementwise *call = argument;
    const struct strided *operands = call->operands;
    const struct step *code = call->code;
    const struct result *results = call->results;
    const float *at[REGISTERS];
    const int64_t block = least(BLOCK, rounded_up(call->count, 16));
    float *room = call->work + slot * (call->spares + call->temporaries) * block;
    const int64_t first = call->inputs + call->outputs, begin = chunk * BLOCKS * BLOCK;
    const int64_t end = least(call->count, begin + BLOCKS * BLOCK);
    for (int64_t i = 0; i < call->temporaries; i++) at[first + i] = room + i * block;
    for (int64_t from = begin; from < end; from += BLOCK) {
        const int64_t count = least(BLOCK, end - from);
        float *spare = room + call->temporaries * block;
        for (int64_t i = 0; i < call->inputs; i++) {
            if (from == begin || !is_periodic(operands + i))
                at[i] = line_of(operands + i, from, count, spare);
            if (is_held(operands + i)) spare += block;
        }
        for (int64_t i = 0; i < call->outputs; i++) {
            at[call->inputs + i] = results[i].is_bool ? spare : (float *)results[i].at + from;
            if (results[i].is_bool) spare += block;
        }
        for (const struct step *step = code; step < code + call->steps; step++)
            loops[step->op](at[step->a], at[step->b], (float *)at[step->to], count);
        for (int64_t i = 0; i < call->outputs; i++)
            if (results[i].is_bool)
                to_bools((const int32_t *)at[call->inputs + i], (uint8_t *)results[i].at + from,
                         count);
    }
}

KERNEL(elementwise)(const struct elementwise *call) {
    gt_parallel(parts(call->count, BLOCKS * BLOCK), run_chunk, (void *)call, call->slots);
}
