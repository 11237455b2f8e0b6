/* Tables of ids: look-ups, gradients of equal rows added up, and Adagrad on some rows. */
#ifndef DAES_TABLES_H
#define DAES_TABLES_H

#include "common.h"

/* The row of each id in one table of all fields (CategoricalEmbedding.rows, mode="hash"). */
FAST void daes_hash_rows(const int64_t *ids, const int64_t *sizes, const int64_t *offsets, int64_t rows, int64_t fields,
                         int64_t *out) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t f = 0; f < fields; f++) {
            int64_t id = ids[i * fields + f], place = 0;
            if (id) {
                place = id % sizes[f];
                place += (place < 0 ? sizes[f] : 0) + 2;
            }
            out[i * fields + f] = offsets[f] + place;
        }
}

/* Whether all places are below the limit, and none is negative: functions that take places trust them. */
FAST int64_t daes_within(const int64_t *places, int64_t count, int64_t limit) {
    int64_t outside = 0;
    for (int64_t i = 0; i < count; i++) /* negative if one of the two is */
        outside |= places[i] | (int64_t)((uint64_t)limit - 1 - (uint64_t)places[i]);
    return outside >= 0;
}

/* The rows of a table that places (rows, fields) name, into out (rows, fields, dim), rows `stride` apart. */
FAST void daes_look_up(const float *table, const int64_t *places, int64_t rows, int64_t fields, int64_t dim, float *out,
                       int64_t stride) {
    for (int64_t i = 0, k = 0; i < rows; i++)
        for (int64_t f = 0; f < fields; f++, k++) {
            if (k + AHEAD < rows * fields) PREFETCH(table + places[k + AHEAD] * dim);
            memcpy(out + i * stride + f * dim, table + places[k] * dim, dim * sizeof(float));
        }
}

/* Sort numbers below `limit`, by 8 or 11 bits at a time; `spare` is as large. */
static void sort_places(int64_t *places, int64_t *spare, int64_t count, int64_t limit) {
    int64_t *from = places, *to = spare, starts[2048];
    const int bits = count < 2048 ? 8 : 11, digits = 1 << bits;
    for (int shift = 0; count > 1 && (limit - 1) >> shift; shift += bits) {
        int64_t sum = 0;
        memset(starts, 0, digits * sizeof(int64_t));
        for (int64_t i = 0; i < count; i++) starts[(from[i] >> shift) & (digits - 1)]++;
        for (int k = 0; k < digits; k++) {
            int64_t here = starts[k];
            starts[k] = sum;
            sum += here;
        }
        for (int64_t i = 0; i < count; i++) to[starts[(from[i] >> shift) & (digits - 1)]++] = from[i];
        int64_t *other = from;
        from = to;
        to = other;
    }
    if (from != places) memcpy(places, from, count * sizeof(int64_t));
}

/* The different ones of places (count,), ascending, and their numbers into slots (table rows), which hold -1 before;
 * returns how many there are. `distinct` has room for twice the places. */
static int64_t number_places(const int64_t *places, int64_t count, int64_t table_rows, int32_t *slots,
                             int64_t *distinct) {
    int64_t found = 0;
    for (int64_t i = 0; i < count; i++)
        if (slots[places[i]] < 0) {
            slots[places[i]] = 0;
            distinct[found++] = places[i];
        }
    sort_places(distinct, distinct + count, found, table_rows);
    for (int64_t i = 0; i < found; i++) slots[distinct[i]] = (int32_t)i;
    return found;
}

static inline void add_rows(const float *gradient, int64_t stride, const int64_t *places, int64_t rows, int64_t fields,
                            int64_t dim, const int32_t *slots, float *sums) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t f = 0; f < fields; f++) {
            const float *from = gradient + i * stride + f * dim;
            float *to = sums + slots[places[i * fields + f]] * dim;
            for (int64_t k = 0; k < dim; k++) to[k] += from[k];
        }
}

/* The gradients of equal places added up, by ascending places; returns how many different ones there are.
 * gradient (rows, fields, dim), rows `stride` apart, places (rows, fields); slots (table rows) holds -1 before and
 * after; distinct has room for twice the places. */
FAST int64_t daes_add_up(const float *gradient, int64_t stride, const int64_t *places, int64_t rows, int64_t fields,
                         int64_t dim, int64_t table_rows, int32_t *slots, int64_t *distinct, float *sums) {
    int64_t found = number_places(places, rows * fields, table_rows, slots, distinct);
    if (found) memset(sums, 0, found * dim * sizeof(float)); /* otherwise there may be no memory */
    add_rows(gradient, stride, places, rows, fields, dim, slots, sums);
    for (int64_t i = 0; i < found; i++) slots[distinct[i]] = -1;
    return found;
}

/* Adagrad on some rows of a table: s += g * g, w -= rate * g / (sqrt(s) + eps). */
FAST void daes_adagrad_rows(float *table, float *sums, const int64_t *places, const float *gradient, int64_t count,
                            int64_t dim, float rate, float eps) {
    for (int64_t i = 0; i < count; i++) {
        if (i + AHEAD < count) {
            PREFETCH(table + places[i + AHEAD] * dim);
            PREFETCH(sums + places[i + AHEAD] * dim);
        }
        float *w = table + places[i] * dim, *s = sums + places[i] * dim;
        const float *g = gradient + i * dim;
        for (int64_t k = 0; k < dim; k++) {
            s[k] += g[k] * g[k];
            w[k] -= rate * (g[k] / (sqrtf(s[k]) + eps));
        }
    }
}

/* Which of the ascending positions is the first after `seen`. */
static int64_t first_after(const int64_t *positions, int64_t count, int64_t seen) {
    int64_t first = 0;
    while (count > 0) {
        int64_t half = count / 2;
        if (positions[first + half] <= seen) {
            first += half + 1;
            count -= half + 1;
        } else
            count = half;
    }
    return first;
}

#endif
