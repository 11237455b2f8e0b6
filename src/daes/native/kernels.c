/* What training steps on the CPU and estimators do besides matrix products, one loop each: see daes/native/__init__.py.
 *
 * Every function has a plain version in torch or NumPy, which says what it computes; tests hold both against each other.
 * Arrays are contiguous unless a stride is given; rows are samples. All is compiled as one file, so that what several
 * loops share becomes part of each, for every kind of processor. */

/* The categorical table, and what past clicks say */
#include "kernels/tables.h"
#include "kernels/cells.h"
#include "kernels/recall.h"
#include "kernels/count.h"
#include "kernels/count_together.h"
#include "kernels/choose.h"

/* Vectors of numbers, and the samples their knots are read from */
#include "kernels/places.h"
#include "kernels/blend.h"
#include "kernels/gate.h"
#include "kernels/reservoirs.h"

/* Networks and whole models */
#include "kernels/network.h"
#include "kernels/whole.h"
#include "kernels/products.h"
#include "kernels/projection.h"
#include "kernels/projection_backward.h"

/* Estimators of one column, columns of a stream, several processes */
#include "kernels/schedule.h"
#include "kernels/sample.h"
#include "kernels/columns.h"
#include "kernels/processes.h"
