/* What is known of the processor when this is compiled. */

#ifndef BPE_PROCESSOR_H
#define BPE_PROCESSOR_H

/* An x86 processor may have AVX2 and BMI: has_avx2 asks it, while the program runs. */
#if defined(__x86_64__) && defined(__GNUC__)
#define BPE_WITH_AVX2
#endif

/* Every 64-bit Arm processor has NEON. */
#if defined(__aarch64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define BPE_WITH_NEON
#endif

#endif
