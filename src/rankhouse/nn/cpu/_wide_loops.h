/* Loops over eight floats at once, in C's vector extensions: the compiler makes AVX2 or NEON of them. Included by
 * _wide.c, which says for which processor. Every sum has one order, and products are fused with additions where it
 * is written and nowhere else, so that results are equal to the bit whatever the processor and the compiler.
 */

typedef float v8 __attribute__((vector_size(32)));
typedef int32_t i8 __attribute__((vector_size(32)));
typedef uint8_t b8 __attribute__((vector_size(8)));

#define WIDE FOR inline __attribute__((always_inline))

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
WIDE v8 larger(v8 a, v8 b) { return choose(a > b, a, b); }
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

/* Scores of TALL queries for all keys, which stand in columns. */
WIDE void score(const float *const *q, const float *keys, int64_t places, int64_t d, const float *const *bias,
                float *out) {
    for (int64_t j = 0; j < places; j += 16) {
        v8 c[TALL][2];
        for (int r = 0; r < TALL; r++) {
            c[r][0] = bias[r] ? get(bias[r] + j) : all(0.0f);
            c[r][1] = bias[r] ? get(bias[r] + j + 8) : all(0.0f);
        }
        for (int64_t i = 0; i < d; i++) {
            v8 low = get(keys + i * places + j), high = get(keys + i * places + j + 8);
            for (int r = 0; r < TALL; r++) {
                v8 a = all(q[r][i]);
                c[r][0] = fused(a, low, c[r][0]);
                c[r][1] = fused(a, high, c[r][1]);
            }
        }
        for (int r = 0; r < TALL; r++) {
            put(out + r * places + j, c[r][0]);
            put(out + r * places + j + 8, c[r][1]);
        }
    }
}

/* Sums of values by weights for TALL queries: columns i and on, 8 of them. */
WIDE void hear(const float *weights, int64_t places, const float *values, int64_t step, int64_t length, v8 *c) {
    for (int r = 0; r < TALL; r++) c[r] = all(0.0f);
    for (int64_t j = 0; j < length; j++) {
        v8 v = get(values + j * step);
        for (int r = 0; r < TALL; r++) c[r] = fused(all(weights[r * places + j]), v, c[r]);
    }
}

FOR void attend_rows(const Attention *a, float *room) {
    int64_t d = a->d, step = 3 * a->heads * d;
    for (int64_t row = 0; row < a->rows; row++)
        for (int64_t head = 0; head < a->heads; head++) {
            int64_t start = a->ends[row], length = a->ends[row + 1] - start, places = (length + 15) / 16 * 16;
            const float *own = a->qkv + start * step + head * d, *values = own + 2 * a->heads * d;
            float *keys = room, *scores = room + d * places;
            for (int64_t i = 0; i < d; i++) {
                for (int64_t j = 0; j < length; j++) keys[i * places + j] = own[j * step + a->heads * d + i];
                for (int64_t j = length; j < places; j++) keys[i * places + j] = 0.0f;
            }
            for (int64_t first = 0; first < length; first += TALL) {
                const float *q[TALL], *bias[TALL];
                float by[TALL];
                for (int r = 0; r < TALL; r++) {
                    int64_t query = first + r < length ? first + r : length - 1;
                    q[r] = own + query * step;
                    bias[r] = a->bias ? a->bias + head * a->stride + a->centre - query : NULL;
                }
                score(q, keys, places, d, bias, scores);
                for (int r = 0; r < TALL; r++) by[r] = weigh(scores + r * places, length, places);
                for (int64_t i = 0; i < d; i += 8) {
                    v8 c[TALL];
                    hear(scores, places, values + i, step, length, c);
                    for (int r = 0; r < TALL && first + r < length; r++)
                        put(a->out + ((start + first + r) * a->heads + head) * d + i, c[r] * by[r]);
                }
            }
        }
}

FOR void once_rows(const Once *o, float *scores) {
    for (int64_t row = 0; row < o->rows; row++) {
        int64_t start = o->ends[row], length = o->ends[row + 1] - start;
        length = length < o->most ? length : o->most;
        for (int64_t head = 0; head < o->heads; head++) {
            const float *q = o->queries + (row * o->heads + head) * o->width;
            const float *keys = o->keys + start * o->step + head * o->head_step;
            const float *values = o->values + start * o->step + head * o->head_step;
            float *out = o->out + (row * o->heads + head) * o->width;
            for (int64_t j = 0; j < length; j++) {
                v8 c = all(0.0f);
                for (int64_t i = 0; i < o->width; i += 8) c = fused(get(q + i), get(keys + j * o->step + i), c);
                scores[j] = total(c) * 1.44269504f;
            }
            float by = weigh(scores, length, (length + 7) / 8 * 8);
            for (int64_t i = 0; i < o->width; i += 8) {
                v8 c = all(0.0f);
                for (int64_t j = 0; j < length; j++) c = fused(all(scores[j]), get(values + j * o->step + i), c);
                put(out + i, c * by);
            }
        }
    }
}

/* -------- products of few rows */

#define COLUMNS 16

/* x Wᵀ + b for a weight that lies in panels of COLUMNS columns. */
FOR void affine_rows(const Affine *p) {
    for (int64_t first = 0; first < p->rows; first += TALL)
        for (int64_t panel = 0; panel < p->panels; panel++) {
            const float *weight = p->weight + panel * p->inputs * COLUMNS, *x[TALL];
            v8 c[TALL][2];
            for (int r = 0; r < TALL; r++) {
                x[r] = p->x + (first + r < p->rows ? first + r : p->rows - 1) * p->inputs;
                c[r][0] = get(p->bias + panel * COLUMNS);
                c[r][1] = get(p->bias + panel * COLUMNS + 8);
            }
            for (int64_t i = 0; i < p->inputs; i++) {
                v8 low = get(weight + i * COLUMNS), high = get(weight + i * COLUMNS + 8);
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
