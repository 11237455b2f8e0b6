/* What past clicks and errors say of the rows of a batch. */
#ifndef DAES_RECALL_H
#define DAES_RECALL_H

#include "cells.h"

/* The log odds of all cells, and how sure those of categories are. */
INLINE void past_clicks(const evidence *e, const found_cells *of) {
    const double prior = click_rate(e), more = e->strength * prior, less = e->strength * (1 - prior);
    const int64_t count = counted_cells(e, of);
    const float base = log_of((float)more / (float)less); /* as of a cell never seen, whose odds are 0 exactly then */
    for (int64_t start = 0; start < count; start += CELLS) {
        const int64_t here = count - start < CELLS ? count - start : CELLS, *cells = of->cells + start;
        double views[CELLS] = {0}, clicks[CELLS] = {0};
        float odds[CELLS], sure[CELLS];
        for (int64_t k = 0; k < here; k++) {
            const double *own = counts_of(e, cells[k]);
            if (start + k + CELLS < count) PREFETCH(counts_of(e, cells[k + CELLS]));
            views[k] = own[0];
            clicks[k] = own[1];
        }
        for (int k = 0; k < CELLS; k++) odds[k] = (float)(clicks[k] + more) / (float)((views[k] - clicks[k]) + less);
        for (int k = 0; k < CELLS; k++) odds[k] = log_of(odds[k]) - base;
        memcpy(of->odds + start, odds, here * sizeof(float));
        if (start + CELLS <= of->bins) continue; /* numbers */
        for (int k = 0; k < CELLS; k++) sure[k] = log_of((float)(views[k] + 1)) * 0.25f - 1;
        memcpy(of->sure + start, sure, here * sizeof(float));
    }
}

/* The z of RecentErrors of all cells, for each half-life; in `of_all` that of all rows. */
INLINE void past_errors(const evidence *e, const found_cells *of, float *of_all) {
    const double prior = click_rate(e), shrinkage = e->strength * (prior * (1 - prior));
    const double now = (double)(*e->clock + e->waiting), rate = -log(2) / e->half_life;
    const double *errors = e->errors + 5;
    const int64_t count = counted_cells(e, of);
    for (int64_t start = 0; start < count; start += CELLS) {
        const int64_t here = count - start < CELLS ? count - start : CELLS, *cells = of->cells + start;
        float sums[2][CELLS] = {0}, variances[2][CELLS] = {0}, z[2][CELLS];
        double when[CELLS] = {0};
        for (int64_t k = 0; k < here; k++) {
            const double *own = errors + 5 * cells[k];
            if (start + k + CELLS < count) PREFETCH(errors + 5 * cells[k + CELLS]);
            for (int h = 0; h < 2; h++) {
                sums[h][k] = (float)own[2 * h];
                variances[h][k] = (float)own[2 * h + 1];
            }
            when[k] = own[4];
        }
        for (int h = 0; h < 2; h++)
            for (int k = 0; k < CELLS; k++) {
                float x = (float)((now - when[k]) * (h ? FASTER * rate : rate)), factor, rest;
                exp_of(x < -80 ? -80 : x, &factor, &rest);
                z[h][k] = sums[h][k] * factor / (variances[h][k] * factor + (float)shrinkage);
            }
        for (int h = 0; h < 2; h++) memcpy(of->errors + h * of->count + start, z[h], here * sizeof(float));
    }
    for (int h = 0; h < 2; h++) {
        const double factor = exp2((e->errors[4] - now) * (h ? FASTER : 1) / e->half_life);
        of_all[h] = (float)(e->errors[2 * h] * factor / (e->errors[2 * h + 1] * factor + shrinkage));
    }
}

/* What EvidenceInputs gives without pairs, of one row. */
static inline void put_clicks(const evidence *e, const found_cells *of, const int32_t *slots, float *out) {
    const int64_t q = e->q, n = q + (e->ids ? e->p : 0);
    for (int64_t f = 0; f < n; f++) out[f] = of->odds[slots[f]];
    for (int64_t f = q; f < n; f++) out[n - q + f] = of->sure[slots[f]];
}

/* What EvidenceInputs.recent_errors gives, of one row. */
static inline void put_errors(const evidence *e, const found_cells *of, const int32_t *slots, const float *of_all,
                              float *out) {
    const int64_t n = e->q + (e->ids ? e->p : 0);
    for (int h = 0; h < 2; h++) {
        const float *errors = of->errors + h * of->count;
        *out++ = of_all[h];
        for (int64_t f = 0; f < n; f++) *out++ = errors[slots[f]];
    }
}

/* EvidenceInputs without pairs: numbers (rows, q), places (rows, p) -> out (rows, q + 2p). */
FAST void daes_evidence(const evidence *e, found_cells *to, const float *numbers, const int64_t *places, int64_t rows,
                        float *out) {
    find_cells(e, numbers, places, rows, 0, to);
    past_clicks(e, to);
    for (int64_t i = 0; i < rows; i++)
        put_clicks(e, to, to->slots + i * (e->q + e->p), out + i * (e->q + 2 * (e->ids ? e->p : 0)));
}

/* EvidenceInputs.recent_errors: numbers (rows, q), places (rows, p) -> out (rows, 2 (1 + q + p)). */
FAST void daes_recall(const evidence *e, found_cells *to, const float *numbers, const int64_t *places, int64_t rows,
                      float *out) {
    find_cells(e, numbers, places, rows, 0, to);
    float of_all[2];
    past_errors(e, to, of_all);
    for (int64_t i = 0; i < rows; i++)
        put_errors(e, to, to->slots + i * (e->q + e->p), of_all, out + i * 2 * (1 + e->q + (e->ids ? e->p : 0)));
}

/* The cells of combination k (Combinations.places) that at most BLOCK rows from `start` on have; a field that there is not
 * has the value 0. */
INLINE void find_combined(const evidence *e, const found_cells *of, const divisor *by, int64_t k, int64_t start,
                          int64_t count, int32_t *cells) {
    static const int32_t none[BLOCK] = {0};
    const int64_t n = e->q + (e->ids ? e->p : 0), *fields = e->combined + 3 * k;
    const int32_t *values[3];
    for (int j = 0; j < 3; j++)
        values[j] = fields[j] < 0 || fields[j] >= n ? none : of->values + fields[j] * (of->rows + APART) + start;
    if (!by->inverse) {
        for (int64_t i = 0; i < count; i++)
            cells[i] = (int32_t)combined_cell(by, values[0][i], values[1][i], values[2][i]);
        return;
    }
    const uint32_t factor = (uint32_t)by->factor, cell_count = (uint32_t)by->by, inverse = (uint32_t)by->inverse;
    const int shift = by->shift;
    for (int64_t i = 0; i < count; i++) { /* `combined_cell`, as vectors */
        uint32_t x = (uint32_t)values[0][i] * factor + (uint32_t)values[1][i];
        x -= (uint32_t)((uint64_t)x * inverse >> shift) * cell_count;
        x = x * factor + (uint32_t)values[2][i];
        cells[i] = (int32_t)(x - (uint32_t)((uint64_t)x * inverse >> shift) * cell_count);
    }
}

/* The z of Combinations of the rows from `start` to `stop`, into out (rows, num_combined). All rows of one combination
 * come before the next one, so that its cells stay in the cache. */
INLINE void put_combined(const evidence *e, const found_cells *of, int64_t start, int64_t stop, float *out) {
    const double more = e->strength * click_rate(e) * (1 - click_rate(e));
    const divisor by = divisor_of(e->combined_cells);
    int32_t cells[BLOCK];
    double errors[BLOCK], variances[BLOCK];
    float odds[BLOCK];
    for (int64_t k = 0; k < e->num_combined; k++)
        for (int64_t i = start, count; i < stop; i += count) {
            count = stop - i < BLOCK ? stop - i : BLOCK;
            find_combined(e, of, &by, k, i, count, cells);
            if (e->combined_odds) {
                for (int64_t r = 0; r < count; r++) odds[r] = e->combined_odds[k * by.by + cells[r]];
            } else {
                const double *own = e->combined_errors + 2 * k * by.by;
                for (int64_t r = 0; r < count; r++) {
                    errors[r] = own[2 * cells[r]];
                    variances[r] = own[2 * cells[r] + 1];
                }
                for (int64_t r = 0; r < count; r++) odds[r] = (float)(errors[r] / (variances[r] + more));
            }
            for (int64_t r = 0; r < count; r++) out[(i + r) * e->num_combined + k] = odds[r];
        }
}

/* EvidenceInputs.combined, before its weights: numbers (rows, q), places (rows, p) -> out (rows, num_combined). */
FAST void daes_combine(const evidence *e, found_cells *of, const float *numbers, const int64_t *places, int64_t rows,
                       float *out) {
    find_cells(e, numbers, places, rows, 0, of);
    put_combined(e, of, 0, rows, out);
}

#endif
