/* Which values a reservoir accepts: random numbers and gaps. */
#ifndef DAES_SCHEDULE_H
#define DAES_SCHEDULE_H

#include "mathematics.h"

typedef unsigned __int128 uint128;

static const uint128 PCG_FACTOR = ((uint128)2549297995355413924u << 64) + 4865540595714422341u;

static inline uint64_t pcg_output(uint128 state) {
    uint64_t high = (uint64_t)(state >> 64), both = high ^ (uint64_t)state;
    unsigned turn = (unsigned)(high >> 58);
    return both >> turn | both << (-turn & 63);
}

/* The numbers that NumPy's PCG64 draws next (Schedule._slots, then Schedule._uniform), size >= 2: slots below `size` with
 * what is left of them as uniforms in `shrink`, and `count` more uniforms. generator: high and low halves of state and
 * increment. */
void daes_draw(const uint64_t *generator, int64_t count, uint64_t size, int64_t *slots, double *shrink,
               double *uniform) {
    uint128 first = (uint128)generator[0] << 64 | generator[1], increment = (uint128)generator[2] << 64 | generator[3];
    uint128 factor = 1, sum = 0, power = PCG_FACTOR, add = increment;
    for (int64_t steps = count; steps; steps >>= 1) { /* `count` steps at once: both halves are drawn side by side */
        if (steps & 1) factor *= power, sum = sum * power + add;
        add *= power + 1;
        power *= power;
    }
    uint128 second = factor * first + sum;
    const uint64_t inverse = (uint64_t)(((uint128)1 << 64) / size);
    const double scale = (double)size / 0x1p64;
    for (int64_t i = 0; i < count; i++) {
        first = first * PCG_FACTOR + increment;
        second = second * PCG_FACTOR + increment;
        uint64_t raw = pcg_output(first), rest = (uint64_t)((uint128)raw * inverse >> 64), slot = raw - rest * size;
        uint64_t more = slot >= size; /* at most one: the inverse is rounded down */
        slots[i] = (int64_t)(slot - (size & -more));
        shrink[i] = ((double)(int64_t)(rest + more) + 0.5) * scale;
        uniform[i] = ((double)(int64_t)(pcg_output(second) >> 11) + 0.5) * 0x1p-53;
    }
}

enum { FEW = 32 }; /* acceptances between whose thresholds is interpolated */

/* Where `daes_gaps` stands. */
typedef struct {
    double start, sum, log_threshold;
    int64_t position;
} gap_state;

/* `daes_gaps` of at most BLOCK acceptances; returns whether some are unsure: those where `most` is not `least`. */
INLINE int block_gaps(gap_state *at, const double *restrict logs, const double *restrict uniform, int64_t count,
                      double size, double *restrict log_thresholds, int64_t *restrict positions,
                      int32_t *restrict least, int32_t *restrict most) {
    enum { LOTS = BLOCK / FEW, NODES = (LOTS + 8) / 8 * 8 };
    float lower[BLOCK], top[BLOCK], node[NODES] = {0}, threshold[NODES], rest[NODES], mean[NODES];
    double first = at->log_threshold;
    int32_t differ = 0;
    node[0] = (float)first;
    for (int64_t lot = 0; lot < LOTS; lot++) { /* sums, which wait for each other, beside vectors, which do not */
        int64_t from = lot * FEW, to = from + FEW < count ? from + FEW : count;
        double shrunk[FEW];
        for (int64_t i = from; i < to; i++) shrunk[i - from] = logs[i] / size;
        for (int64_t i = from; i < to; i++) top[i] = -log_of((float)uniform[i]);
        for (int64_t i = from; i < to; i++) log_thresholds[i] = at->start + (at->sum += shrunk[i - from]);
        for (int64_t i = from; i < to; i++) lower[i] = (float)(log_thresholds[i] - first);
        if (to > from) first = log_thresholds[to - 1];
        node[lot + 1] = (float)first;
    }
    at->log_threshold = first;
    for (int k = 0; k < NODES; k++) exp_of(node[k] > -80 ? node[k] : -80, threshold + k, rest + k);
    for (int k = 0; k < NODES; k++) /* log(1 - W) is log(rest) * W / (1 - rest), as rest is rounded */
        mean[k] = (1 - rest[k]) / (-log_of(rest[k]) * threshold[k]);
    for (int64_t lot = 0; lot < LOTS; lot++) {
        int64_t from = lot * FEW, to = from + FEW < count ? from + FEW : count;
        if (from >= to) break;
        float h = lower[to - 1], bend = h * h * (1 + 1 / (node[lot] * node[lot])) / 4;
        float slope = (mean[lot + 1] - mean[lot]) / h, share = bend < 0.1f ? 2e-6f + bend : INFINITY;
        for (int64_t i = from; i < to; i++) {
            float error = share * top[i] + 2e-7f, gap = mean[lot] + slope * lower[i];
            float low = (top[i] - error) * gap, high = (top[i] + error) * gap;
            least[i] = high < 1e9f ? (int32_t)low : 0;
            most[i] = high < 1e9f ? (int32_t)high : -1;
        }
    }
    for (int64_t i = 0; i < count; i++) differ |= least[i] ^ most[i];
    for (int64_t i = 0; i < count; i++) positions[i] = at->position += least[i] + 1;
    return differ != 0;
}

/* The positions of ExactSchedule: gaps of floor(log(uniform) / log(1 - W)) values before each, for the thresholds log W
 * that it has after each of the logarithms of `shrink`. Logarithms are taken in single precision here: where that may
 * round to another gap, the place is listed in `unsure`, and the number of these is returned. A few acceptances at a time,
 * so that sums, which have to wait for each other, and vectors are computed side by side. */
FAST int64_t daes_gaps(const double *restrict logs, const double *restrict uniform, int64_t count, double size,
                       double log_threshold, int64_t position, double *restrict log_thresholds,
                       int64_t *restrict positions, int64_t *restrict unsure) {
    gap_state at = {log_threshold, 0, log_threshold, position};
    int32_t least[BLOCK], most[BLOCK];
    int64_t found = 0;
    for (int64_t i = 0; i < count; i += BLOCK) {
        double *to = log_thresholds + i;
        int64_t here = count - i < BLOCK ? count - i : BLOCK;
        int differ = here == BLOCK ? block_gaps(&at, logs + i, uniform + i, BLOCK, size, to, positions + i, least, most)
                                   : block_gaps(&at, logs + i, uniform + i, here, size, to, positions + i, least, most);
        for (int64_t k = 0; differ && k < here; k++)
            if (least[k] != most[k]) unsure[found++] = i + k;
    }
    return found;
}

#endif
