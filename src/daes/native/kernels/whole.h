/* A whole model in one call: what its network reads, gradients, and scores of a few rows. */
#ifndef DAES_WHOLE_H
#define DAES_WHOLE_H

#include "blend.h"
#include "network.h"
#include "recall.h"

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

#endif
