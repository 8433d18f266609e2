/* Arrays whose axes lie in steps: views, and what is broadcast (a step of 0). */
#ifndef GRADTOOL_STRIDED_H
#define GRADTOOL_STRIDED_H

#include "gradtool.h"

#define AXES 6

/* Axes from the outermost on; steps in elements.  Axes that could be one are one. */
struct strided {
    const void *at;
    int64_t is_bool, axes, sizes[AXES], steps[AXES];
};

/* Whether elements have to be copied to lie one after the other as floats. */
INLINE int is_held(const struct strided *a) {
    return a->is_bool || a->axes > 1 || a->steps[0] != 1;
}

/* Element `from` of an array: its place, and its number along each axis. */
INLINE int64_t place_of(const struct strided *a, int64_t from, int64_t *numbers) {
    int64_t place = 0;
    for (int64_t axis = a->axes - 1; axis >= 0; axis--) {
        numbers[axis] = from % a->sizes[axis];
        place += numbers[axis] * a->steps[axis];
        from /= a->sizes[axis];
    }
    return place;
}

/* The place of the first element of the next line, which `place` and `numbers` end before. */
INLINE int64_t next_line(const struct strided *a, int64_t place, int64_t *numbers) {
    int64_t axis = a->axes - 1;
    place -= numbers[axis] * a->steps[axis];
    numbers[axis] = 0;
    for (axis--; axis >= 0; axis--) {
        place += a->steps[axis];
        if (++numbers[axis] < a->sizes[axis]) break;
        place -= numbers[axis] * a->steps[axis];
        numbers[axis] = 0;
    }
    return place;
}

/* `count` elements at steps, as floats or as masks: all bits of what is true. */
INLINE void copy_line(const struct strided *a, int64_t place, int64_t step, int64_t count,
                      float *room) {
    const float *line = (const float *)a->at + place;
    const uint8_t *bools = (const uint8_t *)a->at + place;
    int32_t *masks = (int32_t *)room;
    if (a->is_bool && step == 1)
        for (int64_t i = 0; i < count; i++) masks[i] = -(bools[i] != 0);
    else if (a->is_bool)
        for (int64_t i = 0; i < count; i++) masks[i] = -(bools[i * step] != 0);
    else if (step == 1)
        for (int64_t i = 0; i < count; i++) room[i] = line[i];
    else if (step == 0) {
        const float number = *line;
        for (int64_t i = 0; i < count; i++) room[i] = number;
    } else
        for (int64_t i = 0; i < count; i++) room[i] = line[i * step];
}

/* Elements `from` to `from + count`: where they lie, if together, else copied into `room`. */
static inline const float *line_of(const struct strided *a, int64_t from, int64_t count,
                                   float *room) {
    int64_t numbers[AXES];
    const int64_t last = a->axes - 1, step = a->steps[last], size = a->sizes[last];
    if (!is_held(a)) return (const float *)a->at + from;
    int64_t place = place_of(a, from, numbers);
    if (!a->is_bool && step == 1 && numbers[last] + count <= size)
        return (const float *)a->at + place;
    for (int64_t i = 0; i < count;) {
        const int64_t run = least(size - numbers[last], count - i);
        copy_line(a, place, step, run, room + i);
        i += run;
        place = next_line(a, place, numbers);
    }
    return room;
}

#endif
