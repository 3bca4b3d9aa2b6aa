/* Stands first in a file for x86 processors with AVX2 and BMI, and avx2_end.h last: all functions
 * between the two are compiled for them.
 *
 * INVARIANT: what such a file gives to others is only called where has_avx2 says so. */

#include "processor.h"

#if defined(BPE_WITH_AVX2)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,bmi,bmi2,lzcnt"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,bmi,bmi2,lzcnt")
#endif
#include <immintrin.h>
#endif
