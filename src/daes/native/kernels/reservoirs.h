/* Samples of all features of a model: observed, and brought in order when knots are refreshed. */
#ifndef DAES_RESERVOIRS_H
#define DAES_RESERVOIRS_H

#include "places.h"
#include "tables.h"

enum { WIDE = 512 }; /* numbers side by side */

static inline int is_finite(float value) { return (value >= -FLT_MAX) & (value <= FLT_MAX); }

/* Of each of at most WIDE columns (rows `q` apart): how many values are finite, the least and the largest of them. */
FAST static void column_ranges(const float *values, int64_t rows, int64_t q, int64_t columns, int64_t *seen, float *low,
                               float *high) {
    const int64_t fold = columns == q ? WIDE / q : 1; /* rows side by side, so that inner loops are long */
    int32_t finite[WIDE];
    for (int64_t j = 0; j < WIDE; j++) finite[j] = 0, low[j] = INFINITY, high[j] = -INFINITY;
    for (int64_t i = 0; i < rows; i += fold) {
        const float *restrict from = values + i * q;
        int64_t here = (rows - i < fold ? rows - i : fold) * columns;
        for (int64_t j = 0; j < here; j++) {
            int32_t whole = is_finite(from[j]);
            finite[j] += whole;
            low[j] = whole & (from[j] < low[j]) ? from[j] : low[j];
            high[j] = whole & (from[j] > high[j]) ? from[j] : high[j];
        }
    }
    for (int64_t j = columns; j < fold * columns; j++) {
        int64_t f = j % columns;
        finite[f] += finite[j];
        low[f] = low[j] < low[f] ? low[j] : low[f];
        high[f] = high[j] > high[f] ? high[j] : high[f];
    }
    for (int64_t f = 0; f < columns; f++) seen[f] = finite[f];
}

/* The reservoirs of q features (FeatureDistributions): slots (q, size + 1); knots (q, K + 1), of which the outer ones
 * follow where `ends` is set; statistics (q,); `least` and `most` are the smallest and the largest of the counts, of every
 * `parts`-th feature from `part` on. What was written since the knots were refreshed, and what it replaced or NaN, is
 * noted in `added` and `removed` (q, room) as far as there is room. */
typedef struct {
    int64_t q, size, K, ends, room, least, most, part, parts;
    double tolerance;
    float *slots;
    int64_t *count, *skipped, *pending;
    float *minimum, *maximum, *knots, *added, *removed;
} reservoirs;

/* Let some features, ascending, follow one schedule (FeatureDistributions.observe): finite values are counted, and those
 * at the accepted positions go to their slots. values (rows, q), positions and targets (accepted,). Returns how many
 * features' knots are due, which are listed in `due`. */
int64_t daes_observe(reservoirs *r, const float *values, int64_t rows, const int64_t *features, int64_t num_features,
                     const int64_t *positions, const int64_t *targets, int64_t accepted, int64_t *due) {
    const int64_t q = r->q, size = r->size, K = r->K, room = r->room;
    int64_t *count = r->count, *skipped = r->skipped, *pending = r->pending;
    float *minimum = r->minimum, *maximum = r->maximum, *added = r->added, *removed = r->removed;
    int64_t num_due = 0, k = 0;
    for (int64_t c = 0; c < q; c += WIDE) {
        int64_t seen[WIDE];
        float low[WIDE], high[WIDE];
        column_ranges(values + c, rows, q, q - c < WIDE ? q - c : WIDE, seen, low, high);
        for (; k < num_features && features[k] < c + WIDE; k++) {
            int64_t f = features[k], before = count[f], at = before, i = -1, finite = seen[f - c];
            int64_t first = first_after(positions, accepted, before);
            int64_t next = first, end = first_after(positions, accepted, before + finite);
            float *own_slots = r->slots + f * (size + 1), *own = r->knots + f * (K + 1);
            for (; next < end; next++) {
                if (finite == rows)
                    i = positions[next] - before - 1;
                else
                    while (at < positions[next]) at += is_finite(values[++i * q + f]);
                float value = values[i * q + f], *slot = own_slots + targets[next];
                int64_t place = pending[f] + next - first;
                if (next + AHEAD < end) PREFETCH(own_slots + targets[next + AHEAD]);
                if (place >= 0 && place < room) { /* a state may hold any number */
                    added[f * room + place] = value + 0.0f; /* no negative zero: equal numbers are to look alike */
                    removed[f * room + place] = positions[next] > size ? *slot + 0.0f : NAN;
                }
                *slot = value;
            }
            count[f] += finite;
            skipped[f] += rows - finite;
            pending[f] += end - first;
            if (finite && !(minimum[f] <= low[f - c])) minimum[f] = low[f - c];
            if (finite && !(maximum[f] >= high[f - c])) maximum[f] = high[f - c];
            int fresh = isnan(own[0]) && count[f] > 0;
            if (fresh || pending[f] > r->tolerance * (double)(count[f] < size ? count[f] : size)) due[num_due++] = f;
            if (r->ends) own[0] = minimum[f], own[K] = maximum[f];
        }
    }
    r->least = r->most = count[r->part];
    for (int64_t f = r->part; f < q; f += r->parts) {
        r->least = count[f] < r->least ? count[f] : r->least;
        r->most = count[f] > r->most ? count[f] : r->most;
    }
    return num_due;
}

/* What is to be done with a sample, by ascending numbers: a number, none of them NaN, as a whole one in the same order,
 * and as the last bit whether it goes out. */
static inline int64_t change_of(float number, int64_t out) {
    uint32_t bits;
    memcpy(&bits, &number, 4);
    return (int64_t)(bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u)) << 1 | out;
}

static inline float number_of(int64_t change) {
    uint32_t bits = (uint32_t)(change >> 1);
    float number;
    bits ^= bits >> 31 ? 0x80000000u : 0xffffffffu;
    memcpy(&number, &bits, 4);
    return number;
}

/* Changes that are sorted without those that undo each other; returns how many are left. */
static int64_t without_pairs(int64_t *changes, int64_t count) {
    int64_t left = 0;
    for (int64_t i = 0; i < count; i++)
        if (left && changes[left - 1] + 1 == changes[i] && changes[i] & 1)
            left--;
        else
            changes[left++] = changes[i];
    return left;
}

/* Ascending members with sorted changes made; there is room for SIDE more of them, and of what they become. */
INLINE void change_members(const float *restrict members, int64_t total, const int64_t *changes, int64_t count,
                           float *restrict to) {
    const int64_t most = 3 * SIDE * (total / (count + 1) + 1); /* so many members are asked for before they are searched */
    int64_t taken = 0, asked = 0;
    for (int64_t start = 0; start < count; start += SIDE) {
        const int64_t here = count - start < SIDE ? count - start : SIDE, passed = taken;
        for (; asked < total && asked < taken + most; asked += 16) PREFETCH(members + asked);
        const float *own = members + passed, last = number_of(changes[start + here - 1]);
        int64_t window = SIDE * SIDE; /* no change lies behind so many members */
        int32_t below_it[SIDE] = {0};
        float number[SIDE];
        for (int64_t i = 0; i < SIDE; i++) number[i] = i < here ? number_of(changes[start + i]) : last;
        while (window < total - passed && own[window - 1] < last) window *= 2;
        for (int64_t rest = window < total - passed ? window : total - passed, step; rest > 0; rest -= step) {
            step = (rest + 1) / 2;
            for (int64_t i = 0; i < SIDE; i++)
                below_it[i] += (int32_t)step & -(int32_t)(own[below_it[i] + step - 1] < number[i]);
        }
        for (int64_t i = 0; i < here; i++) {
            const int64_t out = changes[start + i] & 1, more = below_it[i] + passed - taken;
            for (int64_t k = 0; k < more; k += SIDE) /* as vectors: what is too much is overwritten */
                for (int64_t j = k; j < k + SIDE; j += 16)
                    *(sixteen *)(to + j) = *(const sixteen *)(members + taken + j);
            to += more > 0 ? more : 0; /* it is negative where one of several equal members is gone already */
            *to = number[i];
            to += !out;
            taken += (more > 0 ? more : 0) + out;
        }
    }
    memcpy(to, members + taken, (total - taken) * sizeof(float));
}

/* Refresh the inner knots, centre and scale of some features (FeatureDistributions._set_knots) from their sorted samples,
 * which are brought up to date by what was added and removed, as `daes_observe` noted it. That of feature f is the row
 * rows[f] of ordered (q + 1, width), and rows[q] is free. `levels` are those of the K - 1 inner knots and `likely` others,
 * for centre and scale; changes has room for 4 * room. */
FAST void daes_refresh(const int64_t *features, int64_t num_features, float *ordered, int64_t *rows, int64_t q,
                       int64_t width, int64_t size, const int64_t *count, int64_t *pending, const float *added,
                       const float *removed, int64_t room, int64_t *changes, const double *levels, int64_t K,
                       int64_t likely, float *knots, float *centre, float *scale) {
    for (int64_t k = 0; k < num_features; k++) {
        int64_t f = features[k], more = pending[f], less = 0, num = 0, filled = count[f] < size ? count[f] : size;
        float *own = ordered + rows[f] * width;
        const float *in = added + f * room, *out = removed + f * room;
        float *knot = knots + f * (K + 1);
        for (int64_t i = 0; i < more; i++) {
            changes[num++] = change_of(in[i], 0);
            if (!isnan(out[i])) changes[num++] = change_of(out[i], 1), less++;
        }
        if (more) {
            int64_t other = rows[q];
            sort_places(changes, changes + num, num, (int64_t)1 << 33);
            num = without_pairs(changes, num);
            change_members(own, filled + less - more, changes, num, ordered + other * width);
            own = ordered + other * width;
            rows[q] = rows[f];
            rows[f] = other;
        }
        pending[f] = 0;
        double sum = 0, squares = 0;
        for (int pass = 0; pass < 2; pass++)
            for (int64_t i = pass ? K - 1 : 0; i < K - 1 + likely; i++) {
                float value = own[rank_of(levels[i], filled) - 1];
                if (pass)
                    squares += (value - sum / likely) * (value - sum / likely);
                else if (i >= K - 1)
                    sum += value;
                else
                    knot[i + 1] = value < knot[0] ? knot[0] : value > knot[K] ? knot[K] : value;
            }
        centre[f] = (float)(sum / likely);
        scale[f] = (float)sqrt(squares / likely);
    }
}

#endif
