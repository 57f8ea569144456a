/* The inner loops of a training step of the word-level rankers, forward and back: for x86 processors with AVX-512, or
 * AVX2 and FMA, and for ARM. The loops themselves are in _train_loops.h, compiled for each; choose() takes one.
 *
 * attend      self-attention of narrow heads over rows of tokens end to end
 * norm        layer norm of rows
 * match       products of the rows of two texts' words
 * pool        kernel sums over rows of a match matrix
 * count       the same over stored rows of a text, met by few words; weigh makes scores of such sums
 * half_layer  attention or feed-forward, residual and norm, of one short text
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

#include "../../core/_processor.h"

#if defined(__GNUC__) && (defined(__x86_64__) || defined(__aarch64__))
#define QUICK 1
#define UNROLL _Pragma("GCC unroll 8")
#if defined(__x86_64__)
#define IN_REGISTER(x) __asm__("" : "+v"(x))
#else
#define IN_REGISTER(x) __asm__("" : "+w"(x))
#endif
#define LOG2E 1.44269504f
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

#define HIGHEST 16 /* kernels on each side of a ladder */

/* Kernels of one width at equal distances, half of them on each side of the middle, and perhaps one more on top of
 * them at half the distance: each is the one before it times a power of the similarity, so that two exponentials
 * serve all. Sums are computed without a constant factor of their kernel.
 */
typedef struct {
    int64_t from, half, top;
    float middle, steepness;
    float step;                     /* log2 of the factor by which the kernel at half the distance is larger */
    float reach, far;               /* squared: within, no power leaves the range of floats; beyond, all are zeros */
    float scales[2 * HIGHEST + 16]; /* the constant factors */
} Ladder;

/* Find the kernels' longest ladder; its half is 0 where none serves. */
static Ladder ladder(const Pool *p) {
    Ladder l = {0};
    const float *c = p->centres, *s = p->steepness;
    for (int64_t from = 0, to; from + 4 <= p->kernels; from = to - 1) {
        double apart = (double)c[from] - c[from + 1], width = sqrt(-0.5 * (double)LOG2E / s[from]);
        for (to = from + 1; to < p->kernels && s[to] == s[from]; to++)
            if (fabs(c[to - 1] - c[to] - apart) > 1e-5 * fabs(apart)) break;
        if (to == from + 1) to++;
        int64_t half = (to - from) / 2;
        double outermost = half * fabs(apart) / width;
        if (half <= l.half || half < 2 || half > HIGHEST || outermost > 12 || fabs(apart) > 4 * width) continue;
        l.top = from && s[from - 1] == s[from] && fabs(c[from - 1] - c[from] - apart / 2) < 1e-5 * fabs(apart);
        l.from = from - l.top;
        l.half = half;
        l.middle = (c[from + half - 1] + c[from + half]) / 2;
        l.steepness = s[from];
        l.step = (float)(-s[from] * apart);
        l.reach = (float)(144 * width * width);
        l.far = (float)pow((outermost + 12.7) * width, 2);
        for (int64_t k = l.from; k < from + 2 * half; k++) { /* with the step as rounded: a kernel is 1 at its centre */
            double y = (double)c[k] - l.middle, halves = round(2 * y / apart);
            l.scales[k - l.from] = (float)exp2(-(s[from] * y * y + (double)l.step * halves * y));
        }
    }
    return l;
}

/* Numbers near the smallest a float can hold, which make x86 a hundred times slower, become zeros until restore(). */
static unsigned flush_tiny(void) {
#if defined(__x86_64__)
    unsigned before = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(before | 0x8000);
    return before;
#else
    return 0;
#endif
}
static void restore(unsigned before) {
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(before);
#else
    (void)before;
#endif
}

#define MANY 6 /* most query words that meet stored rows together */
#define AHEAD 2048 /* bytes: stored rows this far on are asked of the memory, which alone does not keep up */

typedef struct {
    const float *query;                /* (q, d) */
    const void *rows;                  /* (rows, d): float32, float16 or int8, as its number's size in bytes says */
    const float *scales;               /* (rows) factors, or NULL for 1 */
    const int64_t *offsets;            /* (texts + 1) where each text's rows begin */
    int64_t texts, q, d, kernels;
    int size, vnni;
    const float *centres, *steepness;  /* (kernels), as in Pool */
    float *counts;                     /* (texts, q, kernels) */
} Stored;

typedef struct {
    float *words, *by; /* (q, wide) as float32 or, where rows are bytes, as 16 bits; (q, 2) what these stand for */
    int16_t *whole;
    int64_t wide;
} Words;

typedef struct {
    const float *counts;                /* (texts, blocks, q, kernels) */
    const float *log_weights, *weights; /* (blocks, kernels) of the logarithms, in base 2, and of counts / (length + 1) */
    const int64_t *lengths;             /* (texts) */
    int64_t texts, blocks, q, kernels;
    float least;                        /* of which a logarithm is taken */
    float *scores;                      /* (texts) */
} Weighing;

typedef struct {
    const float *x;                                         /* (rows, width) */
    const float *inward, *inward_bias;                      /* (inner, width), (inner); with heads three times so many */
    const float *outward, *outward_bias;                    /* (width, inner), (width) */
    const float *gain, *shift;
    int64_t rows, width, inner, heads;                      /* heads: 0 for ReLU in place of attention */
    float scale;                                            /* as in Attention */
    int outer;                                              /* as in Norm */
    float eps;
    float *out;                                             /* (rows, width) */
} Half;

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

typedef struct {
    void (*attend)(const Attention *);
    int (*attend_back)(const Attention *); /* these return 0 where there is no memory */
    void (*norm)(const Norm *);
    int (*norm_back)(const Norm *);
    void (*match)(const Match *), (*match_back)(const Match *);
    int (*count)(const Stored *);
    void (*weigh)(const Weighing *);
    int (*half_layer)(const Half *);
    void (*pool)(const Pool *), (*pool_back)(const Pool *);
    void (*sweep)(const Sweeps *);
    int (*sweep_back)(const Sweeps *);
    void (*grams)(const Grams *), (*grams_back)(const Grams *);
} Loops;

#if defined(__x86_64__)
#define LANES 16
#include "_train_loops.h"
#undef LANES
#define LANES 8
#else
#define LANES 4
#endif
#include "_train_loops.h"
#else
#define QUICK 0
#endif

/* -------- the Python interface */

#if QUICK
static const Loops *chosen; /* by choose(), before any loop is called */
#endif

PyDoc_STRVAR(choose_doc,
             "choose(every)\n\n"
             "Choose loops that this processor runs, with AVX-512 only if every one is allowed. Return the name of\n"
             "their instructions, \"\" where it runs none.");

static PyObject *choose(PyObject *self, PyObject *args) {
    const char *name = "";
    int every;
    if (!PyArg_ParseTuple(args, "p", &every)) return NULL;
#if defined(LANES) && LANES == 8
    if (every && processor_has(AVX512)) chosen = &loops_16, name = "AVX-512";
    else if (processor_has(AVX2)) chosen = &loops_8, name = "AVX2";
#elif QUICK
    chosen = &loops_4, name = "NEON";
#endif
    return PyUnicode_FromString(name);
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
    if (back) memory = chosen->attend_back(&a);
    else chosen->attend(&a);
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
    if (back) memory = chosen->norm_back(&n);
    else chosen->norm(&n);
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
    (back ? chosen->match_back : chosen->match)(&m);
    Py_END_ALLOW_THREADS;
    return finished(1);
}

PyDoc_STRVAR(count_doc,
             "count(query, rows, scales, offsets, texts, q, d, kernels, size, centres, steepness, counts)");

static PyObject *count(PyObject *self, PyObject *args) {
    Stored s = {0};
    Address query, rows, scales, offsets, centres, steepness, counts;
    int memory;
    if (!PyArg_ParseTuple(args, "KKKKLLLLiKKK", &query, &rows, &scales, &offsets, &s.texts, &s.q, &s.d, &s.kernels,
                          &s.size, &centres, &steepness, &counts))
        return NULL;
    s.query = AT(float, query);
    s.rows = AT(void, rows);
    s.scales = AT(float, scales);
    s.offsets = AT(int64_t, offsets);
    s.centres = AT(float, centres);
    s.steepness = AT(float, steepness);
    s.counts = AT(float, counts);
#if defined(__x86_64__)
    s.vnni = chosen == &loops_16 && processor_has(AVX512_VNNI);
#endif
    Py_BEGIN_ALLOW_THREADS;
    memory = chosen->count(&s);
    Py_END_ALLOW_THREADS;
    return finished(memory);
}

PyDoc_STRVAR(weigh_doc, "weigh(counts, log_weights, weights, lengths, texts, blocks, q, kernels, least, scores)");

static PyObject *weigh(PyObject *self, PyObject *args) {
    Weighing w;
    Address counts, log_weights, weights, lengths, scores;
    if (!PyArg_ParseTuple(args, "KKKKLLLLfK", &counts, &log_weights, &weights, &lengths, &w.texts, &w.blocks, &w.q,
                          &w.kernels, &w.least, &scores))
        return NULL;
    w.counts = AT(float, counts);
    w.log_weights = AT(float, log_weights);
    w.weights = AT(float, weights);
    w.lengths = AT(int64_t, lengths);
    w.scores = AT(float, scores);
    Py_BEGIN_ALLOW_THREADS;
    chosen->weigh(&w);
    Py_END_ALLOW_THREADS;
    return finished(1);
}

PyDoc_STRVAR(half_layer_doc,
             "half_layer(x, inward, inward_bias, outward, outward_bias, gain, shift, rows, width, inner, heads, scale,\n"
             "outer, eps, out)");

static PyObject *half_layer(PyObject *self, PyObject *args) {
    Half h;
    Address x, inward, inward_bias, outward, outward_bias, gain, shift, out;
    int memory;
    if (!PyArg_ParseTuple(args, "KKKKKKKLLLLfpfK", &x, &inward, &inward_bias, &outward, &outward_bias, &gain, &shift,
                          &h.rows, &h.width, &h.inner, &h.heads, &h.scale, &h.outer, &h.eps, &out))
        return NULL;
    h.scale *= LOG2E;
    h.x = AT(float, x);
    h.inward = AT(float, inward);
    h.inward_bias = AT(float, inward_bias);
    h.outward = AT(float, outward);
    h.outward_bias = AT(float, outward_bias);
    h.gain = AT(float, gain);
    h.shift = AT(float, shift);
    h.out = AT(float, out);
    Py_BEGIN_ALLOW_THREADS;
    memory = chosen->half_layer(&h);
    Py_END_ALLOW_THREADS;
    return finished(memory);
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
    (back ? chosen->pool_back : chosen->pool)(&p);
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
    chosen->sweep(&s);
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
    memory = chosen->sweep_back(&s);
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
    (back ? chosen->grams_back : chosen->grams)(&g);
    Py_END_ALLOW_THREADS;
    return finished(1);
}
#endif

static PyMethodDef methods[] = {{"choose", choose, METH_VARARGS, choose_doc},
#if QUICK
                                {"attend", attend, METH_VARARGS, attend_doc},
                                {"norm", norm, METH_VARARGS, norm_doc},
                                {"match", match, METH_VARARGS, match_doc},
                                {"count", count, METH_VARARGS, count_doc},
                                {"weigh", weigh, METH_VARARGS, weigh_doc},
                                {"half_layer", half_layer, METH_VARARGS, half_layer_doc},
                                {"pool", pool, METH_VARARGS, pool_doc},
                                {"sweep", sweep, METH_VARARGS, sweep_doc},
                                {"sweep_back", sweep_backwards, METH_VARARGS, sweep_back_doc},
                                {"grams", grams, METH_VARARGS, grams_doc},
#endif
                                {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_train", "Loops of a training step.", -1, methods,
                                    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__train(void) { return PyModule_Create(&module); }
