/* One column's reservoir: values accepted, and quantiles that follow it. */
#ifndef DAES_SAMPLE_H
#define DAES_SAMPLE_H

#include "mathematics.h"
#include "tables.h"

/* The least and the largest of the values in `range`; 0 if one of the values is not finite. */
FAST static int64_t range_of(const double *values, int64_t count, double *range) {
    enum { WIDTH = 32 };
    double low[WIDTH], high[WIDTH], zero[WIDTH];
    int64_t i = 0;
    for (int k = 0; k < WIDTH; k++) low[k] = high[k] = values[0], zero[k] = 0;
    for (; i + WIDTH <= count; i += WIDTH)
        for (int k = 0; k < WIDTH; k++) {
            double value = values[i + k];
            low[k] = value < low[k] ? value : low[k];
            high[k] = value > high[k] ? value : high[k];
            zero[k] += value - value; /* NaN for what is not finite */
        }
    for (; i < count; i++) {
        low[0] = values[i] < low[0] ? values[i] : low[0];
        high[0] = values[i] > high[0] ? values[i] : high[0];
        zero[0] += values[i] - values[i];
    }
    for (int k = 1; k < WIDTH; k++) {
        low[0] = low[k] < low[0] ? low[k] : low[0];
        high[0] = high[k] > high[0] ? high[k] : high[0];
        zero[0] += zero[k];
    }
    range[0] = low[0], range[1] = high[0];
    return zero[0] == 0;
}

/* How many of the values are at most each of the points, added to `counts` as often as `times` says. */
FAST void daes_count_up_to(const double *restrict values, int64_t count, const double *restrict points, int64_t num,
                           int64_t times, int64_t *restrict counts) {
    for (int64_t start = 0; start < count; start += 1024) { /* what stays in the cache */
        int64_t k = 0, end = start + 1024 < count ? start + 1024 : count;
        for (; k + 4 <= num; k += 4) { /* of a value that is loaded four comparisons are made */
            int64_t a = 0, b = 0, c = 0, d = 0;
            const double at[4] = {points[k], points[k + 1], points[k + 2], points[k + 3]};
            for (int64_t i = start; i < end; i++) {
                a += values[i] <= at[0];
                b += values[i] <= at[1];
                c += values[i] <= at[2];
                d += values[i] <= at[3];
            }
            counts[k] += times * a;
            counts[k + 1] += times * b;
            counts[k + 2] += times * c;
            counts[k + 3] += times * d;
        }
        for (; k < num; k++) {
            int64_t sum = 0;
            for (int64_t i = start; i < end; i++) sum += values[i] <= points[k];
            counts[k] += times * sum;
        }
    }
}

enum { LEVELS = 32 }; /* TrackedQuantiles.MOST_LEVELS */

/* TrackedQuantiles.read: the first `num` of the points are the values of the levels; behind them are the numbers before
 * those that are tied; counts are of the members up to each. Returns how many points there are then, or 0 if a sorted
 * sample is needed. */
int64_t daes_follow(const double *members, int64_t size, const double *ordered, int64_t width, const double *levels,
                    int64_t num, double tolerance, uint8_t *tied, double *points, int64_t *counts) {
    for (int turn = 0; turn < 4; turn++) {
        int64_t off[LEVELS], under[LEVELS], total = num, fresh = 0, found[2 * LEVELS] = {0};
        int64_t allowed = (int64_t)(tolerance * (double)size);
        int far = 0;
        double wanted[2 * LEVELS];
        for (int64_t k = 0; k < num; k++) {
            int64_t rank = rank_of(levels[k], size), up_to = counts[k];
            under[k] = tied[k] ? counts[total++] : up_to;
            off[k] = up_to < rank ? rank - up_to : under[k] > rank - 1 ? rank - 1 - under[k] : 0;
            far |= llabs(off[k]) > allowed;
        }
        if (!far) return total;
        for (int64_t k = 0; k < num; k++) {
            if (llabs(off[k]) <= allowed) continue;
            int64_t place = (int64_t)rint(off[k] * ((double)width / (double)size) / (1 + turn)), first = 0;
            for (int64_t rest = width; rest > 0; rest /= 2) {
                int64_t middle = first + rest / 2;
                if (ordered[middle] < points[k]) first = middle + 1, rest--;
            }
            place = place + first < 0 ? 0 : place + first < width ? place + first : width - 1;
            double value = points[k] = wanted[fresh++] = ordered[place];
            tied[k] = (place > 0 && ordered[place - 1] == value) || (place + 1 < width && ordered[place + 1] == value);
            if (tied[k]) wanted[fresh++] = nextafter(value, -INFINITY);
        }
        daes_count_up_to(members, size, wanted, fresh, 1, found);
        fresh = 0, total = num;
        for (int64_t k = 0; k < num; k++) {
            int moved = llabs(off[k]) > allowed;
            if (moved) counts[k] = found[fresh++];
            if (!tied[k]) continue;
            points[total] = nextafter(points[k], -INFINITY);
            counts[total++] = moved ? found[fresh++] : under[k];
        }
    }
    return 0;
}

/* Write what a reservoir accepts of the next values of a stream, `seen` of which came before (JumpReservoir._absorb):
 * those at positions[first] and later ones of `accepted` go to their slots, of which `*filled` are occupied. Returns how
 * many were written. The `counts` of members up to each of the points follow. If `range` is not NULL, all values are
 * looked at before: where one is not finite, nothing is written and -1 returned. */
int64_t daes_accept(const double *values, int64_t count, int64_t seen, const int64_t *positions, const int64_t *targets,
                    int64_t first, int64_t accepted, double *slots, int64_t *filled, const double *points,
                    int64_t num_points, int64_t *counts, double *range) {
    if (range && !range_of(values, count, range)) return -1;
    int64_t next = first, end = first_after(positions + first, accepted - first, seen + count) + first, taken = *filled;
    values -= seen + 1; /* positions count from 1 */
    while (next < end) {
        double added[BLOCK], removed[BLOCK];
        int64_t more = 0, less = 0, stop = next + BLOCK < end ? next + BLOCK : end;
        for (; next < stop; next++) {
            int64_t slot = targets[next];
            if (next + AHEAD < end) PREFETCH(slots + targets[next + AHEAD]);
            if (num_points) {
                added[more++] = values[positions[next]];
                if (slot < taken) removed[less++] = slots[slot];
            }
            taken = slot < taken ? taken : slot + 1; /* free slots are filled in order */
            slots[slot] = values[positions[next]];
        }
        if (num_points) {
            daes_count_up_to(added, more, points, num_points, 1, counts);
            daes_count_up_to(removed, less, points, num_points, -1, counts);
        }
    }
    *filled = taken;
    return end - first;
}

#endif
