/* The inner loops of a training step of the word-level rankers, forward and back, for x86 processors with AVX512.
 *
 * attend      self-attention of narrow heads over rows of tokens end to end
 * norm        layer norm of rows
 * match       products of the rows of two texts' words
 * pool        kernel sums over rows of a match matrix
 * sweep       sums of neighbouring products and their maximum; going back, only what won is touched
 * grams       sums of following products, ReLU, scaled to length 1
 *
 * float32 throughout; every sum is made in one fixed order, so that a step repeats to the bit. One thread; the
 * interpreter's lock is let go. Tensors come as addresses, their shapes are checked by train*.py, the only callers.
 * This file is optional: the same stands in PyTorch beside every caller. Only the limited C API is used.
 */
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define QUICK 1
#include "_vector.h"
#define FOR __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))
#define INSIDE static inline FOR __attribute__((always_inline))
#else
#define QUICK 0
#endif

#if QUICK

#define LANES 16
#define UNROLL _Pragma("GCC unroll 8")
#define LOG2E 1.44269504f

INSIDE __mmask16 first(int64_t count) { return count >= LANES ? 0xffff : (__mmask16)((1u << count) - 1); }

INSIDE __m512 load(const float *x, int64_t left) {
    return left >= LANES ? _mm512_loadu_ps(x) : _mm512_maskz_loadu_ps(first(left), x);
}

/* What is stored under a mask is slow to be read again, so only a row's end is. */
INSIDE void store(float *x, int64_t left, __m512 y) {
    if (left >= LANES) _mm512_storeu_ps(x, y);
    else _mm512_mask_storeu_ps(x, first(left), y);
}

INSIDE __m512 all(float x) { return _mm512_set1_ps(x); }

/* to += by * from, count numbers. */
INSIDE void add_scaled(float *to, float by, const float *from, int64_t count) {
    for (int64_t i = 0; i < count; i += LANES)
        store(to + i, count - i, _mm512_fmadd_ps(all(by), load(from + i, count - i), load(to + i, count - i)));
}

INSIDE float dot(const float *a, const float *b, int64_t count) {
    __m512 sum = _mm512_setzero_ps();
    for (int64_t i = 0; i < count; i += LANES) sum = _mm512_fmadd_ps(load(a + i, count - i), load(b + i, count - i), sum);
    return _mm512_reduce_add_ps(sum);
}

/* -------- attention: sixteen queries stand side by side, keys come one after the other */

#define DEEPEST 64 /* width of a head */

typedef struct {
    const float *qkv;      /* (tokens, 3 * heads * d): queries, keys, values */
    const int64_t *ends;   /* (rows + 1) */
    int64_t rows, heads, d, tokens;
    float scale;           /* of the products, in base 2 */
    float *out, *stats;    /* (tokens, heads * d); (heads, 2, tokens): largest product, inverse sum */
    const float *gradient; /* (tokens, heads * d) of out */
    float *back;           /* (tokens, 3 * heads * d) */
} Attention;

/* Columns of d numbers of 16 tokens from `from`, the last token again where there are fewer. */
INSIDE void columns(const int d, const float *x, int64_t stride, int64_t from, int64_t length, __m512 *to) {
    float each[LANES];
    for (int c = 0; c < d; c++) {
        for (int i = 0; i < LANES; i++) each[i] = x[(from + i < length ? from + i : length - 1) * stride + c];
        to[c] = _mm512_loadu_ps(each);
    }
}

INSIDE void put_columns(const int d, float *x, int64_t stride, int64_t from, int64_t length, const __m512 *values) {
    float each[LANES];
    for (int c = 0; c < d; c++) {
        _mm512_storeu_ps(each, values[c]);
        for (int i = 0; i < LANES && from + i < length; i++) x[(from + i) * stride + c] = each[i];
    }
}

INSIDE __m512 product(const int d, const __m512 *q, const float *k) {
    __m512 sum = _mm512_mul_ps(q[0], all(k[0]));
    for (int c = 1; c < d; c++) sum = _mm512_fmadd_ps(q[c], all(k[c]), sum);
    return sum;
}

INSIDE void attend_head(const int d, const Attention *a, int64_t start, int64_t length, int64_t head) {
    int64_t width = a->heads * d, stride = 3 * width;
    const float *q = a->qkv + start * stride + head * d, *k = q + width, *v = k + width;
    float *stats = a->stats + head * 2 * a->tokens + start;
    for (int64_t i = 0; i < length; i += LANES) {
        __m512 asked[DEEPEST], heard[DEEPEST], most = all(-INFINITY), sum = _mm512_setzero_ps();
        columns(d, q, stride, i, length, asked);
        for (int c = 0; c < d; c++) {
            asked[c] = _mm512_mul_ps(asked[c], all(a->scale));
            heard[c] = _mm512_setzero_ps();
        }
        for (int64_t j = 0; j < length; j++) most = _mm512_max_ps(most, product(d, asked, k + j * stride));
        for (int64_t j = 0; j < length; j++) {
            __m512 weight = exp2_(_mm512_sub_ps(product(d, asked, k + j * stride), most));
            sum = _mm512_add_ps(sum, weight);
            for (int c = 0; c < d; c++) heard[c] = _mm512_fmadd_ps(weight, all(v[j * stride + c]), heard[c]);
        }
        __m512 by = _mm512_div_ps(all(1), sum);
        for (int c = 0; c < d; c++) heard[c] = _mm512_mul_ps(heard[c], by);
        put_columns(d, a->out + start * width + head * d, width, i, length, heard);
        store(stats + i, length - i, most);
        store(stats + a->tokens + i, length - i, by);
    }
}

/* `room` holds (length, 2, d) sums of 16 queries each for keys and values. */
INSIDE void attend_head_back(const int d, const Attention *a, int64_t start, int64_t length, int64_t head,
                             __m512 *room) {
    int64_t width = a->heads * d, stride = 3 * width;
    const float *q = a->qkv + start * stride + head * d, *k = q + width, *v = k + width;
    const float *stats = a->stats + head * 2 * a->tokens + start;
    const float *out = a->out + start * width + head * d, *gradient = a->gradient + start * width + head * d;
    float *to_q = a->back + start * stride + head * d, *to_k = to_q + width, *to_v = to_k + width;
    __m512 natural = all(a->scale / LOG2E);
    memset(room, 0, (size_t)length * 2 * (size_t)d * sizeof(__m512));
    for (int64_t i = 0; i < length; i += LANES) {
        __m512 asked[DEEPEST], scaled[DEEPEST], own[DEEPEST], heard[DEEPEST], to_asked[DEEPEST];
        __m512 most = load(stats + i, length - i), by = load(stats + a->tokens + i, length - i);
        __m512 shared = _mm512_setzero_ps();
        columns(d, q, stride, i, length, asked);
        columns(d, out, width, i, length, heard);
        columns(d, gradient, width, i, length, own);
        for (int c = 0; c < d; c++) {
            own[c] = _mm512_maskz_mov_ps(first(length - i), own[c]);
            shared = _mm512_fmadd_ps(own[c], heard[c], shared);
            scaled[c] = _mm512_mul_ps(asked[c], all(a->scale));
            asked[c] = _mm512_mul_ps(asked[c], natural);
            to_asked[c] = _mm512_setzero_ps();
        }
        for (int64_t j = 0; j < length; j++) {
            const float *key = k + j * stride, *value = v + j * stride;
            __m512 *sums = room + j * 2 * d;
            __m512 weight = _mm512_mul_ps(exp2_(_mm512_sub_ps(product(d, scaled, key), most)), by);
            weight = _mm512_maskz_mov_ps(first(length - i), weight);
            __m512 slope = _mm512_mul_ps(weight, _mm512_sub_ps(product(d, own, value), shared));
            for (int c = 0; c < d; c++) {
                to_asked[c] = _mm512_fmadd_ps(slope, all(key[c]), to_asked[c]);
                sums[c] = _mm512_fmadd_ps(slope, asked[c], sums[c]);
                sums[d + c] = _mm512_fmadd_ps(weight, own[c], sums[d + c]);
            }
        }
        for (int c = 0; c < d; c++) to_asked[c] = _mm512_mul_ps(to_asked[c], natural);
        put_columns(d, to_q, stride, i, length, to_asked);
    }
    for (int64_t j = 0; j < length; j++)
        for (int c = 0; c < d; c++) {
            to_k[j * stride + c] = _mm512_reduce_add_ps(room[j * 2 * d + c]);
            to_v[j * stride + c] = _mm512_reduce_add_ps(room[j * 2 * d + d + c]);
        }
}

FOR static void attend_rows(const Attention *a) {
    for (int64_t row = 0; row < a->rows; row++)
        for (int64_t head = 0; head < a->heads; head++) {
            int64_t start = a->ends[row], length = a->ends[row + 1] - start;
            if (a->d == 2) attend_head(2, a, start, length, head);
            else if (a->d == 4) attend_head(4, a, start, length, head);
            else attend_head((int)a->d, a, start, length, head);
        }
}

/* Returns 0 where there is no memory. */
FOR static int attend_rows_back(const Attention *a) {
    int64_t longest = 1;
    for (int64_t row = 0; row < a->rows; row++)
        if (a->ends[row + 1] - a->ends[row] > longest) longest = a->ends[row + 1] - a->ends[row];
    void *room;
    if (posix_memalign(&room, 64, (size_t)(longest * 2 * a->d) * sizeof(__m512))) return 0;
    for (int64_t row = 0; row < a->rows; row++)
        for (int64_t head = 0; head < a->heads; head++) {
            int64_t start = a->ends[row], length = a->ends[row + 1] - start;
            if (a->d == 2) attend_head_back(2, a, start, length, head, room);
            else if (a->d == 4) attend_head_back(4, a, start, length, head, room);
            else attend_head_back((int)a->d, a, start, length, head, room);
        }
    free(room);
    return 1;
}

/* -------- layer norm: gain (x - mean) inverse + shift */

#define TOGETHER 64 /* rows whose gradients of gain and shift are summed before they join the rest */

typedef struct {
    const float *x, *gain, *shift; /* (rows, width), (width), (width) */
    int64_t rows, width;
    int outer;                     /* eps is added to the deviation, not to the variance */
    float eps;
    float *out, *stats;            /* (rows, width); (2, rows): mean, inverse */
    const float *gradient;
    float *to_x, *to_gain, *to_shift;
} Norm;

FOR static void norm_rows(const Norm *n) {
    for (int64_t row = 0; row < n->rows; row++) {
        const float *x = n->x + row * n->width;
        float *out = n->out + row * n->width;
        __m512 sum = _mm512_setzero_ps(), squares = sum;
        for (int64_t i = 0; i < n->width; i += LANES) sum = _mm512_add_ps(sum, load(x + i, n->width - i));
        float mean = _mm512_reduce_add_ps(sum) / (float)n->width;
        for (int64_t i = 0; i < n->width; i += LANES) {
            __m512 off = _mm512_maskz_sub_ps(first(n->width - i), load(x + i, n->width - i), all(mean));
            squares = _mm512_fmadd_ps(off, off, squares);
        }
        float variance = _mm512_reduce_add_ps(squares) / (float)n->width;
        float inverse = n->outer ? 1 / (sqrtf(variance) + n->eps) : 1 / sqrtf(variance + n->eps);
        for (int64_t i = 0; i < n->width; i += LANES) {
            __m512 y = _mm512_mul_ps(_mm512_sub_ps(load(x + i, n->width - i), all(mean)), all(inverse));
            y = _mm512_fmadd_ps(y, load(n->gain + i, n->width - i), load(n->shift + i, n->width - i));
            store(out + i, n->width - i, y);
        }
        n->stats[row] = mean;
        n->stats[n->rows + row] = inverse;
    }
}

INSIDE void norm_row_back(const Norm *n, int64_t row, float *to_gain, float *to_shift) {
    const float *x = n->x + row * n->width, *gradient = n->gradient + row * n->width;
    float *to_x = n->to_x + row * n->width;
    __m512 mean = all(n->stats[row]), inverse = all(n->stats[n->rows + row]);
    __m512 sum = _mm512_setzero_ps(), along = sum;
    for (int64_t i = 0; i < n->width; i += LANES) {
        int64_t left = n->width - i;
        __m512 scaled = _mm512_mul_ps(_mm512_sub_ps(load(x + i, left), mean), inverse);
        __m512 own = load(gradient + i, left), weighed = _mm512_mul_ps(own, load(n->gain + i, left));
        sum = _mm512_add_ps(sum, weighed);
        along = _mm512_fmadd_ps(weighed, scaled, along);
        store(to_gain + i, left, _mm512_fmadd_ps(own, scaled, load(to_gain + i, left)));
        store(to_shift + i, left, _mm512_add_ps(own, load(to_shift + i, left)));
    }
    __m512 level = all(_mm512_reduce_add_ps(sum) / (float)n->width);
    __m512 tilt = all(_mm512_reduce_add_ps(along) / (float)n->width);
    for (int64_t i = 0; i < n->width; i += LANES) {
        int64_t left = n->width - i;
        __m512 scaled = _mm512_mul_ps(_mm512_sub_ps(load(x + i, left), mean), inverse);
        __m512 y = _mm512_fmsub_ps(load(gradient + i, left), load(n->gain + i, left), level);
        store(to_x + i, left, _mm512_mul_ps(_mm512_fnmadd_ps(scaled, tilt, y), inverse));
    }
}

/* Returns 0 where there is no memory. */
FOR static int norm_rows_back(const Norm *n) {
    float *part = malloc((size_t)(2 * n->width + 1) * sizeof(float));
    if (part == NULL) return 0;
    memset(n->to_gain, 0, (size_t)n->width * sizeof(float));
    memset(n->to_shift, 0, (size_t)n->width * sizeof(float));
    for (int64_t start = 0; start < n->rows; start += TOGETHER) {
        memset(part, 0, (size_t)(2 * n->width) * sizeof(float));
        for (int64_t row = start; row < start + TOGETHER && row < n->rows; row++)
            norm_row_back(n, row, part, part + n->width);
        add_scaled(n->to_gain, 1, part, n->width);
        add_scaled(n->to_shift, 1, part + n->width, n->width);
    }
    free(part);
    return 1;
}

/* -------- match matrices */

#define FEW 4 /* query words that meet a passage word together */

typedef struct {
    const float *table;                      /* (u, d) */
    const int64_t *query, *passage;          /* (texts, q), (texts, p) rows of the table */
    const int64_t *query_lengths, *lengths;  /* (texts) */
    int64_t texts, q, p, d;
    float *out;                              /* (texts, q, p), zeros beyond both lengths */
    const float *gradient;
    float *to_table;                         /* zeros beforehand */
} Match;

/* Products of `few` rows with one. */
INSIDE void meet(const int few, const Match *m, const int64_t *asked, const float *said, float *out) {
    __m512 sums[FEW];
    UNROLL for (int r = 0; r < few; r++) sums[r] = _mm512_setzero_ps();
    for (int64_t i = 0; i < m->d; i += LANES) {
        __m512 own = load(said + i, m->d - i);
        UNROLL for (int r = 0; r < few; r++)
            sums[r] = _mm512_fmadd_ps(load(m->table + asked[r] * m->d + i, m->d - i), own, sums[r]);
    }
    UNROLL for (int r = 0; r < few; r++) out[r * m->p] = _mm512_reduce_add_ps(sums[r]);
}

FOR static void match_texts(const Match *m) {
    memset(m->out, 0, (size_t)(m->texts * m->q * m->p) * sizeof(float));
    for (int64_t text = 0; text < m->texts; text++) {
        const int64_t *asked = m->query + text * m->q, *said = m->passage + text * m->p;
        for (int64_t j = 0; j < m->lengths[text]; j++) {
            const float *own = m->table + said[j] * m->d;
            float *out = m->out + text * m->q * m->p + j;
            int64_t i = 0, count = m->query_lengths[text];
            for (; i + FEW <= count; i += FEW) meet(FEW, m, asked + i, own, out + i * m->p);
            if (count - i == 3) meet(3, m, asked + i, own, out + i * m->p);
            else if (count - i == 2) meet(2, m, asked + i, own, out + i * m->p);
            else if (count - i == 1) meet(1, m, asked + i, own, out + i * m->p);
        }
    }
}

/* Sixteen columns of `few` query words and of all words of a passage; the sides may share rows. */
INSIDE void meet_back(const int few, const Match *m, const int64_t *asked, const int64_t *said, int64_t length,
                      const float *gradient, int64_t column) {
    int64_t left = m->d - column;
    __m512 own[FEW], sums[FEW];
    UNROLL for (int r = 0; r < few; r++) {
        own[r] = load(m->table + asked[r] * m->d + column, left);
        sums[r] = _mm512_setzero_ps();
    }
    for (int64_t j = 0; j < length; j++) {
        float *to = m->to_table + said[j] * m->d + column;
        __m512 word = load(m->table + said[j] * m->d + column, left), sum = load(to, left);
        UNROLL for (int r = 0; r < few; r++) {
            __m512 slope = all(gradient[r * m->p + j]);
            sum = _mm512_fmadd_ps(slope, own[r], sum);
            sums[r] = _mm512_fmadd_ps(slope, word, sums[r]);
        }
        store(to, left, sum);
    }
    UNROLL for (int r = 0; r < few; r++) {
        float *to = m->to_table + asked[r] * m->d + column;
        store(to, left, _mm512_add_ps(load(to, left), sums[r]));
    }
}

FOR static void match_texts_back(const Match *m) {
    for (int64_t text = 0; text < m->texts; text++) {
        const int64_t *asked = m->query + text * m->q, *said = m->passage + text * m->p;
        int64_t count = m->query_lengths[text], length = m->lengths[text];
        for (int64_t i = 0; i < count; i += FEW) {
            const float *gradient = m->gradient + (text * m->q + i) * m->p;
            for (int64_t column = 0; column < m->d; column += LANES) {
                if (count - i >= FEW) meet_back(FEW, m, asked + i, said, length, gradient, column);
                else if (count - i == 3) meet_back(3, m, asked + i, said, length, gradient, column);
                else if (count - i == 2) meet_back(2, m, asked + i, said, length, gradient, column);
                else meet_back(1, m, asked + i, said, length, gradient, column);
            }
        }
    }
}

/* -------- kernels: sum over a row's first `length` similarities of exp(-(similarity - centre)^2 / 2 width^2) */

#define NOTHING -115.4156f /* log2 of e^-80: less becomes an exact zero, as in kernel_pooling.py */

typedef struct {
    const float *match;                /* (texts, rows, places) */
    const int64_t *lengths;            /* (texts) */
    int64_t texts, rows, places, kernels;
    const float *centres, *steepness;  /* (kernels); -log2 e / 2 width^2 */
    float *counts;                     /* (texts, rows, kernels) */
    const float *gradient;             /* of counts */
    float *back;                       /* (texts, rows, places) */
} Pool;

INSIDE __m512 kernel(__m512 off, float steepness, __mmask16 there) {
    __m512 power = _mm512_mul_ps(_mm512_mul_ps(off, off), all(steepness));
    there &= _mm512_cmp_ps_mask(power, all(NOTHING), _CMP_NLE_UQ); /* NaN is kept */
    return _mm512_maskz_mov_ps(there, exp2_(power));
}

FOR static void pool_rows(const Pool *p) {
    for (int64_t row = 0; row < p->texts * p->rows; row++) {
        const float *match = p->match + row * p->places;
        int64_t length = p->lengths[row / p->rows];
        for (int64_t k = 0; k < p->kernels; k++) {
            __m512 sum = _mm512_setzero_ps();
            for (int64_t i = 0; i < length; i += LANES) {
                __m512 off = _mm512_sub_ps(load(match + i, length - i), all(p->centres[k]));
                sum = _mm512_add_ps(sum, kernel(off, p->steepness[k], first(length - i)));
            }
            p->counts[row * p->kernels + k] = _mm512_reduce_add_ps(sum);
        }
    }
}

FOR static void pool_rows_back(const Pool *p) {
    for (int64_t row = 0; row < p->texts * p->rows; row++) {
        const float *match = p->match + row * p->places, *gradient = p->gradient + row * p->kernels;
        float *back = p->back + row * p->places;
        int64_t length = p->lengths[row / p->rows];
        for (int64_t i = 0; i < p->places; i += LANES) {
            __m512 sum = _mm512_setzero_ps(), similarity = load(match + i, length > i ? length - i : 0);
            for (int64_t k = 0; k < p->kernels && i < length; k++) {
                __m512 off = _mm512_sub_ps(similarity, all(p->centres[k]));
                float slope = gradient[k] * p->steepness[k] * (2 / LOG2E);
                __m512 value = kernel(off, p->steepness[k], first(length - i));
                sum = _mm512_fmadd_ps(_mm512_mul_ps(value, off), all(slope), sum);
            }
            store(back + i, p->places - i, sum);
        }
    }
}

/* -------- sweeps: place o of a text holds its words o - k + 1 to o, zeros beyond both ends */

typedef struct {
    const float *products;          /* (u, k, f) */
    const int64_t *index, *lengths; /* (sweeps, places) rows of a sweep's words; (sweeps) */
    const float *scales;            /* (sweeps, places), or NULL for 1 */
    int64_t sweeps, repeat, places, k, f; /* `repeat` sweeps in succession share their row of index, lengths */
    float *best;                    /* (sweeps, f) */
    int32_t *winners;               /* (sweeps, f) */
    /* going back: what a filter read is word times scale, or word times the sweep's own word `left` */
    const float *words, *weight, *gradient; /* (u, d); (f, k, d); (sweeps, f) */
    const int64_t *left;                    /* (sweeps) rows of words, or NULL */
    int64_t d;
    float *to_words, *to_weight, *to_scales; /* zeros beforehand; to_scales may be NULL */
} Sweeps;

INSIDE __m512 place(const Sweeps *s, const int64_t *index, const float *scales, int64_t length, int64_t o, int64_t i) {
    __m512 sum = _mm512_setzero_ps();
    for (int64_t r = 0; r < s->k; r++) {
        int64_t word = o + r - s->k + 1;
        if (word < 0 || word >= length) continue;
        __m512 own = load(s->products + (index[word] * s->k + r) * s->f + i, s->f - i);
        sum = scales ? _mm512_fmadd_ps(own, all(scales[word]), sum) : _mm512_add_ps(sum, own);
    }
    return sum;
}

FOR static void sweep_texts(const Sweeps *s) {
    for (int64_t sweep = 0; sweep < s->sweeps; sweep++) {
        const int64_t *index = s->index + sweep / s->repeat * s->places;
        const float *scales = s->scales ? s->scales + sweep * s->places : NULL;
        int64_t length = s->lengths[sweep / s->repeat];
        for (int64_t i = 0; i < s->f; i += LANES) {
            __m512 best = all(-INFINITY);
            __m512i winner = _mm512_setzero_si512();
            for (int64_t o = 0; o < length + s->k - 1; o++) {
                __m512 value = place(s, index, scales, length, o, i);
                /* the first of equals wins; NaN wins and stays */
                __mmask16 more = _mm512_cmp_ps_mask(value, best, _CMP_NLE_UQ) & _mm512_cmp_ps_mask(best, best, _CMP_ORD_Q);
                best = _mm512_mask_mov_ps(best, more, value);
                winner = _mm512_mask_mov_epi32(winner, more, _mm512_set1_epi32((int)o));
            }
            store(s->best + sweep * s->f + i, s->f - i, best);
            _mm512_mask_storeu_epi32(s->winners + sweep * s->f + i, first(s->f - i), winner);
        }
    }
}

/* One sweep's gradients. hits, ends: which filters won with each word; sum, read: (d) floats. */
INSIDE void sweep_back(const Sweeps *s, int64_t sweep, int32_t *hits, int32_t *ends, float *sum, float *read) {
    const int64_t *index = s->index + sweep / s->repeat * s->places;
    const float *scales = s->scales ? s->scales + sweep * s->places : NULL, *gradient = s->gradient + sweep * s->f;
    const int32_t *winners = s->winners + sweep * s->f;
    const float *left = s->left ? s->words + s->left[sweep] * s->d : NULL;
    float *to_left = s->left ? s->to_words + s->left[sweep] * s->d : NULL;
    int64_t length = s->lengths[sweep / s->repeat];
    memset(ends, 0, (size_t)(length + 1) * sizeof(int32_t));
    for (int64_t i = 0; i < s->f; i++)
        for (int64_t r = 0; r < s->k; r++) {
            int64_t word = winners[i] + r - s->k + 1;
            if (gradient[i] != 0 && word >= 0 && word < length) ends[word + 1]++;
        }
    for (int64_t word = 0; word < length; word++) ends[word + 1] += ends[word];
    int32_t total = ends[length];
    for (int64_t i = s->f - 1; i >= 0; i--)
        for (int64_t r = s->k - 1; r >= 0; r--) {
            int64_t word = winners[i] + r - s->k + 1;
            if (gradient[i] != 0 && word >= 0 && word < length) hits[--ends[word + 1]] = (int32_t)(i * s->k + r);
        }
    for (int64_t word = 0; word < length; word++) {
        /* ends[word + 1] is now where the word's hits begin, ends[word + 2] where the next word's do */
        int64_t from = ends[word + 1], to = word + 1 < length ? ends[word + 2] : total;
        float by = scales ? scales[word] : 1;
        const float *own = s->words + index[word] * s->d;
        if (from == to) continue;
        memset(sum, 0, (size_t)s->d * sizeof(float));
        for (int64_t i = 0; i < s->d; i += LANES) {
            __m512 x = _mm512_mul_ps(load(own + i, s->d - i), all(by));
            store(read + i, s->d - i, left ? _mm512_mul_ps(x, load(left + i, s->d - i)) : x);
        }
        for (int64_t hit = from; hit < to; hit++) {
            float slope = gradient[hits[hit] / s->k];
            add_scaled(sum, slope, s->weight + hits[hit] * s->d, s->d);
            add_scaled(s->to_weight + hits[hit] * s->d, slope, read, s->d);
        }
        if (s->to_scales) s->to_scales[sweep * s->places + word] = dot(sum, own, s->d);
        for (int64_t i = 0; i < s->d; i += LANES) {
            float *to_own = s->to_words + index[word] * s->d + i;
            __m512 y = _mm512_mul_ps(load(sum + i, s->d - i), all(by));
            if (left) {
                __m512 mine = _mm512_fmadd_ps(y, load(own + i, s->d - i), load(to_left + i, s->d - i));
                y = _mm512_mul_ps(y, load(left + i, s->d - i));
                store(to_left + i, s->d - i, mine);
            }
            store(to_own, s->d - i, _mm512_add_ps(load(to_own, s->d - i), y));
        }
    }
}

/* Returns 0 where there is no memory. */
FOR static int sweep_texts_back(const Sweeps *s) {
    int32_t *hits = malloc((size_t)(s->f * s->k + s->places + 2) * sizeof(int32_t));
    float *rows = malloc((size_t)(2 * s->d + 1) * sizeof(float));
    if (hits == NULL || rows == NULL) {
        free(hits);
        free(rows);
        return 0;
    }
    for (int64_t sweep = 0; sweep < s->sweeps; sweep++)
        sweep_back(s, sweep, hits, hits + s->f * s->k, rows, rows + s->d);
    free(hits);
    free(rows);
    return 1;
}

/* -------- n-grams: sums of the products of a word and those that follow it, ReLU, length 1 */

typedef struct {
    const float *products;          /* (u, blocks, f) */
    const int64_t *index, *lengths; /* (texts, places); (texts) */
    const float *bias;              /* (grams, f) */
    int64_t texts, places, blocks, grams, f; /* gram m takes m blocks: m (m - 1) / 2 and those after it */
    float eps;
    float *out, *inverse;           /* (texts, grams, places, f); (texts, grams, places) */
    const float *gradient;
    float *to_products, *to_bias;   /* zeros beforehand */
} Grams;

INSIDE void make_gram(const Grams *g, int64_t text, int64_t m, int64_t at) {
    const int64_t *index = g->index + text * g->places;
    int64_t row = (text * g->grams + m - 1) * g->places + at, length = g->lengths[text];
    float *out = g->out + row * g->f;
    __m512d squares = _mm512_setzero_pd(); /* an exact match is narrow: its similarity must be 1 to the last digit */
    for (int64_t i = 0; i < g->f; i += LANES) {
        int64_t left = g->f - i;
        __m512 sum = load(g->bias + (m - 1) * g->f + i, left);
        for (int64_t r = 0; r < m && at + r < length; r++)
            sum = _mm512_add_ps(sum, load(g->products + (index[at + r] * g->blocks + m * (m - 1) / 2 + r) * g->f + i, left));
        sum = _mm512_max_ps(_mm512_setzero_ps(), sum); /* NaN is kept: it is the second operand */
        __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(sum)), high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(sum, 1));
        squares = _mm512_fmadd_pd(low, low, _mm512_fmadd_pd(high, high, squares));
        store(out + i, left, sum);
    }
    float length_ = (float)sqrt(_mm512_reduce_add_pd(squares)) + g->eps;
    for (int64_t i = 0; i < g->f; i += LANES) store(out + i, g->f - i, _mm512_div_ps(load(out + i, g->f - i), all(length_)));
    g->inverse[row] = 1 / length_;
}

FOR static void make_grams(const Grams *g) {
    for (int64_t text = 0; text < g->texts; text++)
        for (int64_t m = 1; m <= g->grams; m++)
            for (int64_t at = 0; at < g->places; at++) make_gram(g, text, m, at);
}

INSIDE void gram_back(const Grams *g, int64_t text, int64_t m, int64_t at) {
    const int64_t *index = g->index + text * g->places;
    int64_t row = (text * g->grams + m - 1) * g->places + at, length = g->lengths[text];
    const float *out = g->out + row * g->f, *gradient = g->gradient + row * g->f;
    float *to_bias = g->to_bias + (m - 1) * g->f;
    __m512 along = all(-dot(gradient, out, g->f)), inverse = all(g->inverse[row]);
    for (int64_t i = 0; i < g->f; i += LANES) {
        int64_t left = g->f - i;
        __m512 own = load(out + i, left);
        __m512 y = _mm512_mul_ps(_mm512_fmadd_ps(own, along, load(gradient + i, left)), inverse);
        y = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(own, _mm512_setzero_ps(), _CMP_NLE_UQ), y);
        store(to_bias + i, left, _mm512_add_ps(load(to_bias + i, left), y));
        for (int64_t r = 0; r < m && at + r < length; r++) {
            float *to = g->to_products + (index[at + r] * g->blocks + m * (m - 1) / 2 + r) * g->f + i;
            store(to, left, _mm512_add_ps(load(to, left), y));
        }
    }
}

FOR static void grams_back(const Grams *g) {
    for (int64_t text = 0; text < g->texts; text++)
        for (int64_t m = 1; m <= g->grams; m++)
            for (int64_t at = 0; at < g->places; at++) gram_back(g, text, m, at);
}
#endif

/* -------- the door */

PyDoc_STRVAR(supported_doc, "supported()\n\nTell whether this processor has the instructions this file is made of.");

static PyObject *supported(PyObject *self, PyObject *args) {
    int has = 0;
#if QUICK
    __builtin_cpu_init();
    has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#endif
    return PyBool_FromLong(has);
}

#if QUICK
PyDoc_STRVAR(attend_doc, "attend(back, qkv, ends, rows, heads, d, tokens, scale, out, stats, gradient, to_qkv)");

static PyObject *attend(PyObject *self, PyObject *args) {
    Attention a;
    Address qkv, ends, out, stats, gradient, to;
    int back, memory = 1;
    if (!PyArg_ParseTuple(args, "pKKLLLLfKKKK", &back, &qkv, &ends, &a.rows, &a.heads, &a.d, &a.tokens, &a.scale, &out,
                          &stats, &gradient, &to))
        return NULL;
    a.scale *= LOG2E;
    a.qkv = AT(float, qkv);
    a.ends = AT(int64_t, ends);
    a.out = AT(float, out);
    a.stats = AT(float, stats);
    a.gradient = AT(float, gradient);
    a.back = AT(float, to);
    Py_BEGIN_ALLOW_THREADS;
    if (back) memory = attend_rows_back(&a);
    else attend_rows(&a);
    Py_END_ALLOW_THREADS;
    return finished(memory);
}

PyDoc_STRVAR(norm_doc,
             "norm(back, x, gain, shift, rows, width, outer, eps, out, stats, gradient, to_x, to_gain, to_shift)");

static PyObject *norm(PyObject *self, PyObject *args) {
    Norm n;
    Address x, gain, shift, out, stats, gradient, to_x, to_gain, to_shift;
    int back, memory = 1;
    if (!PyArg_ParseTuple(args, "pKKKLLpfKKKKKK", &back, &x, &gain, &shift, &n.rows, &n.width, &n.outer, &n.eps, &out,
                          &stats, &gradient, &to_x, &to_gain, &to_shift))
        return NULL;
    n.x = AT(float, x);
    n.gain = AT(float, gain);
    n.shift = AT(float, shift);
    n.out = AT(float, out);
    n.stats = AT(float, stats);
    n.gradient = AT(float, gradient);
    n.to_x = AT(float, to_x);
    n.to_gain = AT(float, to_gain);
    n.to_shift = AT(float, to_shift);
    Py_BEGIN_ALLOW_THREADS;
    if (back) memory = norm_rows_back(&n);
    else norm_rows(&n);
    Py_END_ALLOW_THREADS;
    return finished(memory);
}

PyDoc_STRVAR(match_doc,
             "match(back, table, query, passage, query_lengths, lengths, texts, q, p, d, out, gradient, to_table)");

static PyObject *match(PyObject *self, PyObject *args) {
    Match m;
    Address table, query, passage, query_lengths, lengths, out, gradient, to;
    int back;
    if (!PyArg_ParseTuple(args, "pKKKKKLLLLKKK", &back, &table, &query, &passage, &query_lengths, &lengths, &m.texts,
                          &m.q, &m.p, &m.d, &out, &gradient, &to))
        return NULL;
    m.table = AT(float, table);
    m.query = AT(int64_t, query);
    m.passage = AT(int64_t, passage);
    m.query_lengths = AT(int64_t, query_lengths);
    m.lengths = AT(int64_t, lengths);
    m.out = AT(float, out);
    m.gradient = AT(float, gradient);
    m.to_table = AT(float, to);
    Py_BEGIN_ALLOW_THREADS;
    if (back) match_texts_back(&m);
    else match_texts(&m);
    Py_END_ALLOW_THREADS;
    return finished(1);
}

PyDoc_STRVAR(pool_doc,
             "pool(back, match, lengths, texts, rows, places, centres, steepness, kernels, counts, gradient, to_match)");

static PyObject *pool(PyObject *self, PyObject *args) {
    Pool p;
    Address match, lengths, centres, steepness, counts, gradient, to;
    int back;
    if (!PyArg_ParseTuple(args, "pKKLLLKKLKKK", &back, &match, &lengths, &p.texts, &p.rows, &p.places, &centres,
                          &steepness, &p.kernels, &counts, &gradient, &to))
        return NULL;
    p.match = AT(float, match);
    p.lengths = AT(int64_t, lengths);
    p.centres = AT(float, centres);
    p.steepness = AT(float, steepness);
    p.counts = AT(float, counts);
    p.gradient = AT(float, gradient);
    p.back = AT(float, to);
    Py_BEGIN_ALLOW_THREADS;
    if (back) pool_rows_back(&p);
    else pool_rows(&p);
    Py_END_ALLOW_THREADS;
    return finished(1);
}

PyDoc_STRVAR(sweep_doc, "sweep(products, index, lengths, scales, sweeps, repeat, places, k, f, best, winners)");

static PyObject *sweep(PyObject *self, PyObject *args) {
    Sweeps s;
    Address products, index, lengths, scales, best, winners;
    if (!PyArg_ParseTuple(args, "KKKKLLLLLKK", &products, &index, &lengths, &scales, &s.sweeps, &s.repeat, &s.places,
                          &s.k, &s.f, &best, &winners))
        return NULL;
    s.products = AT(float, products);
    s.index = AT(int64_t, index);
    s.lengths = AT(int64_t, lengths);
    s.scales = AT(float, scales);
    s.best = AT(float, best);
    s.winners = AT(int32_t, winners);
    Py_BEGIN_ALLOW_THREADS;
    sweep_texts(&s);
    Py_END_ALLOW_THREADS;
    return finished(1);
}

PyDoc_STRVAR(sweep_back_doc,
             "sweep_back(words, weight, left, index, lengths, scales, sweeps, repeat, places, k, f, d, winners,\n"
             "           gradient, to_words, to_weight, to_scales)\n\nWhat is written to holds zeros beforehand.");

static PyObject *sweep_backwards(PyObject *self, PyObject *args) {
    Sweeps s;
    Address words, weight, left, index, lengths, scales, winners, gradient, to_words, to_weight, to_scales;
    int memory;
    if (!PyArg_ParseTuple(args, "KKKKKKLLLLLLKKKKK", &words, &weight, &left, &index, &lengths, &scales, &s.sweeps,
                          &s.repeat, &s.places, &s.k, &s.f, &s.d, &winners, &gradient, &to_words, &to_weight,
                          &to_scales))
        return NULL;
    s.words = AT(float, words);
    s.weight = AT(float, weight);
    s.left = AT(int64_t, left);
    s.index = AT(int64_t, index);
    s.lengths = AT(int64_t, lengths);
    s.scales = AT(float, scales);
    s.winners = AT(int32_t, winners);
    s.gradient = AT(float, gradient);
    s.to_words = AT(float, to_words);
    s.to_weight = AT(float, to_weight);
    s.to_scales = AT(float, to_scales);
    Py_BEGIN_ALLOW_THREADS;
    memory = sweep_texts_back(&s);
    Py_END_ALLOW_THREADS;
    return finished(memory);
}

PyDoc_STRVAR(grams_doc,
             "grams(back, products, index, lengths, bias, texts, places, grams, f, eps, out, inverse, gradient,\n"
             "      to_products, to_bias)");

static PyObject *grams(PyObject *self, PyObject *args) {
    Grams g;
    Address products, index, lengths, bias, out, inverse, gradient, to_products, to_bias;
    int back;
    if (!PyArg_ParseTuple(args, "pKKKKLLLLfKKKKK", &back, &products, &index, &lengths, &bias, &g.texts, &g.places,
                          &g.grams, &g.f, &g.eps, &out, &inverse, &gradient, &to_products, &to_bias))
        return NULL;
    g.blocks = g.grams * (g.grams + 1) / 2;
    g.products = AT(float, products);
    g.index = AT(int64_t, index);
    g.lengths = AT(int64_t, lengths);
    g.bias = AT(float, bias);
    g.out = AT(float, out);
    g.inverse = AT(float, inverse);
    g.gradient = AT(float, gradient);
    g.to_products = AT(float, to_products);
    g.to_bias = AT(float, to_bias);
    Py_BEGIN_ALLOW_THREADS;
    if (back) grams_back(&g);
    else make_grams(&g);
    Py_END_ALLOW_THREADS;
    return finished(1);
}
#endif

static PyMethodDef methods[] = {{"supported", supported, METH_NOARGS, supported_doc},
#if QUICK
                                {"attend", attend, METH_VARARGS, attend_doc},
                                {"norm", norm, METH_VARARGS, norm_doc},
                                {"match", match, METH_VARARGS, match_doc},
                                {"pool", pool, METH_VARARGS, pool_doc},
                                {"sweep", sweep, METH_VARARGS, sweep_doc},
                                {"sweep_back", sweep_backwards, METH_VARARGS, sweep_back_doc},
                                {"grams", grams, METH_VARARGS, grams_doc},
#endif
                                {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_train", "Loops of a training step.", -1, methods,
                                    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__train(void) { return PyModule_Create(&module); }
