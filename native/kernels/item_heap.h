/* Heaps of what may be taken next: the least is first. */
#ifndef GRADTOOL_ITEM_HEAP_H
#define GRADTOOL_ITEM_HEAP_H

#include "line.h"

INLINE int is_less(const struct item *a, const struct item *b) {
    if (a->price != b->price) return a->price < b->price;
    return a->last != b->last ? a->last < b->last : a->root < b->root;
}

INLINE void sift(struct item *heap, int64_t count, int64_t i) {
    for (int64_t child; (child = 2 * i + 1) < count; i = child) {
        if (child + 1 < count && is_less(&heap[child + 1], &heap[child])) child++;
        if (!is_less(&heap[child], &heap[i])) return;
        const struct item moved = heap[i];
        heap[i] = heap[child];
        heap[child] = moved;
    }
}

INLINE void heapify(struct item *heap, int64_t count) {
    for (int64_t i = count / 2; i-- > 0;) sift(heap, count, i);
}

INLINE struct item pop(struct item *heap, int64_t *count) {
    const struct item first = heap[0];
    heap[0] = heap[--*count];
    sift(heap, *count, 0);
    return first;
}

INLINE void push(struct item *heap, int64_t *count, struct item one) {
    int64_t i = (*count)++;
    for (; i && is_less(&one, &heap[(i - 1) / 2]); i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = one;
}

#endif
