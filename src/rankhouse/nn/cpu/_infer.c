/* The inner loops of a transformer encoder for x86 processors with AVX512_VNNI, those of bf16 with AVX512_BF16, too;
 * products and attention use AMX where there is that. bf16 is computed here alone; int8 has the arithmetic of _wide_loops.h,
 * sixteen numbers at once, and its bits.
 *
 * product     rows of bf16 numbers or of bytes times a weight matrix, and what follows at once: bias, activation,
 *             rounding to bf16 or adding to the residual
 * feed        two products, one after the other
 * attend      softmax attention of each row of tokens over itself, read from and written to tokens end to end
 * attend_once the same for one query a head, keys and values being the tokens themselves
 * attend_first the same for one query a head, keys and values side by side
 * turn        rotary positions: pairs of numbers times complex ones, in place
 * norm        layer norm or root mean square, and the rounding of its result
 * quantise    rows of float32 to bytes, each row with a scale of its own
 * affine      products of few rows in fp32, beside int8
 *
 * Every number of a result depends on its own row only and is summed in one fixed order, whatever rows stand
 * beside it: a score has the same bits in any batch. One thread; the interpreter's lock is let go. Tensors come
 * as addresses, their shapes are checked by infer*.py, the only callers. This file is optional: linear.py,
 * attention.py and norm.py hold the same in PyTorch. Only the limited C API is used.
 */
#include <Python.h>
#include <math.h>
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

enum { NONE, RELU, GELU, GELU_TANH, SILU }; /* activations, as infer.py and wide.py number them; SILU: of int8 */
enum { STORED, ADDED, MULTIPLIED };        /* where a product goes: =, float +=, *= */
enum { BF16, INT8 };                       /* products of which numbers; what is between them is bf16, or float */

#if QUICK

#define TALL 6   /* rows of a tile */
#define WIDE 64  /* columns of a panel: four registers */
#define BLOCK 32 /* rows and columns of four of AMX's tiles of sums */
#define NEAR 393216 /* bytes of rows that stay in the second-level cache */

/* sum += a . b in each place. As instructions, not intrinsics: compilers copy every sum before they add to it. */
#define DOT_BF16(sum, a, b) sum = _mm512_dpbf16_ps(sum, (__m512bh)(a), (__m512bh)(b))
#define DOT_INT8(sum, unsigned_, signed_) __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(unsigned_), "v"(signed_))
#define DOT_PAIRS(sum, a, b) __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b))

/* 1 / x for x >= 1. */
INSIDE __m512 inverse(__m512 x) {
    __m512 y = _mm512_rcp14_ps(x);
    return _mm512_mul_ps(y, _mm512_fnmadd_ps(x, y, _mm512_set1_ps(2.0f)));
}

#define MOST 4 /* vectors whose long chains of operations are computed side by side, each operation for all of them */
#define EACH UNROLL for (int i = 0; i < n; i++)

/* x (1 + erf(x / sqrt 2)) / 2 of n vectors with Abramowitz and Stegun's 7.1.26, absolute error of erf 1.5e-7. */
INSIDE void gelu(const int n, __m512 *x) {
    __m512 fall[MOST], t[MOST], y[MOST];
    EACH fall[i] = _mm512_mul_ps(_mm512_abs_ps(x[i]), _mm512_set1_ps(0.70710678f));
    EACH t[i] = inverse(_mm512_fmadd_ps(fall[i], _mm512_set1_ps(0.3275911f), _mm512_set1_ps(1.0f)));
    EACH fall[i] = _mm512_mul_ps(_mm512_mul_ps(fall[i], fall[i]), _mm512_set1_ps(-1.44269504f));
    EACH fall[i] = exp2_(fall[i]);
    EACH y[i] = _mm512_fmadd_ps(t[i], _mm512_set1_ps(1.061405429f), _mm512_set1_ps(-1.453152027f));
    EACH y[i] = _mm512_fmadd_ps(y[i], t[i], _mm512_set1_ps(1.421413741f));
    EACH y[i] = _mm512_fmadd_ps(y[i], t[i], _mm512_set1_ps(-0.284496736f));
    EACH y[i] = _mm512_fmadd_ps(y[i], t[i], _mm512_set1_ps(0.254829592f));
    EACH y[i] = _mm512_mul_ps(_mm512_mul_ps(y[i], t[i]), fall[i]);
    EACH y[i] = _mm512_mul_ps(y[i], _mm512_mul_ps(_mm512_abs_ps(x[i]), _mm512_set1_ps(0.5f)));
    EACH x[i] = _mm512_sub_ps(_mm512_max_ps(_mm512_setzero_ps(), x[i]), y[i]); /* NaN is kept, as above */
}

/* x / (1 + exp(-2 sqrt(2 / pi) (x + 0.044715 x^3))). */
INSIDE __m512 gelu_tanh(__m512 x) {
    __m512 cube = _mm512_fmadd_ps(_mm512_mul_ps(x, x), _mm512_set1_ps(0.044715f), _mm512_set1_ps(1.0f));
    __m512 s = _mm512_mul_ps(_mm512_mul_ps(x, cube), _mm512_set1_ps(-2.302208198f));
    s = _mm512_min_ps(_mm512_set1_ps(126.0f), s);
    return _mm512_mul_ps(x, inverse(_mm512_add_ps(exp2_(s), _mm512_set1_ps(1.0f))));
}

INSIDE void activate(const int n, __m512 *x, int activation) {
    if (activation == RELU) EACH x[i] = _mm512_max_ps(_mm512_setzero_ps(), x[i]);
    if (activation == GELU) gelu(n, x);
    if (activation == GELU_TANH) EACH x[i] = gelu_tanh(x[i]);
}

/* int8's arithmetic is that of _wide_loops.h to the bit; operators are not fused, as long as this is between them. */
INSIDE __m512 apart(__m512 product) {
    __asm__("" : "+v"(product));
    return product;
}

#define FAR _mm512_set1_ps(12582912.0f) /* numbers added to it are whole ones, in its last bits */

/* 2^x, as `power` of _wide_loops.h. */
INSIDE __m512 steady_power(__m512 x) {
    x = _mm512_max_ps(_mm512_set1_ps(-126.0f), x);
    __m512 n = (x + FAR) - FAR, f = x - n, y = _mm512_set1_ps(1.5403530e-4f);
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(1.3333558e-3f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(9.6181291e-3f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(5.5504109e-2f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(2.4022651e-1f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(6.9314718e-1f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(1.0f));
    return apart(_mm512_scalef_ps(y, n));
}

INSIDE void steady_gelu(const int n, __m512 *x) {
    __m512 z[MOST], s[MOST], p[MOST], q[MOST];
    EACH z[i] = x[i] * 0.70710678f;
    EACH z[i] = _mm512_max_ps(_mm512_set1_ps(-4.0f), _mm512_min_ps(_mm512_set1_ps(4.0f), z[i]));
    EACH s[i] = z[i] * z[i];
    EACH p[i] = _mm512_fmadd_ps(s[i], _mm512_set1_ps(-2.72614225801306e-10f), _mm512_set1_ps(2.77068142495902e-08f));
    EACH q[i] = _mm512_fmadd_ps(s[i], _mm512_set1_ps(-1.45660718464996e-05f), _mm512_set1_ps(-2.13374055278905e-04f));
    EACH p[i] = _mm512_fmadd_ps(p[i], s[i], _mm512_set1_ps(-2.10102402082508e-06f));
    EACH q[i] = _mm512_fmadd_ps(q[i], s[i], _mm512_set1_ps(-1.68282697438203e-03f));
    EACH p[i] = _mm512_fmadd_ps(p[i], s[i], _mm512_set1_ps(-5.69250639462346e-05f));
    EACH q[i] = _mm512_fmadd_ps(q[i], s[i], _mm512_set1_ps(-7.37332916720468e-03f));
    EACH p[i] = _mm512_fmadd_ps(p[i], s[i], _mm512_set1_ps(-7.34990630326855e-04f));
    EACH q[i] = _mm512_fmadd_ps(q[i], s[i], _mm512_set1_ps(-1.42647390514189e-02f));
    EACH p[i] = _mm512_fmadd_ps(p[i], s[i], _mm512_set1_ps(-2.95459980854025e-03f));
    EACH p[i] = _mm512_fmadd_ps(p[i], s[i], _mm512_set1_ps(-1.60960333262415e-02f));
    EACH p[i] = (z[i] * p[i]) / q[i];
    EACH x[i] = x[i] * 0.5f;
    EACH x[i] = _mm512_fmadd_ps(x[i], p[i], x[i]);
}

INSIDE __m512 steady_gelu_tanh(__m512 x) {
    __m512 cube = _mm512_fmadd_ps(x * x, _mm512_set1_ps(0.044715f), _mm512_set1_ps(1.0f));
    __m512 s = (x * cube) * -2.302208198f;
    return x / (steady_power(_mm512_min_ps(_mm512_set1_ps(126.0f), s)) + 1.0f);
}

INSIDE __m512 silu(__m512 x) {
    return x / (steady_power(_mm512_min_ps(_mm512_set1_ps(126.0f), x * -1.44269504f)) + 1.0f);
}

INSIDE void steady_activate(const int n, __m512 *x, int activation) {
    if (activation == RELU) EACH x[i] = _mm512_max_ps(_mm512_setzero_ps(), x[i]);
    if (activation == GELU) steady_gelu(n, x);
    if (activation == GELU_TANH) EACH x[i] = steady_gelu_tanh(x[i]);
    if (activation == SILU) EACH x[i] = silu(x[i]);
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
    int64_t out_step;              /* numbers between rows of out */
    const float *bias, *weight_scale, *row_scale;
    const int32_t *zeros; /* of int8: what a column's sum is for a row of zeros (bytes 128) */
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
            UNROLL for (int j = 0; j < 4; j++) DOT_INT8(c[r][j], a, b[j]);
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

/* Sums of ``tall`` rows from ``row`` on and of columns from ``column`` on, rows ``step`` numbers apart. */
typedef struct {
    const float *sums;
    int64_t step, row, column;
    int tall;
} Sums;

/* What follows the sums of n rows from ``row`` on, and of sixteen columns from the ``j``th on. */
INSIDE void finish_rows(const int n, const Product *p, const Sums *s, int row, int j, const int type,
                        const int activation, const int into) {
    const int64_t column = s->column + j, first = s->row + row;
    const float *sums = s->sums + row * s->step + j;
    __m512 y[MOST];
    EACH y[i] = _mm512_loadu_ps(sums + i * s->step);
    const int64_t at = first * p->out_step + column;
    if (type == INT8) {
        __m512 scale = _mm512_loadu_ps(p->weight_scale + column);
        __m512 bias = p->bias ? _mm512_loadu_ps(p->bias + column) : _mm512_setzero_ps();
        __m512i zeros = _mm512_loadu_si512(p->zeros + column);
        float *out = (float *)p->out + at;
        EACH y[i] = _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_castps_si512(y[i]), zeros)) * scale;
        EACH y[i] = apart(y[i] * _mm512_set1_ps(p->row_scale[first + i])) + bias;
        steady_activate(n, y, activation);
        if (into == ADDED) EACH y[i] = _mm512_loadu_ps(out + i * p->out_step) + y[i];
        if (into == MULTIPLIED) EACH y[i] = _mm512_loadu_ps(out + i * p->out_step) * y[i];
        EACH _mm512_storeu_ps(out + i * p->out_step, y[i]);
        return;
    }
    if (p->bias) EACH y[i] = _mm512_add_ps(y[i], _mm512_loadu_ps(p->bias + column));
    activate(n, y, activation);
    if (into == ADDED) {
        float *out = (float *)p->out + at;
        EACH _mm512_storeu_ps(out + i * p->out_step, _mm512_add_ps(_mm512_loadu_ps(out + i * p->out_step), y[i]));
        return;
    }
    uint16_t *out = (uint16_t *)p->out + at;
    if (into == MULTIPLIED) EACH y[i] = _mm512_mul_ps(y[i], from_bf16(out + i * p->out_step));
    EACH to_bf16(out + i * p->out_step, y[i]);
}

/* The same for rows before ``end``, and up to ``wide`` columns. */
INSIDE void finish(const Product *p, const Sums *s, int row, int end, int wide, const int type, const int activation,
                   const int into) {
    for (; row + MOST <= end; row += MOST)
        for (int j = 0; j < wide && s->column + j < p->columns; j += 16)
            finish_rows(MOST, p, s, row, j, type, activation, into);
    for (; row < end; row++)
        for (int j = 0; j < wide && s->column + j < p->columns; j += 16)
            finish_rows(1, p, s, row, j, type, activation, into);
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
                Sums done = {(float *)sums, WIDE, row, column, tall};
                finish(p, &done, 0, tall, WIDE, type, activation, into);
            }
        }
    }
}

#define MULTIPLY(how, name, multiply, type)                                         \
    how static void name(const Product *p) {                                        \
        if (p->into == ADDED) multiply(p, type, NONE, ADDED);                       \
        else if (p->into == MULTIPLIED) multiply(p, type, NONE, MULTIPLIED);        \
        else if (p->activation == RELU) multiply(p, type, RELU, STORED);            \
        else if (p->activation == GELU) multiply(p, type, GELU, STORED);            \
        else if (p->activation == GELU_TANH) multiply(p, type, GELU_TANH, STORED);  \
        else if (type == INT8 && p->activation == SILU) multiply(p, type, SILU, STORED); \
        else multiply(p, type, NONE, STORED);                                       \
    }
MULTIPLY(FOR, multiply_bf16, multiply, BF16)
MULTIPLY(FOR, multiply_int8, multiply, INT8)

/* -------- products of few rows in fp32, with the bits of affine_rows of _wide_loops.h */

#define COLUMNS 16 /* of a panel */

typedef struct {
    const float *x, *bias; /* (rows, inputs), (panels, COLUMNS) */
    const void *weight;    /* (panels, inputs, COLUMNS) */
    int64_t rows, inputs, panels;
    int activation, halved; /* halved: whether the weight is of bf16 */
    float *out; /* (rows, panels * COLUMNS) */
} Affine;

/* TALL rows and n panels. */
INSIDE void affine_tile(const int n, const Affine *p, const int halved, int64_t first, int64_t panel) {
    const float *x[TALL];
    __m512 c[TALL][4];
    UNROLL for (int r = 0; r < TALL; r++) {
        x[r] = p->x + (first + r < p->rows ? first + r : p->rows - 1) * p->inputs;
        UNROLL for (int j = 0; j < n; j++) c[r][j] = _mm512_loadu_ps(p->bias + (panel + j) * COLUMNS);
    }
    for (int64_t i = 0; i < p->inputs; i++) {
        __m512 w[4];
        UNROLL for (int j = 0; j < n; j++) {
            int64_t at = ((panel + j) * p->inputs + i) * COLUMNS;
            w[j] = halved ? from_bf16((const uint16_t *)p->weight + at) : _mm512_loadu_ps((const float *)p->weight + at);
        }
        UNROLL for (int r = 0; r < TALL; r++) {
            __m512 a = _mm512_set1_ps(x[r][i]);
            UNROLL for (int j = 0; j < n; j++) c[r][j] = _mm512_fmadd_ps(a, w[j], c[r][j]);
        }
    }
    UNROLL for (int r = 0; r < TALL; r++) {
        if (first + r >= p->rows) break;
        float *out = p->out + ((first + r) * p->panels + panel) * COLUMNS;
        steady_activate(n, c[r], p->activation);
        UNROLL for (int j = 0; j < n; j++) _mm512_storeu_ps(out + j * COLUMNS, c[r][j]);
    }
}

INSIDE void affine_by(const Affine *p, const int halved) {
    int64_t panel = 0;
    for (; panel + 4 <= p->panels; panel += 4)
        for (int64_t first = 0; first < p->rows; first += TALL) affine_tile(4, p, halved, first, panel);
    for (; panel < p->panels; panel++)
        for (int64_t first = 0; first < p->rows; first += TALL) affine_tile(1, p, halved, first, panel);
}

FOR static void affine_rows(const Affine *p) {
    if (p->halved) affine_by(p, 1);
    else affine_by(p, 0);
}

#if TILES
/* -------- products by AMX: tiles of 16 rows of 64 bytes. Rows and packed weights lie as tiles want them. */

#define SIDE 16       /* rows of a tile, and its columns of 4 bytes */
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
        if (type == INT8) _tile_dpbusd(sums, rows, columns);    \
        else _tile_dpbf16ps(sums, rows, columns);               \
    } while (0)

/* Sums of up to BLOCK rows by BLOCK columns; between its steps, what follows the sums before them is computed. */
INSIDE_TILES void sum_tiles(const Product *p, const int both, const uint8_t *x, const uint8_t *w, float *out,
                            const Sums *before, const int type, const int activation, const int into) {
    const int64_t row_bytes = p->steps * 4;
    const uint8_t *x2 = x + SIDE * row_bytes;
    int row = 0, some = ((int)((BLOCK * TILE_STEPS + p->steps - 1) / p->steps) + MOST - 1) / MOST * MOST;
    WRITTEN;
    _tile_zero(0);
    _tile_zero(1);
    if (both) {
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t s = 0; s < p->steps; s += TILE_STEPS, w += TILE_STEPS * 4 * WIDE, row += some) {
        _tile_loadd(6, w, 4 * WIDE);
        _tile_loadd(4, x + 4 * s, row_bytes);
        DOT_TILES(type, 0, 4, 6);
        _tile_loadd(7, w + 4 * SIDE, 4 * WIDE);
        DOT_TILES(type, 1, 4, 7);
        if (both) {
            _tile_loadd(5, x2 + 4 * s, row_bytes);
            DOT_TILES(type, 2, 5, 6);
            DOT_TILES(type, 3, 5, 7);
        }
        int end = row + some < before->tall ? row + some : before->tall;
        finish(p, before, row, end, BLOCK, type, activation, into);
    }
    _tile_stored(0, out, 4 * BLOCK);
    _tile_stored(1, out + SIDE, 4 * BLOCK);
    if (both) {
        _tile_stored(2, out + SIDE * BLOCK, 4 * BLOCK);
        _tile_stored(3, out + SIDE * BLOCK + SIDE, 4 * BLOCK);
    }
    WRITTEN;
}

INSIDE_TILES void multiply_by_tiles(const Product *p, const int type, const int activation, const int into) {
    int64_t row_bytes = p->steps * 4, block = NEAR / row_bytes / BLOCK * BLOCK, whole = p->count / BLOCK * BLOCK;
    const uint8_t *rest = p->rows + whole * row_bytes;
    if (block < BLOCK) block = BLOCK;
    float sums[2][BLOCK * BLOCK] __attribute__((aligned(64)));
    Sums done = {sums[1], BLOCK, 0, 0, 0};
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
                for (int half = 0; half < WIDE; half += BLOCK) {
                    float *out = done.sums == sums[0] ? sums[1] : sums[0];
                    if (tall > SIDE) sum_tiles(p, 1, x, w + 4 * half, out, &done, type, activation, into);
                    else sum_tiles(p, 0, x, w + 4 * half, out, &done, type, activation, into);
                    done = (Sums){out, BLOCK, row, column + half, tall};
                }
            }
        }
    }
    finish(p, &done, 0, done.tall, BLOCK, type, activation, into);
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

/* What rounds numbers of that size to ``top`` at most; scale: what 1 then stands for. */
INSIDE float set_scale(__m512i largest, float top, float *scale) {
    int32_t bits = _mm512_reduce_max_epi32(largest);
    float most;
    memcpy(&most, &bits, 4);
    *scale = most / top;
    return most > 0.0f ? top / most : 0.0f;
}

/* Rounds a row to 128 + (-127 .. 127) and gives its scale; what is not finite makes the scale NaN. */
INSIDE float round_row(const float *x, int64_t width, uint8_t *out) {
    __m512i largest = _mm512_setzero_si512();
    for (int64_t i = 0; i < width; i += 16) largest = _mm512_max_epi32(largest, size_bits(_mm512_loadu_ps(x + i)));
    int32_t bits = _mm512_reduce_max_epi32(largest);
    float scale;
    memcpy(&scale, &bits, 4);
    scale = scale < 1e-30f ? 1e-30f : scale;
    __m512 by = _mm512_set1_ps(127.0f / scale);
    for (int64_t i = 0; i < width; i += 16) {
        __m512i whole = _mm512_castps_si512(_mm512_fmadd_ps(_mm512_loadu_ps(x + i), by, FAR));
        _mm_storeu_si128((__m128i *)(out + i), _mm512_cvtepi32_epi8(_mm512_xor_si512(whole, _mm512_set1_epi32(128))));
    }
    return scale / 127.0f + 0.0f * scale;
}

FOR static void quantise_rows(const float *x, int64_t rows, int64_t width, uint8_t *out, float *scales) {
    for (int64_t row = 0; row < rows; row++) scales[row] = round_row(x + row * width, width, out + row * width);
}

/* -------- norms */

typedef struct {
    float *x;                  /* rows of width numbers; a layer norm writes its result back */
    const float *gain, *shift; /* of a layer norm; NULL for the root mean square */
    float eps;
    int64_t count, width;
    void *out; /* bf16, or bytes */
    float *scales, *room; /* of bytes; room: for a row */
} Norm;

FOR static void norm_rows(const Norm *n) {
    int64_t width = n->width;
    for (int64_t row = 0; row < n->count; row++) {
        float *x = n->x + row * width;
        __m512 sum = _mm512_setzero_ps(), squares = _mm512_setzero_ps();
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
            to_bf16((uint16_t *)n->out + row * width + i, y);
        }
    }
}

/* Eight numbers of one row, and of another. */
INSIDE __m512 of_both(const float *a, const float *b) {
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(a)), _mm256_loadu_ps(b), 1);
}

/* The totals of both halves, in all of their places. */
INSIDE __m512 totals_of_both(__m512 x) {
    x = x + _mm512_shuffle_f32x4(x, x, 0xb1);
    x = x + _mm512_permute_ps(x, 0x4e);
    return x + _mm512_permute_ps(x, 0xb1);
}

/* As norm_rows of _wide_loops.h, two rows together, whose sums are eight numbers wide. */
FOR static void norm_rows_to_bytes(const Norm *n) {
    const int64_t width = n->width;
    for (int64_t row = 0; row < n->count; row += 2) {
        const int both = row + 1 < n->count;
        float *a = n->x + row * width, *b = both ? a + width : a, means[16] = {0}, factors[16];
        __m512 sum = _mm512_setzero_ps(), squares = sum, mean = sum;
        if (n->gain) {
            for (int64_t i = 0; i < width; i += 8) sum = sum + of_both(a + i, b + i);
            _mm512_storeu_ps(means, mean = totals_of_both(sum) / (float)width);
        }
        for (int64_t i = 0; i < width; i += 8) {
            __m512 off = of_both(a + i, b + i) - mean;
            squares = _mm512_fmadd_ps(off, off, squares);
        }
        _mm512_storeu_ps(factors, 1.0f / _mm512_sqrt_ps(totals_of_both(squares) / (float)width + n->eps));
        for (int r = 0; r <= both; r++) {
            float *x = a + r * width, *out = n->gain ? x : n->room;
            for (int64_t i = 0; i < width; i += 16) {
                __m512 y = apart((_mm512_loadu_ps(x + i) - means[8 * r]) * factors[8 * r]);
                if (n->gain)
                    y = apart(y * _mm512_loadu_ps(n->gain + i)) + (n->shift ? _mm512_loadu_ps(n->shift + i) : _mm512_setzero_ps());
                _mm512_storeu_ps(out + i, y);
            }
            n->scales[row + r] = round_row(out, width, (uint8_t *)n->out + (row + r) * width);
        }
    }
}

/* -------- attention */

typedef struct {
    const void *qkv; /* (tokens, 3, heads, d), bf16 or, of int8, float */
    const int64_t *ends; /* (rows + 1) */
    int64_t rows, heads, d;
    const float *bias; /* (heads, stride): added to the score of key j for query i at [centre + j - i]; or NULL */
    int64_t stride, centre;
    void *out;     /* (tokens, heads, d) */
    int64_t first, out_step; /* token that qkv begins with; numbers between tokens of out */
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

/* 2^x for x <= 0, each factor of the polynomial times ``top``; relative error 2.6e-6 (7.5e-5 where ``rough``). */
INSIDE __m512 power(__m512 x, const int rough, const float top) {
    __m512 f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC), y; /* x less the whole number below */
    if (rough) {
        y = _mm512_fmadd_ps(f, _mm512_set1_ps(top * 7.80245212e-2f), _mm512_set1_ps(top * 2.26067158e-1f));
        y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(top * 6.95833540e-1f));
        y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(top * 9.99925219e-1f));
    } else {
        y = _mm512_fmadd_ps(f, _mm512_set1_ps(top * 1.35341677e-2f), _mm512_set1_ps(top * 5.20114609e-2f));
        y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(top * 2.41442757e-1f));
        y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(top * 6.93003835e-1f));
        y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(top * 1.00000259f));
    }
    return _mm512_scalef_ps(y, x);
}

/* The next head's queries, keys and values stand in other pages, which processors do not foresee. */
INSIDE void prefetch(const char *next, int64_t step, int64_t bytes) {
    for (int part = 0; part < 3; part++)
        for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(next + part * (step / 3) + i, 0, 2);
}

INSIDE __mmask16 before(int64_t left) { return left >= 16 ? 0xffff : left <= 0 ? 0 : (__mmask16)((1 << left) - 1); }
INSIDE __m512 or_lowest(int64_t left, __m512 x) { return _mm512_mask_mov_ps(_mm512_set1_ps(-3.0e38f), before(left), x); }

/* Words of 16 bits side by side: those of low, and those of high above them. */
INSIDE __m512i above_low(__m512i low, __m512i high) { return _mm512_mask_blend_epi16(0xaaaaaaaa, low, high); }

/* Attention in whole numbers of 16 bits: exact sums of pairs of products (VPDPWSSD), at four times the speed of bf16's
 * instruction on Intel's processors. Queries have a unit each, a head's keys one, each column of its values one, as
 * large as sums in 32 bits allow. Pairs are numbers i and i + 16 of 32; of tokens, too. */

#define TOP_WEIGHT 32766.0f /* of the largest score */
#define TOP_VALUE 1023.0f   /* 64 products with weights fit into 32 bits */
#define ADDED_PAIRS 32

typedef struct {
    int64_t length, places, d, pairs; /* places: length in whole pairs of 16; pairs: of a key's numbers */
    float top, key_unit;              /* top: of queries' and keys' numbers */
    int32_t *keys, *values, *weights, *queries;
    float *scores, *value_units;
} Head;

/* Sixteen numbers from the ``i``th on, of rows of bf16 or, of int8, float. */
INSIDE __m512 get(const int type, const void *x, int64_t i) {
    return type == BF16 ? from_bf16((const uint16_t *)x + i) : _mm512_loadu_ps((const float *)x + i);
}
INSIDE const void *from(const int type, const void *x, int64_t i) { return (const char *)x + i * (type == BF16 ? 2 : 4); }
INSIDE void put(const int type, void *x, int64_t i, __m512 y) {
    if (type == BF16) to_bf16((uint16_t *)x + i, y);
    else _mm512_storeu_ps((float *)x + i, y);
}

/* Whole numbers in the last 16 bits. */
INSIDE __m512i whole(const int type, const void *x, int64_t i, __m512 by) {
    if (type == INT8) return _mm512_castps_si512(_mm512_fmadd_ps(get(type, x, i), by, FAR));
    return _mm512_cvtps_epi32(_mm512_mul_ps(get(type, x, i), by));
}
INSIDE __m512i whole_pair(__m512i low, __m512i high) { return above_low(low, _mm512_slli_epi32(high, 16)); }

/* Pairs of up to 32 numbers. */
INSIDE __m512i row_pairs(const int type, const void *x, int64_t i, int64_t left, __m512 by) {
    return whole_pair(whole(type, x, i, by), left > 16 ? whole(type, x, i + 16, by) : _mm512_setzero_si512());
}

/* What rounds one row of numbers, or ``rows`` of them, to ``top`` at most. */
INSIDE __m512 rounder(const int type, const void *x, int64_t step, int64_t rows, int64_t d, float top, float *unit) {
    __m512i largest = _mm512_setzero_si512();
    for (int64_t j = 0; j < rows; j++)
        for (int64_t i = 0; i < d; i += 16) largest = _mm512_max_epi32(largest, size_bits(get(type, x, j * step + i)));
    return _mm512_set1_ps(set_scale(largest, top, unit));
}

/* The same for each of sixteen columns of values. */
INSIDE __m512 column_rounder(const int type, const Head *h, const void *v, int64_t step, float *units) {
    __m512i largest = _mm512_setzero_si512();
    for (int64_t j = 0; j < h->length; j++) largest = _mm512_max_epi32(largest, size_bits(get(type, v, j * step)));
    __m512 most = _mm512_castsi512_ps(largest), top = _mm512_set1_ps(TOP_VALUE);
    _mm512_storeu_ps(units, _mm512_div_ps(most, top));
    return _mm512_maskz_div_ps(_mm512_cmp_ps_mask(most, _mm512_setzero_ps(), _CMP_GT_OQ), top, most);
}

/* The largest whole number of a query or a key, with which d products fit into 32 bits: d top^2 < 2^31, which a float of
 * 2^31 - 1 is. */
INSIDE float most_of_query(int64_t d) {
    float top = floorf(sqrtf(2147480000.0f / (float)d));
    return top < 32767.0f ? top : 32767.0f;
}

/* keys: for each 32 keys, each pair of numbers; values: for each 32 columns, each pair of tokens. */
INSIDE void lay_out(const int type, Head *h, const void *k, int64_t step) {
    const void *v = from(type, k, step / 3);
    __m512 by = rounder(type, k, step, h->length, h->d, h->top, &h->key_unit);
    for (int64_t j = 0; j < h->places; j += 16)
        for (int64_t c = 0; c < h->pairs; c += 16) {
            __m512i r[16];
            int32_t *out = h->keys + j / 32 * 32 * h->pairs + j % 32 + c * 32;
            for (int i = 0; i < 16; i++)
                r[i] = j + i < h->length ? row_pairs(type, k, (j + i) * step + 2 * c, h->d - 2 * c, by)
                                         : _mm512_setzero_si512();
            transpose(r);
            for (int i = 0; i < 16; i++) _mm512_storeu_si512(out + 32 * i, r[i]);
        }
    for (int64_t i = 0; i < h->d; i += 16) {
        int wide = h->d - i / 32 * 32 > 16 ? 32 : 16;
        int32_t *out = h->values + i / 32 * 32 * (h->places / 2) + i % 32;
        by = column_rounder(type, h, from(type, v, i), step, h->value_units + i);
        for (int64_t j = 0; j < h->places; j += 32)
            for (int64_t p = j; p < j + 16; p++, out += wide) {
                __m512i low = _mm512_setzero_si512(), high = low;
                if (p < h->length) low = whole(type, v, p * step + i, by);
                if (p + 16 < h->length) high = whole(type, v, (p + 16) * step + i, by);
                _mm512_storeu_si512(out, whole_pair(low, high));
            }
    }
}

/* c[r]: sums of row r's pairs times those of 16 * wide columns. */
INSIDE void sum_pairs(const int wide, const int32_t *rows, int64_t step, const int32_t *columns, int64_t pairs,
                      __m512i c[TALL][2]) {
    UNROLL for (int r = 0; r < TALL; r++) UNROLL for (int i = 0; i < wide; i++) c[r][i] = _mm512_setzero_si512();
    for (int64_t s = 0; s < pairs; s++, columns += 16 * wide) {
        __m512i b[2];
        UNROLL for (int i = 0; i < wide; i++) b[i] = _mm512_loadu_si512(columns + 16 * i);
        UNROLL for (int r = 0; r < TALL; r++) {
            __m512i a = _mm512_set1_epi32(rows[r * step + s]);
            UNROLL for (int i = 0; i < wide; i++) DOT_PAIRS(c[r][i], a, b[i]);
        }
    }
}

/* Scores of TALL queries, their pairs in h; most: of each query, its largest ones. */
INSIDE void score(const Head *h, const float *units, const float *const *bias, __m512 most[TALL]) {
    UNROLL for (int r = 0; r < TALL; r++) most[r] = _mm512_set1_ps(-3.0e38f);
    for (int64_t j = 0; j < h->places; j += 32) {
        __m512i c[TALL][2];
        sum_pairs(2, h->queries, h->pairs, h->keys + j * h->pairs, h->pairs, c);
        UNROLL for (int r = 0; r < TALL; r++)
            UNROLL for (int i = 0; i < 2; i++) {
                __m512 added = bias[r] ? _mm512_loadu_ps(bias[r] + j + 16 * i) : _mm512_setzero_ps();
                __m512 t = _mm512_fmadd_ps(_mm512_cvtepi32_ps(c[r][i]), _mm512_set1_ps(units[r]), added);
                if (j + 32 > h->length) t = or_lowest(h->length - j - 16 * i, t);
                most[r] = _mm512_max_ps(most[r], t);
                _mm512_storeu_ps(h->scores + r * h->places + j + 16 * i, t);
            }
    }
}

/* The same for x <= 0 to the nearest whole number, in the last 16 bits; of int8 as `weight` of _wide_loops.h. */
INSIDE __m512i weight(const int type, __m512 x) {
    if (type == BF16) return _mm512_cvtps_epi32(power(x, 0, TOP_WEIGHT));
    x = _mm512_max_ps(x, _mm512_set1_ps(-30.0f));
    __m512 n = x + FAR, f = x - (n - FAR), y = _mm512_set1_ps(TOP_WEIGHT * 9.57010179e-3f);
    y = _mm512_fmadd_ps(f, y, _mm512_set1_ps(TOP_WEIGHT * 5.59178603e-2f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(TOP_WEIGHT * 2.40247448e-1f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(TOP_WEIGHT * 6.93121815e-1f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(TOP_WEIGHT * 9.99999261e-1f));
    __m512i power = _mm512_add_epi32(_mm512_castps_si512(y), _mm512_slli_epi32(_mm512_castps_si512(n), 23));
    return _mm512_castps_si512(_mm512_castsi512_ps(power) + FAR);
}

/* Weights 2^(score - largest) of pairs of tokens, and the inverse of their sum. */
INSIDE float weigh(const int type, const Head *h, int r, __m512 largest) {
    const float *scores = h->scores + r * h->places;
    __m512 most = _mm512_set1_ps(_mm512_reduce_max_ps(largest));
    __m512i sum = _mm512_setzero_si512(), ones = _mm512_set1_epi16(1);
    for (int64_t j = 0; j < h->places; j += 32) {
        __m512i low = weight(type, _mm512_sub_ps(_mm512_loadu_ps(scores + j), most));
        __m512i high = weight(type, _mm512_sub_ps(_mm512_loadu_ps(scores + j + 16), most));
        __m512i both = whole_pair(low, high);
        DOT_PAIRS(sum, both, ones);
        _mm512_storeu_si512(h->weights + (r * h->places + j) / 2, both);
    }
    return 1.0f / (float)_mm512_reduce_add_epi32(sum);
}

/* Means of 16 * wide columns of values from column i on, for TALL queries, ``tall`` of which are stored. */
INSIDE void hear(const int type, const Head *h, const int wide, int64_t i, const float *by, int tall, void *out,
                 int64_t step) {
    const int32_t *values = h->values + i * (h->places / 2);
    __m512 sums[TALL][2];
    UNROLL for (int r = 0; r < TALL; r++) UNROLL for (int w = 0; w < wide; w++) sums[r][w] = _mm512_setzero_ps();
    for (int64_t s = 0; s < h->places / 2; s += ADDED_PAIRS) {
        __m512i c[TALL][2];
        int64_t pairs = h->places / 2 - s < ADDED_PAIRS ? h->places / 2 - s : ADDED_PAIRS;
        sum_pairs(wide, h->weights + s, h->places / 2, values + s * 16 * wide, pairs, c);
        UNROLL for (int r = 0; r < TALL; r++)
            UNROLL for (int w = 0; w < wide; w++) sums[r][w] = _mm512_add_ps(sums[r][w], _mm512_cvtepi32_ps(c[r][w]));
    }
    UNROLL for (int w = 0; w < wide; w++) {
        __m512 unit = _mm512_loadu_ps(h->value_units + i + 16 * w);
        UNROLL for (int r = 0; r < TALL; r++)
            if (r < tall)
                put(type, out, r * step + i + 16 * w,
                    _mm512_mul_ps(sums[r][w], _mm512_mul_ps(unit, _mm512_set1_ps(by[r]))));
    }
}

/* 0, or NaN where a number of a head's bias is not finite. */
INSIDE float oddness(const float *bias, int64_t length) {
    __m512 odd = _mm512_setzero_ps();
    for (int64_t j = 0; j < length; j += 16)
        odd = _mm512_fmadd_ps(_mm512_setzero_ps(), _mm512_maskz_loadu_ps(before(length - j), bias + j), odd);
    return _mm512_reduce_add_ps(odd);
}

INSIDE void attend_head(const int type, const Attention *a, int64_t start, int64_t length, int64_t head, Head *h) {
    int64_t step = 3 * a->heads * a->d, size = type == BF16 ? 2 : 4;
    const void *q = from(type, a->qkv, (start - a->first) * step + head * a->d);
    const float *table = a->bias ? a->bias + head * a->stride + a->centre : NULL;
    float odd = table ? oddness(table - length, 2 * length) : 0.0f;
    h->length = length, h->places = (length + 31) / 32 * 32;
    lay_out(type, h, from(type, q, step / 3), step);
    for (int64_t first = 0; first < length; first += TALL) {
        int tall = length - first < TALL ? (int)(length - first) : TALL;
        const float *bias[TALL];
        float by[TALL], units[TALL];
        __m512 most[TALL];
        for (int r = 0; r < TALL; r++) {
            int64_t query = first + (r < tall ? r : tall - 1);
            const void *x = from(type, q, query * step);
            prefetch(from(type, x, a->d), step * size, a->d * size);
            __m512 to_whole = rounder(type, x, 0, 1, a->d, h->top, units + r);
            for (int64_t c = 0; c < h->pairs; c += 16)
                _mm512_storeu_si512(h->queries + r * h->pairs + c, row_pairs(type, x, 2 * c, a->d - 2 * c, to_whole));
            units[r] *= h->key_unit;
            bias[r] = table ? table - query : NULL;
        }
        score(h, units, bias, most);
        for (int r = 0; r < TALL; r++) by[r] = weigh(type, h, r, most[r]) + (0.0f * units[r] + odd);
        void *out = (char *)a->out + ((start + first) * a->out_step + head * a->d) * size;
        for (int64_t i = 0; i < a->d; i += 32)
            if (a->d - i > 16) hear(type, h, 2, i, by, tall, out, a->out_step);
            else hear(type, h, 1, i, by, tall, out, a->out_step);
    }
}

FOR static void attend_bf16(const Attention *a, int64_t start, int64_t length, int64_t head, Head *h) {
    attend_head(BF16, a, start, length, head, h);
}
FOR static void attend_int8(const Attention *a, int64_t start, int64_t length, int64_t head, Head *h) {
    attend_head(INT8, a, start, length, head, h);
}

static int64_t longest(const int64_t *ends, int64_t rows) {
    int64_t most = 0;
    for (int64_t row = 0; row < rows; row++)
        if (ends[row + 1] - ends[row] > most) most = ends[row + 1] - ends[row];
    return most;
}

/* Returns 0 where there is no memory. */
FOR static int attend_rows_in_pairs(const Attention *a, int type) {
    size_t places = (size_t)(longest(a->ends, a->rows) + 31) / 32 * 32, d = (size_t)a->d, pairs = (d + 31) / 32 * 16;
    Head h = {.d = a->d, .pairs = (int64_t)pairs, .top = most_of_query(a->d)};
    char *room = malloc(4 * (places * (pairs + d / 2 + TALL / 2 + TALL) + TALL * pairs + d) + 64);
    if (room == NULL) return 0;
    h.keys = (int32_t *)(((uintptr_t)room + 63) / 64 * 64), h.values = h.keys + places * pairs;
    h.weights = h.values + places / 2 * d, h.scores = (float *)(h.weights + TALL * places / 2);
    h.queries = (int32_t *)(h.scores + TALL * places), h.value_units = (float *)(h.queries + TALL * pairs);
    for (int64_t row = 0; row < a->rows; row++)
        for (int64_t head = 0; head < a->heads; head++)
            (type == INT8 ? attend_int8 : attend_bf16)(a, a->ends[row], a->ends[row + 1] - a->ends[row], head, &h);
    free(room);
    return 1;
}

#if TILES
#define TILE_WORDS 256 /* of 4 bytes; tiles lie one behind the other */

typedef struct {
    int64_t length, places, d; /* places: for a whole number of pairs of tiles */
    uint32_t *keys, *values, *weights;
    float *scores;
    uint16_t *last; /* queries of the last tiles: behind them may be the end of the memory */
} TileHead;

/* keys: for each 16 keys, tiles of 16 pairs of numbers; values: for each 32 tokens, tiles of 16 columns, a row being
 * numbers of tokens i and i + 16. */
INSIDE_TILES void lay_out_tiles(const TileHead *h, const uint16_t *k, int64_t step) {
    const uint16_t *v = k + step / 3;
    uint32_t *keys = h->keys, *values = h->values;
    for (int64_t j = 0; j < h->places; j += SIDE)
        for (int64_t c = 0; c < h->d; c += 2 * SIDE, keys += TILE_WORDS) {
            __m512i r[SIDE];
            for (int i = 0; i < SIDE; i++)
                r[i] = j + i < h->length ? _mm512_loadu_si512(k + (j + i) * step + c) : _mm512_setzero_si512();
            transpose(r);
            for (int i = 0; i < SIDE; i++) _mm512_storeu_si512(keys + SIDE * i, r[i]);
        }
    for (int64_t j = 0; j < h->places; j += 2 * SIDE)
        for (int64_t i = 0; i < h->d; i += SIDE)
            for (int64_t p = j; p < j + SIDE; p++, values += SIDE) {
                __m512i low = _mm512_setzero_si512(), high = low;
                if (p < h->length) low = _mm512_castps_si512(from_bf16(v + p * step + i));
                if (p + SIDE < h->length) high = _mm512_castps_si512(from_bf16(v + (p + SIDE) * step + i));
                _mm512_storeu_si512(values, above_low(_mm512_srli_epi32(low, 16), high));
            }
}

/* Up to BLOCK queries, ``step`` bytes apart. */
typedef struct {
    const uint16_t *x;
    int64_t step;
    const float *bias; /* of the first one; each next one's begins one number before; or NULL */
    int tall;
} Queries;

/* Scores of the keys from the ``j``th on, in tiles: of the first queries two, of the second ones two. */
INSIDE_TILES void score_tiles(const TileHead *h, const Queries *q, int64_t j, float *scores) {
    const uint32_t *keys = h->keys + j * h->d / 2, *next = keys + h->d / 2 * SIDE;
    const uint16_t *second = q->x + SIDE * q->step / 2;
    const int both = q->tall > SIDE;
    WRITTEN;
    if (q->bias) {
        _tile_loadd(0, q->bias + j, -4);
        _tile_loadd(1, q->bias + j + SIDE, -4);
        if (both) _tile_loadd(2, q->bias + j - SIDE, -4);
        if (both) _tile_loadd(3, q->bias + j, -4);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t c = 0; c < h->d; c += 2 * SIDE, keys += TILE_WORDS, next += TILE_WORDS) {
        const int again = j == 0 || h->d > 2 * SIDE;
        if (again) _tile_loadd(4, q->x + c, q->step);
        _tile_loadd(6, keys, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, next, 64);
        _tile_dpbf16ps(1, 4, 7);
        if (!both) continue;
        if (again) _tile_loadd(5, second + c, q->step);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, scores, 64);
    _tile_stored(1, scores + TILE_WORDS, 64);
    if (both) _tile_stored(2, scores + 2 * TILE_WORDS, 64);
    if (both) _tile_stored(3, scores + 3 * TILE_WORDS, 64);
    WRITTEN;
}

/* Each query's largest score; scores of keys that are not there become the lowest. */
INSIDE_TILES void score_all(const TileHead *h, const Queries *q, float *most) {
    __m512 largest[BLOCK];
    for (int r = 0; r < q->tall; r++) largest[r] = _mm512_set1_ps(-3.0e38f);
    score_tiles(h, q, 0, h->scores);
    for (int64_t j = 0; j < h->places; j += BLOCK) {
        if (j + BLOCK < h->places) score_tiles(h, q, j + BLOCK, h->scores + (j + BLOCK) * BLOCK);
        float *scores = h->scores + j * BLOCK;
        for (int r = 0; r < q->tall; r++, scores += r % SIDE ? SIDE : TILE_WORDS + SIDE) {
            __m512 low = _mm512_load_ps(scores), high = _mm512_load_ps(scores + TILE_WORDS);
            if (j + BLOCK > h->length) {
                _mm512_store_ps(scores, low = or_lowest(h->length - j, low));
                _mm512_store_ps(scores + TILE_WORDS, high = or_lowest(h->length - j - SIDE, high));
            }
            largest[r] = _mm512_max_ps(_mm512_max_ps(largest[r], low), high);
        }
    }
    for (int r = 0; r < q->tall; r++) most[r] = _mm512_reduce_max_ps(largest[r]);
}

/* Weights of all keys in bf16, and the inverse of each query's sum. */
INSIDE_TILES void weigh_tiles(const TileHead *h, const Queries *q, const float *most, float *by) {
    __m512 sums[BLOCK];
    __m512i half = _mm512_set1_epi32(0x8000);
    for (int r = 0; r < q->tall; r++) sums[r] = _mm512_setzero_ps();
    for (int64_t j = 0; j < h->places; j += BLOCK) {
        const float *scores = h->scores + j * BLOCK;
        for (int r = 0; r < q->tall; r++, scores += r % SIDE ? SIDE : TILE_WORDS + SIDE) {
            __m512 top = _mm512_set1_ps(most[r]);
            __m512 low = power(_mm512_sub_ps(_mm512_load_ps(scores), top), 1, 1.0f);
            __m512 high = power(_mm512_sub_ps(_mm512_load_ps(scores + TILE_WORDS), top), 1, 1.0f);
            sums[r] = _mm512_add_ps(sums[r], _mm512_add_ps(low, high));
            __m512i upper = _mm512_add_epi32(_mm512_castps_si512(high), half);
            __m512i lower = _mm512_srli_epi32(_mm512_add_epi32(_mm512_castps_si512(low), half), 16);
            _mm512_storeu_si512(h->weights + (j + r) * SIDE, above_low(lower, upper));
        }
    }
    for (int r = 0; r < q->tall; r++) by[r] = 1.0f / _mm512_reduce_add_ps(sums[r]);
}

/* Sums of BLOCK columns of values from column i on, for up to BLOCK queries. */
INSIDE_TILES void hear_tiles(const TileHead *h, const int both, int64_t i, float *out) {
    WRITTEN;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t j = 0; j < h->places; j += BLOCK) {
        const uint32_t *values = h->values + (j / 2 * h->d + i * SIDE);
        _tile_loadd(4, h->weights + j * SIDE, 64);
        _tile_loadd(6, values, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, values + TILE_WORDS, 64);
        _tile_dpbf16ps(1, 4, 7);
        if (!both) continue;
        _tile_loadd(5, h->weights + j * SIDE + TILE_WORDS, 64);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, out, 4 * BLOCK);
    _tile_stored(1, out + SIDE, 4 * BLOCK);
    if (both) _tile_stored(2, out + SIDE * BLOCK, 4 * BLOCK);
    if (both) _tile_stored(3, out + SIDE * BLOCK + SIDE, 4 * BLOCK);
    WRITTEN;
}

/* As attend_head; d is a multiple of 32. */
INSIDE_TILES void attend_head_in_tiles(const Attention *a, int64_t start, int64_t length, int64_t head, TileHead *h) {
    int64_t d = a->d, step = 3 * a->heads * d;
    float sums[BLOCK * BLOCK] __attribute__((aligned(64))), most[BLOCK], by[BLOCK];
    const uint16_t *x = (const uint16_t *)a->qkv + (start - a->first) * step + head * d;
    h->length = length, h->places = (length + 31) / 32 * 32;
    lay_out_tiles(h, x + step / 3, step);
    for (int64_t first = 0; first < length; first += BLOCK) {
        const float *bias = a->bias ? a->bias + head * a->stride + a->centre - first : NULL;
        int tall = length - first < BLOCK ? (int)(length - first) : BLOCK;
        Queries q = {x + first * step, 2 * step, bias, tall};
        if (tall % SIDE) {
            memset(h->last, 0, (size_t)(BLOCK * d * 2));
            for (int r = 0; r < tall; r++) memcpy(h->last + r * d, q.x + r * step, (size_t)(d * 2));
            q.x = h->last, q.step = 2 * d;
        }
        for (int r = 0; r < tall; r++) prefetch((const char *)(x + (first + r) * step + d), 2 * step, 2 * d);
        score_all(h, &q, most);
        weigh_tiles(h, &q, most, by);
        for (int64_t i = 0; i < d; i += BLOCK) {
            hear_tiles(h, tall > SIDE, i, sums);
            for (int r = 0; r < tall; r++) {
                uint16_t *out = (uint16_t *)a->out + (start + first + r) * a->out_step + head * d + i;
                __m512 scale = _mm512_set1_ps(by[r]);
                to_bf16(out, _mm512_mul_ps(_mm512_load_ps(sums + BLOCK * r), scale));
                to_bf16(out + SIDE, _mm512_mul_ps(_mm512_load_ps(sums + BLOCK * r + SIDE), scale));
            }
        }
    }
}

/* int8's attention by tiles of bytes, with the sums of attend_head: a number of 16 bits is 256 times a byte and another,
 * signed byte, and its products are those of both. */

#define DEEP 64 /* bytes of a row of tiles: both of 32 numbers of a query, or one of 64 tokens' weights */

/* 2^16 high + 2^8 middle + low, three tiles. */
INSIDE __m512i join(const int32_t *sums, int r) {
    __m512i low = _mm512_load_si512(sums + SIDE * r), middle = _mm512_load_si512(sums + TILE_WORDS + SIDE * r);
    __m512i high = _mm512_load_si512(sums + 2 * TILE_WORDS + SIDE * r);
    return _mm512_add_epi32(_mm512_add_epi32(low, _mm512_slli_epi32(middle, 8)), _mm512_slli_epi32(high, 16));
}

/* Both bytes of 32 numbers, in the last 16 bits of two vectors: first the high ones. */
INSIDE __m512i bytes_of(__m512i a, __m512i b) {
    __m512i half = _mm512_set1_epi32(128);
    __m512i y = _mm512_castsi128_si512(_mm512_cvtepi32_epi8(_mm512_srli_epi32(_mm512_add_epi32(a, half), 8)));
    y = _mm512_inserti32x4(y, _mm512_cvtepi32_epi8(_mm512_srli_epi32(_mm512_add_epi32(b, half), 8)), 1);
    y = _mm512_inserti32x4(y, _mm512_cvtepi32_epi8(a), 2);
    return _mm512_inserti32x4(y, _mm512_cvtepi32_epi8(b), 3);
}

/* The same of numbers of four vectors, side by side in one place; ``both``: the words of two and two. */
INSIDE void interleave(const __m512i n[4], const int is_signed, __m512i both[2], __m512i *high, __m512i *low) {
    __m512i even = _mm512_set1_epi16(0x00ff), ab, cd;
    ab = both[0] = above_low(n[0], _mm512_slli_epi32(n[1], 16));
    cd = both[1] = above_low(n[2], _mm512_slli_epi32(n[3], 16));
    *low = _mm512_ternarylogic_epi32(even, ab, _mm512_slli_epi16(cd, 8), 0xca);
    if (is_signed) ab = _mm512_add_epi16(ab, _mm512_set1_epi16(128)), cd = _mm512_add_epi16(cd, _mm512_set1_epi16(128));
    *high = _mm512_ternarylogic_epi32(even, _mm512_srli_epi16(ab, 8), cd, 0xca);
}

/* keys: for each 16 keys, a tile for 32 numbers; values: for each 16 columns and 64 tokens, two tiles, the high bytes
 * first. Tokens i, i + 32, i + 16 and i + 48 are one word. */
INSIDE_TILES void lay_out_bytes(Head *h, const float *k, int64_t step) {
    const float *v = k + step / 3;
    int32_t *keys = h->keys, *values = h->values;
    __m512 by = rounder(INT8, k, step, h->length, h->d, h->top, &h->key_unit);
    for (int64_t j = 0; j < h->length; j += SIDE)
        for (int64_t c = 0; c < h->d; c += 32, keys += TILE_WORDS) {
            __m512i r[SIDE];
            for (int i = 0; i < SIDE; i++) {
                int64_t at = (j + i) * step + c;
                r[i] = _mm512_setzero_si512();
                if (j + i < h->length) r[i] = bytes_of(whole(INT8, k, at, by), whole(INT8, k, at + 16, by));
            }
            transpose(r);
            for (int i = 0; i < SIDE; i++) _mm512_store_si512(keys + SIDE * i, r[i]);
        }
    for (int64_t i = 0; i < h->d; i += SIDE) {
        by = column_rounder(INT8, h, v + i, step, h->value_units + i);
        for (int64_t j = 0; j < h->places; j += DEEP, values += 2 * TILE_WORDS)
            for (int64_t p = 0; p < SIDE; p++) {
                __m512i n[4], both[2], high, low;
                UNROLL for (int part = 0; part < 4; part++) {
                    int64_t token = j + p + SIDE * part;
                    n[part] = token < h->length ? whole(INT8, v, token * step + i, by) : _mm512_setzero_si512();
                }
                interleave(n, 1, both, &high, &low);
                _mm512_store_si512(values + SIDE * p, high);
                _mm512_store_si512(values + TILE_WORDS + SIDE * p, low);
            }
    }
}

/* Products of sixteen queries, which stand as bytes 0, low, high, 0 of 32 numbers, with sixteen keys. */
INSIDE_TILES void score_bytes(const Head *h, int64_t j, int32_t *sums) {
    const int32_t *keys = h->keys + j * h->d / 2;
    WRITTEN;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    for (int64_t c = 0; c < h->d; c += 32, keys += TILE_WORDS) {
        const char *queries = (const char *)h->queries + c * 4 * SIDE;
        if (j == 0 || h->d > 32) {
            _tile_loadd(3, queries, 128);
            _tile_loadd(4, queries + 32, 128);
            _tile_loadd(5, queries + 64, 128);
        }
        _tile_loadd(6, keys, 64);
        _tile_dpbssd(0, 3, 6);
        _tile_dpbssd(1, 4, 6);
        _tile_dpbssd(2, 5, 6);
    }
    _tile_stored(0, sums, 64);
    _tile_stored(1, sums + TILE_WORDS, 64);
    _tile_stored(2, sums + 2 * TILE_WORDS, 64);
    WRITTEN;
}

/* Scores of up to sixteen queries in tiles, and the largest of each. */
INSIDE_TILES void score_all_bytes(const Head *h, int tall, const float *units, const float *const *bias, __m512 *most) {
    int32_t sums[2][3 * TILE_WORDS] __attribute__((aligned(64)));
    for (int r = 0; r < tall; r++) most[r] = _mm512_set1_ps(-3.0e38f);
    score_bytes(h, 0, sums[0]);
    for (int64_t j = 0; j < h->length; j += SIDE) {
        const int32_t *now = sums[j / SIDE % 2];
        if (j + SIDE < h->length) score_bytes(h, j + SIDE, sums[(j / SIDE + 1) % 2]);
        for (int r = 0; r < tall; r++) {
            __m512 added = bias[r] ? _mm512_loadu_ps(bias[r] + j) : _mm512_setzero_ps();
            __m512 t = _mm512_fmadd_ps(_mm512_cvtepi32_ps(join(now, r)), _mm512_set1_ps(units[r]), added);
            if (j + SIDE > h->length) t = or_lowest(h->length - j, t);
            most[r] = _mm512_max_ps(most[r], t);
            _mm512_store_ps(h->scores + (j + r) * SIDE, t);
        }
    }
}

/* Weights of all keys as bytes, two tiles for 64 tokens, and the inverse of each query's sum. */
INSIDE_TILES void weigh_bytes(const Head *h, int tall, const __m512 *largest, float *by) {
    __m512i ones = _mm512_set1_epi16(1);
    for (int r = 0; r < tall; r++) {
        __m512 most = _mm512_set1_ps(_mm512_reduce_max_ps(largest[r]));
        __m512i sum = _mm512_setzero_si512();
        for (int64_t j = 0; j < h->places; j += DEEP) {
            __m512i n[4], both[2], high, low;
            int32_t *out = h->weights + j / DEEP * 2 * TILE_WORDS + SIDE * r;
            UNROLL for (int part = 0; part < 4; part++) {
                int64_t token = j + SIDE * part;
                n[part] = _mm512_setzero_si512();
                if (token < h->length)
                    n[part] = weight(INT8, _mm512_sub_ps(_mm512_load_ps(h->scores + (token + r) * SIDE), most));
            }
            interleave(n, 0, both, &high, &low);
            DOT_PAIRS(sum, both[0], ones);
            DOT_PAIRS(sum, both[1], ones);
            _mm512_store_si512(out, high);
            _mm512_store_si512(out + TILE_WORDS, low);
        }
        by[r] = 1.0f / (float)_mm512_reduce_add_epi32(sum);
    }
}

/* Products of sixteen queries' weights with 16 columns of values from column i on, for 64 tokens. */
INSIDE_TILES void hear_bytes(const Head *h, int64_t i, int64_t j, int32_t *sums) {
    const int32_t *values = h->values + i * (h->places / 2) + j / DEEP * 2 * TILE_WORDS;
    const int32_t *weights = h->weights + j / DEEP * 2 * TILE_WORDS;
    WRITTEN;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_loadd(3, weights, 64);
    _tile_loadd(5, values, 64);
    _tile_dpbusd(2, 3, 5);
    _tile_loadd(6, values + TILE_WORDS, 64);
    _tile_dpbusd(1, 3, 6);
    _tile_loadd(4, weights + TILE_WORDS, 64);
    _tile_dpbusd(0, 4, 6);
    _tile_dpbusd(1, 4, 5);
    _tile_stored(0, sums, 64);
    _tile_stored(1, sums + TILE_WORDS, 64);
    _tile_stored(2, sums + 2 * TILE_WORDS, 64);
    WRITTEN;
}

/* Means of 16 columns of values from column i on. */
INSIDE_TILES void hear_all_bytes(const Head *h, int64_t i, const float *by, int tall, float *out, int64_t step) {
    int32_t sums[2][3 * TILE_WORDS] __attribute__((aligned(64)));
    __m512 heard[SIDE], unit = _mm512_loadu_ps(h->value_units + i);
    UNROLL for (int r = 0; r < SIDE; r++) heard[r] = _mm512_setzero_ps();
    hear_bytes(h, i, 0, sums[0]);
    for (int64_t j = 0; j < h->places; j += DEEP) {
        const int32_t *now = sums[j / DEEP % 2];
        if (j + DEEP < h->places) hear_bytes(h, i, j + DEEP, sums[(j / DEEP + 1) % 2]);
        for (int r = 0; r < tall; r++) heard[r] = _mm512_add_ps(heard[r], _mm512_cvtepi32_ps(join(now, r)));
    }
    for (int r = 0; r < tall; r++)
        _mm512_storeu_ps(out + r * step, _mm512_mul_ps(heard[r], _mm512_mul_ps(unit, _mm512_set1_ps(by[r]))));
}

/* As attend_head of int8; d is a multiple of 32. */
INSIDE_TILES void attend_head_in_bytes(const Attention *a, int64_t start, int64_t length, int64_t head, Head *h) {
    int64_t d = a->d, step = 3 * a->heads * d;
    const float *own = (const float *)a->qkv + (start - a->first) * step + head * d;
    const float *table = a->bias ? a->bias + head * a->stride + a->centre : NULL;
    float odd = table ? oddness(table - length, 2 * length) : 0.0f;
    h->length = length, h->places = (length + DEEP - 1) / DEEP * DEEP;
    lay_out_bytes(h, own + step / 3, step);
    for (int64_t first = 0; first < length; first += SIDE) {
        int tall = length - first < SIDE ? (int)(length - first) : SIDE;
        const float *bias[SIDE];
        float by[SIDE], units[SIDE];
        __m512 most[SIDE];
        for (int r = 0; r < tall; r++) {
            const float *x = own + (first + r) * step;
            prefetch((const char *)(x + d), 4 * step, 4 * d);
            __m512 to_whole = rounder(INT8, x, 0, 1, d, h->top, units + r);
            for (int64_t c = 0; c < d; c += 32) {
                __m512i bytes = bytes_of(whole(INT8, x, c, to_whole), whole(INT8, x, c + 16, to_whole));
                char *out = (char *)h->queries + c * 4 * SIDE + 128 * r;
                _mm256_store_si256((__m256i *)(out + 32), _mm512_extracti64x4_epi64(bytes, 1));
                _mm256_store_si256((__m256i *)(out + 64), _mm512_castsi512_si256(bytes));
            }
            units[r] *= h->key_unit;
            bias[r] = table ? table - first - r : NULL;
        }
        score_all_bytes(h, tall, units, bias, most);
        weigh_bytes(h, tall, most, by);
        for (int r = 0; r < tall; r++) by[r] += 0.0f * units[r] + odd;
        for (int64_t i = 0; i < d; i += SIDE)
            hear_all_bytes(h, i, by, tall, (float *)a->out + (start + first) * a->out_step + head * d + i, a->out_step);
    }
}

FOR_TILES static void attend_bf16_in_tiles(const Attention *a, char *room, size_t places) {
    size_t d = (size_t)a->d;
    TileHead h = {.d = a->d, .keys = (uint32_t *)room};
    h.values = h.keys + places / 2 * d, h.weights = h.values + places / 2 * d;
    h.scores = (float *)(h.weights + places * SIDE), h.last = (uint16_t *)(h.scores + places * BLOCK);
    for (int64_t row = 0; row < a->rows; row++)
        for (int64_t head = 0; head < a->heads; head++)
            attend_head_in_tiles(a, a->ends[row], a->ends[row + 1] - a->ends[row], head, &h);
}

FOR_TILES static void attend_int8_in_tiles(const Attention *a, char *room, size_t places) {
    size_t d = (size_t)a->d;
    Head h = {.d = a->d, .top = most_of_query(a->d), .keys = (int32_t *)room};
    h.values = h.keys + places / 2 * d, h.weights = h.values + places / 2 * d;
    h.scores = (float *)(h.weights + places * SIDE / 2), h.queries = (int32_t *)(h.scores + places * SIDE);
    h.value_units = (float *)(h.queries + SIDE * d);
    memset(h.queries, 0, SIDE * d * 4);
    for (int64_t row = 0; row < a->rows; row++)
        for (int64_t head = 0; head < a->heads; head++)
            attend_head_in_bytes(a, a->ends[row], a->ends[row + 1] - a->ends[row], head, &h);
}

/* Returns 0 where there is no memory. */
FOR_TILES static int attend_rows_in_tiles(const Attention *a, int type) {
    Tiles before;
    size_t places = (size_t)(longest(a->ends, a->rows) + DEEP - 1) / DEEP * DEEP, d = (size_t)a->d;
    char *room = malloc(4 * (places * (d + SIDE + BLOCK) + (SIDE + 1) * d) + 64);
    if (room == NULL) return 0;
    open_tiles(&before);
    (type == INT8 ? attend_int8_in_tiles : attend_bf16_in_tiles)(a, (char *)(((uintptr_t)room + 63) / 64 * 64), places);
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
INSIDE void turn_all(const int type, void *x, const float *circle, int64_t rows, int64_t step, int64_t heads, int64_t d) {
    __m512 one = _mm512_set1_ps(1.0f);
    for (int64_t row = 0; row < rows; row++, circle += d)
        for (int64_t i = 0; i < d; i += 16) {
            __m512 by = _mm512_loadu_ps(circle + i), real = _mm512_moveldup_ps(by), other = _mm512_movehdup_ps(by);
            for (int64_t head = 0; head < heads; head++) {
                int64_t at = row * step + head * d + i;
                __m512 own = get(type, x, at), turned = _mm512_permute_ps(own, 0xb1);
                /* each product is rounded before they are added, as complex numbers are multiplied elsewhere */
                own = _mm512_fmaddsub_ps(one, _mm512_mul_ps(own, real), _mm512_mul_ps(turned, other));
                put(type, x, at, own);
            }
        }
}

FOR static void turn_rows(int type, void *x, const float *circle, int64_t rows, int64_t step, int64_t heads, int64_t d) {
    if (type == BF16) turn_all(BF16, x, circle, rows, step, heads, d);
    else turn_all(INT8, x, circle, rows, step, heads, d);
}
#endif

/* -------- the Python interface */

PyDoc_STRVAR(supported_doc, "supported()\n\nTell whether this processor computes bf16 by these loops, and whether int8.");

static PyObject *supported(PyObject *self, PyObject *args) {
    int bf16 = 0, int8 = 0;
    (void)self, (void)args;
#if QUICK
    bf16 = processor_has(AVX512_AI), int8 = processor_has(AVX512_VNNI); /* the former has the latter's, too */
#endif
    return Py_BuildValue("(NN)", PyBool_FromLong(bf16), PyBool_FromLong(int8));
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
/* Returns 0 where there is no memory. */
static int multiply_rows(Product *p, int type) {
#if TILES
    if (tiles && p->steps % TILE_STEPS == 0) return multiply_in_tiles(p, type);
#endif
    if (type == INT8) multiply_int8(p);
    else multiply_bf16(p);
    return 1;
}

/* Adds the second product of the first one's result to the second one's ``out``, some rows at a time, so that this
 * result stays near the processor. Returns 0 where there is no memory. */
static int attend_rows(const Attention *a, int type) {
#if TILES
    if (tiles && a->d % 32 == 0) return attend_rows_in_tiles(a, type);
#endif
    return attend_rows_in_pairs(a, type);
}

/* Queries, keys and values of some heads; p computes those of all. Returns 0 as above. */
static int project(Product p, const Attention *a, int64_t head, int64_t all_heads, int type) {
    const int64_t all = all_heads * a->d, columns = a->heads * a->d, size = type == INT8 ? 4 : 2;
    const Product whole = p;
    char *out = p.out;
    p.out_step = 3 * columns;
    if (columns == all) return multiply_rows(&p, type);
    p.columns = columns;
    for (int64_t part = 0; part < 3; part++, out += columns * size) {
        const int64_t column = part * all + head * a->d;
        p.weight = whole.weight + column * p.steps * 4, p.out = out;
        p.bias = whole.bias ? whole.bias + column : NULL;
        if (type == INT8) p.weight_scale = whole.weight_scale + column, p.zeros = whole.zeros + column;
        if (!multiply_rows(&p, type)) return 0;
    }
    return 1;
}

/* Rows of ``tokens`` together, ``heads`` heads at a time, whose queries, keys and values stay near the processor, in room.
 * Returns 0 as above. */
static int attend_to_product(Product p, Attention a, int type, int64_t tokens, int64_t heads, void *room) {
    const int64_t *ends = a.ends, all_heads = a.heads, rows = a.rows, row_bytes = p.steps * 4;
    const Product whole = p;
    const float *bias = a.bias;
    char *out = a.out;
    int memory = 1;
    a.qkv = p.out = room, a.out_step = all_heads * a.d, a.heads = heads;
    for (int64_t row = 0; row < rows; row += a.rows) {
        for (a.rows = 1; row + a.rows < rows && ends[row + a.rows + 1] - ends[row] <= tokens; a.rows++) {}
        a.first = ends[row], a.ends = ends + row;
        p.count = ends[row + a.rows] - a.first, p.rows = whole.rows + a.first * row_bytes;
        if (type == INT8) p.row_scale = whole.row_scale + a.first;
        for (int64_t head = 0; head < all_heads && memory; head += heads) {
            a.out = out + head * a.d * (type == INT8 ? 4 : 2), a.bias = bias ? bias + head * a.stride : NULL;
            memory = project(p, &a, head, all_heads, type) && attend_rows(&a, type);
        }
    }
    return memory;
}

static int feed_rows(Product up, Product down, int type) {
    const int64_t size = type == INT8 ? 4 : 2, count = up.count;
    int64_t some = NEAR / up.columns / size / BLOCK * BLOCK;
    some = some < BLOCK ? BLOCK : some > count ? count : some;
    size_t numbers = (size_t)(some * up.columns);
    char *room = malloc(numbers * (size_t)(size + (type == INT8)) + 4 * (size_t)some + 64);
    if (room == NULL) return 0;
    char *inner = (char *)(((uintptr_t)room + 63) / 64 * 64);
    float *scales = (float *)(inner + numbers * (size_t)size);
    uint8_t *bytes = (uint8_t *)(scales + some);
    int memory = 1;
    up.out = inner, down.row_scale = scales;
    down.rows = type == INT8 ? bytes : (uint8_t *)inner;
    for (int64_t first = 0; memory && first < count; first += some) {
        up.count = down.count = count - first < some ? count - first : some;
        memory = multiply_rows(&up, type);
        if (type == INT8) quantise_rows((float *)inner, up.count, up.columns, bytes, scales);
        memory = memory && multiply_rows(&down, type);
        up.rows += some * up.steps * 4;
        if (type == INT8) up.row_scale += some;
        down.out = (float *)down.out + some * down.columns;
    }
    free(room);
    return memory;
}

PyDoc_STRVAR(product_doc,
             "product(type, activation, into, rows, scales, weight, weight_scale, zeros, bias, out, count, steps,\n"
             "        columns)\n\n"
             "Multiply ``count`` rows by a packed weight. Addresses of what is not there are 0.");

static PyObject *product(PyObject *self, PyObject *args) {
    int type, memory;
    Product p;
    Address rows, scales, weight, weight_scale, zeros, bias, out;
    if (!PyArg_ParseTuple(args, "iiiKKKKKKKLLL", &type, &p.activation, &p.into, &rows, &scales, &weight,
                          &weight_scale, &zeros, &bias, &out, &p.count, &p.steps, &p.columns))
        return NULL;
    p.rows = AT(uint8_t, rows);
    p.weight = AT(uint8_t, weight);
    p.row_scale = AT(float, scales);
    p.zeros = AT(int32_t, zeros);
    p.weight_scale = AT(float, weight_scale);
    p.bias = AT(float, bias);
    p.out = AT(void, out), p.out_step = p.columns;
    Py_BEGIN_ALLOW_THREADS;
    memory = multiply_rows(&p, type);
    Py_END_ALLOW_THREADS;
    return finished(memory);
}

PyDoc_STRVAR(feed_doc,
             "feed(type, activation, rows, scales, weight, weight_scale, zeros, bias, next_weight, next_scale,\n"
             "     next_zeros, next_bias, out, count, steps, columns, next_columns)\n\n"
             "Multiply rows by a packed weight, and what comes of it by the next one; add the result to out.");

static PyObject *feed(PyObject *self, PyObject *args) {
    int type, memory;
    Product up = {.into = STORED}, down = {.into = ADDED, .activation = NONE};
    Address rows, scales, weight[2], weight_scale[2], zeros[2], bias[2], out;
    if (!PyArg_ParseTuple(args, "iiKKKKKKKKKKKLLLL", &type, &up.activation, &rows, &scales, weight, weight_scale, zeros,
                          bias, weight + 1, weight_scale + 1, zeros + 1, bias + 1, &out, &up.count, &up.steps,
                          &up.columns, &down.columns))
        return NULL;
    up.rows = AT(uint8_t, rows), up.row_scale = AT(float, scales);
    up.zeros = AT(int32_t, zeros[0]), down.zeros = AT(int32_t, zeros[1]);
    up.weight = AT(uint8_t, weight[0]), down.weight = AT(uint8_t, weight[1]);
    up.weight_scale = AT(float, weight_scale[0]), down.weight_scale = AT(float, weight_scale[1]);
    up.bias = AT(float, bias[0]), down.bias = AT(float, bias[1]);
    down.steps = up.columns / (type == INT8 ? 4 : 2), down.out = AT(void, out);
    up.out_step = up.columns, down.out_step = down.columns;
    Py_BEGIN_ALLOW_THREADS;
    memory = feed_rows(up, down, type);
    Py_END_ALLOW_THREADS;
    return finished(memory);
}

PyDoc_STRVAR(attend_doc,
             "attend(type, qkv, ends, rows, heads, d, bias, stride, centre, out)\n\n"
             "Let every token hear its own row; scores are in base 2.");

static PyObject *attend(PyObject *self, PyObject *args) {
    Attention a = {.first = 0};
    Address qkv, ends, bias, out;
    int type, memory;
    if (!PyArg_ParseTuple(args, "iKKLLLKLLK", &type, &qkv, &ends, &a.rows, &a.heads, &a.d, &bias, &a.stride, &a.centre, &out))
        return NULL;
    a.qkv = AT(void, qkv);
    a.ends = AT(int64_t, ends);
    a.bias = AT(float, bias);
    a.out = AT(void, out), a.out_step = a.heads * a.d;
    Py_BEGIN_ALLOW_THREADS;
    memory = attend_rows(&a, type);
    Py_END_ALLOW_THREADS;
    return finished(memory);
}

PyDoc_STRVAR(attend_to_doc,
             "attend_to(type, rows, scales, weight, weight_scale, zeros, product_bias, steps, ends, count, heads, d, bias,\n"
             "          stride, centre, out, room, tokens, together)\n\n"
             "Multiply rows of tokens by the weight of queries, keys and values, and let every token hear its row:\n"
             "tokens and heads ``together`` in room, which holds the longest row at least.");

static PyObject *attend_to(PyObject *self, PyObject *args) {
    Attention a = {.first = 0};
    Product p = {.into = STORED, .activation = NONE};
    Address rows, scales, weight, weight_scale, zeros, product_bias, ends, bias, out, room;
    long long tokens, together;
    int type, memory;
    if (!PyArg_ParseTuple(args, "iKKKKKKLKLLLKLLKKLL", &type, &rows, &scales, &weight, &weight_scale, &zeros, &product_bias,
                          &p.steps, &ends, &a.rows, &a.heads, &a.d, &bias, &a.stride, &a.centre, &out, &room,
                          &tokens, &together))
        return NULL;
    p.rows = AT(uint8_t, rows), p.row_scale = AT(float, scales), p.weight = AT(uint8_t, weight);
    p.weight_scale = AT(float, weight_scale), p.zeros = AT(int32_t, zeros), p.bias = AT(float, product_bias);
    p.columns = 3 * a.heads * a.d;
    a.ends = AT(int64_t, ends), a.bias = AT(float, bias), a.out = AT(void, out);
    Py_BEGIN_ALLOW_THREADS;
    memory = attend_to_product(p, a, type, tokens, together, AT(void, room));
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

PyDoc_STRVAR(turn_doc, "turn(type, x, circle, rows, step, heads, d)\n\nTurn the first heads of rows by their circles.");

static PyObject *turn(PyObject *self, PyObject *args) {
    Address x, circle;
    long long rows, step, heads, d;
    int type;
    if (!PyArg_ParseTuple(args, "iKKLLLL", &type, &x, &circle, &rows, &step, &heads, &d)) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    turn_rows(type, AT(void, x), AT(float, circle), rows, step, heads, d);
    Py_END_ALLOW_THREADS;
    return finished(1);
}

PyDoc_STRVAR(norm_doc,
             "norm(type, x, gain, shift, eps, count, width, out, scales)\n\n"
             "Normalise rows of float32 and round the result; with a gain, x itself is normalised too.");

static PyObject *norm(PyObject *self, PyObject *args) {
    Norm n;
    Address x, gain, shift, out, scales;
    int type;
    if (!PyArg_ParseTuple(args, "iKKKfLLKK", &type, &x, &gain, &shift, &n.eps, &n.count, &n.width, &out, &scales))
        return NULL;
    n.x = AT(float, x);
    n.gain = AT(float, gain);
    n.shift = AT(float, shift);
    n.out = AT(void, out);
    n.scales = AT(float, scales);
    n.room = type == INT8 ? malloc((size_t)n.width * sizeof(float)) : NULL;
    if (type == INT8 && n.room == NULL) return finished(0);
    Py_BEGIN_ALLOW_THREADS;
    if (type == INT8) norm_rows_to_bytes(&n);
    else norm_rows(&n);
    Py_END_ALLOW_THREADS;
    free(n.room);
    return finished(1);
}

PyDoc_STRVAR(affine_doc,
             "affine(x, weight, bias, rows, inputs, panels, activation, halved, out)\n\n"
             "Multiply few rows by a weight in panels of 16 columns.");

static PyObject *affine(PyObject *self, PyObject *args) {
    Affine p;
    Address x, weight, bias, out;
    if (!PyArg_ParseTuple(args, "KKKLLLiiK", &x, &weight, &bias, &p.rows, &p.inputs, &p.panels, &p.activation, &p.halved,
                          &out))
        return NULL;
    p.x = AT(float, x), p.weight = AT(void, weight), p.bias = AT(float, bias), p.out = AT(float, out);
    Py_BEGIN_ALLOW_THREADS;
    affine_rows(&p);
    Py_END_ALLOW_THREADS;
    return finished(1);
}

PyDoc_STRVAR(quantise_doc, "quantise(x, rows, width, bytes, scales)\n\nRound rows of float32 to bytes.");

static PyObject *quantise(PyObject *self, PyObject *args) {
    Address x, bytes, scales;
    long long rows, width;
    if (!PyArg_ParseTuple(args, "KLLKK", &x, &rows, &width, &bytes, &scales)) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    quantise_rows(AT(float, x), rows, width, AT(uint8_t, bytes), AT(float, scales));
    Py_END_ALLOW_THREADS;
    return finished(1);
}
#endif

static PyMethodDef methods[] = {{"supported", supported, METH_NOARGS, supported_doc},
                                {"use_tiles", use_tiles, METH_VARARGS, use_tiles_doc},
#if QUICK
                                {"product", product, METH_VARARGS, product_doc},
                                {"feed", feed, METH_VARARGS, feed_doc},
                                {"attend", attend, METH_VARARGS, attend_doc},
                                {"attend_to", attend_to, METH_VARARGS, attend_to_doc},
                                {"attend_once", attend_once, METH_VARARGS, attend_once_doc},
                                {"attend_first", attend_first, METH_VARARGS, attend_first_doc},
                                {"turn", turn, METH_VARARGS, turn_doc},
                                {"norm", norm, METH_VARARGS, norm_doc},
                                {"quantise", quantise, METH_VARARGS, quantise_doc},
                                {"affine", affine, METH_VARARGS, affine_doc},
#endif
                                {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_infer", "Loops of a transformer encoder.", -1, methods,
                                    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__infer(void) { return PyModule_Create(&module); }
