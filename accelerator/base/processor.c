/* Asking the processor what it has. */

#include "base/processor.h"

#if defined(BPE_WITH_AVX2)

#include <cpuid.h>

/* NOTE: compilers differ in whether __builtin_cpu_supports knows this one. */
static bool has_lzcnt(void)
{
    unsigned a, b, c = 0, d;
    return __get_cpuid(0x80000001, &a, &b, &c, &d) && (c >> 5 & 1);
}

bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("bmi2") && has_lzcnt();
}

#else

bool has_avx2(void)
{
    return false;
}

#endif
