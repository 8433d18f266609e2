/* Which of the compiled instruction sets this processor and its system have.
 *
 * Source: Intel SDM vol. 2, CPUID and XGETBV; the levels are those of the x86-64 psABI, §3.1.1.
 */
#include "gradtool.h"

#if defined(__x86_64__)
#include <cpuid.h>

#define BITS(value, mask) (((value) & (mask)) == (mask))

static uint64_t saved_state(void) {
    uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* FMA, MOVBE, OSXSAVE, AVX, F16C; BMI1, AVX2, BMI2; LZCNT; the system saves YMM. */
static int has_v3(void) {
    uint32_t a, b, c, d;
    const uint32_t leaf1 = 1u << 12 | 1u << 22 | 1u << 27 | 1u << 28 | 1u << 29;
    const uint32_t leaf7 = 1u << 3 | 1u << 5 | 1u << 8;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !BITS(c, leaf1)) return 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !BITS(b, leaf7)) return 0;
    if (!__get_cpuid(0x80000001, &a, &b, &c, &d) || !BITS(c, 1u << 5)) return 0;
    return BITS(saved_state(), 0x6);
}

/* AVX-512 F, DQ, CD, BW, VL; the system saves ZMM and masks. */
static int has_v4(void) {
    uint32_t a, b, c, d;
    const uint32_t leaf7 = 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !BITS(b, leaf7)) return 0;
    return BITS(saved_state(), 0xe6);
}

GT_EXPORT const char *gt_instructions(void) { return !has_v3() ? "" : has_v4() ? "v4" : "v3"; }

#elif defined(__aarch64__)

GT_EXPORT const char *gt_instructions(void) { return "neon"; }

#endif
