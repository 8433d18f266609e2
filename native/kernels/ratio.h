/* Quotients of integers, rounded once: what Python's / gives. */
#ifndef GRADTOOL_RATIO_H
#define GRADTOOL_RATIO_H

#include "gradtool.h"

/* a / b for a >= 0 and b > 0. Beyond 2^53 a long division gives 63 bits and whether more follow. */
INLINE double ratio(int64_t a, int64_t b) {
    const int64_t exact = INT64_C(1) << 53;
    if (a <= exact && b <= exact) return (double)a / (double)b;
    uint64_t left = (uint64_t)a, divisor = (uint64_t)b, quotient = left / divisor;
    double unit = 1;
    left %= divisor;
    while (quotient < UINT64_C(1) << 62 && (quotient || left)) {
        left *= 2;
        quotient = 2 * quotient + (left >= divisor);
        if (left >= divisor) left -= divisor;
        unit /= 2;
    }
    return (double)(quotient | (left != 0)) * unit;
}

#endif
