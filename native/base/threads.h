/* Threads, locks and conditions of the two systems there are: POSIX and Windows. */
#ifndef GRADTOOL_THREADS_H
#define GRADTOOL_THREADS_H

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

typedef SRWLOCK gt_lock;
typedef CONDITION_VARIABLE gt_condition;
#define GT_LOCK SRWLOCK_INIT
#define GT_CONDITION CONDITION_VARIABLE_INIT
#define GT_THREAD(name) static DWORD WINAPI name(LPVOID argument)
#define GT_THREAD_END return 0

static void take(gt_lock *lock) { AcquireSRWLockExclusive(lock); }
static void give(gt_lock *lock) { ReleaseSRWLockExclusive(lock); }
static void wake_one(gt_condition *on) { WakeConditionVariable(on); }
static void await(gt_condition *on, gt_lock *lock) {
    SleepConditionVariableSRW(on, lock, INFINITE, 0);
}
static int start(LPTHREAD_START_ROUTINE body) {
    HANDLE thread = CreateThread(NULL, 0, body, NULL, 0, NULL);
    return thread != NULL && CloseHandle(thread);
}

#else
#include <pthread.h>
#include <signal.h>

typedef pthread_mutex_t gt_lock;
typedef pthread_cond_t gt_condition;
#define GT_LOCK PTHREAD_MUTEX_INITIALIZER
#define GT_CONDITION PTHREAD_COND_INITIALIZER
#define GT_THREAD(name) static void *name(void *argument)
#define GT_THREAD_END return NULL

static void take(gt_lock *lock) { pthread_mutex_lock(lock); }
static void give(gt_lock *lock) { pthread_mutex_unlock(lock); }
static void wake_one(gt_condition *on) { pthread_cond_signal(on); }
static void await(gt_condition *on, gt_lock *lock) { pthread_cond_wait(on, lock); }

/* One thread that takes no signals: they are the interpreter's.  0 where there is none to have. */
static int start(void *body(void *)) {
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int refused = pthread_create(&thread, NULL, body, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return !refused && !pthread_detach(thread);
}
#endif

#endif
