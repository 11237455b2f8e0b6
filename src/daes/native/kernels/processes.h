/* Several processes: meetings in shared memory, and rows of tables as messages. */
#ifndef DAES_PROCESSES_H
#define DAES_PROCESSES_H

#include "common.h"

/* Processes that meet in memory they share (daes.training.processes.memory): how many have come, and how often all have.
 * `daes_arrive` says that this one has come and returns the meeting's number; `daes_await` whether all came to it within
 * so many milliseconds. What a process has written before it came is there for those that wait for it. */
int64_t daes_arrive(int32_t *meeting, int64_t count) {
#if defined(__linux__)
    int32_t number = __atomic_load_n(meeting + 1, __ATOMIC_ACQUIRE);
    if (__atomic_add_fetch(meeting, 1, __ATOMIC_ACQ_REL) == count) {
        __atomic_store_n(meeting, 0, __ATOMIC_RELAXED);
        __atomic_store_n(meeting + 1, number + 1, __ATOMIC_RELEASE);
        syscall(SYS_futex, meeting + 1, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    }
    return number;
#else
    return 0;
#endif
}

int64_t daes_await(int32_t *meeting, int64_t number, int64_t milliseconds) {
#if defined(__linux__)
    enum { TRIES = 500 }; /* some microseconds, in which others often come */
    const struct timespec most = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    for (int k = 0; k < TRIES; k++) {
        if (__atomic_load_n(meeting + 1, __ATOMIC_ACQUIRE) != (int32_t)number) return 1;
        PAUSE();
    }
    syscall(SYS_futex, meeting + 1, FUTEX_WAIT, (int32_t)number, &most, NULL, 0);
    return __atomic_load_n(meeting + 1, __ATOMIC_ACQUIRE) != (int32_t)number;
#else
    return 0;
#endif
}

/* Put rows of a table (count,), each with its values (count, d) times a factor, where the message to its owner is: of
 * row i the process i / each, or i % owners if `each` is 0. An entry is d values and the two halves of the row's number.
 * `ends` (owners,), in floats from `out` on, are where entries go next. */
FAST void daes_pack(const int64_t *rows, const float *values, int64_t count, int64_t d, float factor, int64_t owners,
                    int64_t each, int64_t *ends, float *out) {
    for (int64_t i = 0; i < count; i++) {
        const int64_t owner = each ? rows[i] / each : rows[i] % owners;
        float *to = out + ends[owner];
        for (int64_t k = 0; k < d; k++) to[k] = values[i * d + k] * factor;
        memcpy(to + d, rows + i, sizeof(int64_t));
        ends[owner] += d + 2;
    }
}

/* The values of entries of `daes_pack`, in several messages with counts (messages,) of them, added up by rows: the
 * different rows less `first`, as they occur, and the sums of their values; returns how many there are. slots (table rows)
 * holds -1 before and after. */
FAST int64_t daes_add_entries(const float *const *entries, const int64_t *counts, int64_t messages, int64_t d,
                              int64_t first, int32_t *slots, int64_t *distinct, float *sums) {
    int64_t found = 0;
    for (int64_t m = 0; m < messages; m++)
        for (int64_t i = 0; i < counts[m]; i++) {
            const float *from = entries[m] + i * (d + 2);
            int64_t row;
            memcpy(&row, from + d, sizeof(int64_t));
            row -= first;
            if (slots[row] < 0) {
                slots[row] = (int32_t)found;
                distinct[found] = row;
                memcpy(sums + found++ * d, from, d * sizeof(float));
                continue;
            }
            float *to = sums + slots[row] * d;
            for (int64_t k = 0; k < d; k++) to[k] += from[k];
        }
    for (int64_t i = 0; i < found; i++) slots[distinct[i]] = -1;
    return found;
}

#endif
