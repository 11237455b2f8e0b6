/* Logarithms, powers and the normal score without branches, rounding, and short vectors. */
#ifndef DAES_MATHEMATICS_H
#define DAES_MATHEMATICS_H

#include "common.h"

static inline float clamped(float value) { return value > FLT_MAX ? FLT_MAX : value < -FLT_MAX ? -FLT_MAX : value; }

/* The natural logarithm of a positive normal number to one unit in the last place (the algorithm of FreeBSD's libm),
 * without a branch, so that a compiler makes a loop over it one over vectors. */
static inline float log_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    bits += 0x3f800000u - 0x3f3504f3u;
    float k = (float)((int32_t)(bits >> 23) - 127);
    bits = (bits & 0x007fffffu) + 0x3f3504f3u;
    memcpy(&x, &bits, 4);
    float f = x - 1.0f, s = f / (2.0f + f), z = s * s, w = z * z, half = 0.5f * f * f;
    float r = z * (0.66666662693f + w * 0.28498786688f) + w * (0.40000972152f + w * 0.24279078841f);
    return s * (half + r) + k * 9.0580006145e-06f - half + f + k * 6.9313812256e-01f;
}

/* exp(x) and 1 - exp(x), each to a few units in the last place, for x in (-80, 0]. */
static inline void exp_of(float x, float *result, float *rest) {
    const float shift = 0x1.8p23f;
    float n = x * 1.44269504f + shift, power; /* the last bits of this sum are x / log 2, rounded */
    uint32_t bits;
    memcpy(&bits, &n, 4);
    bits = (bits + 127) << 23;
    memcpy(&power, &bits, 4);
    n -= shift;
    float r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f * r + 1.3981999507e-3f;
    p = (((p * r + 8.3334519073e-3f) * r + 4.1665795894e-2f) * r + 1.6666665459e-1f) * r + 0.5f;
    p = p * r * r + r;
    *result = power + power * p;
    *rest = (1 - power) - power * p;
}

/* 2 to the power of x <= 0, to one unit in the last place, as vectors: a power of two times a Taylor series. */
static inline double power_of_two(double x) {
    const double shift = 0x1.8p52;
    x = x < -1000 ? -1000 : x;
    double n = x + shift, power; /* the last bits of this sum are x, rounded */
    uint64_t bits;
    memcpy(&bits, &n, 8);
    bits = (bits + 1023) << 52;
    memcpy(&power, &bits, 8);
    double r = (x - (n - shift)) * 0x1.62e42fefa39efp-1;
    double even = r * r, sum = 1.0 / 6227020800 * r + 1.0 / 479001600;
    sum = sum * even + (1.0 / 39916800 * r + 1.0 / 3628800);
    sum = sum * even + (1.0 / 362880 * r + 1.0 / 40320);
    sum = sum * even + (1.0 / 5040 * r + 1.0 / 720);
    sum = sum * even + (1.0 / 120 * r + 1.0 / 24);
    sum = sum * even + (1.0 / 6 * r + 1.0 / 2);
    return power + power * (sum * even + r);
}

/* To multiples of 2^-30, by adding and taking off a number whose last digit is one: errors are far below 2^21. */
static inline double grained(double error) { return (error + 0x1.8p22) - 0x1.8p22; }

typedef double two __attribute__((vector_size(16), aligned(8), may_alias));
typedef double four __attribute__((vector_size(32), aligned(8), may_alias));

/* The normal score (daes/embedding/normal.py) by Wichura's AS 241, PPND7, for ranks in (1e-11, 1 - 1e-11). */
static inline float normal_score(float rank) {
    float deviation = rank - 0.5f, side = deviation < 0 ? rank : 1 - rank;
    float c = 0.180625f - deviation * deviation, t = sqrtf(-log_of(side)) - 1.6f;
    float above = deviation * (((59.109374720f * c + 159.29113202f) * c + 50.434271938f) * c + 3.3871327179f);
    float below = ((67.187563600f * c + 78.757757664f) * c + 17.895169469f) * c + 1.0f;
    float tail = ((0.17023821103f * t + 1.3067284816f) * t + 2.7568153900f) * t + 1.4234372777f;
    float under = (0.12021132975f * t + 0.73700164250f) * t + 1.0f;
    int far = c < 0; /* where |deviation| > 0.425 */
    return (far ? deviation < 0 ? -tail : tail : above) / (far ? under : below);
}

typedef float eight __attribute__((vector_size(32), aligned(4), may_alias)); /* one register, or two smaller ones */
typedef float sixteen __attribute__((vector_size(64), aligned(4), may_alias)); /* the same, or two of them */

INLINE float sum_of(eight x) { return ((x[0] + x[4]) + (x[1] + x[5])) + ((x[2] + x[6]) + (x[3] + x[7])); }

/* to += factor * from */
static inline void add_row(float *to, const float *from, float factor, int64_t d) {
    int64_t k = 0;
    for (; k + 16 <= d; k += 16) *(sixteen *)(to + k) += factor * *(const sixteen *)(from + k);
    for (; k + 8 <= d; k += 8) *(eight *)(to + k) += factor * *(const eight *)(from + k);
    for (; k < d; k++) to[k] += factor * from[k];
}

enum { LANES = 16 }; /* sums side by side, which a compiler makes vectors of */

static inline float dot(const float *a, const float *b, int64_t count) {
    float lanes[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int k = 0; k < LANES; k++) lanes[k] += a[i + k] * b[i + k];
    for (; i < count; i++) sum += a[i] * b[i];
    for (int half = LANES / 2; half; half /= 2)
        for (int k = 0; k < half; k++) lanes[k] += lanes[k + half];
    return sum + lanes[0];
}

/* The least rank r >= 1 with r / size >= level (daes.distribution.base.rank_of). */
static inline int64_t rank_of(double level, int64_t size) {
    double rank = ceil(level * (double)size);
    if ((rank - 1) / (double)size >= level) rank -= 1;
    return rank < 1 ? 1 : (int64_t)rank;
}

#endif
