/* The gradients of that layer. */
#ifndef DAES_PROJECTION_BACKWARD_H
#define DAES_PROJECTION_BACKWARD_H

#include "projection.h"

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

#endif
