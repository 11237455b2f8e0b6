/* Vectors of numbers: two neighbouring rows of a table blended, and their gradients. */
#ifndef DAES_BLEND_H
#define DAES_BLEND_H

#include "places.h"

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

#endif
