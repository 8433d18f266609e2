/* Mapped files whose end somebody may move, or whose disk may fail, while kernels read them.
 *
 * A read behind the end of a file is a SIGBUS (POSIX mmap).  Of a range watched here, the pages
 * from the fault on become zeros, so that the kernel ends, and the range is marked as lost; what
 * was computed is then thrown away by the caller.  Any other SIGBUS goes to whoever had it before.
 * On Windows a mapped file cannot be cut, and nothing is mapped (gradtool/exec/mapped_files.py).
 */
#include "gradtool.h"

#if defined(_WIN32)

GT_EXPORT int64_t gt_watch(void *start, int64_t bytes) {
    (void)start, (void)bytes;
    return -1;
}
GT_EXPORT int64_t gt_is_lost(int64_t place) { return place < 0; }
GT_EXPORT void gt_unwatch(int64_t place) { (void)place; }

#else

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST 1024
#if !defined(MAP_ANONYMOUS)
#define MAP_ANONYMOUS MAP_ANON
#endif

static struct range {
    _Atomic(uintptr_t) start, end; /* `end` is 0 while the place is free */
    atomic_int lost;
} ranges[MOST];
static atomic_flag changing = ATOMIC_FLAG_INIT;
static struct sigaction before;

/* Zeros from the page of an address to the end of its range; whether it is in one. */
static int replaced(uintptr_t address) {
    const uintptr_t page = address & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
    for (int i = 0; i < MOST; i++) {
        const uintptr_t end = atomic_load(&ranges[i].end);
        if (address < atomic_load(&ranges[i].start) || address >= end) continue;
        const int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        atomic_store(&ranges[i].lost, 1);
        return mmap((void *)page, end - page, PROT_READ, how, -1, 0) != MAP_FAILED;
    }
    return 0;
}

static void at_fault(int number, siginfo_t *info, void *context) {
    if (replaced((uintptr_t)info->si_addr)) return;
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(number, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(number);
    } else {
        sigaction(SIGBUS, &before, NULL); /* the read faults again, and ends the process */
    }
}

/* Be the handler, if another one has come meanwhile. */
static void handle(void) {
    struct sigaction now;
    if (sigaction(SIGBUS, NULL, &now) || now.sa_sigaction == at_fault) return;
    before = now;
    memset(&now, 0, sizeof now);
    now.sa_sigaction = at_fault;
    now.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&now.sa_mask);
    sigaction(SIGBUS, &now, NULL);
}

/* Watch mapped bytes; returns the place of the range, -1 if there is none left. */
GT_EXPORT int64_t gt_watch(void *start, int64_t bytes) {
    int64_t found = -1;
    while (atomic_flag_test_and_set(&changing)) continue;
    handle();
    for (int i = 0; i < MOST && found < 0; i++) {
        if (atomic_load(&ranges[i].end)) continue;
        atomic_store(&ranges[i].lost, 0);
        atomic_store(&ranges[i].start, (uintptr_t)start);
        atomic_store(&ranges[i].end, (uintptr_t)start + (uintptr_t)bytes);
        found = i;
    }
    atomic_flag_clear(&changing);
    return found;
}

/* Whether a read of a range has failed. */
GT_EXPORT int64_t gt_is_lost(int64_t place) { return atomic_load(&ranges[place].lost); }

/* Let go of a range, before it is unmapped. */
GT_EXPORT void gt_unwatch(int64_t place) { atomic_store(&ranges[place].end, 0); }

#endif
