/* The inner loops of a transformer encoder for x86 processors with AVX512_BF16 and AVX512_VNNI; products and
 * attention use AMX where there is that.
 *
 * product     rows of bf16 or int8 numbers times a weight matrix, and what follows at once: bias, activation,
 *             rounding to bf16 or adding to the residual
 * attend      softmax attention of each row of tokens over itself, read from and written to tokens end to end
 * attend_once the same for one query a head, keys and values being the tokens themselves
 * attend_first the same for one query a head, keys and values side by side
 * turn        rotary positions: pairs of numbers times complex ones, in place
 * norm        layer norm or root mean square, and the rounding of its result
 * quantise    bf16 rows to int8, each row with a scale of its own
 *
 * Every number of a result depends on its own row only and is summed in one fixed order, whatever rows stand
 * beside it: a score has the same bits in any batch. One thread; the interpreter's lock is let go. Tensors come
 * as addresses, their shapes are checked by infer*.py, the only callers. This file is optional: linear.py,
 * attention.py and norm.py hold the same in PyTorch. Only the limited C API is used.
 */
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define QUICK 1
#define LANES 16
#include "../../core/_processor.h"
#include "_vector.h"
#pragma GCC diagnostic ignored "-Wstrict-aliasing"
#define FOR __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx512vnni")))
#define UNROLL _Pragma("GCC unroll 8")
#define INSIDE static inline FOR __attribute__((always_inline))
/* AMX: Linux lends its registers, and compilers know it since these versions. */
#if defined(__linux__) && (defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11)
#define TILES 1
#include <sys/syscall.h>
#include <unistd.h>
#define FOR_TILES                                                                                              \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx512vnni,amx-tile,amx-bf16,amx-int8")))
#define INSIDE_TILES static inline FOR_TILES __attribute__((always_inline))
#endif
#else
#define QUICK 0
#endif

enum { NONE, RELU, GELU, GELU_TANH };      /* activations, as infer.py numbers them */
enum { ROUNDED, ADDED, MULTIPLIED };       /* where a product goes: bf16, float +=, bf16 *= */
enum { BF16, INT8 };                       /* number types of rows */

#if QUICK

#define TALL 6   /* rows of a tile */
#define WIDE 64  /* columns of a panel: four registers */
#define NEAR 393216 /* bytes of rows that stay in the second-level cache */

/* sum += a . b in each place. As instructions, not intrinsics: compilers copy every sum before they add to it. */
#define DOT_BF16(sum, a, b) sum = _mm512_dpbf16_ps(sum, (__m512bh)(a), (__m512bh)(b))
#define DOT_INT8(sum, unsigned_, signed_) __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(unsigned_), "v"(signed_))

/* 1 / x for x >= 1. */
INSIDE __m512 inverse(__m512 x) {
    __m512 y = _mm512_rcp14_ps(x);
    return _mm512_mul_ps(y, _mm512_fnmadd_ps(x, y, _mm512_set1_ps(2.0f)));
}

/* x (1 + erf(x / sqrt 2)) / 2 with Abramowitz and Stegun's 7.1.26, absolute error of erf 1.5e-7. */
INSIDE __m512 gelu(__m512 x) {
    __m512 z = _mm512_mul_ps(_mm512_abs_ps(x), _mm512_set1_ps(0.70710678f));
    __m512 t = inverse(_mm512_fmadd_ps(z, _mm512_set1_ps(0.3275911f), _mm512_set1_ps(1.0f)));
    __m512 y = _mm512_fmadd_ps(t, _mm512_set1_ps(1.061405429f), _mm512_set1_ps(-1.453152027f));
    y = _mm512_fmadd_ps(y, t, _mm512_set1_ps(1.421413741f));
    y = _mm512_fmadd_ps(y, t, _mm512_set1_ps(-0.284496736f));
    y = _mm512_fmadd_ps(y, t, _mm512_set1_ps(0.254829592f));
    y = _mm512_mul_ps(y, t);
    __m512 fall = exp2_(_mm512_mul_ps(_mm512_mul_ps(z, z), _mm512_set1_ps(-1.44269504f)));
    __m512 half = _mm512_mul_ps(_mm512_mul_ps(y, fall), _mm512_mul_ps(_mm512_abs_ps(x), _mm512_set1_ps(0.5f)));
    __m512 up = _mm512_max_ps(_mm512_setzero_ps(), x); /* NaN is kept: it is the second operand */
    return _mm512_sub_ps(up, half);
}

/* x / (1 + exp(-2 sqrt(2 / pi) (x + 0.044715 x^3))). */
INSIDE __m512 gelu_tanh(__m512 x) {
    __m512 cube = _mm512_fmadd_ps(_mm512_mul_ps(x, x), _mm512_set1_ps(0.044715f), _mm512_set1_ps(1.0f));
    __m512 s = _mm512_mul_ps(_mm512_mul_ps(x, cube), _mm512_set1_ps(-2.302208198f));
    s = _mm512_min_ps(_mm512_set1_ps(126.0f), s);
    return _mm512_mul_ps(x, inverse(_mm512_add_ps(exp2_(s), _mm512_set1_ps(1.0f))));
}

INSIDE __m512 activated(__m512 x, int activation) {
    if (activation == RELU) return _mm512_max_ps(_mm512_setzero_ps(), x);
    if (activation == GELU) return gelu(x);
    if (activation == GELU_TANH) return gelu_tanh(x);
    return x;
}

INSIDE __m512 from_bf16(const uint16_t *x) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)x));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

INSIDE void to_bf16(uint16_t *out, __m512 x) { _mm256_storeu_si256((__m256i *)out, (__m256i)_mm512_cvtneps_pbh(x)); }

/* -------- products */

typedef struct {
    const uint8_t *rows, *weight; /* rows end to end; panels of WIDE columns, each step 4 bytes of every column */
    int64_t count, steps, columns; /* steps: bytes of a row / 4 */
    const float *bias, *weight_scale, *row_scale;
    const int32_t *row_sum;
    void *out;
    void *room; /* of the last rows, where tiles compute */
    int activation, into;
} Product;

INSIDE void tile_bf16(const int tall, const uint8_t *x, const uint8_t *w, int64_t steps, __m512 *out) {
    __m512 c[TALL][4];
    UNROLL for (int r = 0; r < tall; r++)
        UNROLL for (int j = 0; j < 4; j++) c[r][j] = _mm512_setzero_ps();
    for (int64_t s = 0; s < steps; s++, w += 256, x += 4) {
        __m512i b[4];
        UNROLL for (int j = 0; j < 4; j++) b[j] = _mm512_loadu_si512(w + 64 * j);
        UNROLL for (int r = 0; r < tall; r++) {
            __m512i a = _mm512_set1_epi32(*(const int32_t *)(x + r * steps * 4));
            UNROLL for (int j = 0; j < 4; j++) DOT_BF16(c[r][j], a, b[j]);
        }
    }
    UNROLL for (int r = 0; r < tall; r++)
        UNROLL for (int j = 0; j < 4; j++) out[4 * r + j] = c[r][j];
}

INSIDE void tile_int8(const int tall, const uint8_t *x, const uint8_t *w, int64_t steps, __m512 *out) {
    __m512i c[TALL][4];
    UNROLL for (int r = 0; r < tall; r++)
        UNROLL for (int j = 0; j < 4; j++) c[r][j] = _mm512_setzero_si512();
    for (int64_t s = 0; s < steps; s++, w += 256, x += 4) {
        __m512i b[4];
        UNROLL for (int j = 0; j < 4; j++) b[j] = _mm512_loadu_si512(w + 64 * j);
        UNROLL for (int r = 0; r < tall; r++) {
            __m512i a = _mm512_set1_epi32(*(const int32_t *)(x + r * steps * 4));
            UNROLL for (int j = 0; j < 4; j++) DOT_INT8(c[r][j], b[j], a);
        }
    }
    UNROLL for (int r = 0; r < tall; r++)
        UNROLL for (int j = 0; j < 4; j++) out[4 * r + j] = _mm512_castsi512_ps(c[r][j]);
}

#define ANY(name)                                                                                       \
    FOR static void name##_any(int tall, const uint8_t *x, const uint8_t *w, int64_t steps, __m512 *o) { \
        switch (tall) {                                                                                 \
        case 1: name(1, x, w, steps, o); break;                                                         \
        case 2: name(2, x, w, steps, o); break;                                                         \
        case 3: name(3, x, w, steps, o); break;                                                         \
        case 4: name(4, x, w, steps, o); break;                                                         \
        case 5: name(5, x, w, steps, o); break;                                                         \
        default: name(6, x, w, steps, o);                                                               \
        }                                                                                               \
    }
ANY(tile_bf16)
ANY(tile_int8)

/* What follows the sums of a tile: row ``row``, sixteen columns from ``column``. */
INSIDE void finish(const Product *p, __m512 sums, int64_t row, int64_t column, const int type, const int activation,
                   const int into) {
    if (type == INT8) {
        __m512i whole = _mm512_sub_epi32(_mm512_castps_si512(sums), _mm512_set1_epi32(128 * p->row_sum[row]));
        __m512 scale = _mm512_mul_ps(_mm512_set1_ps(p->row_scale[row]), _mm512_loadu_ps(p->weight_scale + column));
        sums = _mm512_mul_ps(_mm512_cvtepi32_ps(whole), scale);
    }
    if (p->bias) sums = _mm512_add_ps(sums, _mm512_loadu_ps(p->bias + column));
    sums = activated(sums, activation);
    int64_t at = row * p->columns + column;
    if (into == ADDED) {
        float *out = (float *)p->out + at;
        _mm512_storeu_ps(out, _mm512_add_ps(_mm512_loadu_ps(out), sums));
        return;
    }
    uint16_t *out = (uint16_t *)p->out + at;
    if (into == MULTIPLIED) sums = _mm512_mul_ps(sums, from_bf16(out));
    to_bf16(out, sums);
}

INSIDE void multiply(const Product *p, const int type, const int activation, const int into) {
    int64_t row_bytes = p->steps * 4, block = NEAR / row_bytes / TALL * TALL;
    if (block < TALL) block = TALL;
    __m512 sums[TALL * 4];
    for (int64_t first = 0; first < p->count; first += block) {
        int64_t end = first + block < p->count ? first + block : p->count;
        for (int64_t column = 0; column < p->columns; column += WIDE) {
            const uint8_t *w = p->weight + column * row_bytes;
            for (int64_t row = first; row < end; row += TALL) {
                int tall = end - row < TALL ? (int)(end - row) : TALL;
                const uint8_t *x = p->rows + row * row_bytes;
                if (type == INT8) tile_int8_any(tall, x, w, p->steps, sums);
                else tile_bf16_any(tall, x, w, p->steps, sums);
                for (int r = 0; r < tall; r++)
                    for (int j = 0; j < 4 && column + 16 * j < p->columns; j++)
                        finish(p, sums[4 * r + j], row + r, column + 16 * j, type, activation, into);
            }
        }
    }
}

#define MULTIPLY(how, name, multiply, type)                                         \
    how static void name(const Product *p) {                                        \
        if (p->into == ADDED) multiply(p, type, NONE, ADDED);                       \
        else if (p->into == MULTIPLIED) multiply(p, type, NONE, MULTIPLIED);        \
        else if (p->activation == RELU) multiply(p, type, RELU, ROUNDED);           \
        else if (p->activation == GELU) multiply(p, type, GELU, ROUNDED);           \
        else if (p->activation == GELU_TANH) multiply(p, type, GELU_TANH, ROUNDED); \
        else multiply(p, type, NONE, ROUNDED);                                      \
    }
MULTIPLY(FOR, multiply_bf16, multiply, BF16)
MULTIPLY(FOR, multiply_int8, multiply, INT8)

#if TILES
/* -------- products by AMX: tiles of 16 rows of 64 bytes. Rows and packed weights lie as tiles want them. */

#define SIDE 16       /* rows of a tile, and its columns of 4 bytes */
#define BLOCK 32      /* rows and columns of four tiles of sums */
#define TILE_STEPS 16 /* steps that one tile of rows holds */

typedef struct {
    uint8_t palette, first, unused[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} Tiles;

/* Give all tiles their full size; ``before`` keeps what another library has set in this thread. */
INSIDE_TILES void open_tiles(Tiles *before) {
    Tiles full = {.palette = 1};
    for (int i = 0; i < 8; i++) full.bytes[i] = 64, full.rows[i] = SIDE;
    _tile_storeconfig(before);
    _tile_loadconfig(&full);
}

INSIDE_TILES void close_tiles(const Tiles *before) {
    if (before->palette) _tile_loadconfig(before);
    else _tile_release();
}

/* Compilers do not know that loading a tile reads memory: what was written before must be there. */
#define WRITTEN __asm__ volatile("" ::: "memory")
#define DOT_TILES(type, sums, rows, columns)                    \
    do {                                                        \
        if (type == INT8) _tile_dpbsud(sums, rows, columns);    \
        else _tile_dpbf16ps(sums, rows, columns);               \
    } while (0)

/* Sums of up to BLOCK rows by BLOCK columns; out has rows of WIDE numbers. */
INSIDE_TILES void sum_tiles(const int both, const int type, const uint8_t *x, int64_t row_bytes, const uint8_t *w,
                            int64_t steps, float *out) {
    const uint8_t *x2 = x + SIDE * row_bytes;
    WRITTEN;
    _tile_zero(0);
    _tile_zero(1);
    if (both) {
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t s = 0; s < steps; s += TILE_STEPS, w += TILE_STEPS * 4 * WIDE) {
        _tile_loadd(6, w, 4 * WIDE);
        _tile_loadd(4, x + 4 * s, row_bytes);
        DOT_TILES(type, 0, 4, 6);
        _tile_loadd(7, w + 4 * SIDE, 4 * WIDE);
        DOT_TILES(type, 1, 4, 7);
        if (!both) continue;
        _tile_loadd(5, x2 + 4 * s, row_bytes);
        DOT_TILES(type, 2, 5, 6);
        DOT_TILES(type, 3, 5, 7);
    }
    _tile_stored(0, out, 4 * WIDE);
    _tile_stored(1, out + SIDE, 4 * WIDE);
    if (both) {
        _tile_stored(2, out + SIDE * WIDE, 4 * WIDE);
        _tile_stored(3, out + SIDE * WIDE + SIDE, 4 * WIDE);
    }
}

INSIDE_TILES void multiply_by_tiles(const Product *p, const int type, const int activation, const int into) {
    int64_t row_bytes = p->steps * 4, block = NEAR / row_bytes / BLOCK * BLOCK, whole = p->count / BLOCK * BLOCK;
    const uint8_t *rest = p->rows + whole * row_bytes;
    if (block < BLOCK) block = BLOCK;
    float sums[BLOCK * WIDE] __attribute__((aligned(64)));
    if (p->room) {
        memset(p->room, 0, (size_t)(BLOCK * row_bytes));
        rest = memcpy(p->room, rest, (size_t)((p->count - whole) * row_bytes));
    }
    for (int64_t first = 0; first < p->count; first += block) {
        int64_t end = first + block < p->count ? first + block : p->count;
        for (int64_t column = 0; column < p->columns; column += WIDE) {
            const uint8_t *w = p->weight + column * row_bytes;
            for (int64_t row = first; row < end; row += BLOCK) {
                int tall = end - row < BLOCK ? (int)(end - row) : BLOCK;
                const uint8_t *x = row < whole ? p->rows + row * row_bytes : rest;
                for (int half = 0; half < WIDE; half += BLOCK)
                    if (tall > SIDE) sum_tiles(1, type, x, row_bytes, w + 4 * half, p->steps, sums + half);
                    else sum_tiles(0, type, x, row_bytes, w + 4 * half, p->steps, sums + half);
                for (int r = 0; r < tall; r++)
                    for (int j = 0; j < WIDE && column + j < p->columns; j += 16)
                        finish(p, _mm512_load_ps(sums + r * WIDE + j), row + r, column + j, type, activation, into);
            }
        }
    }
}
MULTIPLY(FOR_TILES, multiply_bf16_by_tiles, multiply_by_tiles, BF16)
MULTIPLY(FOR_TILES, multiply_int8_by_tiles, multiply_by_tiles, INT8)

/* Returns 0 where there is no memory. */
FOR_TILES static int multiply_in_tiles(Product *p, int type) {
    Tiles before;
    p->room = NULL; /* the last rows, filled up with zeros: a tile reads all of its rows */
    if (p->count % BLOCK && (p->room = malloc((size_t)(BLOCK * p->steps * 4))) == NULL) return 0;
    open_tiles(&before);
    if (type == INT8) multiply_int8_by_tiles(p);
    else multiply_bf16_by_tiles(p);
    close_tiles(&before);
    free(p->room);
    return 1;
}

static int tiles; /* whether AMX is used */

static int ask_for_tiles(void) {
    unsigned int a, b, c, d, needed = 1u << 22 | 1u << 24 | 1u << 25; /* AMX-BF16, AMX-TILE, AMX-INT8 */
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & needed) != needed) return 0;
    return syscall(SYS_arch_prctl, 0x1023, 18) == 0; /* ARCH_REQ_XCOMP_PERM, the tiles' data: once a process */
}
#endif

/* -------- rounding to int8 */

/* The largest |x| by its bits, so that NaN and infinity are the largest of all. */
INSIDE __m512i size_bits(__m512 x) { return _mm512_castps_si512(_mm512_abs_ps(x)); }

INSIDE float set_scale(__m512i largest, float *scale) {
    int32_t bits = _mm512_reduce_max_epi32(largest);
    float most;
    memcpy(&most, &bits, 4);
    *scale = most / 127.0f;
    return most > 0.0f ? 127.0f / most : 0.0f;
}

INSIDE __m512i put_int8(int8_t *out, __m512 x, __m512 by) {
    __m512i whole = _mm512_cvtps_epi32(_mm512_mul_ps(x, by));
    _mm_storeu_si128((__m128i *)out, _mm512_cvtsepi32_epi8(whole));
    return whole;
}

FOR static void quantise_rows(const uint16_t *x, int64_t count, int64_t width, int8_t *out, float *scales,
                              int32_t *sums) {
    for (int64_t row = 0; row < count; row++, x += width, out += width) {
        __m512i largest = _mm512_setzero_si512(), sum = _mm512_setzero_si512();
        for (int64_t i = 0; i < width; i += 16) largest = _mm512_max_epi32(largest, size_bits(from_bf16(x + i)));
        __m512 by = _mm512_set1_ps(set_scale(largest, scales + row));
        for (int64_t i = 0; i < width; i += 16)
            sum = _mm512_add_epi32(sum, put_int8(out + i, from_bf16(x + i), by));
        sums[row] = _mm512_reduce_add_epi32(sum);
    }
}

/* -------- norms */

typedef struct {
    float *x;                  /* rows of width numbers; a layer norm writes its result back */
    const float *gain, *shift; /* of a layer norm; NULL for the root mean square */
    float eps;
    int64_t count, width;
    void *out; /* bf16 or int8 */
    float *scales;
    int32_t *sums;
    int type;
} Norm;

FOR static void norm_rows(const Norm *n) {
    int64_t width = n->width;
    for (int64_t row = 0; row < n->count; row++) {
        float *x = n->x + row * width;
        __m512 sum = _mm512_setzero_ps(), squares = _mm512_setzero_ps();
        __m512i largest = _mm512_setzero_si512();
        float mean = 0.0f;
        if (n->gain) {
            for (int64_t i = 0; i < width; i += 16) sum = _mm512_add_ps(sum, _mm512_loadu_ps(x + i));
            mean = _mm512_reduce_add_ps(sum) / (float)width;
        }
        __m512 centre = _mm512_set1_ps(mean);
        for (int64_t i = 0; i < width; i += 16) {
            __m512 off = _mm512_sub_ps(_mm512_loadu_ps(x + i), centre);
            squares = _mm512_fmadd_ps(off, off, squares);
        }
        float spread = _mm512_reduce_add_ps(squares) / (float)width + n->eps;
        __m512 by = _mm512_div_ps(_mm512_set1_ps(1.0f), _mm512_sqrt_ps(_mm512_set1_ps(spread)));
        for (int64_t i = 0; i < width; i += 16) {
            __m512 y = _mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(x + i), centre), by);
            if (n->gain) {
                y = _mm512_fmadd_ps(y, _mm512_loadu_ps(n->gain + i), _mm512_loadu_ps(n->shift + i));
                _mm512_storeu_ps(x + i, y);
            }
            if (n->type == BF16) to_bf16((uint16_t *)n->out + row * width + i, y);
            else largest = _mm512_max_epi32(largest, size_bits(y));
        }
        if (n->type == BF16) continue;
        __m512 scaled = _mm512_set1_ps(set_scale(largest, n->scales + row));
        if (!n->gain) scaled = _mm512_mul_ps(scaled, by);
        __m512i whole = _mm512_setzero_si512();
        for (int64_t i = 0; i < width; i += 16)
            whole = _mm512_add_epi32(
                whole, put_int8((int8_t *)n->out + row * width + i, _mm512_loadu_ps(x + i), scaled));
        n->sums[row] = _mm512_reduce_add_epi32(whole);
    }
}

/* -------- attention */

typedef struct {
    const uint16_t *qkv; /* (tokens, 3, heads, d) */
    const int64_t *ends; /* (rows + 1) */
    int64_t rows, heads, d;
    const float *bias; /* (heads, stride): added to the score of key j for query i at [centre + j - i]; or NULL */
    int64_t stride, centre;
    uint16_t *out; /* (tokens, heads, d) */
} Attention;

/* Transpose 16 x 16 words of 4 bytes. */
INSIDE void transpose(__m512i r[16]) {
    __m512i t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
        r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

/* keys[c][j]: the c-th pair of key j's numbers; values[j][i]: number i of values 2j and 2j + 1. */
INSIDE void lay_out(const uint16_t *k, int64_t step, int64_t length, int64_t places, int64_t d, uint32_t *keys,
                    uint32_t *values) {
    const uint16_t *v = k + step / 3;
    for (int64_t j = 0; j < places; j += 16)
        for (int64_t c = 0; c < d / 2; c += 16) {
            __m512i r[16];
            __mmask16 some = d / 2 - c >= 16 ? 0xffff : (__mmask16)((1 << (d / 2 - c)) - 1);
            for (int i = 0; i < 16; i++)
                r[i] = j + i < length ? _mm512_maskz_loadu_epi32(some, k + (j + i) * step + 2 * c)
                                      : _mm512_setzero_si512();
            transpose(r);
            for (int i = 0; i < 16 && c + i < d / 2; i++) _mm512_storeu_si512(keys + (c + i) * places + j, r[i]);
        }
    for (int64_t j = 0; j < places; j += 2)
        for (int64_t i = 0; i < d; i += 16) {
            __m512i low = _mm512_setzero_si512(), high = low;
            if (j < length) low = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(v + j * step + i)));
            if (j + 1 < length)
                high = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(v + (j + 1) * step + i)));
            _mm512_storeu_si512(values + j / 2 * d + i, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
        }
}

/* Scores of TALL queries for 16 * wide keys from key j. */
INSIDE void score(const int wide, const uint16_t *const *q, const uint32_t *keys, int64_t j, int64_t places,
                  int64_t pairs, const float *const *bias, float *out) {
    __m512 c[TALL][4];
    UNROLL for (int r = 0; r < TALL; r++)
        UNROLL for (int i = 0; i < wide; i++) c[r][i] = bias[r] ? _mm512_loadu_ps(bias[r] + j + 16 * i) : _mm512_setzero_ps();
    for (int64_t s = 0; s < pairs; s++) {
        __m512i b[4];
        UNROLL for (int i = 0; i < wide; i++) b[i] = _mm512_loadu_si512(keys + s * places + j + 16 * i);
        UNROLL for (int r = 0; r < TALL; r++) {
            __m512i a = _mm512_set1_epi32(((const int32_t *)q[r])[s]);
            UNROLL for (int i = 0; i < wide; i++) DOT_BF16(c[r][i], a, b[i]);
        }
    }
    UNROLL for (int r = 0; r < TALL; r++)
        UNROLL for (int i = 0; i < wide; i++) _mm512_storeu_ps(out + r * places + j + 16 * i, c[r][i]);
}

/* Weights 2^(score - largest) in bf16, and the inverse of their sum. */
INSIDE float weigh(const float *scores, int64_t length, int64_t places, uint16_t *weights) {
    __m512 lowest = _mm512_set1_ps(-3.0e38f), most = lowest, sum = _mm512_setzero_ps();
    __mmask16 last = (__mmask16)(0xffff >> (places - length));
    for (int64_t j = 0; j < places; j += 16)
        most = _mm512_mask_max_ps(most, j + 16 < places ? 0xffff : last, most, _mm512_loadu_ps(scores + j));
    most = _mm512_set1_ps(_mm512_reduce_max_ps(most));
    for (int64_t j = 0; j < places; j += 16) {
        __m512 y = exp2_(_mm512_sub_ps(_mm512_loadu_ps(scores + j), most));
        y = _mm512_maskz_mov_ps(j + 16 < places ? 0xffff : last, y);
        sum = _mm512_add_ps(sum, y);
        to_bf16(weights + j, y);
    }
    return 1.0f / _mm512_reduce_add_ps(sum);
}

/* Sums of values by weights for TALL queries, 16 * wide numbers from number i. */
INSIDE void hear(const int wide, const uint16_t *weights, const uint32_t *values, int64_t places, int64_t pairs,
                 int64_t d, __m512 c[TALL][4]) {
    UNROLL for (int r = 0; r < TALL; r++)
        UNROLL for (int i = 0; i < wide; i++) c[r][i] = _mm512_setzero_ps();
    for (int64_t s = 0; s < pairs; s++) {
        __m512i b[4];
        UNROLL for (int i = 0; i < wide; i++) b[i] = _mm512_loadu_si512(values + s * d + 16 * i);
        UNROLL for (int r = 0; r < TALL; r++) {
            __m512i a = _mm512_set1_epi32(((const int32_t *)(weights + r * places))[s]);
            UNROLL for (int i = 0; i < wide; i++) DOT_BF16(c[r][i], a, b[i]);
        }
    }
}

FOR static void attend_head(const Attention *a, int64_t start, int64_t length, int64_t head, char *room) {
    int64_t d = a->d, step = 3 * a->heads * d, places = (length + 15) / 16 * 16, pairs = (length + 1) / 2;
    uint32_t *keys = (uint32_t *)room, *values = keys + d / 2 * places;
    float *scores = (float *)(values + places / 2 * d);
    uint16_t *weights = (uint16_t *)(scores + TALL * places);
    const uint16_t *q = a->qkv + start * step + head * d;
    lay_out(q + step / 3, step, length, places, d, keys, values);
    for (int64_t first = 0; first < length; first += TALL) {
        const uint16_t *asked[TALL];
        const float *bias[TALL];
        float by[TALL];
        for (int r = 0; r < TALL; r++) {
            int64_t query = first + r < length ? first + r : length - 1;
            asked[r] = q + query * step;
            bias[r] = a->bias ? a->bias + head * a->stride + a->centre - query : NULL;
        }
        int64_t j = 0;
        for (; j + 64 <= places; j += 64) score(4, asked, keys, j, places, d / 2, bias, scores);
        if (places - j == 48) score(3, asked, keys, j, places, d / 2, bias, scores);
        else if (places - j == 32) score(2, asked, keys, j, places, d / 2, bias, scores);
        else if (places - j == 16) score(1, asked, keys, j, places, d / 2, bias, scores);
        for (int r = 0; r < TALL; r++) by[r] = weigh(scores + r * places, length, places, weights + r * places);
        for (int64_t i = 0; i < d;) {
            __m512 c[TALL][4];
            int wide = d - i >= 64 ? 4 : d - i >= 32 ? 2 : 1;
            if (wide == 4) hear(4, weights, values + i, places, pairs, d, c);
            else if (wide == 2) hear(2, weights, values + i, places, pairs, d, c);
            else hear(1, weights, values + i, places, pairs, d, c);
            for (int r = 0; r < TALL && first + r < length; r++) {
                uint16_t *out = a->out + ((start + first + r) * a->heads + head) * d + i;
                for (int w = 0; w < wide; w++) to_bf16(out + 16 * w, _mm512_mul_ps(c[r][w], _mm512_set1_ps(by[r])));
            }
            i += 16 * wide;
        }
    }
}

static int64_t longest(const int64_t *ends, int64_t rows) {
    int64_t most = 0;
    for (int64_t row = 0; row < rows; row++)
        if (ends[row + 1] - ends[row] > most) most = ends[row + 1] - ends[row];
    return most;
}

/* Returns 0 where there is no memory. */
static int attend_rows(const Attention *a) {
    size_t places = (size_t)(longest(a->ends, a->rows) + 15) / 16 * 16;
    char *room = malloc(places * (size_t)(4 * a->d + 6 * TALL) + 64);
    if (room == NULL) return 0;
    for (int64_t row = 0; row < a->rows; row++)
        for (int64_t head = 0; head < a->heads; head++)
            attend_head(a, a->ends[row], a->ends[row + 1] - a->ends[row], head, room);
    free(room);
    return 1;
}

#if TILES
/* Scores of SIDE queries, ``step`` bytes apart, for ``length`` keys, rounded up to whole tiles. */
INSIDE_TILES void score_tiles(const uint16_t *q, int64_t step, const uint32_t *keys, int64_t length, int64_t places,
                              int64_t pairs, const float *bias, float *out) {
    WRITTEN;
    for (int64_t j = 0; j < length; j += SIDE) {
        if (bias) _tile_loadd(0, bias + j, -4); /* each query's begins one number before the last one's */
        else _tile_zero(0);
        for (int64_t c = 0; c < pairs; c += SIDE) {
            _tile_loadd(1, q + 2 * c, step);
            _tile_loadd(2, keys + c * places + j, 4 * places);
            _tile_dpbf16ps(0, 1, 2);
        }
        _tile_stored(0, out + j, 4 * places);
    }
}

/* Sums of values by weights for SIDE queries: rows of 32 numbers. */
INSIDE_TILES void hear_tiles(const uint16_t *weights, const uint32_t *values, int64_t places, int64_t d, float *out) {
    WRITTEN;
    _tile_zero(0);
    _tile_zero(1);
    for (int64_t j = 0; j < places; j += 2 * SIDE) {
        _tile_loadd(2, weights + j, 2 * places);
        _tile_loadd(3, values + j / 2 * d, 4 * d);
        _tile_dpbf16ps(0, 2, 3);
        _tile_loadd(4, values + j / 2 * d + 16, 4 * d);
        _tile_dpbf16ps(1, 2, 4);
    }
    _tile_stored(0, out, 128);
    _tile_stored(1, out + 16, 128);
}

/* As attend_head. There are ``places`` for a whole number of pairs of tiles; d is a multiple of 32. */
INSIDE_TILES void attend_head_in_tiles(const Attention *a, int64_t start, int64_t length, int64_t head, char *room) {
    int64_t d = a->d, step = 3 * a->heads * d, places = (length + 31) / 32 * 32, scored = (length + 15) / 16 * 16;
    uint32_t *keys = (uint32_t *)room, *values = keys + d / 2 * places;
    float *scores = (float *)(values + places / 2 * d), sums[SIDE * 32] __attribute__((aligned(64))), by[SIDE];
    uint16_t *weights = (uint16_t *)(scores + SIDE * places), *last = weights + SIDE * places;
    const uint16_t *q = a->qkv + start * step + head * d;
    lay_out(q + step / 3, step, length, places, d, keys, values);
    if (scored < places) /* the last pair of tiles is half full: its second half counts for nothing */
        for (int r = 0; r < SIDE; r++)
            _mm256_storeu_si256((__m256i *)(weights + r * places + scored), _mm256_setzero_si256());
    for (int64_t first = 0; first < length; first += SIDE) {
        const float *bias = a->bias ? a->bias + head * a->stride + a->centre - first : NULL;
        int tall = length - first < SIDE ? (int)(length - first) : SIDE;
        const uint16_t *asked = q + first * step;
        if (tall < SIDE) { /* behind the last query may be the end of the memory */
            memset(last, 0, (size_t)(SIDE * d * 2));
            for (int r = 0; r < tall; r++) memcpy(last + r * d, asked + r * step, (size_t)(d * 2));
        }
        score_tiles(tall < SIDE ? last : asked, 2 * (tall < SIDE ? d : step), keys, length, places, d / 2, bias, scores);
        for (int r = 0; r < tall; r++) by[r] = weigh(scores + r * places, length, scored, weights + r * places);
        for (int64_t i = 0; i < d; i += 32) {
            hear_tiles(weights, values + i, places, d, sums);
            for (int r = 0; r < tall; r++) {
                uint16_t *out = a->out + ((start + first + r) * a->heads + head) * d + i;
                __m512 scale = _mm512_set1_ps(by[r]);
                to_bf16(out, _mm512_mul_ps(_mm512_load_ps(sums + 32 * r), scale));
                to_bf16(out + 16, _mm512_mul_ps(_mm512_load_ps(sums + 32 * r + 16), scale));
            }
        }
    }
}

/* Returns 0 where there is no memory. */
FOR_TILES static int attend_rows_in_tiles(const Attention *a) {
    Tiles before;
    size_t places = (size_t)(longest(a->ends, a->rows) + 31) / 32 * 32;
    char *room = calloc(1, places * (size_t)(4 * a->d + 6 * SIDE) + (size_t)(SIDE * a->d * 2) + 64);
    if (room == NULL) return 0;
    open_tiles(&before);
    for (int64_t row = 0; row < a->rows; row++)
        for (int64_t head = 0; head < a->heads; head++)
            attend_head_in_tiles(a, a->ends[row], a->ends[row + 1] - a->ends[row], head, room);
    close_tiles(&before);
    free(room);
    return 1;
}
#endif

/* -------- one query a head */

#define FEW 4 /* heads, and tokens, that are looked at together */

typedef struct {
    const uint16_t *queries, *x; /* (rows, heads, width), (tokens, width) */
    const int64_t *ends;         /* (rows + 1) */
    int64_t rows, heads, width;
    uint16_t *out; /* (rows, heads, width) */
} Once;

INSIDE void score_once(const uint16_t *const *q, const uint16_t *x, int64_t length, int64_t width, int64_t places,
                       float *scores) {
    for (int64_t j = 0; j < length; j += FEW) {
        const uint16_t *token[FEW];
        __m512 c[FEW][FEW];
        UNROLL for (int i = 0; i < FEW; i++) token[i] = x + (j + i < length ? j + i : length - 1) * width;
        UNROLL for (int r = 0; r < FEW; r++)
            UNROLL for (int i = 0; i < FEW; i++) c[r][i] = _mm512_setzero_ps();
        for (int64_t s = 0; s < width; s += 32) {
            __m512i b[FEW];
            UNROLL for (int i = 0; i < FEW; i++) b[i] = _mm512_loadu_si512(token[i] + s);
            UNROLL for (int r = 0; r < FEW; r++) {
                __m512i a = _mm512_loadu_si512(q[r] + s);
                UNROLL for (int i = 0; i < FEW; i++) DOT_BF16(c[r][i], a, b[i]);
            }
        }
        UNROLL for (int r = 0; r < FEW; r++)
            UNROLL for (int i = 0; i < FEW; i++)
                scores[r * places + j + i] = 1.44269504f * _mm512_reduce_add_ps(c[r][i]);
    }
}

/* Scores to weights that sum to 1, in place; 0 behind the last. */
INSIDE void weigh_once(float *scores, int64_t length, int64_t places) {
    __m512 most = _mm512_set1_ps(-3.0e38f), sum = _mm512_setzero_ps();
    __mmask16 last = (__mmask16)(0xffff >> (places - length));
    for (int64_t j = 0; j < places; j += 16)
        most = _mm512_mask_max_ps(most, j + 16 < places ? 0xffff : last, most, _mm512_loadu_ps(scores + j));
    most = _mm512_set1_ps(_mm512_reduce_max_ps(most));
    for (int64_t j = 0; j < places; j += 16) {
        __m512 y = exp2_(_mm512_sub_ps(_mm512_loadu_ps(scores + j), most));
        y = _mm512_maskz_mov_ps(j + 16 < places ? 0xffff : last, y);
        sum = _mm512_add_ps(sum, y);
        _mm512_storeu_ps(scores + j, y);
    }
    __m512 by = _mm512_set1_ps(1.0f / _mm512_reduce_add_ps(sum));
    for (int64_t j = 0; j < places; j += 16)
        _mm512_storeu_ps(scores + j, _mm512_mul_ps(_mm512_loadu_ps(scores + j), by));
}

INSIDE void hear_once(const int64_t heads, const float *weights, const uint16_t *x, int64_t length, int64_t width,
                      int64_t places, uint16_t *out) {
    for (int64_t i = 0; i < width; i += 32) {
        __m512 c[FEW][2];
        UNROLL for (int r = 0; r < FEW; r++) c[r][0] = c[r][1] = _mm512_setzero_ps();
        for (int64_t j = 0; j < length; j++) {
            __m512 low = from_bf16(x + j * width + i), high = from_bf16(x + j * width + i + 16);
            UNROLL for (int r = 0; r < FEW; r++) {
                __m512 weight = _mm512_set1_ps(weights[r * places + j]);
                c[r][0] = _mm512_fmadd_ps(weight, low, c[r][0]);
                c[r][1] = _mm512_fmadd_ps(weight, high, c[r][1]);
            }
        }
        UNROLL for (int r = 0; r < FEW; r++)
            if (r < heads) {
                to_bf16(out + r * width + i, c[r][0]);
                to_bf16(out + r * width + i + 16, c[r][1]);
            }
    }
}

/* Returns 0 where there is no memory. */
FOR static int once_rows(const Once *o) {
    float *scores = calloc((size_t)(FEW * (longest(o->ends, o->rows) + 16)), sizeof(float));
    if (scores == NULL) return 0;
    for (int64_t row = 0; row < o->rows; row++) {
        int64_t length = o->ends[row + 1] - o->ends[row], places = (length + 15) / 16 * 16;
        const uint16_t *x = o->x + o->ends[row] * o->width;
        for (int64_t head = 0; head < o->heads; head += FEW) {
            const uint16_t *q[FEW];
            int64_t first = (row * o->heads + head) * o->width, heads = o->heads - head;
            for (int r = 0; r < FEW; r++) q[r] = o->queries + first + (r < heads ? r : heads - 1) * o->width;
            score_once(q, x, length, o->width, places, scores);
            for (int r = 0; r < FEW; r++) weigh_once(scores + r * places, length, places);
            hear_once(heads, scores, x, length, o->width, places, o->out + first);
        }
    }
    free(scores);
    return 1;
}

typedef struct {
    const uint16_t *queries, *keys, *values; /* (rows, heads, d); (tokens, step), a head's d numbers side by side */
    const int64_t *ends;                     /* (rows + 1) */
    int64_t rows, heads, d, step, most;      /* most: tokens of a row that are heard, from its first */
    uint16_t *out;                           /* (rows, heads, d) */
} First;

INSIDE void first_head(const First *o, const uint16_t *q, int64_t start, int64_t length, float *scores, uint16_t *out) {
    for (int64_t j = 0; j < length; j++) {
        const uint16_t *key = o->keys + start + j * o->step;
        __m512 c = _mm512_setzero_ps();
        for (int64_t i = 0; i < o->d; i += 16) c = _mm512_fmadd_ps(from_bf16(q + i), from_bf16(key + i), c);
        scores[j] = 1.44269504f * _mm512_reduce_add_ps(c);
    }
    weigh_once(scores, length, (length + 15) / 16 * 16);
    for (int64_t i = 0; i < o->d; i += 16) {
        const uint16_t *value = o->values + start + i;
        __m512 c = _mm512_setzero_ps();
        for (int64_t j = 0; j < length; j++)
            c = _mm512_fmadd_ps(_mm512_set1_ps(scores[j]), from_bf16(value + j * o->step), c);
        to_bf16(out + i, c);
    }
}

/* Returns 0 where there is no memory. */
FOR static int first_rows(const First *o) {
    float *scores = calloc((size_t)(longest(o->ends, o->rows) + 16), sizeof(float));
    if (scores == NULL) return 0;
    for (int64_t row = 0; row < o->rows; row++) {
        int64_t start = o->ends[row], length = o->ends[row + 1] - start;
        if (length > o->most) length = o->most;
        for (int64_t head = 0; head < o->heads; head++) {
            int64_t at = (row * o->heads + head) * o->d;
            first_head(o, o->queries + at, start * o->step + head * o->d, length, scores, o->out + at);
        }
    }
    free(scores);
    return 1;
}

/* -------- rotary positions */

/* Pairs of numbers of each head are complex numbers, and are multiplied by those of the token's circle (d). */
FOR static void turn_rows(uint16_t *x, const float *circle, int64_t rows, int64_t step, int64_t heads, int64_t d) {
    __m512 one = _mm512_set1_ps(1.0f);
    for (int64_t row = 0; row < rows; row++, x += step, circle += d)
        for (int64_t i = 0; i < d; i += 16) {
            __m512 by = _mm512_loadu_ps(circle + i), real = _mm512_moveldup_ps(by), other = _mm512_movehdup_ps(by);
            for (int64_t head = 0; head < heads; head++) {
                __m512 own = from_bf16(x + head * d + i), turned = _mm512_permute_ps(own, 0xb1);
                /* each product is rounded before they are added, as complex numbers are multiplied elsewhere */
                own = _mm512_fmaddsub_ps(one, _mm512_mul_ps(own, real), _mm512_mul_ps(turned, other));
                to_bf16(x + head * d + i, own);
            }
        }
}
#endif

/* -------- the Python interface */

PyDoc_STRVAR(supported_doc, "supported()\n\nTell whether this processor has the instructions this file is made of.");

static PyObject *supported(PyObject *self, PyObject *args) {
    int has = 0;
#if QUICK
    has = processor_has(AVX512_AI);
#endif
    return PyBool_FromLong(has);
}

PyDoc_STRVAR(use_tiles_doc,
             "use_tiles(on)\n\n"
             "Compute with AMX, or without; tell whether it is used: not where system or processor lack it.");

static PyObject *use_tiles(PyObject *self, PyObject *args) {
    int on, used = 0;
    if (!PyArg_ParseTuple(args, "p", &on)) return NULL;
#if TILES
    used = tiles = on && ask_for_tiles();
#endif
    return PyBool_FromLong(used);
}

#if QUICK
PyDoc_STRVAR(product_doc,
             "product(type, activation, into, rows, scales, sums, weight, weight_scale, bias, out, count, steps,\n"
             "        columns)\n\n"
             "Multiply ``count`` rows by a packed weight. Addresses of what is not there are 0.");

static PyObject *product(PyObject *self, PyObject *args) {
    int type;
    Product p;
    Address rows, scales, sums, weight, weight_scale, bias, out;
    int memory = 1;
    if (!PyArg_ParseTuple(args, "iiiKKKKKKKLLL", &type, &p.activation, &p.into, &rows, &scales, &sums, &weight,
                          &weight_scale, &bias, &out, &p.count, &p.steps, &p.columns))
        return NULL;
    p.rows = AT(uint8_t, rows);
    p.weight = AT(uint8_t, weight);
    p.row_scale = AT(float, scales);
    p.row_sum = AT(int32_t, sums);
    p.weight_scale = AT(float, weight_scale);
    p.bias = AT(float, bias);
    p.out = AT(void, out);
    Py_BEGIN_ALLOW_THREADS;
#if TILES
    if (tiles && p.steps % TILE_STEPS == 0) memory = multiply_in_tiles(&p, type);
    else
#endif
        if (type == INT8) multiply_int8(&p);
        else multiply_bf16(&p);
    Py_END_ALLOW_THREADS;
    return finished(memory);
}

PyDoc_STRVAR(attend_doc,
             "attend(qkv, ends, rows, heads, d, bias, stride, centre, out)\n\n"
             "Let every token hear its own row; scores are in base 2.");

static PyObject *attend(PyObject *self, PyObject *args) {
    Attention a;
    Address qkv, ends, bias, out;
    int memory;
    if (!PyArg_ParseTuple(args, "KKLLLKLLK", &qkv, &ends, &a.rows, &a.heads, &a.d, &bias, &a.stride, &a.centre, &out))
        return NULL;
    a.qkv = AT(uint16_t, qkv);
    a.ends = AT(int64_t, ends);
    a.bias = AT(float, bias);
    a.out = AT(uint16_t, out);
    Py_BEGIN_ALLOW_THREADS;
#if TILES
    if (tiles && a.d % 32 == 0) memory = attend_rows_in_tiles(&a);
    else
#endif
        memory = attend_rows(&a);
    Py_END_ALLOW_THREADS;
    return finished(memory);
}

PyDoc_STRVAR(attend_once_doc,
             "attend_once(queries, x, ends, rows, heads, width, out)\n\n"
             "Let one query a head hear its row, keys and values being the row itself.");

static PyObject *attend_once(PyObject *self, PyObject *args) {
    Once o;
    Address queries, x, ends, out;
    int memory;
    if (!PyArg_ParseTuple(args, "KKKLLLK", &queries, &x, &ends, &o.rows, &o.heads, &o.width, &out)) return NULL;
    o.queries = AT(uint16_t, queries);
    o.x = AT(uint16_t, x);
    o.ends = AT(int64_t, ends);
    o.out = AT(uint16_t, out);
    Py_BEGIN_ALLOW_THREADS;
    memory = once_rows(&o);
    Py_END_ALLOW_THREADS;
    return finished(memory);
}

PyDoc_STRVAR(attend_first_doc,
             "attend_first(queries, keys, values, ends, rows, heads, d, step, most, out)\n\n"
             "Let one query a head hear its row.");

static PyObject *attend_first(PyObject *self, PyObject *args) {
    First o;
    Address queries, keys, values, ends, out;
    int memory;
    if (!PyArg_ParseTuple(args, "KKKKLLLLLK", &queries, &keys, &values, &ends, &o.rows, &o.heads, &o.d, &o.step,
                          &o.most, &out))
        return NULL;
    o.queries = AT(uint16_t, queries);
    o.keys = AT(uint16_t, keys);
    o.values = AT(uint16_t, values);
    o.ends = AT(int64_t, ends);
    o.out = AT(uint16_t, out);
    Py_BEGIN_ALLOW_THREADS;
    memory = first_rows(&o);
    Py_END_ALLOW_THREADS;
    return finished(memory);
}

PyDoc_STRVAR(turn_doc, "turn(x, circle, rows, step, heads, d)\n\nTurn the first heads of rows by their circles, in place.");

static PyObject *turn(PyObject *self, PyObject *args) {
    Address x, circle;
    long long rows, step, heads, d;
    if (!PyArg_ParseTuple(args, "KKLLLL", &x, &circle, &rows, &step, &heads, &d)) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    turn_rows(AT(uint16_t, x), AT(float, circle), rows, step, heads, d);
    Py_END_ALLOW_THREADS;
    return finished(1);
}

PyDoc_STRVAR(norm_doc,
             "norm(type, x, gain, shift, eps, count, width, out, scales, sums)\n\n"
             "Normalise rows of float32 and round the result; with a gain, x itself is normalised too.");

static PyObject *norm(PyObject *self, PyObject *args) {
    Norm n;
    Address x, gain, shift, out, scales, sums;
    if (!PyArg_ParseTuple(args, "iKKKfLLKKK", &n.type, &x, &gain, &shift, &n.eps, &n.count, &n.width, &out, &scales,
                          &sums))
        return NULL;
    n.x = AT(float, x);
    n.gain = AT(float, gain);
    n.shift = AT(float, shift);
    n.out = AT(void, out);
    n.scales = AT(float, scales);
    n.sums = AT(int32_t, sums);
    Py_BEGIN_ALLOW_THREADS;
    norm_rows(&n);
    Py_END_ALLOW_THREADS;
    return finished(1);
}

PyDoc_STRVAR(quantise_doc, "quantise(x, count, width, out, scales, sums)\n\nRound rows of bf16 to int8.");

static PyObject *quantise(PyObject *self, PyObject *args) {
    Address x, out, scales, sums;
    long long count, width;
    if (!PyArg_ParseTuple(args, "KLLKKK", &x, &count, &width, &out, &scales, &sums)) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    quantise_rows(AT(uint16_t, x), count, width, AT(int8_t, out), AT(float, scales), AT(int32_t, sums));
    Py_END_ALLOW_THREADS;
    return finished(1);
}
#endif

static PyMethodDef methods[] = {{"supported", supported, METH_NOARGS, supported_doc},
                                {"use_tiles", use_tiles, METH_VARARGS, use_tiles_doc},
#if QUICK
                                {"product", product, METH_VARARGS, product_doc},
                                {"attend", attend, METH_VARARGS, attend_doc},
                                {"attend_once", attend_once, METH_VARARGS, attend_once_doc},
                                {"attend_first", attend_first, METH_VARARGS, attend_first_doc},
                                {"turn", turn, METH_VARARGS, turn_doc},
                                {"norm", norm, METH_VARARGS, norm_doc},
                                {"quantise", quantise, METH_VARARGS, quantise_doc},
#endif
                                {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_infer", "Loops of a transformer encoder.", -1, methods,
                                    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__infer(void) { return PyModule_Create(&module); }
