/* Activations and their slopes as functions of vectors, as the kernels of gradtool define them. */
#ifndef GRADTOOL_ACTIVATIONS_H
#define GRADTOOL_ACTIVATIONS_H

#include "functions.h"

#define DENSITY 0.39894228040143268f /* 1 / sqrt(2 pi) */
#define ROOT 0.79788456080286536f    /* sqrt(2 / pi) */
#define CUBE 0.044715f

INLINE vec vec_relu(vec x) { return at_least(x, 0); }
INLINE vec vec_silu(vec x) { return x * vec_sigmoid(x); }

/* The normal distribution at x, to an error of 1.2e-7; `bell` is exp(-x^2 / 2).
 *
 * For x < 0 it is bell times a polynomial of |x| - 2 in place of erfcx(|x| / sqrt 2) / 2, fitted up
 * to 5.5: least greatest error of the product.  Beyond 13 the bell counts as at 13: nothing. */
INLINE vec normal_of(vec x, vec *bell) {
    const vec u = at_most(magnitude(x), 13.0f), q = at_most(u, 5.5f) - 2.0f;
    *bell = vec_exp_within(u * u * -0.5f);
    vec p = q * 2.6764054084083e-8f - 2.2064561733e-7f;
    p = p * q + 5.5969906043e-7f;
    p = p * q - 1.1638820752e-6f;
    p = p * q + 8.4487519416e-6f;
    p = p * q - 4.0749062464e-5f;
    p = p * q + 1.4625549375e-4f;
    p = p * q - 5.4351211293e-4f;
    p = p * q + 1.9781643059e-3f;
    p = p * q - 6.7081931047e-3f;
    p = p * q + 2.1310927346e-2f;
    p = p * q - 6.2737971544e-2f;
    p = (p * q + 1.6810211539e-1f) * *bell;
    return choose(x < 0.0f, p, 1.0f - p);
}

INLINE vec vec_gelu(vec x) {
    vec bell;
    return normal_of(x, &bell) * x;
}

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
    vec bell;
    const vec normal = normal_of(x, &bell), near = at_least(at_most(x, 13.0f), -13.0f);
    return (normal + bell * near * DENSITY) * dy;
}

INLINE vec gelu_tanh_grad(vec x, vec dy) {
    const vec near = at_least(at_most(x, 14.0f), -14.0f), s = near * near;
    const vec t = vec_tanh((s * (CUBE * ROOT) + ROOT) * near);
    const vec slope = (s * (1.5f * CUBE * ROOT) + 0.5f * ROOT) * near * (1.0f - t * t);
    return ((t + 1.0f) * 0.5f + slope) * dy;
}

INLINE vec hard_swish_share(vec x) {
    return at_most(at_least(x * (1.0f / 6.0f) + 0.5f, 0.0f), 1.0f);
}
INLINE vec vec_hard_swish(vec x) { return x * hard_swish_share(x); }

/* The slope is 0 up to -3, 1 from 3 on. */
INLINE vec hard_swish_grad(vec x, vec dy) {
    const vec slope = choose(x >= 3.0f, splat(1), x * (1.0f / 3.0f) + 0.5f);
    return choose(x <= -3.0f, splat(0), slope) * dy;
}

/* exp(x) - 1 of x <= 0. */
INLINE vec vec_fall(vec x) {
    vec rounded;
    const vec r = reduced(at_least(x, -87.0f), &rounded);
    const vec power = (vec)(((ivec)rounded << 23) + 0x3f800000);
    return exp_less_one(r) * power + (power - 1.0f);
}

/* log(1 + exp(x)): of a small u, log(1 + u) is u less what 1 + u lost. */
INLINE vec vec_softplus(vec x) {
    const vec u = vec_exp(-magnitude(x)), w = u + 1.0f, d = w - 1.0f;
    return at_least(x, 0.0f) + choose(d == 0.0f, u, vec_log(w) * (u / d));
}

INLINE vec vec_sign(vec x) {
    return choose(x > 0.0f, splat(1), choose(x < 0.0f, splat(-1), x));
}

/* a to the power of b; one operation for the usual powers. */
INLINE vec vec_pow(vec a, vec b) {
    vec y = choose(b == 2.0f, a * a, a);
    y = choose(b == 3.0f, a * a * a, y);
    y = choose(b == 0.0f, splat(1), y);
    y = choose(b == -1.0f, 1.0f / a, y);
    y = choose(b == 0.5f, __builtin_elementwise_sqrt(a) + 0.0f, y);
    const ivec usual = (ivec)(b == 0.0f) | (b == 1.0f) | (b == 2.0f) | (b == 3.0f) |
                       (b == -1.0f) | (b == 0.5f);
    for (int i = 0; i < LANES; i++)
        if (!usual[i]) y[i] = __builtin_powf(a[i], b[i]);
    return y;
}

#endif
