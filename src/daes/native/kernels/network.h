/* What goes into a network and around it, its loss, and their gradients. */
#ifndef DAES_NETWORK_H
#define DAES_NETWORK_H

#include "mathematics.h"

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

#endif
