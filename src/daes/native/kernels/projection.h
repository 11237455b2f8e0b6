/* A first layer that multiplies every different vector of a batch once: forward. */
#ifndef DAES_PROJECTION_H
#define DAES_PROJECTION_H

#include "whole.h"
#include "products.h"

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

#endif
