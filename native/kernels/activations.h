/* Activations and their slopes as functions of vectors, as the kernels of gradtool define them. */
#ifndef GRADTOOL_ACTIVATIONS_H
#define GRADTOOL_ACTIVATIONS_H

#include "functions.h"

#define ROOT_HALF 0.70710678118654752f
#define DENSITY 0.39894228040143268f /* 1 / sqrt(2 pi) */
#define ROOT 0.79788456080286536f    /* sqrt(2 / pi) */
#define CUBE 0.044715f

INLINE vec vec_relu(vec x) { return at_least(x, 0); }
INLINE vec vec_silu(vec x) { return x * vec_sigmoid(x); }
INLINE vec vec_gelu(vec x) { return (vec_erf(x * ROOT_HALF) + 1.0f) * 0.5f * x; }

INLINE vec gelu_bend(vec x) { return vec_tanh((x * x * (CUBE * ROOT) + ROOT) * x); }
INLINE vec vec_gelu_tanh(vec x) { return (gelu_bend(x) + 1.0f) * 0.5f * x; }

/* Where y is NaN, dy passes. */
INLINE vec relu_grad(vec y, vec dy) { return choose(y <= 0.0f, splat(0), dy); }
INLINE vec sigmoid_grad(vec y, vec dy) { return (1.0f - y) * y * dy; }
INLINE vec tanh_grad(vec y, vec dy) { return (1.0f - y * y) * dy; }

INLINE vec silu_grad(vec x, vec dy) {
    const vec s = vec_sigmoid(x);
    return ((1.0f - s) * x + 1.0f) * s * dy;
}

INLINE vec gelu_grad(vec x, vec dy) {
    /* Beyond 14 the density is 0, and so is its product with x: no 0 * inf. */
    const vec near = at_least(at_most(x, 14.0f), -14.0f);
    const vec density = vec_exp_below(near * near * -0.5f) * DENSITY;
    return ((vec_erf(x * ROOT_HALF) + 1.0f) * 0.5f + density * near) * dy;
}

INLINE vec gelu_tanh_grad(vec x, vec dy) {
    const vec near = at_least(at_most(x, 14.0f), -14.0f), s = near * near;
    const vec t = vec_tanh((s * (CUBE * ROOT) + ROOT) * near);
    const vec slope = (s * (1.5f * CUBE * ROOT) + 0.5f * ROOT) * near * (1.0f - t * t);
    return ((t + 1.0f) * 0.5f + slope) * dy;
}

#endif
