/* Columns of a stream: different values counted, and values per bin. */
#ifndef DAES_COLUMNS_H
#define DAES_COLUMNS_H

#include "tables.h"

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

#endif
