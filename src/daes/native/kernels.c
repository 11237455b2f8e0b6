/* What training steps on the CPU and estimators do besides matrix products, one loop each: see daes/native/__init__.py.
 *
 * Every function has a plain version in torch or NumPy, which says what it computes; tests hold both against each other.
 * Arrays are contiguous unless a stride is given; rows are samples. */

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#endif

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__)
#define FAST __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define FAST
#endif

#if defined(__GNUC__)
#define PREFETCH(address) __builtin_prefetch(address)
#else
#define PREFETCH(address)
#endif

#if defined(__x86_64__) && defined(__GNUC__)
#define PAUSE() __builtin_ia32_pause()
#else
#define PAUSE()
#endif

#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline)) /* into functions that are compiled for several processors */
#else
#define INLINE static inline
#endif

enum { BLOCK = 256 };
enum { APART = 16 }; /* columns of 2^k rows would share the same few places of a cache */
enum { AHEAD = 16 }; /* rows of large tables are asked for so many look-ups before they are read */

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
    memset(sums, 0, found * dim * sizeof(float));
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

/* The log odds of all cells, and how sure those of categories are. */
INLINE void past_clicks(const evidence *e, const found_cells *of) {
    const double prior = click_rate(e), more = e->strength * prior, less = e->strength * (1 - prior);
    const int64_t count = counted_cells(e, of);
    const float base = (float)click_logit(e);
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
        memcpy(s->places + slot * p, places + i * p, p * sizeof(int64_t));
        s->labels[slot] = labels[i] > 0;
        s->logits[slot] = logits ? logits[i] : FLT_MAX;
    }
    *s->seen += all;
}

/* The normal score by Wichura's AS 241, PPND7, as in daes/embedding/normal.py, for ranks in (1e-11, 1 - 1e-11). */
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
    const int known = !isnan(own[0]), spread = scale > 0;
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

typedef float eight __attribute__((vector_size(32), aligned(4), may_alias)); /* one register, or two smaller ones */
typedef float sixteen __attribute__((vector_size(64), aligned(4), may_alias)); /* the same, or two of them */

INLINE float sum_of(eight x) { return ((x[0] + x[4]) + (x[1] + x[5])) + ((x[2] + x[6]) + (x[3] + x[7])); }

/* to = (1 - high) * a + high * b + z * u, without the last if u is NULL. */
static inline void blend_row(float *to, const float *a, const float *b, float high, const float *u, float z, int64_t d) {
    int64_t k = 0;
    for (; k + 16 <= d; k += 16) {
        sixteen sum = (1 - high) * *(const sixteen *)(a + k) + high * *(const sixteen *)(b + k);
        if (u) sum += z * *(const sixteen *)(u + k);
        *(sixteen *)(to + k) = sum;
    }
    for (; k + 8 <= d; k += 8) {
        eight sum = (1 - high) * *(const eight *)(a + k) + high * *(const eight *)(b + k);
        if (u) sum += z * *(const eight *)(u + k);
        *(eight *)(to + k) = sum;
    }
    for (; k < d; k++) {
        to[k] = (1 - high) * a[k] + high * b[k];
        if (u) to[k] += z * u[k];
    }
}

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

/* What `daes_blend` writes for row i of a block, of features from `first` to `last`, the first of which `table` begins
 * with: to (d each), plain (2q) if it is not NULL, and lower and upper (q) unless these are NULL. */
INLINE void write_row(const feature_places *found, int64_t i, int64_t first, int64_t last, int64_t q, const float *table,
                      int64_t M, int64_t d, const float *linear, const float *missing, float *to, float *plain,
                      int32_t *lower, float *upper) {
    for (int64_t f = first; f < last; f++, found++, table += (M + 1) * d, to += d) {
        const int32_t low = found->low[i];
        const float high = found->high[i], z = plain ? found->standard[i] : 0;
        const float *a = low < 0 ? missing + f * d : table + low * d, *b = low < 0 ? a : a + d; /* no branch */
        if (plain) plain[f] = found->score[i], plain[q + f] = z;
        if (lower) lower[f] = low, upper[f] = high;
        if (low != -2)
            blend_row(to, a, b, high, linear ? linear + f * d : NULL, z, d);
        else {
            memset(to, 0, d * sizeof(float));
            if (linear) add_row(to, linear + f * d, z, d);
        }
    }
}

/* The same of rows from `start` to `end`, as they lie in memory. */
INLINE void write_rows(const feature_places *found, int64_t start, int64_t end, int64_t first, int64_t last, int64_t q,
                       const float *table, int64_t M, int64_t d, const float *linear, const float *missing,
                       float *fields, int64_t stride, float *plain, int64_t plain_stride, int32_t *lower, float *upper) {
    for (int64_t i = start; i < end; i++)
        write_row(found, i - start, first, last, q, table + first * (M + 1) * d, M, d, linear, missing,
                  fields + i * stride + first * d, plain ? plain + i * plain_stride : NULL, lower + i * q, upper + i * q);
}

/* Two neighbouring rows blended and a linear path added, and the plain inputs (DAES._fused).
 * values (rows, q), knots (q, K + 1), centre and scale (q,), table (q, M + 1, d), linear (q, d) or NULL, missing (q, d)
 * -> fields (rows, q, d), plain (rows, 2q): scores, then standardised values, or NULL where there is no linear either,
 * rows of both so far apart as their strides say; and for the backward: lower (rows, q), the lower one of the rows, -1
 * where the value is missing and -2 where nothing is known of the feature, and upper (rows, q), the weight of the other
 * one, 0 if there is none. */
FAST void daes_blend(const float *values, int64_t rows, int64_t q, const float *knots, int64_t K, const float *centre,
                     const float *scale, const float *table, int64_t M, int64_t d, const float *linear,
                     const float *missing, float *fields, int64_t stride, float *plain, int64_t plain_stride,
                     int32_t *lower, float *upper) {
    feature_places found[GROUP];
    for (int64_t start = 0; start < rows; start += SIDE)
        for (int64_t group = 0; group < q; group += GROUP) {
            int64_t end = start + SIDE < rows ? start + SIDE : rows, last = group + GROUP < q ? group + GROUP : q;
            for (int64_t f = group; f < last; f++)
                find_places(values + start * q + f, NULL, end - start, q, knots + f * (K + 1), K, centre[f], scale[f], M,
                            found + f - group, plain != NULL);
            if (d == 16 && linear) /* of a width that is known a compiler makes straight code */
                write_rows(found, start, end, group, last, q, table, M, 16, linear, missing, fields, stride, plain,
                           plain_stride, lower, upper);
            else if (d == 16)
                write_rows(found, start, end, group, last, q, table, M, 16, NULL, missing, fields, stride, plain,
                           plain_stride, lower, upper);
            else
                write_rows(found, start, end, group, last, q, table, M, d, linear, missing, fields, stride, plain,
                           plain_stride, lower, upper);
        }
}

/* The gradients of what a vector was made of, from its own; `table` is that of its feature. */
INLINE void add_gradient(const float *from, int32_t low, float high, float z, int64_t d, float *table, float *linear,
                         float *missing) {
    if (low == -1) {
        add_row(missing, from, 1, d);
        return;
    }
    if (linear) add_row(linear, from, z, d);
    if (low < 0) return;
    add_row(table + low * d, from, 1 - high, d);
    add_row(table + low * d + d, from, high, d);
}

INLINE void add_gradients(const float *gradient, int64_t stride, int64_t rows, int64_t q, int64_t M, int64_t d,
                          const float *plain, int64_t plain_stride, const int32_t *lower, const float *upper,
                          float *table, float *linear, float *missing) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t f = 0; f < q; f++)
            add_gradient(gradient + i * stride + f * d, lower[i * q + f], upper[i * q + f],
                         linear ? plain[i * plain_stride + q + f] : 0, d, table + f * (M + 1) * d,
                         linear ? linear + f * d : NULL, missing + f * d);
}

/* The gradients of table, linear (or NULL) and missing are added to, from that of the fields; strides as above. */
FAST void daes_blend_backward(const float *gradient, int64_t stride, int64_t rows, int64_t q, int64_t M, int64_t d,
                              const float *plain, int64_t plain_stride, const int32_t *lower, const float *upper,
                              float *table, float *linear, float *missing) {
    if (d == 16)
        add_gradients(gradient, stride, rows, q, M, 16, plain, plain_stride, lower, upper, table, linear, missing);
    else
        add_gradients(gradient, stride, rows, q, M, d, plain, plain_stride, lower, upper, table, linear, missing);
}

/* A gate on a table (q, R, d): for every context its rows are multiplied by beta * gate + 1 - beta; gates (contexts, q,
 * R) are given as logits and become their sigmoids. With `sums` (the thermometer basis) values are blended of the sums of
 * these rows from 0 on, which are R + 1; else of the rows. Rows of a batch are worked on by their contexts, whose tables
 * (q, R + sums, d) stay in the nearest cache as `scratch`: those of context u are `order` (rows,) up to ends[u]. */
typedef struct {
    int64_t q, R, d, sums, contexts;
    float beta;
    const float *table;
    float *gates;
    int32_t *order, *ends;
    float *scratch;
} gate;

static void order_rows(const int64_t *index, int64_t rows, int64_t contexts, int32_t *order, int32_t *ends) {
    int32_t sum = 0;
    memset(ends, 0, contexts * sizeof(int32_t));
    for (int64_t i = 0; i < rows; i++) ends[index[i]]++;
    for (int64_t u = 0; u < contexts; u++) {
        int32_t here = ends[u];
        ends[u] = sum;
        sum += here;
    }
    for (int64_t i = 0; i < rows; i++) order[ends[index[i]]++] = (int32_t)i;
}

/* The sigmoids of one context and its tables, of features from `first` to `last`. */
INLINE void open_gate(const gate *g, int64_t u, int64_t first, int64_t last, int64_t d) {
    const int64_t at = (u * g->q + first) * g->R, count = (last - first) * g->R;
    const float *from = g->table + first * g->R * d;
    float *gates = g->gates + at, *to = g->scratch;
    for (int64_t k = 0; k < count; k++) {
        float size = gates[k] < 0 ? gates[k] : -gates[k], power, rest;
        exp_of(size < -79 ? -79 : size, &power, &rest);
        gates[k] = (gates[k] < 0 ? power : 1) / (1 + power);
    }
    for (int64_t f = first; f < last; f++) {
        sixteen sum = {0}; /* if d is 16 */
        if (g->sums) memset(to, 0, d * sizeof(float)), to += d;
        for (int64_t k = 0; k < g->R; k++, gates++, from += d, to += d) {
            const float factor = g->beta * *gates + (1 - g->beta);
            if (d == 16) {
                sum = g->sums ? sum + factor * *(const sixteen *)from : factor * *(const sixteen *)from;
                *(sixteen *)to = sum;
                continue;
            }
            for (int64_t j = 0; j < d; j++) to[j] = (g->sums ? to[j - d] : 0) + factor * from[j];
        }
    }
}

/* What the gradients of one context's tables are for the table and the logits. */
INLINE void close_gate(const gate *g, int64_t u, int64_t first, int64_t last, int64_t d, float *to_table,
                       float *to_logits) {
    for (int64_t f = first; f < last; f++) {
        float *own = g->scratch + ((f - first) * (g->R + g->sums) + g->sums) * d;
        eight low = {0}, high = {0}; /* if d is 16 */
        for (int64_t k = g->R - 1; k >= 0; k--) {
            const int64_t at = (u * g->q + f) * g->R + k;
            const float *row = g->table + (f * g->R + k) * d, share = g->gates[at];
            const float factor = g->beta * share + (1 - g->beta), slope = g->beta * share * (1 - share);
            float *sum = own + k * d, *to = to_table + (f * g->R + k) * d;
            if (d == 16) {
                if (!g->sums) low = high = (eight){0};
                low += *(const eight *)sum;
                high += *(const eight *)(sum + 8);
                *(eight *)to += factor * low;
                *(eight *)(to + 8) += factor * high;
                to_logits[at] = slope * sum_of(low * *(const eight *)row + high * *(const eight *)(row + 8));
                continue;
            }
            if (g->sums && k < g->R - 1) add_row(sum, sum + d, 1, d);
            add_row(to, sum, factor, d);
            to_logits[at] = slope * dot(sum, row, d);
        }
    }
}

/* Ask for numbers that are read, or written, soon: rows that lie anywhere in memory no processor foresees. */
INLINE void ask_for(const float *numbers, int64_t count) {
    for (int64_t k = 0; k < count; k += 16) PREFETCH(numbers + k);
}

INLINE void gated_blend(const gate *g, const float *values, int64_t rows, const float *knots, int64_t K,
                        const float *centre, const float *scale, int64_t d, const float *linear, const float *missing,
                        float *fields, float *plain, int32_t *lower, float *upper) {
    const int64_t q = g->q, M = g->R + g->sums - 1;
    feature_places found[GROUP];
    for (int64_t group = 0; group < q; group += GROUP) {
        const int64_t last = group + GROUP < q ? group + GROUP : q;
        int64_t u = -1;
        for (int64_t start = 0; start < rows; start += SIDE) {
            const int64_t end = start + SIDE < rows ? start + SIDE : rows;
            for (int64_t f = group; f < last; f++) {
                feature_places *own = found + f - group;
                find_places(values + f, g->order + start, end - start, q, knots + f * (K + 1), K, centre[f], scale[f], M,
                            own, plain != NULL);
                memcpy(lower + start * q + f * SIDE, own->low, sizeof own->low);
                memcpy(upper + start * q + f * SIDE, own->high, sizeof own->high);
            }
            for (int64_t i = start; i < end; i++) {
                const int64_t row = g->order[i];
                if (i + SOON < rows) ask_for(fields + (g->order[i + SOON] * q + group) * d, (last - group) * d);
                if (u < 0 || i == g->ends[u]) {
                    do u++;
                    while (i == g->ends[u]);
                    open_gate(g, u, group, last, d);
                }
                write_row(found, i - start, group, last, q, g->scratch, M, d, linear, missing,
                          fields + (row * q + group) * d, plain ? plain + row * 2 * q : NULL, NULL, NULL);
            }
        }
    }
}

/* As `daes_blend`, of the tables that a gate makes of each row's context `index` (rows,); order and ends are written.
 * lower and upper (blocks of SIDE rows in that order, q, SIDE). */
FAST void daes_gated_blend(const gate *g, const int64_t *index, const float *values, int64_t rows, const float *knots,
                           int64_t K, const float *centre, const float *scale, const float *linear,
                           const float *missing, float *fields, float *plain, int32_t *lower, float *upper) {
    order_rows(index, rows, g->contexts, g->order, g->ends);
    if (g->d == 16 && !linear)
        gated_blend(g, values, rows, knots, K, centre, scale, 16, NULL, missing, fields, plain, lower, upper);
    else
        gated_blend(g, values, rows, knots, K, centre, scale, g->d, linear, missing, fields, plain, lower, upper);
}

INLINE void gated_blend_backward(const gate *g, const float *gradient, int64_t stride, int64_t d, const float *plain,
                                 const int32_t *lower, const float *upper, float *to_table, float *to_logits,
                                 float *to_linear, float *to_missing) {
    const int64_t rows = g->contexts ? g->ends[g->contexts - 1] : 0;
    const int64_t q = g->q, R = g->R, each = (R + g->sums) * d;
    for (int64_t group = 0; group < q; group += GROUP) {
        const int64_t last = group + GROUP < q ? group + GROUP : q;
        for (int64_t u = 0, i = 0; u < g->contexts; u++) {
            if (i == g->ends[u]) {
                memset(to_logits + (u * q + group) * R, 0, (last - group) * R * sizeof(float));
                continue;
            }
            memset(g->scratch, 0, (last - group) * each * sizeof(float));
            for (; i < g->ends[u]; i++) {
                const int64_t row = g->order[i], block = i / SIDE * SIDE * q + i % SIDE;
                if (i + SOON < rows) ask_for(gradient + g->order[i + SOON] * stride + group * d, (last - group) * d);
                for (int64_t f = group; f < last; f++)
                    add_gradient(gradient + row * stride + f * d, lower[block + f * SIDE], upper[block + f * SIDE],
                                 to_linear ? plain[row * 2 * q + q + f] : 0, d, g->scratch + (f - group) * each,
                                 to_linear ? to_linear + f * d : NULL, to_missing + f * d);
            }
            close_gate(g, u, group, last, d, to_table, to_logits);
        }
    }
}

/* The gradients of table, linear (or NULL) and missing are added to, that of the logits is written. */
FAST void daes_gated_blend_backward(const gate *g, const float *gradient, int64_t stride, const float *plain,
                                    const int32_t *lower, const float *upper, float *to_table, float *to_logits,
                                    float *to_linear, float *to_missing) {
    if (g->d == 16 && !to_linear)
        gated_blend_backward(g, gradient, stride, 16, plain, lower, upper, to_table, to_logits, NULL, to_missing);
    else
        gated_blend_backward(g, gradient, stride, g->d, plain, lower, upper, to_table, to_logits, to_linear, to_missing);
}

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

/* The least rank r >= 1 with r / size >= level (daes.distribution.base.rank_of). */
static inline int64_t rank_of(double level, int64_t size) {
    double rank = ceil(level * (double)size);
    if ((rank - 1) / (double)size >= level) rank -= 1;
    return rank < 1 ? 1 : (int64_t)rank;
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

/* What is added to a network's output: logit + <evidence, the last inputs>, and, with `linear` (n * d), + <linear,
 * fields> + `pairs` times the pairwise products of the n fields, whose sums (d,) are kept. */
static inline float around(const float *row, int64_t width, int64_t n, int64_t d, const float *linear, float pairs,
                           const float *evidence, int64_t counted, float logit, float *sum) {
    if (evidence) logit += dot(row + width - counted, evidence, counted);
    if (!linear) return logit;
    memset(sum, 0, d * sizeof(float));
    for (int64_t f = 0; f < n; f++)
        for (int64_t k = 0; k < d; k++) sum[k] += row[f * d + k];
    return logit + (dot(linear, row, n * d) + pairs * (dot(sum, sum, d) - dot(row, row, n * d)) / 2);
}

/* What goes into a network (daes/native/network.py): parts (rows, widths[i]) side by side into x (rows, width), rows
 * `stride` apart; and what goes around it, from start + bias on: logits (rows,), sums (rows, d). */
FAST void daes_join(const float *const *parts, const int64_t *widths, int64_t num_parts, int64_t rows, int64_t width,
                    int64_t stride, int64_t n, int64_t d, const float *linear, float pairs, const float *evidence,
                    int64_t counted, float start, const float *bias, float *x, float *sums, float *logits) {
    for (int64_t i = 0; i < rows; i++) {
        float *row = x + i * stride, *to = row;
        for (int64_t part = 0; part < num_parts; to += widths[part++])
            memcpy(to, parts[part] + i * widths[part], widths[part] * sizeof(float));
        logits[i] = around(row, width, n, d, linear, pairs, evidence, counted, start + *bias, sums + i * d);
    }
}

/* The gradients of what `daes_join` put around the network: those of x (rows, n * d), `linear` and `evidence` are added
 * to. */
FAST void daes_join_backward(const float *gradient, int64_t rows, int64_t width, int64_t stride, int64_t n, int64_t d,
                             const float *x, const float *sums, const float *linear, float pairs, int64_t counted,
                             float *to_x, float *to_linear, float *to_evidence) {
    for (int64_t i = 0; i < rows; i++) {
        const float *row = x + i * stride, *last = row + width - counted, g = gradient[i];
        if (to_evidence)
            for (int64_t k = 0; k < counted; k++) to_evidence[k] += g * last[k];
        if (!linear) continue;
        for (int64_t k = 0; k < n * d; k++) to_linear[k] += g * row[k];
        for (int64_t f = 0; f < n; f++)
            for (int64_t k = 0; k < d; k++)
                to_x[i * n * d + f * d + k] += g * (linear[f * d + k] + pairs * (sums[i * d + k] - row[f * d + k]));
    }
}

/* The sum of the squares of several arrays. */
FAST double daes_squares(const float *const *arrays, const int64_t *sizes, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        for (int64_t start = 0; start < sizes[i]; start += 4096) { /* blocks, so that long sums stay exact */
            int64_t size = sizes[i] - start < 4096 ? sizes[i] - start : 4096;
            sum += dot(arrays[i] + start, arrays[i] + start, size);
        }
    return sum;
}

/* The mean cross-entropy of logits (rows,), by weights (rows,) if there are any (CTRModel.cross_entropy). */
FAST double daes_loss(const float *logits, const float *labels, const float *weights, int64_t rows) {
    double total = weights ? 0 : (double)rows, sum = 0;
    for (int64_t start = 0; start < rows; start += BLOCK) {
        const int64_t here = rows - start < BLOCK ? rows - start : BLOCK, lanes = (here + 7) / 8 * 8;
        float x[BLOCK] = {0}, y[BLOCK] = {0}, losses[BLOCK];
        memcpy(x, logits + start, here * sizeof(float));
        memcpy(y, labels + start, here * sizeof(float));
        for (int64_t i = 0; i < lanes; i++) {
            float size = fabsf(x[i]), power, rest;
            exp_of(size < 80 ? -size : -80, &power, &rest);
            float more = 1 + power, log_more = log_of(more) + (power - (more - 1)) / more; /* what is rounded, too */
            losses[i] = ((x[i] > 0 ? x[i] : 0) - y[i] * x[i]) + log_more;
        }
        for (int64_t i = 0; i < here; i++) {
            total += weights ? weights[start + i] : 0;
            sum += (double)losses[i] * (weights ? weights[start + i] : 1);
        }
    }
    return sum / (total < FLT_MIN ? FLT_MIN : total);
}

/* A number behind a leaky ReLU that is given another one; a slope of 0 stops infinities too. */
INLINE float leak(float given, float number, float slope) {
    return given <= 0 ? (slope > 0 ? slope * number : 0) : number;
}

/* The gradient behind a leaky ReLU, in place, rows `stride` apart, from its outputs, and its sum over the rows. */
FAST void daes_relu_backward(float *gradient, int64_t stride, const float *outputs, int64_t rows, int64_t width,
                             float slope, float *sum) {
    memset(sum, 0, width * sizeof(float));
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < width; k++) {
            float g = leak(outputs[i * width + k], gradient[i * stride + k], slope);
            gradient[i * stride + k] = g;
            sum[k] += g;
        }
}

/* A whole model, as daes/native/whole.py fills it in: every number is what the functions above call it. */
typedef struct {
    int64_t q, p, d, K, M, plain, num_layers;
    const float *knots, *centre, *scale, *table, *linear, *missing, *rows, *first_order, *evidence, *recent,
        *combined;
    const int64_t *sizes, *offsets, *widths; /* widths of the inputs and of every layer, the readout included */
    const float *const *layers; /* weight and bias of each */
    const evidence *counts;
    float pairs; /* of a factorisation machine: what its products count */
    float slope; /* of hidden units below 0 */
} whole_model;

/* What is known of rows between the forward and the backward. x (rows, widths[0]), rows `stride` apart: fields, then
 * plain inputs, then evidence; inputs (rows, 2q) are used where the network takes no plain ones; errors (rows, 2 (1 +
 * q + p)) of what is counted; odds (rows, num_combined) of Combinations. */
typedef struct {
    int64_t *places;
    int64_t stride;
    float *x, *inputs, *upper, *sums, *logits, *errors, *odds;
    int32_t *lower;
    found_cells *found;
    float of_all[2];
} workspace;

static inline int64_t counted_ids(const whole_model *m) { return m->counts->ids ? m->p : 0; }

static inline int64_t counted(const whole_model *m) { return m->counts->q + 2 * counted_ids(m); }

static inline float *plain_of(const whole_model *m, const workspace *w, int64_t row, int64_t *stride) {
    *stride = m->plain ? w->stride : 2 * m->q;
    return m->plain ? w->x + row * w->stride + (m->q + m->p) * m->d : w->inputs + row * 2 * m->q;
}

/* Find the places of ids (rows, p) in the table, the cells of them and of numbers (rows, q), and what is known of these.
 * `distinct` as of `find_cells`. */
FAST void daes_find(const whole_model *m, workspace *w, const float *numbers, const int64_t *ids, int64_t rows,
                    int64_t distinct) {
    daes_hash_rows(ids, m->sizes, m->offsets, rows, m->p, w->places);
    find_cells(m->counts, numbers, w->places, rows, distinct != 0, w->found);
    past_clicks(m->counts, w->found);
    if (m->recent) past_errors(m->counts, w->found, w->of_all);
}

/* What the network reads of numbers (rows, q), and the logits around it, of the rows from `start` to `stop` once they
 * are found; with weights `recent` they are corrected for the errors of the last rows. */
FAST void daes_inputs(const whole_model *m, const workspace *w, const float *numbers, int64_t start, int64_t stop) {
    const evidence *e = m->counts;
    const int64_t q = m->q, p = m->p, d = m->d, width = m->widths[0], stride = w->stride;
    const int64_t cells = 2 * (1 + e->q + counted_ids(m));
    const float logit = (float)click_logit(e) + *m->layers[2 * m->num_layers - 1];
    int64_t plain_stride;
    for (int64_t i = start; i < stop; i += ROWS) {
        int64_t count = stop - i < ROWS ? stop - i : ROWS;
        float *x = w->x + i * stride, *plain = plain_of(m, w, i, &plain_stride);
        daes_blend(numbers + i * q, count, q, m->knots, m->K, m->centre, m->scale, m->table, m->M, d, m->linear,
                   m->missing, x, stride, plain, plain_stride, w->lower + i * q, w->upper + i * q);
        daes_look_up(m->rows, w->places + i * p, count, p, d, x + q * d, stride);
        for (int64_t k = i; k < i + count; k++, x += stride) {
            const int32_t *slots = w->found->slots + k * (e->q + p);
            put_clicks(e, w->found, slots, x + width - counted(m));
            w->logits[k] = around(x, width, q + p, d, m->first_order, m->pairs, m->evidence, counted(m), logit,
                                  w->sums + k * d);
            if (!m->recent) continue;
            put_errors(e, w->found, slots, w->of_all, w->errors + k * cells);
            w->logits[k] += dot(w->errors + k * cells, m->recent, cells);
        }
    }
    put_combined(e, w->found, start, stop, w->odds);
}

/* Where the gradients of a model go. */
typedef struct {
    float *table, *linear, *missing, *first_order, *evidence, *recent, *rows;
    int64_t *distinct;
} gradients;

/* The gradients of all but the layers, from those of the logits (rows,) and, in `fields` (rows, q + p, d), of what the
 * network made of the fields, which is changed. Returns how many rows of the table have one: `distinct`, ascending. */
FAST int64_t daes_gradients(const whole_model *m, const workspace *w, const gradients *to, const float *logits,
                            float *fields, int64_t rows) {
    const evidence *e = m->counts;
    const int64_t q = m->q, p = m->p, d = m->d, n = q + p, stride = w->stride;
    const int64_t cells = 2 * (1 + e->q + counted_ids(m));
    int64_t plain_stride, bins = w->found->bins, found = w->found->count - bins;
    for (int64_t k = 0; k < found; k++) to->distinct[k] = w->found->cells[bins + k] - e->q * (e->bins + 1);
    memset(to->rows, 0, found * d * sizeof(float));
    memset(to->table, 0, q * (m->M + 1) * d * sizeof(float));
    memset(to->missing, 0, q * d * sizeof(float));
    if (m->linear) memset(to->linear, 0, q * d * sizeof(float));
    if (m->first_order) memset(to->first_order, 0, n * d * sizeof(float));
    if (m->evidence) memset(to->evidence, 0, counted(m) * sizeof(float));
    if (to->recent) memset(to->recent, 0, cells * sizeof(float));
    for (int64_t i = 0; i < rows; i += ROWS) {
        int64_t count = rows - i < ROWS ? rows - i : ROWS;
        const float *plain = plain_of(m, w, i, &plain_stride);
        float *own = fields + i * n * d;
        daes_join_backward(logits + i, count, m->widths[0], stride, n, d, w->x + i * stride, w->sums + i * d,
                           m->first_order, m->pairs, counted(m), own, to->first_order, m->evidence ? to->evidence : NULL);
        daes_blend_backward(own, n * d, count, q, m->M, d, plain, plain_stride, w->lower + i * q,
                            w->upper + i * q, to->table, m->linear ? to->linear : NULL, to->missing);
        for (int64_t k = 0; k < count; k++) {
            const int32_t *slots = w->found->slots + (i + k) * (e->q + p) + e->q;
            for (int64_t f = 0; f < p; f++)
                add_row(to->rows + (slots[f] - bins) * d, own + (k * n + q + f) * d, 1, d);
            if (m->recent) add_row(to->recent, w->errors + (i + k) * cells, logits[i + k], cells);
        }
    }
    return found;
}

/* A first layer that multiplies every different vector of a batch once, not every row's: rows that share an id share its
 * vector, and those of a number are blends of a few. So a row is a sum of projected vectors, `width` numbers each: what
 * they give to the `hidden` units, to the sums of a factorisation machine (from `pairs` on, if there is one), and, at
 * `logit`, to the logit. Gradients go the same way back: they are summed up for every vector, and multiplied then.
 *
 * Field f has the vectors from firsts[f] to firsts[f + 1]: of a number the M + 1 rows of its table, that of missing
 * values and that of the linear path; of ids those of the batch. With more than `most` it is dense: forward, the vectors
 * of its rows are multiplied. vectors (firsts[n], vector_size): a vector, log odds, how sure they are, and what it gives
 * to the logit by itself. dense (rows, 2q + counted numbers): scores, standardised values, log odds of numbers. weights:
 * those of each field (n, vector_size, width), then of the dense inputs; columns (of each of these rows) are theirs in
 * the layer, -1 for none, -2 for the logit. gram (q, M + 3, M + 3): products of a number's vectors. projected (firsts[n],
 * width), of which logit + 8 numbers are used. For the backward: rows (rows, width), the gradients of what rows summed
 * up; order (rows * p, and LATER more) and ends (firsts[n]), rows by their ids. After it, weights and gram, and projected of
 * numbers, hold what it summed up. */
typedef struct {
    int64_t hidden, width, pairs, logit, most;
    const int64_t *columns;
    int64_t *firsts;
    float *vectors, *dense, *weights, *projected, *gram, *rows;
    int32_t *order, *ends;
} projection;

enum { LATER = 4 }; /* rows are asked for so long before they are added */
enum { ACROSS = 2 };
enum { TALL = 6 }; /* rows of a product whose sums stay in registers, with two vectors of columns */

/* to (rows, 8) = a (rows, k) times b (k, 8), or += if `more`; a[i, t] is at i * down + t * right. */
INLINE void put_tile(const float *a, int64_t down, int64_t right, const float *b, int64_t b_stride, int64_t k, float *to,
                     int64_t stride, const int rows, int more) {
    eight sums[TALL];
    for (int i = 0; i < rows; i++) sums[i] = more ? *(const eight *)(to + i * stride) : (eight){0};
    for (int64_t t = 0; t < k; t++, a += right, b += b_stride) {
        const eight here = *(const eight *)b;
        for (int i = 0; i < rows; i++) sums[i] += a[i * down] * here;
    }
    for (int i = 0; i < rows; i++) *(eight *)(to + i * stride) = sums[i];
}

/* The same of sixteen columns times `wide`. */
INLINE void put_wide_tile(const float *a, int64_t down, int64_t right, const float *b, int64_t b_stride, int64_t k,
                          float *to, int64_t stride, const int rows, const int wide, int more) {
    sixteen sums[TALL][ACROSS];
    for (int i = 0; i < rows; i++)
        for (int c = 0; c < wide; c++) sums[i][c] = more ? *(const sixteen *)(to + i * stride + 16 * c) : (sixteen){0};
    for (int64_t t = 0; t < k; t++, a += right, b += b_stride) {
        sixteen here[ACROSS];
        for (int c = 0; c < wide; c++) here[c] = *(const sixteen *)(b + 16 * c);
        for (int i = 0; i < rows; i++)
            for (int c = 0; c < wide; c++) sums[i][c] += a[i * down] * here[c];
    }
    for (int i = 0; i < rows; i++)
        for (int c = 0; c < wide; c++) *(sixteen *)(to + i * stride + 16 * c) = sums[i][c];
}

/* to (rows, columns) = a (rows, k) times b (k, columns), or +=, as above. */
INLINE void put_product(const float *a, int64_t down, int64_t right, const float *b, int64_t b_stride, int64_t rows,
                        int64_t k, int64_t columns, float *to, int64_t stride, int more) {
    for (int64_t i = 0, tall; i < rows; i += tall, a += tall * down, to += tall * stride) {
        int64_t j = 0;
        tall = rows - i >= TALL ? TALL : rows - i >= TALL / 2 ? TALL / 2 : 1;
        for (; tall == TALL && j + 16 * ACROSS <= columns; j += 16 * ACROSS)
            put_wide_tile(a, down, right, b + j, b_stride, k, to + j, stride, TALL, ACROSS, more);
        for (; tall == TALL && j + 16 <= columns; j += 16)
            put_wide_tile(a, down, right, b + j, b_stride, k, to + j, stride, TALL, 1, more);
        for (; tall == TALL && j + 8 <= columns; j += 8)
            put_tile(a, down, right, b + j, b_stride, k, to + j, stride, TALL, more);
        for (; tall > 1 && j + 16 <= columns; j += 16)
            put_wide_tile(a, down, right, b + j, b_stride, k, to + j, stride, TALL / 2, 1, more);
        for (; tall > 1 && j + 8 <= columns; j += 8)
            put_tile(a, down, right, b + j, b_stride, k, to + j, stride, TALL / 2, more);
        for (; j + 8 <= columns; j += 8) put_tile(a, down, right, b + j, b_stride, k, to + j, stride, 1, more);
        for (; j < columns; j++)
            for (int64_t r = 0; r < tall; r++) {
                float sum = more ? to[r * stride + j] : 0;
                for (int64_t t = 0; t < k; t++) sum += a[r * down + t * right] * b[t * b_stride + j];
                to[r * stride + j] = sum;
            }
    }
}

/* Where the vectors of each field begin, once a batch is found: tables of fields follow each other. Returns how many
 * vectors there are. */
int64_t daes_group(const whole_model *m, const workspace *w, const projection *l) {
    const int64_t numbers = m->counts->q * (m->counts->bins + 1), bins = w->found->bins;
    for (int64_t f = 0; f <= m->q; f++) l->firsts[f] = f * (m->M + 3);
    for (int64_t f = 1; f < m->p; f++)
        l->firsts[m->q + f] = l->firsts[m->q] + first_after(w->found->cells + bins, w->found->count - bins,
                                                            numbers + m->offsets[f] - 1);
    return l->firsts[m->q + m->p] = l->firsts[m->q] + w->found->count - bins;
}

/* What a batch's inputs that are no vectors are called in the weights: rows behind those of the fields. */
static inline int64_t dense_of(const whole_model *m) { return 2 * m->q + m->counts->q; }

/* Numbers of a vector, with what is known of its id. */
static inline int64_t vector_size(const whole_model *m) { return m->d + 3; }

/* How far the weights of recent errors of each half-life lie apart. */
static inline int64_t errors_stride(const whole_model *m) { return 1 + m->counts->q + counted_ids(m); }

/* Rows of weights out of the layer, where columns say, with what each gives to sums and logit. */
INLINE void pack_weights(const whole_model *m, const projection *l, int64_t start, int64_t stop, int64_t field) {
    const int64_t inputs = m->widths[0], first = inputs - counted(m), fields = (m->q + m->p) * m->d;
    for (int64_t r = start; r < stop; r++) {
        const int64_t column = l->columns[r];
        float *own = l->weights + r * l->width;
        memset(own, 0, l->width * sizeof(float));
        for (int64_t j = 0; column >= 0 && j < l->hidden; j++) own[j] = m->layers[0][j * inputs + column];
        if (column == -2) own[l->logit] = 1;
        if (m->evidence && column >= first) own[l->logit] = m->evidence[column - first];
        if (!m->first_order || column < 0 || column >= fields) continue;
        own[l->logit] = m->first_order[column];
        own[l->pairs + column - field * m->d] = 1;
    }
}

/* The other way: gradients of rows of weights. */
INLINE void unpack_weights(const whole_model *m, const projection *l, const gradients *to, int64_t start, int64_t stop,
                           float *layer) {
    const int64_t inputs = m->widths[0], first = inputs - counted(m), fields = (m->q + m->p) * m->d;
    for (int64_t r = start; r < stop; r++) {
        const int64_t column = l->columns[r];
        const float *own = l->weights + r * l->width;
        for (int64_t j = 0; column >= 0 && j < l->hidden; j++) layer[j * inputs + column] = own[j];
        if (m->evidence && column >= first) to->evidence[column - first] = own[l->logit];
        if (m->first_order && column >= 0 && column < fields) to->first_order[column] = own[l->logit];
    }
}

/* Whether a field has so many vectors that it takes less time to multiply those of the rows. */
static inline int is_dense(const projection *l, int64_t f) { return l->firsts[f + 1] - l->firsts[f] > l->most; }

/* Vector r of number f: out of its table, that of missing values, that of the linear path. */
static inline void put_number(const whole_model *m, int64_t f, int64_t r, float *to) {
    const float *from = r <= m->M ? m->table + (f * (m->M + 1) + r) * m->d : r == m->M + 1 ? m->missing + f * m->d : NULL;
    if (r == m->M + 2 && m->linear) from = m->linear + f * m->d;
    memset(to, 0, vector_size(m) * sizeof(float));
    if (from) memcpy(to, from, m->d * sizeof(float));
}

/* The vector of a cell of the ids of field f. */
static inline void put_id(const whole_model *m, const found_cells *of, int64_t f, int64_t cell, float *to) {
    const evidence *e = m->counts;
    const int64_t d = m->d, first = e->q * (e->bins + 1);
    if (cell + AHEAD < of->count) PREFETCH(m->rows + (of->cells[cell + AHEAD] - first) * d);
    memcpy(to, m->rows + (of->cells[cell] - first) * d, d * sizeof(float));
    to[d] = e->ids ? of->odds[cell] : 0;
    to[d + 1] = e->ids ? of->sure[cell] : 0;
    to[d + 2] = m->first_order ? -m->pairs / 2 * dot(to, to, d) : 0;
    for (int64_t h = 0; m->recent && e->ids && h < 2; h++)
        to[d + 2] += m->recent[h * errors_stride(m) + 1 + e->q + f - m->q] * of->errors[h * of->count + cell];
}

/* Project the vectors of the fields from `start` to `stop`. */
FAST void daes_project(const whole_model *m, const workspace *w, const projection *l, int64_t start, int64_t stop) {
    const evidence *e = m->counts;
    const int64_t q = m->q, d = m->d, n = q + m->p, width = l->width, inputs = vector_size(m), bins = w->found->bins;
    const int64_t used = l->logit + 8;
    const found_cells *cells = w->found;
    for (int64_t f = start; f < stop; f++) {
        const int64_t first = l->firsts[f], count = l->firsts[f + 1] - first;
        float *own = l->vectors + first * inputs, *to = l->projected + first * width;
        pack_weights(m, l, f * inputs, (f + 1) * inputs, f);
        for (int64_t k = 0; k < count; k++) {
            if (f < q)
                put_number(m, f, k, own + k * inputs);
            else
                put_id(m, cells, f, bins + first - l->firsts[q] + k, own + k * inputs);
        }
        if (!is_dense(l, f))
            put_product(own, inputs, 1, l->weights + f * inputs * width, width, count, inputs, used, to, width, 0);
        if (f >= q) continue;
        const int64_t dense = n * inputs + f; /* inputs of the number, of which its value takes the linear path too */
        pack_weights(m, l, dense, dense + 1, f);
        pack_weights(m, l, dense + q, dense + q + 1, f);
        if (e->q) pack_weights(m, l, dense + 2 * q, dense + 2 * q + 1, f);
        add_row(l->weights + (dense + q) * width, to + (m->M + 2) * width, 1, used);
        for (int64_t r = 0; m->first_order && r < count * count; r++)
            l->gram[f * count * count + r] = dot(own + r / count * inputs, own + r % count * inputs, d);
    }
}

/* The two vectors of number f that the value of a row is blended of, and their weights. */
static inline void blended(const whole_model *m, const workspace *w, int64_t row, int64_t f, int32_t *vector,
                           float *weight) {
    const int32_t low = w->lower[row * m->q + f];
    const float high = w->upper[row * m->q + f]; /* 0 where the value is missing */
    vector[0] = low < 0 ? (int32_t)m->M + 1 : low;
    vector[1] = low < 0 ? (int32_t)m->M + 1 : low + 1;
    weight[0] = low == -2 ? 0 : 1 - high;
    weight[1] = high;
}

/* to (16 wide) += the sum of vectors, rows of (..., width), by weights if there are any. With `ahead` vectors are asked for
 * so long before they are read; there are that many more. */
INLINE void add_columns(float *to, const float *vectors, int64_t width, const int32_t *vector, const float *weight,
                        int64_t count, const int wide, const int ahead) {
    sixteen sums[8];
    for (int c = 0; c < wide; c++) sums[c] = *(const sixteen *)(to + 16 * c);
    for (int64_t k = 0; k < count; k++) {
        const sixteen *from = (const sixteen *)(vectors + vector[k] * width);
        for (int c = 0; ahead && c < wide; c++) PREFETCH(vectors + vector[k + ahead] * width + 16 * c);
        for (int c = 0; weight && c < wide; c++) sums[c] += weight[k] * from[c];
        for (int c = 0; !weight && c < wide; c++) sums[c] += from[c];
    }
    for (int c = 0; c < wide; c++) *(sixteen *)(to + 16 * c) = sums[c];
}

/* The same of eight numbers. */
INLINE void add_eight(float *to, const float *vectors, int64_t width, const int32_t *vector, const float *weight,
                      int64_t count, const int ahead) {
    eight sum = *(const eight *)to;
    for (int64_t k = 0; k < count; k++) {
        const eight here = *(const eight *)(vectors + vector[k] * width);
        if (ahead) PREFETCH(vectors + vector[k + ahead] * width);
        if (weight)
            sum += weight[k] * here;
        else
            sum += here;
    }
    *(eight *)to = sum;
}

/* The same of `columns` numbers, a multiple of eight. */
INLINE void add_vectors(float *to, const float *vectors, int64_t width, int64_t columns, const int32_t *vector,
                        const float *weight, int64_t count, const int ahead) {
    int64_t j = 0;
    for (; j + 128 <= columns; j += 128) add_columns(to + j, vectors + j, width, vector, weight, count, 8, ahead);
    for (; j + 64 <= columns; j += 64) add_columns(to + j, vectors + j, width, vector, weight, count, 4, ahead);
    for (; j + 16 <= columns; j += 16) add_columns(to + j, vectors + j, width, vector, weight, count, 1, ahead);
    for (; j < columns; j += 8) add_eight(to + j, vectors + j, width, vector, weight, count, ahead);
}

/* to (width) += weight * from */
INLINE void add_wide(float *to, const float *from, float weight, int64_t width) {
    int64_t j = 0;
    for (; j + 64 <= width; j += 64)
        for (int c = 0; c < 64; c += 16) *(sixteen *)(to + j + c) += weight * *(const sixteen *)(from + j + c);
    for (; j < width; j += 8) *(eight *)(to + j) += weight * *(const eight *)(from + j);
}

/* The dense inputs of at most SIDE rows of numbers (rows, q), from `start` on, and their places among the knots. */
INLINE void put_dense(const whole_model *m, const workspace *w, const projection *l, const float *numbers, int64_t start,
                      int64_t count) {
    const int64_t q = m->q, dense = dense_of(m);
    for (int64_t f = 0; f < q; f++) {
        feature_places found;
        find_places(numbers + start * q + f, NULL, count, q, m->knots + f * (m->K + 1), m->K, m->centre[f], m->scale[f], m->M,
                    &found, 1);
        for (int64_t i = 0; i < count; i++) {
            float *own = l->dense + (start + i) * dense;
            w->lower[(start + i) * q + f] = found.low[i];
            w->upper[(start + i) * q + f] = found.high[i];
            own[f] = found.score[i];
            own[q + f] = found.standard[i];
            if (m->counts->q) own[2 * q + f] = w->found->odds[w->found->slots[(start + i) * (m->counts->q + m->p) + f]];
        }
    }
}

/* What the numbers of a row add to its logit that is no sum over vectors: squares, and recent errors of their bins. */
INLINE float around_numbers(const whole_model *m, const workspace *w, const projection *l, int64_t row) {
    const int64_t q = m->q, all = m->M + 3, stride = errors_stride(m);
    const found_cells *cells = w->found;
    const int32_t *slots = cells->slots + row * (m->counts->q + m->p);
    float logit = 0, squares = 0, weight[3];
    int32_t vector[3] = {0, 0, (int32_t)m->M + 2};
    for (int64_t f = 0; m->first_order && f < q; f++) {
        blended(m, w, row, f, vector, weight);
        weight[2] = l->dense[row * dense_of(m) + q + f];
        for (int a = 0; a < 3; a++)
            for (int b = 0; b < 3; b++)
                squares += l->gram[(f * all + vector[a]) * all + vector[b]] * (weight[a] * weight[b]);
    }
    for (int64_t h = 0; m->recent && h < 2; h++) {
        logit += m->recent[h * stride] * w->of_all[h];
        for (int64_t f = 0; f < m->counts->q; f++)
            logit += m->recent[h * stride + 1 + f] * cells->errors[h * cells->count + slots[f]];
    }
    return logit - m->pairs / 2 * squares;
}

/* What the projected vectors of a row add up to is added to `to` (width). */
INLINE void add_fields(const whole_model *m, const workspace *w, const projection *l, int64_t row, float *to) {
    const int32_t *slots = w->found->slots + row * (m->counts->q + m->p) + m->counts->q;
    const float *ids = l->projected + (l->firsts[m->q] - w->found->bins) * l->width;
    const int64_t used = l->logit + 8;
    int32_t vector[2 * ROWS];
    float weight[2 * ROWS];
    for (int64_t start = 0, count = 0; start < m->q; start += ROWS, count = 0) {
        for (int64_t f = start; f < m->q && f < start + ROWS; f++, count += 2) {
            blended(m, w, row, f, vector + count, weight + count);
            vector[count] += (int32_t)l->firsts[f];
            vector[count + 1] += (int32_t)l->firsts[f];
        }
        add_vectors(to, l->projected, l->width, used, vector, weight, count, 0);
    }
    for (int64_t start = 0, count = 0; start < m->p; start += ROWS, count = 0) {
        for (int64_t f = start; f < m->p && f < start + ROWS; f++) {
            vector[count] = slots[f];
            count += !is_dense(l, m->q + f);
        }
        add_vectors(to, ids, l->width, used, vector, NULL, count, 0);
    }
}

/* Hidden units (rows, hidden) of the first layer, and logits around the network, of numbers (rows, q) from `start` to
 * `stop`, once all vectors are projected; scratch (SIDE, width + vector_size). */
FAST void daes_gather(const whole_model *m, const workspace *w, const projection *l, const float *numbers, int64_t start,
                      int64_t stop, float *scratch, float *hidden) {
    const evidence *e = m->counts;
    const int64_t q = m->q, n = q + m->p, d = m->d, width = l->width, dense = dense_of(m), inputs = vector_size(m);
    const int64_t used = l->logit + 8;
    const float logit = (float)click_logit(e) + *m->layers[2 * m->num_layers - 1], *bias = m->layers[1];
    for (int64_t i = start; i < stop; i += SIDE) {
        const int64_t here = stop - i < SIDE ? stop - i : SIDE;
        const int32_t *slots = w->found->slots + i * (e->q + m->p) + e->q - q;
        float *own = scratch + SIDE * width;
        put_dense(m, w, l, numbers, i, here);
        put_product(l->dense + i * dense, dense, 1, l->weights + n * inputs * width, width, here, dense, used, scratch,
                    width, 0);
        for (int64_t f = q; f < n; f++) {
            if (!is_dense(l, f)) continue;
            for (int64_t k = 0; k < here; k++)
                memcpy(own + k * inputs,
                       l->vectors + (l->firsts[q] + slots[k * (e->q + m->p) + f] - w->found->bins) * inputs,
                       inputs * sizeof(float));
            put_product(own, inputs, 1, l->weights + f * inputs * width, width, here, inputs, used, scratch, width, 1);
        }
        for (int64_t k = i; k < i + here; k++) {
            float *row = scratch + (k - i) * width, *to = hidden + k * l->hidden;
            add_fields(m, w, l, k, row);
            for (int64_t j = 0; j < l->hidden; j++) to[j] = leak(row[j] + bias[j], row[j] + bias[j], m->slope);
            w->logits[k] = logit + row[l->logit] + around_numbers(m, w, l, k);
            if (!m->first_order) continue;
            memcpy(w->sums + k * d, row + l->pairs, d * sizeof(float));
            w->logits[k] += m->pairs / 2 * dot(row + l->pairs, row + l->pairs, d);
        }
    }
    put_combined(e, w->found, start, stop, w->odds);
}

/* Sum up the gradients of what the vectors of numbers and the dense inputs gave, from those of rows (rows, width). */
INLINE void sum_numbers(const whole_model *m, const workspace *w, const projection *l, const gradients *to,
                        int64_t rows) {
    const int64_t q = m->q, width = l->width, dense = dense_of(m), all = m->M + 3, stride = m->counts->q + m->p;
    const found_cells *cells = w->found;
    float *weights = l->weights + (q + m->p) * vector_size(m) * width;
    memset(l->projected, 0, q * all * width * sizeof(float));
    memset(l->gram, 0, q * all * all * sizeof(float));
    for (int64_t start = 0; start < rows; start += ROWS) { /* which stay in the cache, with the vectors of a number */
        const int64_t here = rows - start < ROWS ? rows - start : ROWS;
        const float *own = l->dense + start * dense, *row = l->rows + start * width;
        put_product(own, 1, dense, row, width, dense, here, l->logit + 8, weights, width, start > 0);
        for (int64_t f = 0; f < q; f++)
            for (int64_t i = 0; i < here; i++) {
                const float g = row[i * width + l->logit];
                int32_t vector[3] = {0, 0, (int32_t)m->M + 2};
                float weight[3] = {0, 0, own[i * dense + q + f]};
                blended(m, w, start + i, f, vector, weight);
                for (int a = 0; a < 2; a++) {
                    float *sum = l->projected + (f * all + vector[a]) * width;
                    if (weight[a]) add_wide(sum, row + i * width, weight[a], l->logit + 8);
                }
                for (int a = 0; m->first_order && a < 3; a++)
                    for (int b = 0; b < 3; b++)
                        l->gram[(f * all + vector[a]) * all + vector[b]] += g * (weight[a] * weight[b]);
                for (int64_t h = 0; m->recent && m->counts->q && h < 2; h++)
                    to->recent[h * errors_stride(m) + 1 + f] +=
                        g * cells->errors[h * cells->count + cells->slots[(start + i) * stride + f]];
            }
        for (int64_t i = 0; m->recent && i < 2 * here; i++)
            to->recent[i % 2 * errors_stride(m)] += row[i / 2 * width + l->logit] * w->of_all[i % 2];
    }
    for (int64_t f = 0; f < q; f++) /* what the linear path gave is among what the values did */
        memcpy(l->projected + (f * all + m->M + 2) * width, weights + (q + f) * width, width * sizeof(float));
}

/* The rows of a batch by their ids, of the fields from `start` to `stop`: those of the vector v are `order` from ends[v -
 * 1] to ends[v], of the first one of field f from (f - q) * rows on. */
INLINE void sort_rows(const whole_model *m, const workspace *w, const projection *l, int64_t rows, int64_t start,
                      int64_t stop) {
    const int64_t stride = m->counts->q + m->p, first = l->firsts[m->q] - w->found->bins;
    const int32_t *slots = w->found->slots + m->counts->q - m->q;
    int32_t sum = (int32_t)((start - m->q) * rows);
    memset(l->ends + l->firsts[start], 0, (l->firsts[stop] - l->firsts[start]) * sizeof(int32_t));
    for (int64_t i = 0; i < rows; i++)
        for (int64_t f = start; f < stop; f++) l->ends[first + slots[i * stride + f]]++;
    for (int64_t v = l->firsts[start]; v < l->firsts[stop]; v++) {
        const int32_t count = l->ends[v];
        l->ends[v] = sum;
        sum += count;
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t f = start; f < stop; f++) l->order[l->ends[first + slots[i * stride + f]]++] = (int32_t)i;
}

/* The gradient of vector r of field f, from what was summed up for it; the layer's part is there already. */
INLINE void around_vector(const whole_model *m, const projection *l, int64_t f, int64_t r, const float *sums, float *to) {
    const int64_t d = m->d, all = m->M + 3, inputs = vector_size(m);
    const float *own = l->vectors + l->firsts[f] * inputs;
    add_row(to, sums + l->pairs, m->pairs, d);
    add_row(to, m->first_order + f * d, sums[l->logit], d);
    if (f >= m->q) add_row(to, own + r * inputs, -m->pairs * sums[l->logit], d);
    for (int64_t v = 0; f < m->q && v < all; v++)
        add_row(to, own + v * inputs, -m->pairs * l->gram[(f * all + r) * all + v], d);
}

/* The gradients of all but the other layers, of the fields from `start` to `stop`, among which are all numbers or none:
 * of their vectors, of the weights of the first layer (hidden, inputs), and around the network. Those of rows are given
 * in l->rows; to->recent is added to; scratch (SIDE, width). */
FAST void daes_scatter(const whole_model *m, const workspace *w, const projection *l, const gradients *to, int64_t rows,
                       int64_t start, int64_t stop, float *scratch, float *layer) {
    const evidence *e = m->counts;
    const found_cells *cells = w->found;
    const int64_t q = m->q, d = m->d, width = l->width, inputs = vector_size(m), ids = l->firsts[q];
    const int64_t used = l->logit + 8;
    if (!start) sum_numbers(m, w, l, to, rows);
    sort_rows(m, w, l, rows, start < q ? q : start, stop);
    for (int64_t f = start; f < stop; f++) {
        for (int64_t first = l->firsts[f], end = l->firsts[f + 1], here; first < end; first += here) {
            here = end - first < 10 * TALL ? end - first : 10 * TALL; /* which stay in the cache */
            const float *own = l->vectors + first * inputs, *sums = f < q ? l->projected + first * width : scratch;
            memset(scratch, 0, here * width * sizeof(float));
            for (int64_t v = first, begin; f >= q && v < first + here; v++) {
                begin = v == l->firsts[f] ? (f - q) * rows : l->ends[v - 1];
                add_vectors(scratch + (v - first) * width, l->rows, width, used, l->order + begin, NULL,
                            l->ends[v] - begin, LATER);
            }
            put_product(own, 1, inputs, sums, width, d + 2, here, used, l->weights + f * inputs * width, width,
                        first > l->firsts[f]);
            for (int64_t v = first, count; v < first + here; v += count) {
                const int64_t r = v - l->firsts[f], rest = first + here - v, table = m->M + 1 - r;
                float *into = f >= q ? to->rows + (v - ids) * d
                              : table > 0 ? to->table + (f * (m->M + 1) + r) * d
                                          : (table == 0 ? to->missing : to->linear) + f * d;
                count = f >= q || rest < table ? rest : table > 0 ? table : 1;
                if (f < q && table < 0 && !m->linear) continue;
                const float *from = sums + (v - first) * width;
                put_product(from, width, 1, m->layers[0] + f * d, m->widths[0], count, l->hidden, d, into, d, 0);
                for (int64_t k = 0; m->first_order && k < count; k++)
                    around_vector(m, l, f, r + k, from + k * width, into + k * d);
            }
            for (int64_t v = first; f >= q && v < first + here; v++) {
                const int64_t cell = cells->bins + v - ids;
                to->distinct[v - ids] = cells->cells[cell] - e->q * (e->bins + 1);
                for (int64_t h = 0; m->recent && e->ids && h < 2; h++)
                    to->recent[h * errors_stride(m) + 1 + e->q + f - q] +=
                        sums[(v - first) * width + l->logit] * cells->errors[h * cells->count + cell];
            }
        }
        unpack_weights(m, l, to, f * inputs, (f + 1) * inputs, layer);
        for (int64_t r = (q + m->p) * inputs + f; f < q && r < (q + m->p) * inputs + dense_of(m); r += q)
            unpack_weights(m, l, to, r, r + 1, layer);
    }
}

/* The logits of a few rows, by one call; 0 if there is no memory for it. */
int64_t daes_score(const whole_model *m, const float *numbers, const int64_t *ids, int64_t rows, float *logits) {
    int64_t q = m->q, p = m->p, d = m->d, widest = 0;
    for (int64_t l = 0; l <= m->num_layers; l++) widest = m->widths[l] > widest ? m->widths[l] : widest;
    int64_t cells = m->counts->q + p, combined = m->counts->num_combined;
    int64_t each = 4 * q + d + 2 * widest + 4 * cells + combined;
    int64_t *places =
        malloc(rows * ((p + cells) * sizeof(int64_t) + each * sizeof(float)) + APART * cells * sizeof(int32_t));
    if (!places) return 0;
    float *inputs = (float *)(places + rows * (p + cells)), *upper = inputs + rows * 2 * q, *sums = upper + rows * q;
    float *x = sums + rows * d, *y = x + rows * widest, *odds = y + rows * widest, *sure = odds + rows * cells;
    float *together = sure + rows * cells;
    int32_t *lower = (int32_t *)(together + rows * combined), *slots = lower + rows * q;
    found_cells found = {0, 0, 0, places + rows * p, slots, slots + rows * cells, odds, sure, NULL, NULL};
    workspace w = {places, m->widths[0], x, inputs, upper, sums, logits, NULL, together, lower, &found, {0}};
    daes_find(m, &w, numbers, ids, rows, 0);
    daes_inputs(m, &w, numbers, 0, rows);
    for (int64_t l = 0; l < m->num_layers; l++) {
        int64_t from = m->widths[l], to = m->widths[l + 1], last = l == m->num_layers - 1;
        for (int64_t j = 0; j < to; j++)
            for (int64_t i = 0; i < rows; i++) {
                float sum = dot(m->layers[2 * l] + j * from, x + i * from, from);
                if (last) {
                    logits[i] += sum;
                } else {
                    sum += m->layers[2 * l + 1][j];
                    y[i * to + j] = leak(sum, sum, m->slope);
                }
            }
        float *other = x;
        x = y;
        y = other;
    }
    for (int64_t i = 0; i < rows && combined; i++) logits[i] += dot(together + i * combined, m->combined, combined);
    free(places);
    return 1;
}

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

/* The least and the largest of the values in `range`; 0 if one of the values is not finite. */
FAST static int64_t range_of(const double *values, int64_t count, double *range) {
    enum { WIDTH = 32 };
    double low[WIDTH], high[WIDTH], zero[WIDTH];
    int64_t i = 0;
    for (int k = 0; k < WIDTH; k++) low[k] = high[k] = values[0], zero[k] = 0;
    for (; i + WIDTH <= count; i += WIDTH)
        for (int k = 0; k < WIDTH; k++) {
            double value = values[i + k];
            low[k] = value < low[k] ? value : low[k];
            high[k] = value > high[k] ? value : high[k];
            zero[k] += value - value; /* NaN for what is not finite */
        }
    for (; i < count; i++) {
        low[0] = values[i] < low[0] ? values[i] : low[0];
        high[0] = values[i] > high[0] ? values[i] : high[0];
        zero[0] += values[i] - values[i];
    }
    for (int k = 1; k < WIDTH; k++) {
        low[0] = low[k] < low[0] ? low[k] : low[0];
        high[0] = high[k] > high[0] ? high[k] : high[0];
        zero[0] += zero[k];
    }
    range[0] = low[0], range[1] = high[0];
    return zero[0] == 0;
}

/* How many of the values are at most each of the points, added to `counts` as often as `times` says. */
FAST void daes_count_up_to(const double *restrict values, int64_t count, const double *restrict points, int64_t num,
                           int64_t times, int64_t *restrict counts) {
    for (int64_t start = 0; start < count; start += 1024) { /* what stays in the cache */
        int64_t k = 0, end = start + 1024 < count ? start + 1024 : count;
        for (; k + 4 <= num; k += 4) { /* of a value that is loaded four comparisons are made */
            int64_t a = 0, b = 0, c = 0, d = 0;
            const double at[4] = {points[k], points[k + 1], points[k + 2], points[k + 3]};
            for (int64_t i = start; i < end; i++) {
                a += values[i] <= at[0];
                b += values[i] <= at[1];
                c += values[i] <= at[2];
                d += values[i] <= at[3];
            }
            counts[k] += times * a;
            counts[k + 1] += times * b;
            counts[k + 2] += times * c;
            counts[k + 3] += times * d;
        }
        for (; k < num; k++) {
            int64_t sum = 0;
            for (int64_t i = start; i < end; i++) sum += values[i] <= points[k];
            counts[k] += times * sum;
        }
    }
}

enum { LEVELS = 32 }; /* TrackedQuantiles.MOST_LEVELS */

/* TrackedQuantiles.read: the first `num` of the points are the values of the levels; behind them are the numbers before
 * those that are tied; counts are of the members up to each. Returns how many points there are then, or 0 if a sorted
 * sample is needed. */
int64_t daes_follow(const double *members, int64_t size, const double *ordered, int64_t width, const double *levels,
                    int64_t num, double tolerance, uint8_t *tied, double *points, int64_t *counts) {
    for (int turn = 0; turn < 4; turn++) {
        int64_t off[LEVELS], under[LEVELS], total = num, fresh = 0, found[2 * LEVELS] = {0};
        int64_t allowed = (int64_t)(tolerance * (double)size);
        int far = 0;
        double wanted[2 * LEVELS];
        for (int64_t k = 0; k < num; k++) {
            int64_t rank = rank_of(levels[k], size), up_to = counts[k];
            under[k] = tied[k] ? counts[total++] : up_to;
            off[k] = up_to < rank ? rank - up_to : under[k] > rank - 1 ? rank - 1 - under[k] : 0;
            far |= llabs(off[k]) > allowed;
        }
        if (!far) return total;
        for (int64_t k = 0; k < num; k++) {
            if (llabs(off[k]) <= allowed) continue;
            int64_t place = (int64_t)rint(off[k] * ((double)width / (double)size) / (1 + turn)), first = 0;
            for (int64_t rest = width; rest > 0; rest /= 2) {
                int64_t middle = first + rest / 2;
                if (ordered[middle] < points[k]) first = middle + 1, rest--;
            }
            place = place + first < 0 ? 0 : place + first < width ? place + first : width - 1;
            double value = points[k] = wanted[fresh++] = ordered[place];
            tied[k] = (place > 0 && ordered[place - 1] == value) || (place + 1 < width && ordered[place + 1] == value);
            if (tied[k]) wanted[fresh++] = nextafter(value, -INFINITY);
        }
        daes_count_up_to(members, size, wanted, fresh, 1, found);
        fresh = 0, total = num;
        for (int64_t k = 0; k < num; k++) {
            int moved = llabs(off[k]) > allowed;
            if (moved) counts[k] = found[fresh++];
            if (!tied[k]) continue;
            points[total] = nextafter(points[k], -INFINITY);
            counts[total++] = moved ? found[fresh++] : under[k];
        }
    }
    return 0;
}

/* Write what a reservoir accepts of the next values of a stream, `seen` of which came before (JumpReservoir._absorb):
 * those at positions[first] and later ones of `accepted` go to their slots, of which `*filled` are occupied. Returns how
 * many were written. The `counts` of members up to each of the points follow. If `range` is not NULL, all values are
 * looked at before: where one is not finite, nothing is written and -1 returned. */
int64_t daes_accept(const double *values, int64_t count, int64_t seen, const int64_t *positions, const int64_t *targets,
                    int64_t first, int64_t accepted, double *slots, int64_t *filled, const double *points,
                    int64_t num_points, int64_t *counts, double *range) {
    if (range && !range_of(values, count, range)) return -1;
    int64_t next = first, end = first_after(positions + first, accepted - first, seen + count) + first, taken = *filled;
    values -= seen + 1; /* positions count from 1 */
    while (next < end) {
        double added[BLOCK], removed[BLOCK];
        int64_t more = 0, less = 0, stop = next + BLOCK < end ? next + BLOCK : end;
        for (; next < stop; next++) {
            int64_t slot = targets[next];
            if (next + AHEAD < end) PREFETCH(slots + targets[next + AHEAD]);
            if (num_points) {
                added[more++] = values[positions[next]];
                if (slot < taken) removed[less++] = slots[slot];
            }
            taken = slot < taken ? taken : slot + 1; /* free slots are filled in order */
            slots[slot] = values[positions[next]];
        }
        if (num_points) {
            daes_count_up_to(added, more, points, num_points, 1, counts);
            daes_count_up_to(removed, less, points, num_points, -1, counts);
        }
    }
    *filled = taken;
    return end - first;
}

/* Take rows (rows, columns) of hashes into the `size` smallest positive ones of each column (DistinctCounts): smallest
 * (columns, size), ascending, of which there are counts (columns,). `seen` (columns, places), a power of two, holds 0 or
 * hashes of the column that were taken in before. */
void daes_distinct(const int64_t *hashes, int64_t rows, int64_t columns, int64_t size, int64_t *smallest,
                   int64_t *counts, int64_t places, int64_t *seen) {
    for (int64_t start = 0; start < rows; start += BLOCK) /* rows that stay in the cache, column by column */
        for (int64_t c = 0; c < columns; c++) {
            int64_t *own = smallest + c * size, count = counts[c], *known = seen + c * places;
            for (int64_t i = start; i < rows && i < start + BLOCK; i++) {
                int64_t value = hashes[i * columns + c], *last = known + (value & (places - 1));
                if (value <= 0 || *last == value || (count == size && value >= own[size - 1])) continue;
                *last = value;
                int64_t place = first_after(own, count, value);
                if (place && own[place - 1] == value) continue;
                count += count < size;
                memmove(own + place + 1, own + place, (count - 1 - place) * sizeof(int64_t));
                own[place] = value;
            }
            counts[c] = count;
        }
}

/* Processes that meet in memory they share (daes.training.processes.memory): how many have come, and how often all have.
 * `daes_arrive` says that this one has come and returns the meeting's number; `daes_await` whether all came to it within
 * so many milliseconds. What a process has written before it came is there for those that wait for it. */
int64_t daes_arrive(int32_t *meeting, int64_t count) {
#if defined(__linux__)
    int32_t number = __atomic_load_n(meeting + 1, __ATOMIC_ACQUIRE);
    if (__atomic_add_fetch(meeting, 1, __ATOMIC_ACQ_REL) == count) {
        __atomic_store_n(meeting, 0, __ATOMIC_RELAXED);
        __atomic_store_n(meeting + 1, number + 1, __ATOMIC_RELEASE);
        syscall(SYS_futex, meeting + 1, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    }
    return number;
#else
    return 0;
#endif
}

int64_t daes_await(int32_t *meeting, int64_t number, int64_t milliseconds) {
#if defined(__linux__)
    enum { TRIES = 500 }; /* some microseconds, in which others often come */
    const struct timespec most = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    for (int k = 0; k < TRIES; k++) {
        if (__atomic_load_n(meeting + 1, __ATOMIC_ACQUIRE) != (int32_t)number) return 1;
        PAUSE();
    }
    syscall(SYS_futex, meeting + 1, FUTEX_WAIT, (int32_t)number, &most, NULL, 0);
    return __atomic_load_n(meeting + 1, __ATOMIC_ACQUIRE) != (int32_t)number;
#else
    return 0;
#endif
}

/* Put rows of a table (count,), each with its values (count, d) times a factor, where the message to its owner is: of
 * row i the process i / each, or i % owners if `each` is 0. An entry is d values and the two halves of the row's number.
 * `ends` (owners,), in floats from `out` on, are where entries go next. */
FAST void daes_pack(const int64_t *rows, const float *values, int64_t count, int64_t d, float factor, int64_t owners,
                    int64_t each, int64_t *ends, float *out) {
    for (int64_t i = 0; i < count; i++) {
        const int64_t owner = each ? rows[i] / each : rows[i] % owners;
        float *to = out + ends[owner];
        for (int64_t k = 0; k < d; k++) to[k] = values[i * d + k] * factor;
        memcpy(to + d, rows + i, sizeof(int64_t));
        ends[owner] += d + 2;
    }
}

/* The values of entries of `daes_pack`, in several messages with counts (messages,) of them, added up by rows: the
 * different rows less `first`, as they occur, and the sums of their values; returns how many there are. slots (table rows)
 * holds -1 before and after. */
FAST int64_t daes_add_entries(const float *const *entries, const int64_t *counts, int64_t messages, int64_t d,
                              int64_t first, int32_t *slots, int64_t *distinct, float *sums) {
    int64_t found = 0;
    for (int64_t m = 0; m < messages; m++)
        for (int64_t i = 0; i < counts[m]; i++) {
            const float *from = entries[m] + i * (d + 2);
            int64_t row;
            memcpy(&row, from + d, sizeof(int64_t));
            row -= first;
            if (slots[row] < 0) {
                slots[row] = (int32_t)found;
                distinct[found] = row;
                memcpy(sums + found++ * d, from, d * sizeof(float));
                continue;
            }
            float *to = sums + slots[row] * d;
            for (int64_t k = 0; k < d; k++) to[k] += from[k];
        }
    for (int64_t i = 0; i < found; i++) slots[distinct[i]] = -1;
    return found;
}

/* Add finite values (rows, columns), rows `stride` apart, to the counts (columns, num + 1) of bins between ascending cuts
 * (columns, num), each of which belongs to the bin below it (DriftBins.count). */
FAST void daes_bins(const float *values, int64_t rows, int64_t stride, int64_t columns, const double *cuts, int64_t num,
                    int64_t *counts) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < columns; c++) {
            double value = values[i * stride + c];
            const double *base = cuts + c * num;
            for (int64_t left = num; left > 0;) {
                int64_t half = (left + 1) / 2;
                base += half & -(int64_t)(base[half - 1] < value);
                left -= half;
            }
            counts[c * (num + 1) + (base - (cuts + c * num))] += value - value == 0;
        }
}
