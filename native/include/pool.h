/* The pool of threads: `gt_parallel` calls a function once for each chunk.
 *
 * Chunks are cut by shape alone, never by the number of threads, so that bits do not depend on it.
 * `slot` is a number below `slots` which no two chunks have at the same time: a part of the
 * workspace.  Which chunk gets which slot is left to chance: nothing may be kept there between
 * chunks.  A call from inside a chunk, or while another thread has the pool, runs in its caller,
 * one chunk after the other, in slot 0.
 */
#ifndef GRADTOOL_POOL_H
#define GRADTOOL_POOL_H

#include <stdint.h>

typedef void gt_task(void *argument, int64_t chunk, int64_t slot);

void gt_parallel(int64_t count, gt_task *task, void *argument, int64_t slots);

#endif
