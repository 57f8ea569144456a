/* The inner loops of a training step of the word-level rankers, forward and back: for x86 processors with AVX-512, or
 * AVX2 and FMA, and for ARM. The loops themselves are in _train_loops.h, compiled for each; choose() takes one.
 *
 * attend      self-attention of narrow heads over rows of tokens end to end
 * norm        layer norm of rows
 * match       products of the rows of two texts' words
 * meet_few    products of many rows with few
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

#include "../../core/_processor.h"

#if defined(__GNUC__) && (defined(__x86_64__) || defined(__aarch64__))
#define QUICK 1
#define UNROLL _Pragma("GCC unroll 8")
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

#define TALL 8   /* rows whose sums are computed together */
#define PANEL 16 /* the few rows lie in panels of so many columns */

typedef struct {
    const void *rows;     /* (count, d): float32, float16 or int8, as its number's size in bytes says */
    const float *scales;  /* (count) factors of the sums, or NULL for 1 */
    const float *few;     /* (panels, d, PANEL), zeros behind the last */
    int64_t count, q, d;
    int size;
    float *out;           /* (q, count) */
} Meeting;

#define NOTHING -115.4156f /* log2 of e^-80: less becomes an exact zero, as in kernel_pooling.py */

typedef struct {
    const float *match;                /* (texts, rows, places); (rows, places) where there are starts */
    const int64_t *starts;             /* (texts) where each begins among the places, or NULL */
    const int64_t *lengths;            /* (texts) */
    int64_t texts, rows, places, kernels;
    const float *centres, *steepness;  /* (kernels); -log2 e / 2 width^2 */
    float *counts;                     /* (texts, rows, kernels) */
    const float *gradient;             /* of counts */
    float *back;                       /* (texts, rows, places) */
} Pool;

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
    int (*meet_few)(const Meeting *);
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

/* -------- the door */

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

PyDoc_STRVAR(meet_few_doc, "meet_few(rows, scales, few, count, q, d, size, out)");

static PyObject *meet_few(PyObject *self, PyObject *args) {
    Meeting m;
    Address rows, scales, few, out;
    int memory;
    if (!PyArg_ParseTuple(args, "KKKLLLiK", &rows, &scales, &few, &m.count, &m.q, &m.d, &m.size, &out)) return NULL;
    m.rows = AT(void, rows);
    m.scales = AT(float, scales);
    m.few = AT(float, few);
    m.out = AT(float, out);
    Py_BEGIN_ALLOW_THREADS;
    memory = chosen->meet_few(&m);
    Py_END_ALLOW_THREADS;
    return finished(memory);
}

PyDoc_STRVAR(pool_doc,
             "pool(back, match, starts, lengths, texts, rows, places, centres, steepness, kernels, counts, gradient,\n"
             "     to_match)");

static PyObject *pool(PyObject *self, PyObject *args) {
    Pool p;
    Address match, starts, lengths, centres, steepness, counts, gradient, to;
    int back;
    if (!PyArg_ParseTuple(args, "pKKKLLLKKLKKK", &back, &match, &starts, &lengths, &p.texts, &p.rows, &p.places, &centres,
                          &steepness, &p.kernels, &counts, &gradient, &to))
        return NULL;
    p.match = AT(float, match);
    p.starts = AT(int64_t, starts);
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
                                {"meet_few", meet_few, METH_VARARGS, meet_few_doc},
                                {"pool", pool, METH_VARARGS, pool_doc},
                                {"sweep", sweep, METH_VARARGS, sweep_doc},
                                {"sweep_back", sweep_backwards, METH_VARARGS, sweep_back_doc},
                                {"grams", grams, METH_VARARGS, grams_doc},
#endif
                                {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_train", "Loops of a training step.", -1, methods,
                                    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__train(void) { return PyModule_Create(&module); }
