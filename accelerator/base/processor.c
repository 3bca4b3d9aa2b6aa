/* Detecting features of the processor. */

#include "base/processor.h"

#if defined(BPE_WITH_AVX2)

#include <cpuid.h>

/* NOTE: asked of the processor itself. __builtin_cpu_supports knows lzcnt in some compilers only, and
 * on Windows it needs a library that Microsoft's linker is not given. */
enum {
    XSAVE_IN_USE = 1 << 27, /* of leaf 1, in ecx: the system lets programs ask with xgetbv */
    AVX = 1 << 28,
    BMI = 1 << 3, /* of leaf 7, in ebx */
    AVX2 = 1 << 5,
    BMI2 = 1 << 8,
    LZCNT = 1 << 5, /* of leaf 0x80000001, in ecx */
    WIDE_REGISTERS = 6, /* of xgetbv: the system saves those of SSE and AVX */
};

static bool has_all(unsigned bits, unsigned wanted)
{
    return (bits & wanted) == wanted;
}

static unsigned saved_registers(void)
{
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

bool has_avx2(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && has_all(c, XSAVE_IN_USE | AVX) &&
           has_all(saved_registers(), WIDE_REGISTERS) && __get_cpuid_count(7, 0, &a, &b, &c, &d) &&
           has_all(b, BMI | AVX2 | BMI2) && __get_cpuid(0x80000001, &a, &b, &c, &d) &&
           has_all(c, LZCNT);
}

#else

bool has_avx2(void)
{
    return false;
}

#endif
