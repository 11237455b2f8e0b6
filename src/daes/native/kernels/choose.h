/* A sample of rows, bins cut by it, and how combinations of fields are chosen. */
#ifndef DAES_CHOOSE_H
#define DAES_CHOOSE_H

#include "cells.h"

/* What the fields of the rows from `start` to `stop` are in Combinations, modulo its cells: numbers (rows, q), places
 * (rows, p) -> out (q + p, rows), without fields that are not counted. */
FAST void daes_values(const evidence *e, const float *numbers, const int64_t *places, int64_t rows, int64_t start,
                      int64_t stop, int32_t *out) {
    const int64_t q = e->q, p = e->ids ? e->p : 0;
    const divisor by = divisor_of(e->combined_cells);
    for (int64_t i = start, here; i < stop; i += here) {
        here = stop - i < ROWS ? stop - i : ROWS; /* which stay in the cache */
        for (int64_t f = 0; f < q; f++) {
            int32_t *own = out + f * rows + i;
            find_bin(e, f, numbers + i * q + f, here, own, 1);
            for (int64_t k = 0; k < here; k++) own[k] = value_of_bin(e, &by, f, own[k]);
        }
        for (int64_t f = 0; f < p; f++)
            for (int64_t k = i; k < i + here; k++)
                out[(q + f) * rows + k] = (int32_t)remainder_of(&by, places[k * e->p + f]);
    }
}

/* Views and clicks of some columns of numbers (rows, q), from `first` to `last`, in the bins that edges (q, bins - 1)
 * cut: counts (q, bins + 1, 2). */
FAST void daes_tally(const float *edges, int64_t bins, const float *numbers, const float *labels, int64_t rows,
                     int64_t q, int64_t first, int64_t last, double *counts) {
    const evidence e = {.q = q, .bins = bins, .edges = edges};
    for (int64_t i = 0, here; i < rows; i += here) {
        here = rows - i < ROWS ? rows - i : ROWS;
        for (int64_t f = first; f < last; f++) {
            int32_t cells[ROWS];
            find_bin(&e, f, numbers + i * q + f, here, cells, 1);
            for (int64_t k = 0; k < here; k++) {
                counts[2 * cells[k]] += 1;
                counts[2 * cells[k] + 1] += labels[i + k];
            }
        }
    }
}

/* Error and variance of scored rows, so many times, in whole grains: (rows, 2). */
void daes_errors(const float *labels, const float *logits, int64_t rows, double times, double *out) {
    for (int64_t i = 0; i < rows; i++) {
        const double score = 1 / (1 + exp(-(double)logits[i]));
        out[2 * i] = grained((labels[i] - score) * times);
        out[2 * i + 1] = grained(score * (1 - score) * times);
    }
}

/* The values of a combination's fields, (3, rows), among columns (n, rows); those of a field that there is not are 0. */
static inline void columns_of(const int64_t *fields, const int32_t *columns, int64_t rows, int64_t n,
                              const int32_t **found) {
    for (int k = 0; k < 3; k++) found[k] = fields[k] < 0 || fields[k] >= n ? NULL : columns + fields[k] * rows;
}

/* The cells of the next value of combinations, of at most BLOCK rows, from what those before it give: `before`, NULL for
 * none; `own` are the values, below `limit`, NULL for 0. */
INLINE void next_cells(const int32_t *before, const int32_t *own, int64_t rows, int32_t limit, int32_t *cells) {
    for (int64_t i = 0; i < rows; i++) {
        const int32_t next = (before ? before[i] : 0) + (own ? own[i] : 0);
        cells[i] = next - (next >= limit ? limit : 0);
    }
}

/* Set the errors of some combinations to those of scored rows, so many times (Combinations.read): `which` (count,) of
 * fields (K, 3) and errors (K, cells, 2). columns (n, rows), times (cells,) and each (rows, 2) are as of daes_rate; sums
 * (cells, 2) is scratch space, so that others who write the same at the same time do not see what leads to it. */
FAST void daes_read(const int32_t *columns, int64_t rows, int64_t n, const int32_t *times, const double *each,
                    const int64_t *fields, const int64_t *which, int64_t count, int64_t num_cells, double *sums,
                    double *errors) {
    const int32_t *of[3], limit = (int32_t)num_cells;
    for (int64_t k = 0; k < count; k++) {
        columns_of(fields + 3 * which[k], columns, rows, n, of);
        memset(sums, 0, 2 * num_cells * sizeof(double));
        for (int64_t start = 0; start < rows; start += BLOCK) {
            const int64_t here = rows - start < BLOCK ? rows - start : BLOCK;
            int32_t cells[BLOCK] = {0};
            for (int j = 0; j < 3; j++) {
                for (int64_t i = 0; i < here; i++) cells[i] = times[cells[i]];
                next_cells(cells, of[j] ? of[j] + start : NULL, here, limit, cells);
            }
            for (int64_t i = 0; i < here; i++)
                *(two *)(sums + 2 * cells[i]) += *(const two *)(each + 2 * (start + i));
        }
        memcpy(errors + 2 * which[k] * num_cells, sums, 2 * num_cells * sizeof(double));
    }
}

/* How far the combinations of each candidate (count, 3) stray (rate of combinations.py), into found (count,); -infinity
 * where more than `most` cells are used. columns (n, rows) are remainders of the values by `cells`, and times (cells,)
 * those of COMBINING times each remainder: cells are found without a division. errors (rows, 2) are each row's error and
 * variance, which is above 0. sums (cells, 2), used (rows,) and before (2, rows) are scratch space, sums of zeros before
 * and after. */
FAST void daes_rate(const int32_t *columns, int64_t rows, int64_t n, const int32_t *times, const double *errors,
                    const int64_t *candidates, int64_t count, int64_t cells, double most, double *sums, int32_t *used,
                    int32_t *before, double *found) {
    const int32_t *of[3], limit = (int32_t)cells;
    for (int64_t c = 0; c < count; c++) {
        const int64_t *fields = candidates + 3 * c, *last = fields - 3;
        int64_t different = 0;
        double sum = 0;
        columns_of(fields, columns, rows, n, of);
        for (int k = 0; k < 2; k++) { /* candidates that follow each other mostly begin with the same fields */
            if (c && last[0] == fields[0] && (!k || last[1] == fields[1])) continue;
            next_cells(k ? before : NULL, of[k], rows, limit, before + k * rows);
            for (int64_t i = 0; i < rows; i++) before[k * rows + i] = times[before[k * rows + i]];
        }
        for (int64_t start = 0; start < rows && (double)different <= most; start += BLOCK) {
            const int64_t here = rows - start < BLOCK ? rows - start : BLOCK;
            int32_t cell[BLOCK];
            next_cells(before + rows + start, of[2] ? of[2] + start : NULL, here, limit, cell);
            for (int64_t i = 0; i < here; i++) {
                two *own = (two *)(sums + 2 * cell[i]);
                const two known = *own;
                used[different] = cell[i];
                different += known[1] == 0;
                *own = known + *(const two *)(errors + 2 * (start + i));
            }
        }
        if ((double)different > most) {
            for (int64_t k = 0; k < different; k++) sums[2 * used[k]] = sums[2 * used[k] + 1] = 0;
            found[c] = -INFINITY;
            continue;
        }
        for (int64_t k = 0; k < different; k++) {
            double *own = sums + 2 * used[k];
            sum += (own[0] * own[0] - own[1]) / (own[1] + 1);
            own[0] = own[1] = 0;
        }
        found[c] = sum;
    }
}

/* A sample of rows (RowSample), of which `seen` were offered: numbers and missing (size, q), places (size, p), labels
 * and logits (size,). */
typedef struct {
    int64_t q, p;
    float *numbers;
    uint8_t *missing;
    int64_t *places;
    uint8_t *labels;
    float *logits;
    int64_t *seen;
} row_sample;

/* Put those of the next rows of a stream that are at the accepted `positions` into a sample; numbers (rows, q), places
 * (rows, p), labels and logits (rows,), which may be NULL. They are those after `before` of `all` rows, of which other
 * processes keep the others; `last` (size,) is scratch space for that. */
void daes_keep(const row_sample *s, const float *numbers, const int64_t *places, const float *labels,
               const float *logits, int64_t rows, int64_t before, int64_t all, const int64_t *positions,
               const int64_t *targets, int64_t accepted, int32_t *last) {
    const int64_t q = s->q, p = s->p, seen = *s->seen + before;
    int64_t first = first_after(positions, accepted, seen), end = first_after(positions, accepted, *s->seen + all);
    for (int64_t k = first; rows < all && k < end; k++) last[targets[k]] = (int32_t)(k - first);
    for (int64_t k = first; k < accepted && positions[k] <= seen + rows; k++) {
        if (rows < all && last[targets[k]] != k - first) continue; /* a later row, perhaps another process's, is kept */
        if (k + 1 < accepted) {
            PREFETCH(s->numbers + targets[k + 1] * q);
            for (int64_t f = 0; f < p; f += 8) PREFETCH(s->places + targets[k + 1] * p + f);
        }
        int64_t i = positions[k] - seen - 1, slot = targets[k];
        for (int64_t f = 0; f < q; f++) {
            float value = numbers[i * q + f];
            s->missing[slot * q + f] = isnan(value) != 0;
            s->numbers[slot * q + f] = isnan(value) ? 0 : clamped(value);
        }
        if (p) memcpy(s->places + slot * p, places + i * p, p * sizeof(int64_t)); /* otherwise there is no memory */
        s->labels[slot] = labels[i] > 0;
        s->logits[slot] = logits ? logits[i] : FLT_MAX;
    }
    *s->seen += all;
}

#endif
