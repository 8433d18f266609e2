/* A pool of threads that sleep on a condition variable between calls.
 *
 * Who waits looks some ten microseconds for what comes before it sleeps: a layer that is computed
 * step by step calls again by then, and to wake a thread takes longer.
 *
 * Threads start when first wanted and stay.  A forked child has none: it begins with an empty pool
 * and starts its own.  A thread that cannot be had is done without.  Workspace: none.
 */
#include "pool.h"

#include <stdatomic.h>

#include "flush.h"
#include "gradtool.h"
#include "threads.h"

struct job {
    gt_task *task;
    void *argument;
    int64_t count;
};

static gt_lock lock = GT_LOCK;
static gt_condition begun = GT_CONDITION, finished = GT_CONDITION;
static struct job job;
static int64_t threads = 1; /* of a call, its caller among them */
static int64_t started;     /* workers alive */
static int64_t joined;      /* workers that the job took in: their slots */
static atomic_int_least64_t wanted; /* workers that it still takes in */
static atomic_int_least64_t active; /* workers in it now */
static atomic_int_least64_t next;
static atomic_flag taken = ATOMIC_FLAG_INIT;

enum { LOOKS = 1000 }; /* of 25 to 45 ns each on x86-64 */

/* Looks for a while until the count says that there are any, or none. */
static void linger(atomic_int_least64_t *count, int any) {
    for (int i = 0; i < LOOKS && (atomic_load(count) > 0) != any; i++) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("yield");
#endif
    }
}

static void drain(struct job now, int64_t slot) {
    for (;;) {
        int64_t chunk = atomic_fetch_add(&next, 1);
        if (chunk >= now.count) return;
        now.task(now.argument, chunk, slot);
    }
}

GT_THREAD(work) {
    (void)argument;
    flush();
    for (;;) {
        linger(&wanted, 1);
        take(&lock);
        while (wanted == 0) await(&begun, &lock);
        wanted--;
        active++;
        int64_t slot = ++joined;
        struct job now = job;
        give(&lock);
        drain(now, slot);
        take(&lock);
        if (--active == 0) wake_one(&finished);
        give(&lock);
    }
    GT_THREAD_END;
}

#if !defined(_WIN32)
static void begin_again(void) {
    lock = (gt_lock)GT_LOCK;
    begun = (gt_condition)GT_CONDITION;
    finished = (gt_condition)GT_CONDITION;
    started = wanted = joined = active = 0;
    atomic_flag_clear(&taken);
}

__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(NULL, NULL, begin_again);
}
#endif

static void alone(int64_t count, gt_task *task, void *argument) {
    for (int64_t chunk = 0; chunk < count; chunk++) task(argument, chunk, 0);
}

void gt_parallel(int64_t count, gt_task *task, void *argument, int64_t slots) {
    int64_t helpers = least(least(threads, slots), count) - 1;
    if (helpers <= 0 || atomic_flag_test_and_set(&taken)) {
        alone(count, task, argument);
        return;
    }
    take(&lock);
    while (started < helpers && start(work)) started++;
    job = (struct job){task, argument, count};
    atomic_store(&next, 0);
    joined = 0;
    wanted = least(helpers, started);
    for (int64_t i = 0; i < wanted; i++) wake_one(&begun);
    give(&lock);

    drain((struct job){task, argument, count}, 0);

    take(&lock);
    wanted = 0;
    give(&lock);
    linger(&active, 0);
    take(&lock);
    while (active > 0) await(&finished, &lock);
    give(&lock);
    atomic_flag_clear(&taken);
}

/* Threads that a call may take from now on, at least 1. */
GT_EXPORT void gt_set_threads(int64_t count) { threads = most(count, 1); }

GT_EXPORT int64_t gt_threads(void) { return threads; }

/* For tests: each chunk writes the slot it had, after `turns` rounds of work. */
struct probe {
    int64_t *slots, turns;
};

static void write_slot(void *argument, int64_t chunk, int64_t slot) {
    struct probe *probe = argument;
    volatile int64_t left = probe->turns;
    while (left > 0) left = left - 1;
    probe->slots[chunk] = slot;
}

GT_EXPORT void gt_probe(int64_t *written, int64_t count, int64_t turns, int64_t slots) {
    struct probe probe = {written, turns};
    gt_parallel(count, write_slot, &probe, slots);
}
