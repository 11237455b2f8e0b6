/* Where numbers lie among the knots of their features. */
#ifndef DAES_PLACES_H
#define DAES_PLACES_H

#include "mathematics.h"

enum { SIDE = 64, GROUP = 16 }; /* rows, and features of them, that are worked on at a time, as vectors */
enum { PIVOTS = 16 };           /* so many knots are compared with every value; among more there are look-ups */
enum { SOON = 8 };              /* rows in any order are asked for so long before they are read or written */

/* What one feature's values, at most SIDE of them, are among its knots (K + 1): the lower one of two rows of a table and
 * the weight of the other one; and, with `plain`, the normal score and the standardised value. */
typedef struct {
    int32_t low[SIDE];
    float high[SIDE], score[SIDE], standard[SIDE];
} feature_places;

/* How many knots are not above each value, and the two knots around it. Stores have no condition: a compiler would make
 * branches of them. */
INLINE void find_knots(const float *restrict value, const int64_t lanes, const float *restrict own, int64_t K,
                       int32_t *restrict passed, float *restrict left, float *restrict right) {
    const float least = own[0];
    int64_t span = 1;
    while (K + 1 > PIVOTS * span) span *= 2;
    for (int64_t i = 0; i < lanes; i++) passed[i] = 0, left[i] = least, right[i] = own[K];
    for (int64_t k = span - 1; k <= K; k += span) {
        const float here = own[k];
        for (int64_t i = 0; i < lanes; i++) {
            const float low = here <= value[i] ? here : least, high = here <= value[i] ? INFINITY : here;
            passed[i] += here <= value[i] ? (int32_t)span : 0;
            left[i] = left[i] > low ? left[i] : low;
            right[i] = right[i] < high ? right[i] : high;
        }
    }
    const int32_t most = (int32_t)(K + 2 - span); /* behind so many knots the others are span - 1 */
    for (int64_t i = 0; span > 1 && i < lanes; i++) passed[i] = passed[i] < most ? passed[i] : most;
    for (int64_t step = span / 2; step > 0; step /= 2)
        for (int64_t i = 0; i < lanes; i++) {
            const float here = own[passed[i] + step - 1];
            const float low = here <= value[i] ? here : least, high = here <= value[i] ? INFINITY : here;
            passed[i] += here <= value[i] ? (int32_t)step : 0;
            left[i] = left[i] > low ? left[i] : low;
            right[i] = right[i] < high ? right[i] : high;
        }
}

INLINE void find_lanes(const float *restrict values, const int64_t lanes, const float *restrict own, int64_t K,
                       float centre, float scale, int64_t M, feature_places *restrict found, const int plain) {
    const float half = (float)(0.5 / K), ratio = (float)((double)M / K);
    const int known = !isnan(own[0]), spread = scale / 2 > 0;
    float value[SIDE], left[SIDE], right[SIDE];
    int32_t passed[SIDE], missing[SIDE];
    for (int64_t i = 0; i < lanes; i++) {
        missing[i] = values[i] != values[i] ? -1 : 0;
        value[i] = clamped(values[i]);
    }
    for (int64_t i = 0; plain && i < lanes; i++) {
        float deviation = (value[i] / 2 - centre / 2) / (scale / 2);
        deviation = deviation < -4 ? -4 : deviation > 4 ? 4 : deviation;
        found->standard[i] = spread && !missing[i] ? deviation : 0;
    }
    if (!known) {
        for (int64_t i = 0; i < lanes; i++) {
            found->low[i] = missing[i] ? -1 : -2;
            found->high[i] = 0;
            found->score[i] = normal_score(0.5f);
        }
        return;
    }
    find_knots(value, lanes, own, K, passed, left, right);
    for (int64_t i = 0; i < lanes; i++) {
        float width = right[i] / 2 - left[i] / 2, inner = (value[i] / 2 - left[i] / 2) / (width > 0 ? width : 1);
        float place = (float)(passed[i] - 1) + inner;
        place = passed[i] > K ? (float)K : passed[i] > 0 ? place : 0.0f;
        if (plain) {
            float rank = place / K;
            rank = rank < half ? half : rank > 1 - half ? 1 - half : rank;
            found->score[i] = missing[i] ? 0.5f : rank;
        }
        if (K != M) place *= ratio;
        int32_t low = (int32_t)place;
        low = low >= M ? (int32_t)M - 1 : low;
        found->high[i] = place - low;
        found->low[i] = missing[i] ? -1 : low;
    }
    for (int64_t i = 0; plain && i < lanes; i++) found->score[i] = normal_score(found->score[i]);
}

/* The places of one feature's values of `count` rows, or of those that `order` names. */
FAST static void find_places(const float *values, const int32_t *order, int64_t count, int64_t q, const float *own,
                             int64_t K, float centre, float scale, int64_t M, feature_places *found, int plain) {
    float value[SIDE];
    if (order)
        for (int64_t i = 0; i < count; i++) value[i] = values[order[i] * q];
    else if (count == SIDE)
        for (int64_t i = 0; i < SIDE; i++) value[i] = values[i * q];
    else
        for (int64_t i = 0; i < count; i++) value[i] = values[i * q];
    for (int64_t i = count; i < SIDE; i++) value[i] = NAN;
    if (count <= 8) /* of a number that is known a compiler makes vectors that stay in registers */
        find_lanes(value, 8, own, K, centre, scale, M, found, 1);
    else if (count <= SIDE / 2)
        find_lanes(value, SIDE / 2, own, K, centre, scale, M, found, 1);
    else if (plain)
        find_lanes(value, SIDE, own, K, centre, scale, M, found, 1);
    else
        find_lanes(value, SIDE, own, K, centre, scale, M, found, 0);
}

#endif
