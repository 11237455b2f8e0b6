/* The cells of evidence that numbers and ids of a batch fall into. */
#ifndef DAES_CELLS_H
#define DAES_CELLS_H

#include "mathematics.h"
#include "tables.h"

enum { ROWS = 32 };  /* so many rows at a time, which stay in the cache */
enum { CELLS = 64 }; /* and so many cells, as vectors */
enum { COMBINING = 1000003 }; /* as in daes/evidence/combinations.py */
enum { FASTER = 10 }; /* as in daes/evidence/recent.py */

/* What past clicks are counted in (EvidenceInputs), as daes/native/evidence.py fills it in. Cells are those of bins of
 * q numbers, (q, bins + 1), then `table_rows` ones of the ids of p fields, which are counted if `ids` is set. edges (q,
 * bins - 1); total (2,), number_counts (q, bins + 1, 2), row_counts (table_rows, 2): views and clicks. errors (1 +
 * cells, 5) of RecentErrors, that of all rows first, or NULL. combined (count, 3) are the fields of Combinations, or
 * NULL; combined_errors (count, combined_cells, 2), or combined_odds (count, combined_cells) once frozen; `each` bins of
 * a number are one of its values there. slots (cells,) holds -1 between calls. */
typedef struct {
    int64_t q, p, ids, bins, table_rows;
    const float *edges;
    double *total, *number_counts, *row_counts, *errors;
    int64_t *clock;
    const int64_t *combined;
    double *combined_errors;
    const float *combined_odds;
    int64_t num_combined, combined_cells, each;
    int32_t *slots;
    double strength, half_life;
    int64_t waiting;
} evidence;

/* The cells of a batch of `rows`: `count` different ones, of which the first `bins` are of numbers and the others, of
 * ids, are ascending; slots (rows, q + p): which of them a row has. There is room for twice as many cells as rows have.
 * odds and sure (count,) and errors (2, count) are what is known of the cells, sums (count, 8) what a batch adds to them;
 * values (q + p, rows + APART) are what the fields are in Combinations, modulo its cells, if there are any. */
typedef struct {
    int64_t rows, count, bins;
    int64_t *cells;
    int32_t *slots, *values;
    float *odds, *sure, *errors;
    double *sums;
} found_cells;

static inline double click_rate(const evidence *e) { return (e->total[1] + 2) / (e->total[0] + 10); }

static inline double click_logit(const evidence *e) { return log(click_rate(e) / (1 - click_rate(e))); }

/* The cells of at most ROWS values of number f, q apart: how many edges lie below each; the last bin for missing values. */
INLINE void find_bin(const evidence *e, int64_t f, const float *from, int64_t rows, int32_t *cells, int64_t stride) {
    const int64_t q = e->q, bins = e->bins, count = bins - 1, lanes = (rows + 7) / 8 * 8;
    const float *own = e->edges + f * count;
    float value[ROWS] = {0};
    int32_t passed[ROWS] = {0}, missing[ROWS];
    for (int64_t i = 0; i < rows; i++) value[i] = from[i * q];
    for (int64_t i = 0; i < lanes; i++) {
        missing[i] = value[i] != value[i];
        value[i] = clamped(value[i]);
    }
    for (int64_t rest = count, step; rest > 0; rest -= step) { /* no branch, which would be mispredicted */
        step = (rest + 1) / 2;
        for (int64_t i = 0; i < lanes; i++)
            passed[i] += (int32_t)step & -(int32_t)(own[passed[i] + step - 1] < value[i]);
    }
    for (int64_t i = 0; i < lanes; i++)
        passed[i] = (int32_t)(f * (bins + 1)) + (missing[i] ? (int32_t)bins : passed[i]);
    for (int64_t i = 0; i < rows; i++) cells[i * stride] = passed[i];
}

/* The cells of numbers (rows, q), those of rows `stride` apart and of columns `apart`. */
INLINE void find_bins(const evidence *e, const float *numbers, int64_t rows, int32_t *cells, int64_t stride,
                      int64_t apart) {
    for (int64_t start = 0; start < rows; start += ROWS)
        for (int64_t f = 0; f < e->q; f++) {
            const int64_t here = rows - start < ROWS ? rows - start : ROWS;
            find_bin(e, f, numbers + start * e->q + f, here, cells + start * stride + f * apart, stride);
        }
}

/* A number to divide by, as a multiplication and a shift where all numbers to be divided are below 2^31 then; and
 * COMBINING modulo it. */
typedef struct {
    int64_t by, factor;
    uint64_t inverse;
    int shift;
} divisor;

static inline divisor divisor_of(int64_t by) {
    divisor found = {by, by > 0 ? COMBINING % by : 0, 0, 31};
    if (by < 1 || by > 46340) return found; /* whose square is above 2^31 */
    while ((int64_t)1 << (found.shift - 31) < by) found.shift++;
    found.inverse = ((uint64_t)1 << found.shift) / (uint64_t)by + 1;
    return found;
}

/* value % by, of what is not negative and below 2^31, or below by * by. */
static inline int64_t remainder_of(const divisor *d, int64_t value) {
    if (!d->inverse) return value % d->by;
    return value - (int64_t)((uint64_t)value * d->inverse >> d->shift) * d->by;
}

/* The cell of a combination of three values, each below `by` (Combinations.places). */
static inline int64_t combined_cell(const divisor *by, int64_t first, int64_t second, int64_t third) {
    return remainder_of(by, remainder_of(by, first * by->factor + second) * by->factor + third);
}

/* What the bin of number f that a cell is of is in Combinations. */
static inline int32_t value_of_bin(const evidence *e, const divisor *by, int64_t f, int64_t cell) {
    return (int32_t)remainder_of(by, (uint32_t)(cell - f * (e->bins + 1)) / (uint32_t)e->each);
}

/* The cells of numbers (rows, q) and of places (rows, p) in the table; if not `distinct`, one slot for each of them. */
INLINE void find_cells(const evidence *e, const float *numbers, const int64_t *places, int64_t rows, int distinct,
                       found_cells *to) {
    const int64_t q = e->q, p = e->p, n = q + p, first = q * (e->bins + 1), combined = e->num_combined;
    const divisor by = divisor_of(e->combined_cells);
    int64_t *cells = to->cells, found = 0;
    int32_t *slots = to->slots, *known = e->slots;
    to->rows = rows;
    find_bins(e, numbers, rows, slots, n, 1);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t f = 0; f < q; f++) {
            int64_t cell = slots[i * n + f], fresh = !distinct || known[cell] < 0;
            if (combined) to->values[f * (rows + APART) + i] = value_of_bin(e, &by, f, cell);
            int32_t slot = fresh ? (int32_t)found : known[cell];
            cells[found] = cell;
            if (distinct) known[cell] = slot;
            slots[i * n + f] = slot;
            found += fresh;
        }
    to->bins = found;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t f = 0; f < p; f++) {
            int64_t k = i * p + f, cell = first + places[k];
            if (combined) to->values[(q + f) * (rows + APART) + i] = (int32_t)remainder_of(&by, places[k]);
            if (distinct && k + AHEAD < rows * p) PREFETCH(known + first + places[k + AHEAD]);
            if (!distinct) slots[i * n + q + f] = (int32_t)found;
            cells[found] = cell;
            found += !distinct || known[cell] < 0;
            if (distinct) known[cell] = 0;
        }
    to->count = found;
    if (!distinct) return;
    sort_places(cells + to->bins, cells + found, found - to->bins, first + e->table_rows);
    for (int64_t k = to->bins; k < found; k++) known[cells[k]] = (int32_t)k;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t f = 0; f < p; f++) slots[i * n + q + f] = known[first + places[i * p + f]];
    for (int64_t k = 0; k < found; k++) known[cells[k]] = -1;
}

/* How many of the cells something is counted in: all, or those of numbers. */
static inline int64_t counted_cells(const evidence *e, const found_cells *of) { return e->ids ? of->count : of->bins; }

static inline double *counts_of(const evidence *e, int64_t cell) {
    int64_t first = e->q * (e->bins + 1);
    return cell < first ? e->number_counts + 2 * cell : e->row_counts + 2 * (cell - first);
}

#endif
