/* Packed postings: the lists of a segment in one run of bytes, little-endian. kernel.py holds the same in numpy.
 *
 * A list is n rows, ascending, and a payload each: a count from 1 up, or a float32 score. It is cut into blocks
 * of 128 postings and a rest. Of rows the gaps (row - row before - 1) are kept, of counts what exceeds 1, each
 * in as many bits as the largest of its block takes, one after the other from the lowest bit up; scores as they
 * are. A block's gaps begin with a byte, and so does its payload.
 *
 *   n >= 128   a skip of 12 bytes a block: last row (4), where the block's bytes end (4), bits a gap, bits a
 *              count, its bound (2); then the bytes of all blocks
 *   n < 128    bits a gap, bits a count, bound (2); then the bytes of the only block
 *
 * A bound is two bytes that no posting of the block exceeds: the largest count (255 for more) above the least
 * length code, or the upper half of the largest float32, rounded up. Frequent terms, those in at least one of 64
 * documents, have another bound for every 64 documents, and beside it 16 bits: which fours of these hold the term.
 */
#ifndef RANKHOUSE_POSTINGS_H
#define RANKHOUSE_POSTINGS_H

#include <stdint.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "files of an index are little-endian: on this machine numpy reads them (kernel.py)"
#endif

#define PACK 128 /* postings a block */
#define SKIP 12  /* bytes of a block's skip */
#define HEAD 4   /* bytes before the only block of a short list */
#define PAD 8    /* bytes behind the last list: eight can be read at any place */
#define AREA 64  /* documents under one bound of a frequent term */
#define SCORES 0 /* kind of payload; other kinds are the bytes of a count before it is packed */

static inline uint32_t load32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return value;
}

static inline uint64_t load64(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, 8);
    return value;
}

static inline uint16_t load16(const uint8_t *at) { return (uint16_t)(at[0] | at[1] << 8); }

/* Where strings, lists or documents begin in a run of bytes: numbers of four or eight bytes, one more than these. */
typedef struct {
    const uint8_t *at;
    Py_ssize_t n, width, bytes; /* bytes: of the whole run */
} Offsets;

static inline int64_t offset(const Offsets *offsets, int64_t i) {
    return offsets->width == 4 ? (int64_t)load32(offsets->at + 4 * i) : (int64_t)load64(offsets->at + 8 * i);
}

/* The bytes [start, end) of item i; 0 where there is none. */
static inline int span_of(const Offsets *offsets, int64_t i, int64_t *start, int64_t *end) {
    if (i < 0 || i + 1 >= offsets->n) return 0;
    *start = offset(offsets, i);
    *end = offset(offsets, i + 1);
    return *start >= 0 && *start <= *end && *end <= offsets->bytes;
}

static inline uint32_t mask_of(int bits) { return bits >= 32 ? 0xFFFFFFFFu : (1u << bits) - 1; }

static inline int64_t bytes_of(int64_t values, int bits) { return (values * bits + 7) >> 3; }

static inline int bits_of(uint32_t value) {
    int bits = 0;
    for (; value; value >>= 1) bits++;
    return bits;
}

/* Value i of those packed from a byte on. */
static inline uint32_t packed(const uint8_t *at, int64_t i, int bits) {
    return (uint32_t)(load64(at + (i * bits >> 3)) >> (i * bits & 7)) & mask_of(bits);
}

static uint8_t *pack(uint8_t *out, const uint32_t *values, int64_t n, int bits) {
    uint64_t held = 0;
    int filled = 0;
    for (int64_t i = 0; i < n; i++) {
        held |= (uint64_t)values[i] << filled;
        for (filled += bits; filled >= 8; filled -= 8, held >>= 8) *out++ = (uint8_t)held;
    }
    if (filled) *out++ = (uint8_t)held;
    return out;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#include "../../core/_processor.h"
#define WIDEST 25 /* bits of a value that four bytes hold wherever it begins */

static int unpacks_eights; /* whether the processor does; asked once, when the module is loaded */

/* Unpack n values, a multiple of eight, of few bits; up to sixteen bytes behind them are read. Each is one more than what is
 * packed; where they are gaps they are added up behind a row. */
__attribute__((target("avx2"))) static void unpack_eights(const uint8_t *in, int bits, int n, int32_t row, int are_gaps, int32_t *out) {
    __m256i begins = _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 0, 1, 2, 3), _mm256_set1_epi32(bits));
    int rest = 4 * bits & 7; /* where the fifth value begins in its byte */
    begins = _mm256_add_epi32(begins, _mm256_setr_epi32(0, 0, 0, 0, rest, rest, rest, rest));
    __m256i bytes = _mm256_mullo_epi32(_mm256_srli_epi32(begins, 3), _mm256_set1_epi32(0x01010101));
    __m256i order = _mm256_add_epi32(bytes, _mm256_set1_epi32(0x03020100)), shifts = _mm256_and_si256(begins, _mm256_set1_epi32(7));
    __m256i mask = _mm256_set1_epi32((int)mask_of(bits)), one = _mm256_set1_epi32(1), before = _mm256_set1_epi32(row);
    __m256i fourth = _mm256_setr_epi32(3, 3, 3, 3, 3, 3, 3, 3), last = _mm256_setr_epi32(7, 7, 7, 7, 7, 7, 7, 7);
    for (int i = 0; i < n; i += 8, in += bits) {
        __m256i v = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)in));
        v = _mm256_inserti128_si256(v, _mm_loadu_si128((const __m128i *)(in + bits / 2)), 1);
        v = _mm256_srlv_epi32(_mm256_shuffle_epi8(v, order), shifts);
        v = _mm256_add_epi32(_mm256_and_si256(v, mask), one);
        if (are_gaps) {
            v = _mm256_add_epi32(v, _mm256_slli_si256(v, 4));
            v = _mm256_add_epi32(v, _mm256_slli_si256(v, 8));
            v = _mm256_add_epi32(v, _mm256_blend_epi32(_mm256_setzero_si256(), _mm256_permutevar8x32_epi32(v, fourth), 0xF0));
            __m256i sum = _mm256_permutevar8x32_epi32(v, last);
            v = _mm256_add_epi32(v, before);
            before = _mm256_add_epi32(before, sum);
        }
        _mm256_storeu_si256((__m256i *)(out + i), v);
    }
}

/* How many values of a block may be unpacked so, of a list that ends, but for its pad, at a byte. */
static inline int quick_part(const uint8_t *in, const uint8_t *end, int bits, int n) {
    return n >= 8 && bits <= WIDEST && end + PAD - in >= bytes_of(n, bits) + 16 && unpacks_eights ? n & -8 : 0;
}
#else
#define unpack_eights(in, bits, n, row, are_gaps, out) ((void)0)
#define quick_part(in, end, bits, n) 0
#endif

/* Rows from gaps. Eight at a time: the sums do not wait for each other. */
static void unpack_rows(const uint8_t *in, const uint8_t *end, int bits, int n, int32_t row, int32_t *rows) {
    int i = quick_part(in, end, bits, n);
    if (i) unpack_eights(in, bits, i, row, 1, rows);
    uint32_t mask = mask_of(bits), at = (uint32_t)(i ? rows[i - 1] : row);
    for (in += i / 8 * bits; i + 8 <= n; i += 8, in += bits) {
        uint32_t g[8];
        for (int j = 0; j < 8; j++) g[j] = (uint32_t)(load64(in + (j * bits >> 3)) >> (j * bits & 7)) & mask;
        uint32_t two = g[0] + g[1] + 2, four = two + g[2] + g[3] + 2, six = four + g[4] + g[5] + 2;
        rows[i] = (int32_t)(at + g[0] + 1);
        rows[i + 1] = (int32_t)(at + two);
        rows[i + 2] = (int32_t)(at + two + g[2] + 1);
        rows[i + 3] = (int32_t)(at + four);
        rows[i + 4] = (int32_t)(at + four + g[4] + 1);
        rows[i + 5] = (int32_t)(at + six);
        rows[i + 6] = (int32_t)(at + six + g[6] + 1);
        at += six + g[6] + g[7] + 2;
        rows[i + 7] = (int32_t)at;
    }
    for (int j = 0; i < n; i++, j++) rows[i] = (int32_t)(at += packed(in, j, bits) + 1);
}

static void unpack_counts(const uint8_t *in, const uint8_t *end, int bits, int n, int32_t *counts) {
    int i = quick_part(in, end, bits, n);
    uint32_t mask = mask_of(bits);
    if (i) unpack_eights(in, bits, i, 0, 0, counts);
    for (in += i / 8 * bits; i + 8 <= n; i += 8, in += bits)
        for (int j = 0; j < 8; j++)
            counts[i + j] = 1 + (int32_t)((uint32_t)(load64(in + (j * bits >> 3)) >> (j * bits & 7)) & mask);
    for (int j = 0; i < n; i++, j++) counts[i] = 1 + (int32_t)packed(in, j, bits);
}

/* --- writing -------------------------------------------------------------------------------------------- */

typedef struct {
    const int32_t *rows;
    const void *payload;
    const uint8_t *codes; /* of every document, or NULL */
    int kind;
} Postings;

static inline uint32_t count_at(const Postings *from, int64_t i) {
    if (from->kind == 1) return ((const uint8_t *)from->payload)[i];
    if (from->kind == 2) return ((const uint16_t *)from->payload)[i];
    return ((const uint32_t *)from->payload)[i];
}

/* The bound of one score; of scores below 0, which are never pruned by it, it is 0. */
static inline uint16_t bound_of_score(float score) {
    uint32_t bits;
    memcpy(&bits, &score, 4);
    return score > 0 ? (uint16_t)((bits + 0xFFFFu) >> 16) : 0;
}

static inline uint16_t bound_of(const Postings *from, int64_t i) {
    if (from->kind == SCORES) return bound_of_score(((const float *)from->payload)[i]);
    uint32_t count = count_at(from, i);
    return (uint16_t)((count < 255 ? count : 255) << 8 | (from->codes ? from->codes[from->rows[i]] : 0));
}

static inline uint16_t joint_bound(uint16_t one, uint16_t other, int kind) {
    if (kind == SCORES) return one > other ? one : other;
    int count = one >> 8 > other >> 8 ? one >> 8 : other >> 8;
    int code = (one & 255) < (other & 255) ? one & 255 : other & 255;
    return (uint16_t)(count << 8 | code);
}

/* Pack postings [i, end) behind a row; fill in the two widths and the bound. */
static uint8_t *pack_block(uint8_t *out, const Postings *from, int64_t i, int64_t end, int32_t before, uint8_t *facts) {
    uint32_t gaps[PACK], counts[PACK], gap_bits = 0, count_bits = 0;
    int n = (int)(end - i);
    uint16_t bound = bound_of(from, i);
    for (int j = 0; j < n; j++) {
        gaps[j] = (uint32_t)(from->rows[i + j] - before - 1);
        before = from->rows[i + j];
        gap_bits |= gaps[j];
        if (from->kind != SCORES) count_bits |= counts[j] = count_at(from, i + j) - 1;
        bound = joint_bound(bound, bound_of(from, i + j), from->kind);
    }
    facts[0] = (uint8_t)bits_of(gap_bits);
    facts[1] = (uint8_t)bits_of(count_bits);
    facts[2] = (uint8_t)bound;
    facts[3] = (uint8_t)(bound >> 8);
    out = pack(out, gaps, n, facts[0]);
    if (from->kind != SCORES) return pack(out, counts, n, facts[1]);
    memcpy(out, (const float *)from->payload + i, 4 * (size_t)n);
    return out + 4 * n;
}

/* Pack postings [first, end) of one term; returns the end of what was written. */
static uint8_t *pack_list(uint8_t *out, const Postings *from, int64_t first, int64_t end) {
    if (end - first < PACK) return pack_block(out + HEAD, from, first, end, -1, out);
    int64_t blocks = (end - first + PACK - 1) / PACK;
    uint8_t *skip = out, *base = out + SKIP * blocks;
    out = base;
    for (int64_t i = first; i < end; i += PACK, skip += SKIP) {
        int64_t stop = i + PACK < end ? i + PACK : end;
        out = pack_block(out, from, i, stop, i > first ? from->rows[i - 1] : -1, skip + 8);
        uint32_t ends = (uint32_t)(out - base);
        memcpy(skip, &from->rows[stop - 1], 4);
        memcpy(skip + 4, &ends, 4);
    }
    return out;
}

typedef struct {
    uint16_t bound, fours; /* 0 where none of the documents holds the term */
} Area;

static void bound_areas(Area *areas, const Postings *from, int64_t first, int64_t end) {
    for (int64_t i = first; i < end; i++) {
        int32_t row = from->rows[i];
        Area *area = &areas[row / AREA];
        uint16_t bound = bound_of(from, i);
        area->bound = area->fours ? joint_bound(area->bound, bound, from->kind) : bound;
        area->fours |= (uint16_t)(1 << (row / 4 & 15));
    }
}
#endif
