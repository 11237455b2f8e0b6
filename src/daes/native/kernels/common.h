#ifndef DAES_COMMON_H
#define DAES_COMMON_H

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

#endif
