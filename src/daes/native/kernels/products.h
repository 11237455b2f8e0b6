/* Products of small matrices. */
#ifndef DAES_PRODUCTS_H
#define DAES_PRODUCTS_H

#include "mathematics.h"

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

#endif
