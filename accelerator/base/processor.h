/* What is known of the processor: some when this is compiled, some when it runs. */

#ifndef BPE_BASE_PROCESSOR_H
#define BPE_BASE_PROCESSOR_H

#include <stdbool.h>

/* An x86 processor may have AVX2 and BMI: has_avx2 asks it, while the program runs. */
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define BPE_WITH_AVX2
#endif

/* Every 64-bit Arm processor has NEON. */
#if defined(__aarch64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define BPE_WITH_NEON
#endif

/* Whether the processor has all that code between AVX2_BEGIN and AVX2_END is compiled for. */
bool has_avx2(void);

/* Between these two, all functions are compiled for x86 processors with AVX2 and BMI.
 *
 * INVARIANT: what a file gives to others from there is only called where has_avx2 says so. */
#if defined(__clang__)
#define AVX2_BEGIN                                                                                 \
    _Pragma("clang attribute push(__attribute__((target(\"avx2,bmi,bmi2,lzcnt\"))),apply_to=function)")
#define AVX2_END _Pragma("clang attribute pop")
#else
#define AVX2_BEGIN _Pragma("GCC push_options") _Pragma("GCC target(\"avx2,bmi,bmi2,lzcnt\")")
#define AVX2_END _Pragma("GCC pop_options")
#endif

#endif
