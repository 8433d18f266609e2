/* exp, log, tanh, sigmoid and erf of vectors, by polynomials.
 *
 * Errors are below 2 units in the last place for exp and 4 for others, denormal results included.
 * Infinities and NaN come out as in numpy.  Source: Moshier's Cephes (expf, logf); tanh is
 * E / (E + 2) with E = exp(2x) - 1, which loses nothing near 0; erf is Juffa's, a polynomial up to
 * .93 and 1 - exp of one beyond.
 */
#ifndef GRADTOOL_FUNCTIONS_H
#define GRADTOOL_FUNCTIONS_H

#include "gradtool.h"

#define ROUNDER 12582912.0f /* 1.5 * 2^23: adding it rounds to whole numbers */

INLINE ivec isplat(int32_t value) { return value - (ivec){0}; }
INLINE vec magnitude(vec x) { return (vec)((ivec)x & 0x7fffffff); }
/* |x| with the sign of `of`. */
INLINE vec with_sign(vec x, vec of) { return (vec)((ivec)x | ((ivec)of & (int32_t)0x80000000)); }
/* The less and the greater of a number and x; NaN where x is. */
INLINE vec at_most(vec x, float limit) { return choose(splat(limit) < x, splat(limit), x); }
INLINE vec at_least(vec x, float limit) { return choose(splat(limit) > x, splat(limit), x); }

/* x = n ln 2 + r: n as a float and, in the low bits of `rounded`, as a number. */
INLINE vec reduced(vec x, vec *rounded) {
    *rounded = x * 1.44269504088896341f + ROUNDER;
    const vec n = *rounded - ROUNDER;
    return (x - n * 0.693359375f) + n * 2.12194440e-4f;
}

/* exp(r) - 1 for |r| <= ln 2 / 2. */
INLINE vec exp_less_one(vec r) {
    vec p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return p * (r * r) + r;
}

INLINE vec vec_exp(vec x) {
    vec rounded;
    const vec r = reduced(at_least(at_most(x, 89.0f), -104.0f), &rounded);
    const vec p = exp_less_one(r) + 1.0f;
    /* 2^n in two steps: n goes from -150 to 128. */
    const ivec n = (ivec)rounded - (ivec)splat(ROUNDER), half = n >> 1;
    return p * (vec)((half + 127) << 23) * (vec)((n - half + 127) << 23);
}

/* The same for -87 <= x <= 88 alone. */
INLINE vec vec_exp_within(vec x) {
    vec rounded;
    const vec p = exp_less_one(reduced(x, &rounded)) + 1.0f;
    return p * (vec)(((ivec)rounded << 23) + 0x3f800000);
}

/* The same for x <= 0; 0 below exp(-87), for sums whose greatest term is 1. */
INLINE vec vec_exp_below(vec x) {
    return choose(x < -87.0f, splat(0), vec_exp_within(at_least(x, -87.0f)));
}

INLINE vec vec_log(vec x) {
    const ivec small = x < 1.17549435e-38f;
    const vec normal = choose(small, x * 8388608.0f, x);
    /* m in [sqrt(1/2), sqrt(2)): 0x3f3504f3 is the root of a half. */
    const ivec bits = (ivec)normal - 0x3f3504f3;
    const ivec power = (bits >> 23) - (small & 23);
    const vec f = (vec)((bits & 0x007fffff) + 0x3f3504f3) - 1.0f, z = f * f;
    const vec e = __builtin_convertvector(power, vec);
    vec p = f * 7.0376836292e-2f - 1.1514610310e-1f;
    p = p * f + 1.1676998740e-1f;
    p = p * f - 1.2420140846e-1f;
    p = p * f + 1.4249322787e-1f;
    p = p * f - 1.6668057665e-1f;
    p = p * f + 2.0000714765e-1f;
    p = p * f - 2.4999993993e-1f;
    p = p * f + 3.3333331174e-1f;
    p = p * f * z - e * 2.12194440e-4f - z * 0.5f;
    vec y = (f + p) + e * 0.693359375f;
    y = choose(x == __builtin_inff(), x, y);
    y = choose(x == 0.0f, splat(-__builtin_inff()), y);
    return choose((ivec)(x >= 0.0f), y, choose((ivec)(x < 0.0f), splat(__builtin_nanf("")), x + y));
}

INLINE vec vec_tanh(vec x) {
    vec rounded;
    const vec r = reduced(at_most(magnitude(x), 10.0f) * 2.0f, &rounded);
    const vec power = (vec)(((ivec)rounded << 23) + 0x3f800000);
    const vec e = exp_less_one(r) * power + (power - 1.0f);
    return with_sign(e / (e + 2.0f), x);
}

INLINE vec vec_sigmoid(vec x) {
    const vec e = vec_exp(-magnitude(x));
    return choose(x < 0.0f, e, splat(1)) / (e + 1.0f);
}

INLINE vec vec_erf(vec x) {
    const vec t = at_most(magnitude(x), 4.0f), s = t * t;
    vec far = t * -1.72853470e-5f + 3.83197126e-4f;
    far = far * s + (t * -3.88396438e-3f + 2.42546219e-2f);
    far = far * t - 1.06777877e-1f;
    far = far * t - 6.34846687e-1f;
    far = far * t - 1.28717512e-1f;
    far = 1.0f - vec_exp_within(far * t - t);
    vec near = s * -5.96761703e-4f + 4.99119423e-3f;
    near = near * s - 2.67681349e-2f;
    near = near * s + 1.12819925e-1f;
    near = near * s - 3.76125336e-1f;
    near = near * s + 1.28379166e-1f;
    near = near * t + t;
    return with_sign(choose(t > 0.927734375f, far, near), x);
}

#endif
