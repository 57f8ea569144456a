/* What the compiled loops share: addresses, the way back to Python, and LANES floats at once. Behind Python.h.
 *
 * LANES says for which instructions, and this file may be included for one after the other: 16 AVX-512, 8 AVX2 with
 * FMA, 4 what the compiler makes of C's vector extensions, which is NEON on ARM.
 */
#ifndef RANKHOUSE_VECTOR_H
#define RANKHOUSE_VECTOR_H

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define AT(type, address) ((type *)(uintptr_t)(address))
typedef unsigned long long Address;

/* None, or MemoryError. */
static PyObject *finished(int memory) {
    if (!memory) return PyErr_NoMemory();
    Py_INCREF(Py_None);
    return Py_None;
}

#endif

#undef FOR_LANES
#undef VECTOR
#define VECTOR static inline FOR_LANES __attribute__((always_inline))

#if LANES == 16
#define FOR_LANES __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))

typedef __m512 floats;
typedef __m512i ints;
typedef __m512i shorts; /* twice as many */
typedef __m512d doubles; /* half as many */
typedef __mmask16 mask;

VECTOR floats all(float x) { return _mm512_set1_ps(x); }
VECTOR ints all_ints(int x) { return _mm512_set1_epi32(x); }
VECTOR mask first(int64_t count) { return count >= LANES ? 0xffff : (mask)((1u << count) - 1); }
VECTOR mask above(floats a, floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_NLE_UQ); }
VECTOR mask is_number(floats x) { return _mm512_cmp_ps_mask(x, x, _CMP_ORD_Q); }
VECTOR floats keep(mask m, floats x) { return _mm512_maskz_mov_ps(m, x); }
VECTOR floats pick(mask m, floats a, floats b) { return _mm512_mask_mov_ps(b, m, a); }
VECTOR ints pick_ints(mask m, ints a, ints b) { return _mm512_mask_mov_epi32(b, m, a); }
VECTOR floats load(const float *x, int64_t left) {
    return left >= LANES ? _mm512_loadu_ps(x) : _mm512_maskz_loadu_ps(first(left), x);
}
VECTOR floats load_halves(const uint16_t *x) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)x)); }
VECTOR shorts load_bytes(const int8_t *x) { return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)x)); }
VECTOR shorts load_shorts(const int16_t *x) { return _mm512_loadu_si512(x); }
/* sum + the products of neighbours, two and two; exact. */
VECTOR ints add_products(const int vnni, ints sum, shorts a, shorts b) {
    if (!vnni) return _mm512_add_epi32(sum, _mm512_madd_epi16(a, b));
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
}
/* What is stored under a mask is slow to be read again, so only a row's end is. */
VECTOR void store(float *x, int64_t left, floats y) {
    if (left >= LANES) _mm512_storeu_ps(x, y);
    else _mm512_mask_storeu_ps(x, first(left), y);
}
VECTOR void store_ints(int32_t *x, int64_t left, ints y) { _mm512_mask_storeu_epi32(x, first(left), y); }
VECTOR floats fused(floats a, floats b, floats c) { return _mm512_fmadd_ps(a, b, c); }
VECTOR floats lost_of_square(floats x) { return _mm512_fmsub_ps(x, x, x * x); } /* what rounding took from x * x */
VECTOR floats larger(floats a, floats b) { return _mm512_max_ps(a, b); }
VECTOR float total(floats x) { return _mm512_reduce_add_ps(x); }
VECTOR doubles add_squares(doubles sum, floats x) {
    doubles low = _mm512_cvtps_pd(_mm512_castps512_ps256(x)), high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
    return _mm512_fmadd_pd(low, low, _mm512_fmadd_pd(high, high, sum));
}
VECTOR double total_doubles(doubles x) { return _mm512_reduce_add_pd(x); }

/* The totals of LANES vectors, each summed as halves, then neighbours, neighbours, halves. */
VECTOR floats halves_of(floats a, floats b) {
    return _mm512_shuffle_f32x4(a, b, 0x44) + _mm512_shuffle_f32x4(a, b, 0xee);
}
VECTOR floats neighbours_of(floats a, floats b) {
    return _mm512_shuffle_ps(a, b, 0x88) + _mm512_shuffle_ps(a, b, 0xdd);
}
VECTOR floats totals(const floats *x) {
    floats y[8];
    for (int i = 0; i < 8; i++) y[i] = halves_of(x[i], x[i + 8]);
    for (int i = 0; i < 8; i += 2) y[i] = neighbours_of(y[i], y[i + 1]);
    y[0] = neighbours_of(y[0], y[2]);
    y[4] = neighbours_of(y[4], y[6]);
    /* Quarters 0 and 1 of y[0] hold the first four, 2 and 3 those from the eighth; of y[4] the four after each. */
    floats even = _mm512_shuffle_f32x4(y[0], y[4], 0x88), odd = _mm512_shuffle_f32x4(y[0], y[4], 0xdd);
    floats z = even + odd;
    return _mm512_shuffle_f32x4(z, z, 0xd8);
}
/* The same of whole numbers, exact. */
VECTOR floats totals_of_ints(const ints *x) {
    ints y[8];
    for (int i = 0; i < 8; i++)
        y[i] = _mm512_add_epi32(_mm512_shuffle_i32x4(x[i], x[i + 8], 0x44), _mm512_shuffle_i32x4(x[i], x[i + 8], 0xee));
    for (int step = 2; step <= 4; step += 2)
        for (int i = 0; i < 8; i += step) {
            floats a = (floats)y[i], b = (floats)y[i + step / 2];
            y[i] = _mm512_add_epi32((ints)_mm512_shuffle_ps(a, b, 0x88), (ints)_mm512_shuffle_ps(a, b, 0xdd));
        }
    ints z = _mm512_add_epi32(_mm512_shuffle_i32x4(y[0], y[4], 0x88), _mm512_shuffle_i32x4(y[0], y[4], 0xdd));
    return _mm512_cvtepi32_ps(_mm512_shuffle_i32x4(z, z, 0xd8));
}
VECTOR ints minus(ints a, ints b) { return _mm512_sub_epi32(a, b); }
VECTOR ints exponent_bits(ints x) { return _mm512_and_si512(x, _mm512_set1_epi32((int)0xff800000u)); }
VECTOR floats exponents(ints x) { return _mm512_cvtepi32_ps(_mm512_srai_epi32(x, 23)); }

#define LEAST_POWER -140.0f
VECTOR floats nearest(floats x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
VECTOR floats times_power(floats y, floats whole) { return _mm512_scalef_ps(y, whole); }

#else
#if LANES == 8
#define FOR_LANES __attribute__((target("avx2,fma,f16c")))
#else
#define FOR_LANES
#endif

typedef float floats __attribute__((vector_size(4 * LANES)));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));
typedef double doubles __attribute__((vector_size(4 * LANES)));
typedef float halves __attribute__((vector_size(2 * LANES)));
typedef ints mask; /* -1 or 0 */

VECTOR floats all(float x) { return x - (floats){0}; }
VECTOR ints all_ints(int x) { return x + (ints){0}; }
VECTOR mask first(int64_t count) {
    const int32_t each[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    ints places;
    memcpy(&places, each, sizeof places);
    return places < all_ints(count < LANES ? (int)count : LANES);
}
VECTOR mask above(floats a, floats b) { return ~(a <= b); } /* as AVX-512's: also where one is not a number */
VECTOR mask is_number(floats x) { return x == x; }
VECTOR floats keep(mask m, floats x) { return (floats)(m & (ints)x); }
VECTOR ints pick_ints(mask m, ints a, ints b) { return (a & m) | (b & ~m); }
VECTOR floats fused(floats a, floats b, floats c) { return a * b + c; }
#if LANES == 8
VECTOR floats lost_of_square(floats x) { return _mm256_fmsub_ps(x, x, x * x); }
VECTOR floats pick(mask m, floats a, floats b) { return _mm256_blendv_ps(b, a, (floats)m); }
VECTOR floats larger(floats a, floats b) { return _mm256_max_ps(a, b); }
VECTOR floats load(const float *x, int64_t left) {
    return left >= LANES ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, (__m256i)first(left));
}
VECTOR floats load_halves(const uint16_t *x) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)x)); }
typedef __m256i shorts;
VECTOR shorts load_bytes(const int8_t *x) { return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)x)); }
VECTOR shorts load_shorts(const int16_t *x) { return _mm256_loadu_si256((const __m256i *)x); }
VECTOR ints add_products(const int vnni, ints sum, shorts a, shorts b) {
    (void)vnni;
    return sum + (ints)_mm256_madd_epi16(a, b);
}
VECTOR void store(float *x, int64_t left, floats y) {
    if (left >= LANES) _mm256_storeu_ps(x, y);
    else _mm256_maskstore_ps(x, (__m256i)first(left), y);
}
VECTOR float total(floats x) {
    __m128 y = _mm256_castps256_ps128(x) + _mm256_extractf128_ps(x, 1);
    y = y + _mm_movehl_ps(y, y);
    return y[0] + y[1];
}
VECTOR floats totals(const floats *x) {
    floats y[6];
    for (int i = 0; i < 4; i++) y[i] = _mm256_hadd_ps(x[2 * i], x[2 * i + 1]);
    y[4] = _mm256_hadd_ps(y[0], y[1]);
    y[5] = _mm256_hadd_ps(y[2], y[3]);
    return _mm256_permute2f128_ps(y[4], y[5], 0x20) + _mm256_permute2f128_ps(y[4], y[5], 0x31);
}
VECTOR floats totals_of_ints(const ints *x) {
    __m256i y[6];
    for (int i = 0; i < 4; i++) y[i] = _mm256_hadd_epi32((__m256i)x[2 * i], (__m256i)x[2 * i + 1]);
    y[4] = _mm256_hadd_epi32(y[0], y[1]);
    y[5] = _mm256_hadd_epi32(y[2], y[3]);
    ints low = (ints)_mm256_permute2x128_si256(y[4], y[5], 0x20), high = (ints)_mm256_permute2x128_si256(y[4], y[5], 0x31);
    return __builtin_convertvector(low + high, floats);
}
#else
VECTOR floats lost_of_square(floats x) { return vfmaq_f32(-(x * x), x, x); }
VECTOR floats pick(mask m, floats a, floats b) { return (floats)pick_ints(m, (ints)a, (ints)b); }
VECTOR floats larger(floats a, floats b) { return pick(a > b, a, b); }
VECTOR floats load(const float *x, int64_t left) {
    float end[LANES] = {0};
    floats y;
    if (left < LANES) {
        for (int i = 0; i < LANES; i++)
            if (i < left) end[i] = x[i];
        x = end;
    }
    memcpy(&y, x, sizeof y);
    return y;
}
VECTOR floats load_halves(const uint16_t *x) { return (floats)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(x))); }
typedef int16x8_t shorts;
VECTOR shorts load_bytes(const int8_t *x) { return vmovl_s8(vld1_s8(x)); }
VECTOR shorts load_shorts(const int16_t *x) { return vld1q_s16(x); }
VECTOR ints add_products(const int vnni, ints sum, shorts a, shorts b) {
    (void)vnni;
    int32x4_t low = vmlal_s16((int32x4_t)sum, vget_low_s16(a), vget_low_s16(b));
    return (ints)vmlal_high_s16(low, a, b);
}
VECTOR void store(float *x, int64_t left, floats y) {
    if (left >= LANES) memcpy(x, &y, sizeof y);
    else
        for (int i = 0; i < LANES; i++)
            if (i < left) x[i] = y[i];
}
VECTOR float total(floats x) { return (x[0] + x[2]) + (x[1] + x[3]); }
VECTOR floats totals(const floats *x) { return (floats){total(x[0]), total(x[1]), total(x[2]), total(x[3])}; }
VECTOR floats totals_of_ints(const ints *x) {
    int32x4_t low = vpaddq_s32((int32x4_t)x[0], (int32x4_t)x[1]), high = vpaddq_s32((int32x4_t)x[2], (int32x4_t)x[3]);
    return (floats)vcvtq_f32_s32(vpaddq_s32(low, high));
}
#endif
VECTOR ints minus(ints a, ints b) { return a - b; }
VECTOR ints exponent_bits(ints x) { return x & all_ints((int)0xff800000u); }
VECTOR floats exponents(ints x) { return __builtin_convertvector(x >> 23, floats); }
VECTOR void store_ints(int32_t *x, int64_t left, ints y) { store((float *)x, left, (floats)y); }
VECTOR doubles add_squares(doubles sum, floats x) {
    halves half[2];
    memcpy(half, &x, sizeof x);
    doubles low = __builtin_convertvector(half[0], doubles), high = __builtin_convertvector(half[1], doubles);
    return low * low + (high * high + sum);
}
VECTOR double total_doubles(doubles x) {
    double sum = x[0];
    for (int i = 1; i < LANES / 2; i++) sum += x[i];
    return sum;
}

#define LEAST_POWER -126.0f
VECTOR floats nearest(floats x) { return (x + 12582912.0f) - 12582912.0f; } /* for |x| < 2^22 */
VECTOR floats times_power(floats y, floats whole) {
    return y * (floats)((__builtin_convertvector(whole, ints) + 127) << 23);
}
#endif

/* 2^x for x <= 127, relative error 2e-7; below 2^-126 it may be that. */
VECTOR floats exp2_(floats x) {
    x = larger(all(LEAST_POWER), x); /* NaN is kept: it is the second operand */
    floats whole = nearest(x), f = x - whole, y = all(1.5403530e-4f);
    y = fused(y, f, all(1.3333558e-3f));
    y = fused(y, f, all(9.6181291e-3f));
    y = fused(y, f, all(5.5504109e-2f));
    y = fused(y, f, all(2.4022651e-1f));
    y = fused(y, f, all(6.9314718e-1f));
    y = fused(y, f, all(1.0f));
    return times_power(y, whole);
}
/* 2^((x + low) * by) between 2^-126 and 2^127, the product not rounded; quicker than exp2_ where others wait for it. */
VECTOR floats exp2_times(floats x, floats low, float by) {
    floats whole = nearest(x * all(by)), f = fused(low, all(by), fused(x, all(by), -whole)), square = f * f;
    floats low_terms = fused(f, all(6.9314718e-1f), all(1.0f)), middle = fused(f, all(5.5504109e-2f), all(2.4022651e-1f));
    floats high = fused(f, all(1.3333558e-3f), all(9.6181291e-3f));
    high = fused(square, all(1.5403530e-4f), high);
    return times_power(fused(square, fused(square, high, middle), low_terms), whole);
}
/* log2 x of a number of at least 2^-126, absolute error 2e-7 of the larger of it and 1; polynomial: Cephes' logf. */
VECTOR floats log2_(floats x) {
    ints shift = minus((ints)x, all_ints(0x3f3504f3)); /* from the root of 1/2 */
    floats f = (floats)minus((ints)x, exponent_bits(shift)) - all(1), square = f * f, y = all(7.0376836292e-2f);
    y = fused(y, f, all(-1.1514610310e-1f));
    y = fused(y, f, all(1.1676998740e-1f));
    y = fused(y, f, all(-1.2420140846e-1f));
    y = fused(y, f, all(1.4249322787e-1f));
    y = fused(y, f, all(-1.6668057665e-1f));
    y = fused(y, f, all(2.0000714765e-1f));
    y = fused(y, f, all(-2.4999993993e-1f));
    y = fused(y, f, all(3.3333331174e-1f));
    y = fused(square, fused(y, f, all(-0.5f)), f);
    return pick(is_number(x), fused(y, all(1.44269504f), exponents(shift)), x);
}
#undef LEAST_POWER
