/* Labelled rows counted by several processes, some columns by each. */
#ifndef DAES_COUNT_TOGETHER_H
#define DAES_COUNT_TOGETHER_H

#include "count.h"

/* Several processes count rows together: each looks up some of them (`daes_note`), and then counts some columns of all
 * (`daes_count_columns`). Of `rows` rows, the errors, and by columns their cells and what they are in Combinations. */
typedef struct {
    int64_t rows;
    const row_errors *errors;
    const int32_t *cells, *values;
} noted_rows;

/* Look up and note numbers (rows, q), places (rows, p), labels and logits, which may be NULL (rows,), after which `later`
 * rows come, into errors (rows,), cells and values (q + p, rows). */
FAST void daes_note(const evidence *e, const float *numbers, const int64_t *places, const float *labels,
                    const float *logits, int64_t rows, int64_t later, row_errors *errors, int32_t *cells,
                    int32_t *values) {
    const int64_t q = e->q, p = e->p, first = q * (e->bins + 1);
    const divisor by = divisor_of(e->combined_cells);
    find_bins(e, numbers, rows, cells, 1, rows);
    for (int64_t start = 0; start < rows; start += ROWS) {
        const int64_t stop = rows - start < ROWS ? rows : start + ROWS;
        for (int64_t f = 0; f < p; f++) /* of rows that stay in the cache, column by column */
            for (int64_t i = start; i < stop; i++) {
                cells[(q + f) * rows + i] = (int32_t)(first + places[i * p + f]);
                if (e->num_combined) values[(q + f) * rows + i] = (int32_t)remainder_of(&by, places[i * p + f]);
            }
        if (logits) note_errors(e, labels + start, logits + start, stop - start, later + rows - 1 - start, errors + start);
    }
    for (int64_t f = 0; e->num_combined && f < q; f++)
        for (int64_t i = 0; i < rows; i++) values[f * rows + i] = value_of_bin(e, &by, f, cells[f * rows + i]);
}

/* `daes_count` of rows that were noted, in several parts with labels (all their rows,) one after the other; `scored` if
 * they had logits. Of columns and of combinations every `parts`-th is counted, from `part` on, and none if that is
 * `parts`. distinct and sums have room for as many cells as there are rows. */
FAST void daes_count_columns(const evidence *e, const noted_rows *noted, int64_t num_noted, const float *labels,
                             int64_t scored, int64_t numbers_too, int64_t part, int64_t parts, int64_t *distinct,
                             added *sums) {
    const int64_t n = e->q + (e->ids ? e->p : 0);
    double clicks = 0;
    int64_t rows = 0;
    for (int64_t m = 0; m < num_noted; m++) rows += noted[m].rows;
    for (int64_t i = 0; i < rows; i++) clicks += labels[i];
    e->total[0] += (double)rows;
    e->total[1] += clicks;
    if (scored && e->errors) *e->clock += rows;
    if (part == parts) return;
    const divisor by = divisor_of(e->combined_cells);
    for (int64_t k = part; scored && e->combined_errors && k < e->num_combined; k += parts)
        for (int64_t m = 0; e->combined[3 * k] >= 0 && m < num_noted; m++) {
            const found_cells of = {.rows = noted[m].rows - APART, .values = (int32_t *)noted[m].values};
            double *own = e->combined_errors + 2 * k * by.by;
            int32_t cells[BLOCK];
            for (int64_t i = 0, count; i < noted[m].rows; i += count) {
                const row_errors *errors = noted[m].errors + i;
                count = noted[m].rows - i < BLOCK ? noted[m].rows - i : BLOCK;
                find_combined(e, &of, &by, k, i, count, cells);
                for (int64_t r = 0; r < count; r++) {
                    own[2 * cells[r]] += errors[r].error;
                    own[2 * cells[r] + 1] += errors[r].variance;
                }
            }
        }
    if (!e->errors) scored = 0;
    const double now = scored ? (double)*e->clock : 0;
    if (scored && !part) {
        four total = {0};
        for (int64_t m = 0; m < num_noted; m++)
            for (int64_t i = 0; i < noted[m].rows; i++) total += noted[m].errors[i].fading;
        fade_and_add_all(e, &total, now);
    }
    for (int64_t f = part; f < n; f += parts) {
        int64_t found = 0;
        const float *label = labels;
        for (int64_t m = 0; m < num_noted; label += noted[m].rows, m++) {
            const int32_t *cells = noted[m].cells + f * noted[m].rows;
            for (int64_t i = 0; i < noted[m].rows; i++) {
                int32_t slot = e->slots[cells[i]];
                if (i + AHEAD < noted[m].rows) PREFETCH(e->slots + cells[i + AHEAD]);
                if (slot < 0) {
                    slot = e->slots[cells[i]] = (int32_t)found;
                    sums[found] = (added){{0}, {0}};
                    distinct[found++] = cells[i];
                }
                sums[slot].clicks += (four){1, label[i], 0, 0};
                if (scored) sums[slot].errors += noted[m].errors[i].fading;
            }
        }
        if (f >= e->q || numbers_too) add_clicks(e, distinct, found, sums);
        if (scored) fade_and_add(e, distinct, found, sums, now);
        for (int64_t k = 0; k < found; k++) e->slots[distinct[k]] = -1;
    }
}

#endif
