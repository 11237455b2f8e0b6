/* The same of tables that a gate changes, context by context. */
#ifndef DAES_GATE_H
#define DAES_GATE_H

#include "blend.h"

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
    if (contexts) memset(ends, 0, contexts * sizeof(int32_t)); /* otherwise there is no memory */
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

#endif
