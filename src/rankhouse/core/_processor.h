/* Which instructions this processor runs, and its system lets it run.
 *
 * The processor is asked itself. What __builtin_cpu_supports reads is filled in by a library of the compiler, and
 * the one of Zig, which compiles the wheels, leaves it empty: every question is answered with no.
 */
#ifndef RANKHOUSE_PROCESSOR
#define RANKHOUSE_PROCESSOR
#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>

enum {
    CARRYLESS = 1, /* PCLMULQDQ and SSE4.1 */
    AVX2 = 2,      /* and FMA, F16C */
    AVX512 = 4,    /* F, BW, VL, DQ */
    AVX512_AI = 8, /* and VNNI, BF16 */
    VNNI = 16,     /* for registers of AVX2 */
    AVX512_VNNI = 32,
};

static inline int processor_has(int wanted) {
    enum { YMM = 0x06, ZMM = 0xe6 }; /* registers that the system saves */
    unsigned a, b, c, d, saved = 0, first, has = 0, wide;
    if (!__get_cpuid(1, &a, &b, &first, &d)) return 0;
    if (first & bit_PCLMUL && first & bit_SSE4_1) has |= CARRYLESS;
    if (first & bit_OSXSAVE) __asm__("xgetbv" : "=a"(saved), "=d"(d) : "c"(0));
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        if ((saved & YMM) == YMM && b & bit_AVX2 && first & bit_FMA && first & bit_F16C) has |= AVX2;
        wide = bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ;
        if ((saved & ZMM) == ZMM && (b & wide) == wide) has |= AVX512;
        if (has & AVX2 && a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && a & 1u << 4) has |= VNNI;
        if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
        /* c: VNNI; the next page tells of BF16. */
        if (has & AVX512 && c & 1u << 11) has |= AVX512_VNNI;
        if (has & AVX512_VNNI && a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && a & 1u << 5)
            has |= AVX512_AI;
    }
    return (has & wanted) == (unsigned)wanted;
}
#elif defined(__aarch64__)
#if defined(__linux__)
#include <sys/auxv.h>
#endif

/* SDOT, four products of bytes: all of Apple's have it. */
static inline int processor_has_dots(void) {
#if defined(__linux__)
    return (getauxval(AT_HWCAP) & 1ul << 20) != 0; /* HWCAP_ASIMDDP */
#elif defined(__APPLE__)
    return 1;
#else
    return 0;
#endif
}
#endif
#endif
