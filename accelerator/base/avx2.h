/* The instructions that *avx2.c use, by name: SSE up to 4.1, AVX2, BMI. */

#ifndef BPE_BASE_AVX2_H
#define BPE_BASE_AVX2_H

#include <immintrin.h>

/* NOTE: when clang replaces Microsoft's compiler, it includes only what the target always has. */
#if defined(__clang__) && defined(_MSC_VER)
#include <tmmintrin.h>
#include <smmintrin.h>
#include <avxintrin.h>
#include <avx2intrin.h>
#include <bmiintrin.h>
#include <bmi2intrin.h>
#include <lzcntintrin.h>
#endif

#endif
