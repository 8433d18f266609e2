/* Numbers below the least normal one count as zero, where they are read and where they arise.
 *
 * Intel's processors take some hundred cycles for each of them, and a softmax that is certain of
 * its classes makes many.  Vectors of older ARM processors know nothing else.
 */
#ifndef GRADTOOL_FLUSH_H
#define GRADTOOL_FLUSH_H

#include <stdint.h>

#if defined(__x86_64__)
#define FLUSHING 0x8040 /* MXCSR: flush to zero, denormals are zero (Intel SDM vol. 1, 10.2.3) */

static inline uint64_t how_numbers_are(void) { return __builtin_ia32_stmxcsr(); }
static inline void have_numbers(uint64_t how) { __builtin_ia32_ldmxcsr((uint32_t)how); }
#elif defined(__aarch64__)
#define FLUSHING (1 << 24) /* FPCR.FZ (Arm ARM, C5.2.8) */

static inline uint64_t how_numbers_are(void) {
    uint64_t how;
    __asm__ volatile("mrs %0, fpcr" : "=r"(how));
    return how;
}
static inline void have_numbers(uint64_t how) { __asm__ volatile("msr fpcr, %0" : : "r"(how)); }
#else
#error "how does this processor count numbers below the least normal one as zero?"
#endif

/* From now on in this thread; returns how it was, for `have_numbers`. */
static inline uint64_t flush(void) {
    const uint64_t before = how_numbers_are();
    have_numbers(before | FLUSHING);
    return before;
}

#endif
