/* Labelled rows counted: views, clicks, recent errors and errors of combinations. */
#ifndef DAES_COUNT_H
#define DAES_COUNT_H

#include "recall.h"

/* What a batch adds to a cell: views, clicks, nothing twice; errors and variances of the longer half-life, then of the
 * shorter one. */
typedef struct {
    four clicks, errors;
} added;

/* What a scored row adds to errors: those that fade, as above, and those of Combinations with their variance. */
typedef struct {
    four fading;
    double error, variance;
} row_errors;

/* The scores of at most ROWS rows, the first of which is of this age, and what is left of their errors. */
INLINE void fade_rows(const evidence *e, const float *logits, int64_t rows, int64_t age, double *score, double *weight,
                      double *faster) {
    for (int64_t i = 0; i < ROWS; i++) {
        const double own = (double)(age > i ? age - i : 0);
        weight[i] = power_of_two(own / -e->half_life);
        faster[i] = power_of_two(FASTER * own / -e->half_life);
    }
    for (int64_t i = 0; i < rows; i++) score[i] = 1 / (1 + exp(-(double)logits[i]));
}

/* The errors of at most ROWS rows, the first of which is of this age. */
INLINE void note_errors(const evidence *e, const float *labels, const float *logits, int64_t rows, int64_t age,
                        row_errors *noted) {
    double weight[ROWS], faster[ROWS], score[ROWS];
    fade_rows(e, logits, rows, age, score, weight, faster);
    for (int64_t i = 0; i < rows; i++) {
        const double error = labels[i] - score[i], variance = score[i] * (1 - score[i]);
        noted[i].fading = (four){grained(error * weight[i]), grained(variance * weight[i]), grained(error * faster[i]),
                                 grained(variance * faster[i])};
        noted[i].error = grained(error);
        noted[i].variance = grained(variance);
    }
}

/* What labelled rows add, summed up for every cell, and in `total` for all rows; without logits there are no errors. */
INLINE void sum_up(const evidence *e, const found_cells *of, const float *labels, const float *logits, int64_t rows,
                   added *total) {
    const int64_t n = e->q + e->p, counted = e->q + (e->ids ? e->p : 0);
    added *sums = (added *)of->sums;
    if (of->count) memset(sums, 0, of->count * sizeof(added)); /* otherwise there may be no memory */
    for (int64_t start = 0; start < rows; start += ROWS) {
        const int64_t here = rows - start < ROWS ? rows - start : ROWS;
        double weight[ROWS] = {0}, faster[ROWS] = {0}, score[ROWS] = {0};
        if (logits) fade_rows(e, logits + start, here, rows - 1 - start, score, weight, faster);
        for (int64_t i = 0; i < here; i++) {
            const double label = labels[start + i], error = label - score[i], variance = score[i] * (1 - score[i]);
            const four clicks = {1, label, 0, 0};
            const four errors = {grained(error * weight[i]), grained(variance * weight[i]), grained(error * faster[i]),
                                 grained(variance * faster[i])};
            const int32_t *slots = of->slots + (start + i) * n;
            for (int64_t f = 0; f < counted; f++) {
                sums[slots[f]].clicks += clicks;
                sums[slots[f]].errors += errors;
            }
            total->clicks += clicks;
            total->errors += errors;
        }
    }
}

/* Let errors fade until now, by the factor of each half-life, and add new ones. */
static inline void add_errors(double *errors, double factor, double faster, const four *more, double now) {
    errors[0] = grained(errors[0] * factor) + (*more)[0];
    errors[1] = grained(errors[1] * factor) + (*more)[1];
    errors[2] = grained(errors[2] * faster) + (*more)[2];
    errors[3] = grained(errors[3] * faster) + (*more)[3];
    errors[4] = now;
}

/* Note the errors of scored rows (Combinations.update). */
INLINE void note_combined(const evidence *e, const found_cells *of, const float *labels, const float *logits,
                          int64_t rows) {
    const divisor by = divisor_of(e->combined_cells);
    double *errors = of->sums, *variances = of->sums + rows; /* which are summed up later */
    int32_t cells[BLOCK];
    for (int64_t i = 0; i < rows; i++) {
        const double score = 1 / (1 + exp(-(double)logits[i]));
        errors[i] = grained(labels[i] - score);
        variances[i] = grained(score * (1 - score));
    }
    for (int64_t k = 0; k < e->num_combined; k++)
        for (int64_t i = 0, count; e->combined[3 * k] >= 0 && i < rows; i += count) {
            double *own = e->combined_errors + 2 * k * by.by;
            count = rows - i < BLOCK ? rows - i : BLOCK;
            find_combined(e, of, &by, k, i, count, cells);
            for (int64_t r = 0; r < count; r++) {
                own[2 * cells[r]] += errors[i + r];
                own[2 * cells[r] + 1] += variances[i + r];
            }
        }
}

/* Let the errors of some cells fade until now, and add new ones; `more` are those of each cell. */
INLINE void fade_and_add(const evidence *e, const int64_t *cells, int64_t count, const added *more, double now) {
    const double rate = 1 / e->half_life;
    for (int64_t start = 0; start < count; start += CELLS) {
        const int64_t here = count - start < CELLS ? count - start : CELLS, *own = cells + start;
        double factor[CELLS] = {0}, faster[CELLS], *errors = e->errors + 5;
        for (int64_t k = 0; k < here; k++) {
            if (start + k + CELLS < count) PREFETCH(errors + 5 * own[k + CELLS]);
            factor[k] = (errors[5 * own[k] + 4] - now) * rate;
        }
        for (int k = 0; k < CELLS; k++) faster[k] = power_of_two(FASTER * factor[k]);
        for (int k = 0; k < CELLS; k++) factor[k] = power_of_two(factor[k]);
        for (int64_t k = 0; k < here; k++)
            add_errors(errors + 5 * own[k], factor[k], faster[k], &more[start + k].errors, now);
    }
}

/* The same of all rows. */
INLINE void fade_and_add_all(const evidence *e, const four *more, double now) {
    const double past = (e->errors[4] - now) * (1 / e->half_life);
    add_errors(e->errors, power_of_two(past), power_of_two(FASTER * past), more, now);
}

/* Add views and clicks to the counts of some cells; `more` are those of each cell. */
INLINE void add_clicks(const evidence *e, const int64_t *cells, int64_t count, const added *more) {
    for (int64_t k = 0; k < count; k++) {
        double *own = counts_of(e, cells[k]);
        if (k + CELLS < count) PREFETCH(counts_of(e, cells[k + CELLS]));
        own[0] += more[k].clicks[0];
        own[1] += more[k].clicks[1];
    }
}

/* Count labelled rows (EvidenceInputs.update), in bins of numbers only where `numbers_too` says so, and note the errors
 * of their logits, if these are given (RecentErrors.update, Combinations.update). Cells are found here unless they are
 * `known`. */
FAST void daes_count(const evidence *e, found_cells *of, const float *numbers, const int64_t *places,
                     const float *labels, const float *logits, int64_t rows, int64_t numbers_too, int64_t known) {
    if (!known) find_cells(e, numbers, places, rows, 1, of);
    if (logits && e->combined_errors) note_combined(e, of, labels, logits, rows);
    if (!e->errors) logits = NULL;
    const int64_t count = counted_cells(e, of), first = numbers_too ? 0 : of->bins;
    const added *sums = (const added *)of->sums;
    added total = {{0}, {0}};
    sum_up(e, of, labels, logits, rows, &total);
    e->total[0] += total.clicks[0];
    e->total[1] += total.clicks[1];
    add_clicks(e, of->cells + first, count - first, sums + first);
    if (!logits) return;
    const double now = (double)(*e->clock += rows);
    fade_and_add_all(e, &total.errors, now);
    fade_and_add(e, of->cells, count, sums, now);
}

#endif
