/* Loops over eight floats at once, in C's vector extensions: the compiler makes AVX2 or NEON of them. Included by
 * _wide.c, which says for which processor. Every sum has one order, and products are fused with additions where it
 * is written and nowhere else, so that results are equal to the bit whatever the processor and the compiler.
 */

typedef float v8 __attribute__((vector_size(32)));
typedef int32_t i8 __attribute__((vector_size(32)));
typedef uint8_t b8 __attribute__((vector_size(8)));
typedef uint16_t u8 __attribute__((vector_size(16)));

#define WIDE FOR inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 12")

/* AVX-VNNI: sums of four products of bytes, of two of words. As instructions, since everything around them is for
 * AVX2; compilers that are older come with assemblers that do not know them. */
#if !defined(__x86_64__) || (defined(__clang__) ? __clang_major__ < 12 : __GNUC__ < 11)
#define KNOWS_VNNI 0
#define ADD_BYTES(sum, unsigned_, signed_) __builtin_unreachable()
#define ADD_WORDS(sum, a, b) __builtin_unreachable()
#else
#define KNOWS_VNNI 1
#define ADD_BYTES(sum, unsigned_, signed_) __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(unsigned_), "x"(signed_))
#define ADD_WORDS(sum, a, b) __asm__("%{vex%} vpdpwssd %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b))
#endif

WIDE v8 all(float x) { return (v8){x, x, x, x, x, x, x, x}; }
WIDE v8 get(const float *p) { v8 x; memcpy(&x, p, 32); return x; }
WIDE void put(float *p, v8 x) { memcpy(p, &x, 32); }
WIDE v8 choose(i8 which, v8 a, v8 b) { return (v8)(((i8)a & which) | ((i8)b & ~which)); }
/* a b + c, rounded once. */
#if defined(__x86_64__)
WIDE v8 fused(v8 a, v8 b, v8 c) { return (v8)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
#else
WIDE v8 fused(v8 a, v8 b, v8 c) {
    for (int i = 0; i < 8; i++) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return c;
}
#endif
/* x by to the nearest whole number, halves to the even one; for less than 2^22. */
WIDE v8 whole(v8 x, v8 by) { v8 far = all(12582912.0f); return fused(x, by, far) - far; }
#if defined(__x86_64__)
WIDE v8 larger(v8 a, v8 b) { return (v8)_mm256_max_ps((__m256)a, (__m256)b); } /* the same: b where one is NaN */
#else
WIDE v8 larger(v8 a, v8 b) { return choose(a > b, a, b); }
#endif
WIDE v8 size(v8 x) { return (v8)((i8)x & 0x7fffffff); }

WIDE float total(v8 x) { return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7])); }
WIDE float largest(v8 x) {
    float most = x[0];
    for (int i = 1; i < 8; i++) most = x[i] > most ? x[i] : most;
    return most;
}

/* 2^x for x <= 127, relative error 2e-7; 2^-126 for all below -126. NaN is kept. */
WIDE v8 power(v8 x) {
    x = choose(x < -126.0f, all(-126.0f), x);
    v8 n = whole(x, all(1.0f)), f = x - n, y = all(1.5403530e-4f);
    y = fused(y, f, all(1.3333558e-3f));
    y = fused(y, f, all(9.6181291e-3f));
    y = fused(y, f, all(5.5504109e-2f));
    y = fused(y, f, all(2.4022651e-1f));
    y = fused(y, f, all(6.9314718e-1f));
    y = fused(y, f, all(1.0f));
    return y * (v8)((__builtin_convertvector(n, i8) + 127) << 23);
}

/* x (1 + erf(x / sqrt 2)) / 2 with the quotient of polynomials that XLA and Eigen take for erf, error 2e-7. */
WIDE v8 gelu(v8 x) {
    v8 z = x * 0.70710678f, one = all(4.0f);
    z = choose(z > one, one, choose(z < -one, -one, z));
    v8 s = z * z, p = fused(s, all(-2.72614225801306e-10f), all(2.77068142495902e-08f)), q;
    p = fused(p, s, all(-2.10102402082508e-06f));
    p = fused(p, s, all(-5.69250639462346e-05f));
    p = fused(p, s, all(-7.34990630326855e-04f));
    p = fused(p, s, all(-2.95459980854025e-03f));
    p = fused(p, s, all(-1.60960333262415e-02f));
    q = fused(s, all(-1.45660718464996e-05f), all(-2.13374055278905e-04f));
    q = fused(q, s, all(-1.68282697438203e-03f));
    q = fused(q, s, all(-7.37332916720468e-03f));
    q = fused(q, s, all(-1.42647390514189e-02f));
    v8 half = x * 0.5f, erf = (z * p) / q;
    return fused(half, erf, half);
}

/* x / (1 + exp(-2 sqrt(2 / pi) (x + 0.044715 x^3))). */
WIDE v8 gelu_tanh(v8 x) {
    v8 square = x * x, cube = fused(square, all(0.044715f), all(1.0f)), s = (x * cube) * -2.302208198f;
    return x / (power(choose(s > 126.0f, all(126.0f), s)) + 1.0f);
}

WIDE v8 silu(v8 x) {
    v8 s = x * -1.44269504f;
    return x / (power(choose(s > 126.0f, all(126.0f), s)) + 1.0f);
}

WIDE v8 activated(v8 x, int activation) {
    switch (activation) {
        case RELU: return choose(x < 0.0f, all(0.0f), x);
        case GELU: return gelu(x);
        case GELU_TANH: return gelu_tanh(x);
        case SILU: return silu(x);
    }
    return x;
}

/* -------- rows to bytes */

/* Rounds a row to 128 + (-127 .. 127) and gives its scale; what is not finite makes the scale NaN. */
WIDE float round_row(const float *x, int64_t width, uint8_t *out) {
    v8 most = all(0.0f), odd = all(0.0f);
    for (int64_t j = 0; j < width; j += 8) {
        v8 v = get(x + j);
        most = larger(size(v), most);
        odd += v * 0.0f;
    }
    float scale = largest(most);
    scale = scale < 1e-30f ? 1e-30f : scale;
    v8 by = all(127.0f / scale);
    for (int64_t j = 0; j < width; j += 8) {
        i8 n = __builtin_convertvector(whole(get(x + j), by), i8) + 128;
        b8 bytes = __builtin_convertvector(n, b8);
        memcpy(out + j, &bytes, 8);
    }
    return scale / 127.0f + total(odd);
}

FOR void quantise_rows(const float *x, int64_t rows, int64_t width, uint8_t *out, float *scales) {
    for (int64_t r = 0; r < rows; r++) scales[r] = round_row(x + r * width, width, out + r * width);
}

/* -------- behind a product */

/* What a whole number of a product stands for: x (scale of the row) (scale of the column) + bias. */
WIDE v8 scaled(const Scaled *s, const float *x, v8 by, int64_t j) {
    v8 y = get(x + j) * get(s->column_scale + j);
    return y * by + (s->bias ? get(s->bias + j) : all(0.0f));
}

/* ``into`` and ``activation`` are constants where this is inlined. */
WIDE void scale_into(const Scaled *s, int into, int activation) {
    int64_t columns = into == GATED ? s->columns / 2 : s->columns;
    for (int64_t r = 0; r < s->rows; r++) {
        const float *x = s->products + r * s->columns;
        float *out = s->bytes ? s->room : s->out + r * columns;
        v8 by = all(s->row_scale[r]);
        for (int64_t j = 0; j < columns; j += 8) {
            v8 y = activated(scaled(s, x, by, j), activation);
            if (into == ADDED) y = get(out + j) + y;
            else if (into == GATED) y = y * scaled(s, x, by, columns + j);
            put(out + j, y);
        }
        if (s->bytes) s->scales[r] = round_row(s->room, columns, s->bytes + r * columns);
    }
}

FOR void scale_rows(const Scaled *s) {
    if (s->into == ADDED) scale_into(s, ADDED, NONE);
    else if (s->into == GATED && s->activation == GELU) scale_into(s, GATED, GELU);
    else if (s->into == GATED) scale_into(s, GATED, s->activation);
    else if (s->activation == NONE) scale_into(s, STORED, NONE);
    else if (s->activation == GELU) scale_into(s, STORED, GELU);
    else scale_into(s, STORED, s->activation);
}

/* -------- products of bytes */

#define EIGHT 8         /* columns of a panel, and rows that are multiplied together at least */
#define TOGETHER 4      /* steps of four inputs in a group, some of which may be empty */
#define GROUP_BYTES 128 /* of a group's weights: for each step, four inputs of each column */

#if defined(__x86_64__)
typedef struct {
    uint8_t sums[32]; /* of positive and of negative weights in each of 16 places */
    int size, most;
    int32_t at[TOGETHER];
} Group;
#else
typedef struct { int unused; } Group;
#endif

/* Groups of steps one after the other, for instructions that add up products in 32 bits. */
FOR void pack_in_order(const int8_t *weight, int64_t outputs, int64_t inputs, int64_t *starts, int32_t *at, int8_t *packed) {
    starts[0] = 0;
    for (int64_t first = 0; first < outputs; first += EIGHT, starts++) {
        starts[1] = starts[0] + (inputs + 4 * TOGETHER - 1) / (4 * TOGETHER);
        for (int64_t step = 0; step < inputs && packed; step += 4) {
            int8_t *out = packed + starts[0] * GROUP_BYTES + step * EIGHT;
            at[starts[0] * TOGETHER + step / 4] = (int32_t)step;
            for (int c = 0; c < EIGHT; c++) memcpy(out + 4 * c, weight + (first + c) * inputs + step, 4);
        }
    }
}

#if defined(__x86_64__)
/* Where no instruction adds up four products of bytes. VPMADDUBSW adds products of two bytes in 16 bits, which is wide
 * enough for more of them where weights are small: with rows of 1 .. 255, as long as positive weights add up to 128 at
 * most, and negative ones. Which four steps of eight columns may be added up so, is found when a weight is packed; two
 * instructions then widen four sums and not one. All sums are exact, and equal to oneDNN's.
 */

#define LARGEST_SUM 128

/* What four inputs of a panel's columns add to sums, as a group of one. */
FOR void group_of(const int8_t *weight, int64_t inputs, int64_t step, Group *g) {
    memset(g, 0, sizeof(Group));
    g->size = 1, g->at[0] = (int32_t)(4 * step);
    for (int c = 0; c < EIGHT; c++)
        for (int i = 0; i < 4; i++) {
            int w = weight[c * inputs + 4 * step + i];
            uint8_t *sum = g->sums + 2 * c + i / 2 + (w < 0 ? 16 : 0);
            *sum = (uint8_t)(*sum + (w < 0 ? -w : w));
            g->most = *sum > g->most ? *sum : g->most;
        }
}

/* Puts a panel's steps, those with large weights first, into the first group with room; returns how many there are. */
FOR int64_t group_steps(const int8_t *weight, int64_t inputs, Group *groups) {
    int64_t steps = inputs / 4, count = 0, open = 0;
    Group *each = groups + steps;
    for (int64_t step = 0; step < steps; step++) group_of(weight, inputs, step, each + step);
    for (int most = LARGEST_SUM; most >= 0; most--)
        for (int64_t step = 0; step < steps; step++) {
            if (each[step].most != most) continue;
            int64_t g = open;
            for (; g < count; g++) {
                int fits = groups[g].size < TOGETHER;
                for (int i = 0; i < 32; i++) fits &= groups[g].sums[i] + each[step].sums[i] <= LARGEST_SUM;
                if (fits) break;
            }
            if (g == count) memset(groups + count++, 0, sizeof(Group));
            for (int i = 0; i < 32; i++) groups[g].sums[i] = (uint8_t)(groups[g].sums[i] + each[step].sums[i]);
            groups[g].at[groups[g].size++] = each[step].at[0];
            while (open < count && groups[open].size == TOGETHER) open++;
        }
    return count;
}

FOR void pack_in_groups(const int8_t *weight, int64_t outputs, int64_t inputs, Group *groups, int64_t *starts, int32_t *at,
                        int8_t *packed) {
    starts[0] = 0;
    for (int64_t first = 0; first < outputs; first += EIGHT, starts++, weight += EIGHT * inputs) {
        int64_t count = group_steps(weight, inputs, groups);
        starts[1] = starts[0] + count;
        for (int64_t g = 0; g < count && packed; g++, at += TOGETHER, packed += GROUP_BYTES) {
            memcpy(at, groups[g].at, sizeof groups[g].at);
            for (int s = 0; s < groups[g].size; s++)
                for (int c = 0; c < EIGHT; c++) memcpy(packed + 32 * s + 4 * c, weight + c * inputs + at[s], 4);
        }
    }
}

/* Adds the products of eight rows and eight columns to c. */
FOR void sum_groups(const uint8_t *const *x, int64_t inputs, const int32_t *at, const int8_t *w, int64_t groups, i8 c[EIGHT]) {
    __m256i ones = _mm256_set1_epi16(1);
    (void)inputs;
    for (int64_t g = 0; g < groups; g++, at += TOGETHER, w += GROUP_BYTES) {
        __m256i b[TOGETHER];
        for (int i = 0; i < TOGETHER; i++) b[i] = _mm256_loadu_si256((const __m256i *)(w + 32 * i));
        for (int r = 0; r < EIGHT; r++) {
            __m256i sum;
            for (int i = 0; i < TOGETHER; i++) {
                int32_t four;
                memcpy(&four, x[r] + at[i], 4);
                __m256i more = _mm256_maddubs_epi16(_mm256_set1_epi32(four), b[i]);
                sum = i ? _mm256_add_epi16(sum, more) : more;
            }
            c[r] += (i8)_mm256_madd_epi16(sum, ones);
        }
    }
}

#define DOT_ROWS 12 /* sums at the same time, as many as an instruction's latency and the registers ask for */

/* The same for DOT_ROWS rows by VPDPBUSD, which adds up four products in 32 bits. */
FOR void sum_dots(const uint8_t *const *x, int64_t inputs, const int32_t *at, const int8_t *w, int64_t groups, i8 c[DOT_ROWS]) {
    i8 s[DOT_ROWS];
    (void)at, (void)groups;
    UNROLL for (int r = 0; r < DOT_ROWS; r++) s[r] = c[r];
    for (int64_t i = 0; i < inputs; i += 4, w += 4 * EIGHT) {
        i8 b;
        memcpy(&b, w, 32);
        UNROLL for (int r = 0; r < DOT_ROWS; r++) {
            int32_t four;
            memcpy(&four, x[r] + i, 4);
            ADD_BYTES(s[r], (i8)_mm256_set1_epi32(four), b);
        }
    }
    UNROLL for (int r = 0; r < DOT_ROWS; r++) c[r] = s[r];
}

#define START(zeros) (-(zeros)) /* bytes are read as 0 .. 255 */
#else
/* On ARM, bytes less 128 fit into signed ones. SDOT adds up four products; without it, four products of a byte and a
 * weight fit into 16 bits (4 * 127 * 63 < 2^15).
 */

/* 16 numbers of a row; zeros behind its end. */
WIDE int8x16_t signed_bytes(const uint8_t *x, int64_t left) {
    uint8_t some[16];
    if (left >= 16) return vreinterpretq_s8_u8(veorq_u8(vld1q_u8(x), vdupq_n_u8(128)));
    memset(some, 128, 16);
    memcpy(some, x, (size_t)left);
    return vreinterpretq_s8_u8(veorq_u8(vld1q_u8(some), vdupq_n_u8(128)));
}

#define LOAD_GROUP(b, w) for (int i = 0; i < 2 * TOGETHER; i++) b[i] = vld1q_s8((w) + 16 * i)

/* Adds the products of eight rows and eight columns to c. */
__attribute__((target("arch=armv8.2-a+dotprod")))
FOR void sum_dots(const uint8_t *const *x, int64_t inputs, const int32_t *at, const int8_t *w, int64_t groups, i8 c[EIGHT]) {
    int32x4_t s[EIGHT][2];
    (void)at;
    memcpy(s, c, sizeof s);
    for (int64_t g = 0; g < groups; g++, w += GROUP_BYTES) {
        int8x16_t b[2 * TOGETHER];
        LOAD_GROUP(b, w);
        for (int r = 0; r < EIGHT; r++) {
            int8x16_t a = signed_bytes(x[r] + 16 * g, inputs - 16 * g);
            for (int half = 0; half < 2; half++) {
                s[r][half] = vdotq_laneq_s32(s[r][half], b[half], a, 0);
                s[r][half] = vdotq_laneq_s32(s[r][half], b[2 + half], a, 1);
                s[r][half] = vdotq_laneq_s32(s[r][half], b[4 + half], a, 2);
                s[r][half] = vdotq_laneq_s32(s[r][half], b[6 + half], a, 3);
            }
        }
    }
    memcpy(c, s, sizeof s);
}

FOR void sum_groups(const uint8_t *const *x, int64_t inputs, const int32_t *at, const int8_t *w, int64_t groups, i8 c[EIGHT]) {
    int32x4_t s[EIGHT][2];
    (void)at;
    memcpy(s, c, sizeof s);
    for (int64_t g = 0; g < groups; g++, w += GROUP_BYTES) {
        int8x16_t b[2 * TOGETHER];
        LOAD_GROUP(b, w);
        for (int r = 0; r < EIGHT; r++) {
            int32x4_t a = vreinterpretq_s32_s8(signed_bytes(x[r] + 16 * g, inputs - 16 * g));
            int8x16_t four[TOGETHER] = {vreinterpretq_s8_s32(vdupq_laneq_s32(a, 0)), vreinterpretq_s8_s32(vdupq_laneq_s32(a, 1)),
                                        vreinterpretq_s8_s32(vdupq_laneq_s32(a, 2)), vreinterpretq_s8_s32(vdupq_laneq_s32(a, 3))};
            for (int half = 0; half < 2; half++) {
                int16x8_t low = vmull_s8(vget_low_s8(four[0]), vget_low_s8(b[half]));
                int16x8_t high = vmull_high_s8(four[0], b[half]);
                for (int i = 1; i < TOGETHER; i++) {
                    low = vmlal_s8(low, vget_low_s8(four[i]), vget_low_s8(b[2 * i + half]));
                    high = vmlal_high_s8(high, four[i], b[2 * i + half]);
                }
                s[r][half] = vaddq_s32(s[r][half], vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
            }
        }
    }
    memcpy(c, s, sizeof s);
}

#define START(zeros) ((zeros) * 0)
#define DOT_ROWS EIGHT
#endif

/* starts: (panels + 1) groups before each panel; at, packed: of each group, NULL while they are counted. */
FOR void pack_weight(const int8_t *weight, int64_t outputs, int64_t inputs, Group *groups, int64_t *starts, int32_t *at,
                     int8_t *packed, int dots) {
#if defined(__x86_64__)
    if (!dots) {
        pack_in_groups(weight, outputs, inputs, groups, starts, at, packed);
        return;
    }
#endif
    (void)groups, (void)dots;
    pack_in_order(weight, outputs, inputs, starts, at, packed);
}

/* Whole numbers of products, as floats: (rows, columns). */
FOR void multiply_rows(const Grouped *p, const uint8_t *rows, int64_t count, float *out) {
    void (*sum)(const uint8_t *const *, int64_t, const int32_t *, const int8_t *, int64_t, i8 *) =
        p->dots ? sum_dots : sum_groups;
    const int tall = p->dots ? DOT_ROWS : EIGHT;
    for (int64_t panel = 0; panel < p->columns / EIGHT; panel++) {
        int64_t first = p->starts[panel];
        i8 zeros;
        memcpy(&zeros, p->zeros + panel * EIGHT, 32);
        for (int64_t row = 0; row < count; row += tall) {
            const uint8_t *x[DOT_ROWS];
            i8 c[DOT_ROWS];
            for (int r = 0; r < tall; r++) x[r] = rows + (row + r < count ? row + r : count - 1) * p->inputs, c[r] = START(zeros);
            sum(x, p->inputs, p->at + first * TOGETHER, p->packed + first * GROUP_BYTES, p->starts[panel + 1] - first, c);
            for (int r = 0; r < tall && row + r < count; r++) {
                v8 y = __builtin_convertvector(c[r], v8);
                put(out + (row + r) * p->columns + panel * EIGHT, y);
            }
        }
    }
}

/* room: ROWS_AT_ONCE rows of products. */
FOR void multiply_and_scale(const Grouped *p, Scaled *s, const uint8_t *rows, int64_t count, float *room) {
    int64_t width = s->into == GATED ? s->columns / 2 : s->columns;
    s->products = room;
    for (int64_t first = 0; first < count; first += s->rows) {
        s->rows = count - first < ROWS_AT_ONCE ? count - first : ROWS_AT_ONCE;
        multiply_rows(p, rows + first * p->inputs, s->rows, room);
        scale_rows(s);
        s->row_scale += s->rows;
        if (s->bytes) s->bytes += s->rows * width, s->scales += s->rows;
        else s->out += s->rows * width;
    }
}

/* -------- norms */

FOR void norm_rows(const Norm *n) {
    for (int64_t r = 0; r < n->rows; r++) {
        float *x = n->x + r * n->width, *out = n->gain ? x : n->out ? n->out + r * n->width : n->room;
        v8 sum = all(0.0f), squares = all(0.0f);
        float mean = 0.0f;
        if (n->gain) {
            for (int64_t j = 0; j < n->width; j += 8) sum += get(x + j);
            mean = total(sum) / (float)n->width;
        }
        for (int64_t j = 0; j < n->width; j += 8) {
            v8 d = get(x + j) - mean;
            squares = fused(d, d, squares);
        }
        v8 by = all(1.0f / sqrtf(total(squares) / (float)n->width + n->eps));
        for (int64_t j = 0; j < n->width; j += 8) {
            v8 d = (get(x + j) - mean) * by;
            if (n->gain) d = d * get(n->gain + j) + (n->shift ? get(n->shift + j) : all(0.0f));
            put(out + j, d);
        }
        if (n->bytes) n->scales[r] = round_row(out, n->width, n->bytes + r * n->width);
    }
}

/* -------- attention */

#define TALL 4 /* queries that are looked at together */

/* Scores to weights, zero behind the last; gives one over their sum. */
WIDE float weigh(float *scores, int64_t length, int64_t places) {
    v8 most = all(-3.0e38f), sum = all(0.0f);
    for (int64_t j = length; j < places; j++) scores[j] = -3.0e38f;
    for (int64_t j = 0; j < places; j += 8) most = larger(get(scores + j), most);
    most = all(largest(most));
    for (int64_t j = 0; j < places; j += 8) {
        v8 y = power(get(scores + j) - most);
        put(scores + j, y);
    }
    for (int64_t j = length; j < places; j++) scores[j] = 0.0f;
    for (int64_t j = 0; j < places; j += 8) sum += get(scores + j);
    return 1.0f / total(sum);
}

/* Attention in whole numbers of 16 bits, whose sums of pairs of products are exact: with AVX2 twice as quick as with
 * floats. Queries have a unit each, a head's keys one, each column of its values one, as large as sums in 32 bits
 * allow. Pairs are numbers i and i + 8 of 16; of tokens, too.
 */

#define TOP_WEIGHT 32766.0f /* of the largest score */
#define TOP_VALUE 1023.0f   /* 64 products with weights fit into 32 bits */
#define ADDED_PAIRS 32

typedef struct {
    int64_t length, places, d;  /* places: length in whole pairs of 8 */
    float top, key_unit;        /* top: of queries' and keys' numbers */
    int32_t *keys, *values, *weights, *queries;
    float *scores, *value_units;
} Head;

WIDE i8 get_whole(const int32_t *p) { i8 x; memcpy(&x, p, 32); return x; }
WIDE void put_whole(int32_t *p, i8 x) { memcpy(p, &x, 32); }
/* The nearest whole numbers in the last 16 bits, halves to the even one. */
WIDE i8 near(v8 x, v8 by) { return (i8)fused(x, by, all(12582912.0f)); }

/* The last 16 bits of both; sum + (products of both halves of a and b). */
#if defined(__x86_64__)
WIDE i8 paired(i8 low, i8 high) { return (i8)_mm256_blend_epi16((__m256i)low, (__m256i)(high << 16), 0xaa); }
WIDE i8 add_pairs(i8 sum, i8 a, i8 b, const int dots) {
    if (dots) ADD_WORDS(sum, a, b);
    else sum += (i8)_mm256_madd_epi16((__m256i)a, (__m256i)b);
    return sum;
}
#else
WIDE i8 paired(i8 low, i8 high) { return (low & 0xffff) | (high << 16); }
WIDE i8 add_pairs(i8 sum, i8 a, i8 b, const int dots) {
    int16x8_t x[2], y[2];
    int32x4_t more[2];
    i8 both;
    (void)dots;
    memcpy(x, &a, 32), memcpy(y, &b, 32);
    for (int h = 0; h < 2; h++)
        more[h] = vpaddq_s32(vmull_s16(vget_low_s16(x[h]), vget_low_s16(y[h])), vmull_high_s16(x[h], y[h]));
    memcpy(&both, more, 32);
    return sum + both;
}
#endif

/* ``top`` over the largest number, 0 for rows of zeros; unit: what 1 then stands for, NaN where one is not finite. */
WIDE v8 rounder(v8 largest_sizes, v8 odd, float top, v8 *unit) {
    *unit = largest_sizes / top + odd;
    return choose(largest_sizes > 0.0f, top / largest_sizes, all(0.0f));
}

/* One unit for rows of d numbers, ``step`` apart. */
WIDE v8 round_all(const float *x, int64_t step, int64_t rows, int64_t d, float top, float *unit) {
    v8 most = all(0.0f), odd = all(0.0f), units;
    for (int64_t j = 0; j < rows; j++)
        for (int64_t i = 0; i < d; i += 8) {
            v8 v = get(x + j * step + i);
            most = larger(size(v), most);
            odd += v * 0.0f;
        }
    v8 by = rounder(all(largest(most)), all(total(odd)), top, &units);
    *unit = units[0];
    return by;
}

/* keys: for each 16 keys, each pair of numbers; values: for each 16 columns, each pair of tokens. */
WIDE void lay_out(Head *h, const float *k, int64_t step) {
    const float *v = k + step / 3;
    v8 by = round_all(k, step, h->length, h->d, h->top, &h->key_unit);
    for (int64_t j = 0; j < h->places; j++)
        for (int64_t i = 0; i < h->d; i += 16) {
            const float *x = k + j * step + i;
            int32_t *out = h->keys + j / 16 * 16 * (h->d / 2) + i / 2 * 16 + j % 16;
            i8 both = j < h->length ? paired(near(get(x), by), near(get(x + 8), by)) : (i8){0};
            for (int c = 0; c < 8; c++) out[16 * c] = both[c];
        }
    for (int64_t i = 0; i < h->d; i += 8) {
        v8 most = all(0.0f), odd = all(0.0f), unit;
        int32_t *out = h->values + i / 16 * 16 * (h->places / 2) + i % 16;
        for (int64_t j = 0; j < h->length; j++) {
            v8 x = get(v + j * step + i);
            most = larger(size(x), most);
            odd += x * 0.0f;
        }
        by = rounder(most, odd, TOP_VALUE, &unit);
        put(h->value_units + i, unit);
        for (int64_t j = 0; j < h->places; j += 16)
            for (int64_t p = j; p < j + 8; p++, out += 16) {
                i8 low = p < h->length ? near(get(v + p * step + i), by) : (i8){0};
                i8 high = p + 8 < h->length ? near(get(v + (p + 8) * step + i), by) : (i8){0};
                put_whole(out, paired(low, high));
            }
    }
}

/* c[r]: sums of row r's pairs times those of 16 columns. */
WIDE void sum_pairs(const int dots, const int32_t *rows, int64_t step, const int32_t *columns, int64_t pairs, i8 c[TALL][2]) {
    for (int r = 0; r < TALL; r++) c[r][0] = c[r][1] = (i8){0};
    for (int64_t s = 0; s < pairs; s++, columns += 16) {
        i8 low = get_whole(columns), high = get_whole(columns + 8);
        for (int r = 0; r < TALL; r++) {
            i8 a = rows[r * step + s] + (i8){0};
            c[r][0] = add_pairs(c[r][0], a, low, dots);
            c[r][1] = add_pairs(c[r][1], a, high, dots);
        }
    }
}

/* Scores of TALL queries, their pairs in h, lowest behind the last key; most: of each query, its largest ones. */
WIDE void score(const int dots, const Head *h, const float *units, const float *const *bias, v8 most[TALL]) {
    const i8 each = {0, 1, 2, 3, 4, 5, 6, 7};
    for (int r = 0; r < TALL; r++) most[r] = all(-3.0e38f);
    for (int64_t j = 0; j < h->places; j += 16) {
        i8 c[TALL][2];
        sum_pairs(dots, h->queries, h->d / 2, h->keys + j * (h->d / 2), h->d / 2, c);
        for (int r = 0; r < TALL; r++)
            for (int i = 0; i < 2; i++) {
                v8 added = bias[r] ? get(bias[r] + j + 8 * i) : all(0.0f);
                v8 t = fused(__builtin_convertvector(c[r][i], v8), all(units[r]), added);
                if (j + 16 > h->length) t = choose(each < (int32_t)(h->length - j - 8 * i), t, all(-3.0e38f));
                most[r] = larger(t, most[r]);
                put(h->scores + r * h->places + j + 8 * i, t);
            }
    }
}

/* TOP_WEIGHT 2^x to the nearest whole number, for x <= 0; relative error of the power 2.7e-6. */
WIDE i8 weight(v8 x) {
    v8 far = all(12582912.0f), n = larger(x, all(-30.0f)) + far, f = larger(x, all(-30.0f)) - (n - far);
    v8 y = fused(f, all(TOP_WEIGHT * 9.57010179e-3f), all(TOP_WEIGHT * 5.59178603e-2f));
    y = fused(y, f, all(TOP_WEIGHT * 2.40247448e-1f));
    y = fused(y, f, all(TOP_WEIGHT * 6.93121815e-1f));
    y = fused(y, f, all(TOP_WEIGHT * 9.99999261e-1f));
    y = (v8)((i8)y + ((i8)n << 23)) + far; /* its last bits are the whole number */
    return (i8)y;
}

/* Weights 2^(score - largest) of pairs of tokens, and the inverse of their sum. */
WIDE float weigh_pairs(const int dots, const Head *h, int r, v8 largest_scores) {
    const float *scores = h->scores + r * h->places;
    v8 most = all(largest(largest_scores));
    i8 sum = {0}, ones = 0x10001 + (i8){0};
    for (int64_t j = 0; j < h->places; j += 16) {
        i8 both = paired(weight(get(scores + j) - most), weight(get(scores + j + 8) - most));
        sum = add_pairs(sum, both, ones, dots);
        put_whole(h->weights + (r * h->places + j) / 2, both);
    }
    int32_t all_of_them = 0;
    for (int i = 0; i < 8; i++) all_of_them += sum[i];
    return 1.0f / (float)all_of_them;
}

/* Means of 16 columns of values from column i on, for TALL queries, ``tall`` of which are stored. */
WIDE void hear(const int dots, const Head *h, int64_t i, const float *by, int tall, float *out, int64_t step) {
    const int32_t *values = h->values + i * (h->places / 2);
    v8 sums[TALL][2];
    for (int r = 0; r < TALL; r++) sums[r][0] = sums[r][1] = all(0.0f);
    for (int64_t s = 0; s < h->places / 2; s += ADDED_PAIRS) {
        i8 c[TALL][2];
        int64_t pairs = h->places / 2 - s < ADDED_PAIRS ? h->places / 2 - s : ADDED_PAIRS;
        sum_pairs(dots, h->weights + s, h->places / 2, values + 16 * s, pairs, c);
        for (int r = 0; r < TALL; r++)
            for (int w = 0; w < 2; w++) sums[r][w] += __builtin_convertvector(c[r][w], v8);
    }
    for (int r = 0; r < tall; r++)
        for (int w = 0; w < 2; w++) put(out + r * step + i + 8 * w, sums[r][w] * (get(h->value_units + i + 8 * w) * by[r]));
}

/* The next head's numbers stand in other pages: processors do not foresee them. */
WIDE void prefetch(const float *x, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch((const char *)x + i, 0, 2);
}

/* 0, or NaN where a number of a bias is not finite. */
WIDE float oddness(const float *bias, int64_t length) {
    float odd = 0.0f;
    for (int64_t j = 0; j < length; j++) odd += bias[j] * 0.0f;
    return odd;
}

WIDE void attend_head(const int dots, const Attention *a, int64_t start, int64_t length, int64_t head, Head *h) {
    int64_t d = a->d, step = 3 * a->heads * d;
    const float *own = a->qkv + start * step + head * d;
    const float *table = a->bias ? a->bias + head * a->stride + a->centre : NULL;
    float odd = table ? oddness(table - length, 2 * length) : 0.0f;
    h->length = length, h->places = (length + 15) / 16 * 16;
    lay_out(h, own + step / 3, step);
    for (int64_t first = 0; first < length; first += TALL) {
        int tall = length - first < TALL ? (int)(length - first) : TALL;
        const float *bias[TALL];
        float by[TALL], units[TALL];
        v8 most[TALL];
        for (int r = 0; r < TALL; r++) {
            int64_t query = first + (r < tall ? r : tall - 1);
            const float *x = own + query * step;
            for (int part = 0; part < 3; part++) prefetch(x + d + part * (step / 3), d * 4);
            v8 to_whole = round_all(x, 0, 1, d, h->top, units + r);
            for (int64_t i = 0; i < d; i += 16)
                put_whole(h->queries + (r * d + i) / 2, paired(near(get(x + i), to_whole), near(get(x + i + 8), to_whole)));
            units[r] *= h->key_unit;
            bias[r] = table ? table - query : NULL;
        }
        score(dots, h, units, bias, most);
        for (int r = 0; r < TALL; r++) by[r] = weigh_pairs(dots, h, r, most[r]) + (0.0f * units[r] + odd);
        for (int64_t i = 0; i < d; i += 16)
            hear(dots, h, i, by, tall, a->out + ((start + first) * a->heads + head) * d, a->heads * d);
    }
}

FOR void attend_by_dots(const Attention *a, int64_t start, int64_t length, int64_t head, Head *h) {
    attend_head(1, a, start, length, head, h);
}
FOR void attend_without(const Attention *a, int64_t start, int64_t length, int64_t head, Head *h) {
    attend_head(0, a, start, length, head, h);
}

/* room: as many numbers as attention_room says, from an address that is a multiple of 32. */
FOR void attend_rows(const Attention *a, float *room, int64_t places) {
    int64_t d = a->d;
    float top = floorf(sqrtf(2147480000.0f / (float)d)); /* d top^2 < 2^31, which a float of 2^31 - 1 is */
    Head h = {.d = d, .top = top < 32767.0f ? top : 32767.0f};
    h.keys = (int32_t *)room, h.values = h.keys + places * (d / 2), h.weights = h.values + places / 2 * d;
    h.scores = (float *)(h.weights + TALL * places / 2), h.queries = (int32_t *)(h.scores + TALL * places);
    h.value_units = (float *)(h.queries + TALL * d / 2);
    for (int64_t row = 0; row < a->rows; row++)
        for (int64_t head = 0; head < a->heads; head++)
            (a->dots ? attend_by_dots : attend_without)(a, a->ends[row], a->ends[row + 1] - a->ends[row], head, &h);
}

#define AT_ONCE 4  /* tokens whose scores are summed side by side */
#define ABREAST 8  /* registers of columns that are */

/* Scores of AT_ONCE tokens from j on; those behind the last are not stored. */
WIDE void score_once(const float *q, const float *keys, int64_t step, int64_t width, int64_t j, int64_t length, float *scores) {
    const float *k[AT_ONCE];
    v8 c[AT_ONCE];
    for (int t = 0; t < AT_ONCE; t++) k[t] = keys + (j + t < length ? j + t : length - 1) * step, c[t] = all(0.0f);
    for (int64_t i = 0; i < width; i += 8) {
        v8 a = get(q + i);
        for (int t = 0; t < AT_ONCE; t++) c[t] = fused(a, get(k[t] + i), c[t]);
    }
    for (int t = 0; t < AT_ONCE && j + t < length; t++) scores[j + t] = total(c[t]) * 1.44269504f;
}

/* n registers of columns of a head's result. */
WIDE void hear_once(const int n, const float *scores, float by, const float *values, int64_t step, int64_t length, float *out) {
    v8 c[ABREAST];
    for (int w = 0; w < n; w++) c[w] = all(0.0f);
    for (int64_t j = 0; j < length; j++, values += step) {
        v8 a = all(scores[j]);
        for (int w = 0; w < n; w++) c[w] = fused(a, get(values + 8 * w), c[w]);
    }
    for (int w = 0; w < n; w++) put(out + 8 * w, c[w] * by);
}

/* Heads are looped inside, since they may read the same numbers. room: for each head, its row's scores and one more. */
FOR void once_rows(const Once *o, float *room) {
    for (int64_t row = 0; row < o->rows; row++) {
        int64_t start = o->ends[row], length = o->ends[row + 1] - start, i = 0;
        length = length < o->most ? length : o->most;
        int64_t places = (length + 7) / 8 * 8;
        const float *q = o->queries + row * o->heads * o->width;
        const float *keys = o->keys + start * o->step, *values = o->values + start * o->step;
        float *by = room + o->heads * places, *out = o->out + row * o->heads * o->width;
        for (int64_t j = 0; j < length; j += AT_ONCE)
            for (int64_t h = 0; h < o->heads; h++)
                score_once(q + h * o->width, keys + h * o->head_step, o->step, o->width, j, length, room + h * places);
        for (int64_t h = 0; h < o->heads; h++) by[h] = weigh(room + h * places, length, places);
        for (; i + 8 * ABREAST <= o->width; i += 8 * ABREAST)
            for (int64_t h = 0; h < o->heads; h++)
                hear_once(ABREAST, room + h * places, by[h], values + h * o->head_step + i, o->step, length, out + h * o->width + i);
        for (; i < o->width; i += 8)
            for (int64_t h = 0; h < o->heads; h++)
                hear_once(1, room + h * places, by[h], values + h * o->head_step + i, o->step, length, out + h * o->width + i);
    }
}

/* -------- products of few rows */

#define COLUMNS 16

/* Eight weights, of float32 or of bf16. */
WIDE v8 weights_at(const Affine *p, int64_t i, const int halved) {
    u8 rounded;
    if (!halved) return get((const float *)p->weight + i);
    memcpy(&rounded, (const uint16_t *)p->weight + i, 16);
    return (v8)(__builtin_convertvector(rounded, i8) << 16);
}

/* x Wᵀ + b for a weight that lies in panels of COLUMNS columns. */
WIDE void affine_by(const Affine *p, const int halved) {
    for (int64_t panel = 0; panel < p->panels; panel++)
        for (int64_t first = 0; first < p->rows; first += TALL) {
            const float *x[TALL];
            v8 c[TALL][2];
            for (int r = 0; r < TALL; r++) {
                x[r] = p->x + (first + r < p->rows ? first + r : p->rows - 1) * p->inputs;
                c[r][0] = get(p->bias + panel * COLUMNS);
                c[r][1] = get(p->bias + panel * COLUMNS + 8);
            }
            for (int64_t i = 0; i < p->inputs; i++) {
                int64_t at = (panel * p->inputs + i) * COLUMNS;
                v8 low = weights_at(p, at, halved), high = weights_at(p, at + 8, halved);
                for (int r = 0; r < TALL; r++) {
                    v8 a = all(x[r][i]);
                    c[r][0] = fused(a, low, c[r][0]);
                    c[r][1] = fused(a, high, c[r][1]);
                }
            }
            for (int r = 0; r < TALL && first + r < p->rows; r++) {
                float *out = p->out + (first + r) * p->panels * COLUMNS + panel * COLUMNS;
                put(out, activated(c[r][0], p->activation));
                put(out + 8, activated(c[r][1], p->activation));
            }
        }
}

FOR void affine_rows(const Affine *p) {
    if (p->halved) affine_by(p, 1);
    else affine_by(p, 0);
}
