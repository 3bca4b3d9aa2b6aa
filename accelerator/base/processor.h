/* Features of the processor: some known at compile time, some at run time. */

#ifndef BPE_BASE_PROCESSOR_H
#define BPE_BASE_PROCESSOR_H

#include <stdbool.h>

/* An x86 processor may have AVX2 and BMI: has_avx2 asks it at run time. */
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define BPE_WITH_AVX2
#endif

/* Every 64-bit Arm processor has NEON. */
#if defined(__aarch64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define BPE_WITH_NEON
#endif

/* Whether the processor can run code between AVX2_BEGIN and AVX2_END. */
bool has_avx2(void);

/* Between these two, all functions are compiled for x86 processors with AVX2 and BMI.
 *
 * INVARIANT: other files call functions from there only if has_avx2 returns true. */
#if defined(__clang__)
#define AVX2_BEGIN                                                                                 \
    _Pragma("clang attribute push(__attribute__((target(\"avx2,bmi,bmi2,lzcnt\"))),apply_to=function)")
#define AVX2_END _Pragma("clang attribute pop")
#else
#define AVX2_BEGIN _Pragma("GCC push_options") _Pragma("GCC target(\"avx2,bmi,bmi2,lzcnt\")")
#define AVX2_END _Pragma("GCC pop_options")
#endif

#endif
