/* Stands last in a file that begins with avx2_begin.h. */

#if defined(BPE_WITH_AVX2)
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
