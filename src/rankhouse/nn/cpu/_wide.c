/* The loops of an int8 encoder besides its products of whole numbers, for x86 with AVX2 and FMA, and for ARM:
 *
 * quantise    rows of float32 to bytes, each with its own scale
 * multiply    products of bytes and of weights that `pack` has laid out, for ARM and for x86 without AVX-512; then
 *             what scale does
 * scale       what a product's whole numbers stand for: scales, bias, activation; stored, added, gated, or bytes
 * norm        layer norm or root mean square, and bytes
 * attend      softmax attention of rows over themselves, in base 2
 * attend_once one query a head reads its row
 * affine      products of few rows
 *
 * Numbers lie row after row; every width is a multiple of 8. See wide.py, which calls these.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../../core/_processor.h"

#define AT(type, address) ((type *)(uintptr_t)(address))
typedef unsigned long long Address;

enum { NONE, RELU, GELU, GELU_TANH, SILU };
enum { STORED, ADDED, GATED }; /* GATED: act(first half) times the second */

typedef struct {
    const float *products, *row_scale, *column_scale, *bias; /* bias: or NULL */
    int64_t rows, columns;
    int activation, into;
    float *out;
    uint8_t *bytes; /* or these and their scales */
    float *scales, *room;
} Scaled;

typedef struct {
    int64_t inputs, columns;
    const int64_t *starts;
    const int32_t *at, *zeros; /* zeros: what a column's sum is for a row of zeros (bytes 128) */
    const int8_t *packed;
    int dots; /* whether packed for instructions that add up four products */
} Grouped;

#define ROWS_AT_ONCE 72 /* whose products stay near the processor */

typedef struct {
    float *x; /* normalised in place where there is a gain */
    const float *gain, *shift;
    float eps;
    int64_t rows, width;
    uint8_t *bytes;
    float *scales, *room;
    float *out; /* or, in place of bytes, these */
} Norm;

typedef struct {
    const float *qkv;    /* (tokens, 3, heads, d) */
    const int64_t *ends; /* (rows + 1) */
    int64_t rows, heads, d;
    const float *bias; /* (heads, stride): added to the score of key j for query i at [centre + j - i]; or NULL */
    int64_t stride, centre;
    float *out; /* (tokens, heads, d) */
    int dots;   /* whether AVX-VNNI adds up products */
} Attention;

typedef struct {
    const float *queries, *keys, *values; /* (rows, heads, width); of a token's head: step and head_step numbers on */
    const int64_t *ends;
    int64_t rows, heads, width, step, head_step, most; /* most: tokens of a row that are read */
    float *out; /* (rows, heads, width) */
} Once;

typedef struct {
    const float *x, *bias; /* (rows, inputs), (panels, 16) */
    const void *weight;    /* (panels, inputs, 16) */
    int64_t rows, inputs, panels;
    int activation, halved; /* halved: whether the weight is of bf16 */
    float *out; /* (rows, panels * 16) */
} Affine;

#if defined(__x86_64__)
#define QUICK 1
#include <immintrin.h>
#define FOR __attribute__((target("avx2,fma"))) static
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#include "_wide_loops.h"
#pragma GCC pop_options
#elif defined(__aarch64__)
#define QUICK 1
#include <arm_neon.h>
#define FOR static
#include "_wide_loops.h"
#else
#define QUICK 0
#endif

/* -------- the Python interface */

PyDoc_STRVAR(supported_doc, "supported()\n\nTell whether this processor has the instructions these loops need.");

static PyObject *supported(PyObject *self, PyObject *args) {
    int has = QUICK;
    (void)self, (void)args;
#if defined(__x86_64__)
    has = processor_has(AVX2);
#endif
    return PyBool_FromLong(has);
}

#if QUICK
/* None, or MemoryError. */
static PyObject *finished(int memory) {
    if (!memory) return PyErr_NoMemory();
    Py_INCREF(Py_None);
    return Py_None;
}

static int64_t longest(const int64_t *ends, int64_t rows) {
    int64_t most = 0;
    for (int64_t row = 0; row < rows; row++) most = ends[row + 1] - ends[row] > most ? ends[row + 1] - ends[row] : most;
    return most;
}

PyDoc_STRVAR(quantise_doc, "quantise(x, rows, width, bytes, scales)\n\nRound rows of float32 to bytes.");

static PyObject *quantise(PyObject *self, PyObject *args) {
    Address x, bytes, scales;
    long long rows, width;
    (void)self;
    if (!PyArg_ParseTuple(args, "KLLKK", &x, &rows, &width, &bytes, &scales)) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    quantise_rows(AT(float, x), rows, width, AT(uint8_t, bytes), AT(float, scales));
    Py_END_ALLOW_THREADS;
    return finished(1);
}

PyDoc_STRVAR(scale_doc,
             "scale(products, row_scale, column_scale, bias, rows, columns, activation, into, out, bytes, scales)\n\n"
             "Make numbers of a product's whole ones. Addresses of what is not there are 0.");

static PyObject *scale(PyObject *self, PyObject *args) {
    Scaled s;
    Address products, row_scale, column_scale, bias, out, bytes, scales;
    long long rows, columns;
    (void)self;
    if (!PyArg_ParseTuple(args, "KKKKLLiiKKK", &products, &row_scale, &column_scale, &bias, &rows, &columns,
                          &s.activation, &s.into, &out, &bytes, &scales))
        return NULL;
    s.products = AT(float, products), s.row_scale = AT(float, row_scale), s.column_scale = AT(float, column_scale);
    s.bias = AT(float, bias), s.rows = rows, s.columns = columns;
    s.out = AT(float, out), s.bytes = AT(uint8_t, bytes), s.scales = AT(float, scales);
    s.room = malloc((size_t)columns * sizeof(float) + 64);
    if (s.room == NULL) return finished(0);
    Py_BEGIN_ALLOW_THREADS;
    scale_rows(&s);
    Py_END_ALLOW_THREADS;
    free(s.room);
    return finished(1);
}

PyDoc_STRVAR(needed_doc, "needed()\n\nTell whether `multiply` serves this processor better than oneDNN's product.");

static PyObject *needed(PyObject *self, PyObject *args) {
    int is_needed = 1;
    (void)self, (void)args;
#if defined(__x86_64__)
    is_needed = !processor_has(AVX512);
#endif
    return PyBool_FromLong(is_needed);
}

PyDoc_STRVAR(dots_doc, "dots()\n\nTell whether this processor adds up four products of bytes (AVX-VNNI, SDOT).");

static PyObject *dots(PyObject *self, PyObject *args) {
    (void)self, (void)args;
#if defined(__x86_64__)
    return PyBool_FromLong(KNOWS_VNNI && processor_has(VNNI));
#else
    return PyBool_FromLong(processor_has_dots());
#endif
}

PyDoc_STRVAR(pack_doc,
             "pack(weight, outputs, inputs, starts, at, packed, dots)\n\n"
             "Lay a weight out for `multiply`; without ``at`` and ``packed``, count groups into ``starts``.");

static PyObject *pack(PyObject *self, PyObject *args) {
    Address weight, starts, at, packed;
    long long outputs, inputs;
    int by_dots;
    Group *groups;
    (void)self;
    if (!PyArg_ParseTuple(args, "KLLKKKi", &weight, &outputs, &inputs, &starts, &at, &packed, &by_dots)) return NULL;
    groups = malloc((size_t)(inputs / 2 + 1) * sizeof(Group)); /* of steps, and each step as one */
    if (groups == NULL) return finished(0);
    Py_BEGIN_ALLOW_THREADS;
    pack_weight(AT(int8_t, weight), outputs, inputs, groups, AT(int64_t, starts), AT(int32_t, at), AT(int8_t, packed),
                by_dots);
    Py_END_ALLOW_THREADS;
    free(groups);
    return finished(1);
}

PyDoc_STRVAR(multiply_doc,
             "multiply(rows, count, inputs, columns, starts, at, zeros, packed, dots, row_scale, column_scale, bias,\n"
             "         activation, into, out, bytes, scales)\n\n"
             "Multiply rows of bytes by a packed weight, and make numbers of the whole ones, as `scale` does.");

static PyObject *multiply(PyObject *self, PyObject *args) {
    Grouped p;
    Scaled s;
    Address rows, starts, at, zeros, packed, row_scale, column_scale, bias, out, bytes, scales;
    long long count, inputs, columns;
    float *room;
    (void)self;
    if (!PyArg_ParseTuple(args, "KLLLKKKKiKKKiiKKK", &rows, &count, &inputs, &columns, &starts, &at, &zeros, &packed,
                          &p.dots, &row_scale, &column_scale, &bias, &s.activation, &s.into, &out, &bytes, &scales))
        return NULL;
    p.inputs = inputs, p.columns = columns, p.starts = AT(int64_t, starts), p.at = AT(int32_t, at);
    p.zeros = AT(int32_t, zeros), p.packed = AT(int8_t, packed);
    s.row_scale = AT(float, row_scale), s.column_scale = AT(float, column_scale), s.bias = AT(float, bias);
    s.columns = columns, s.out = AT(float, out), s.bytes = AT(uint8_t, bytes), s.scales = AT(float, scales);
    room = malloc((size_t)(columns * (ROWS_AT_ONCE + 1)) * sizeof(float) + 64);
    if (room == NULL) return finished(0);
    s.room = room + columns * ROWS_AT_ONCE;
    Py_BEGIN_ALLOW_THREADS;
    multiply_and_scale(&p, &s, AT(uint8_t, rows), count, room);
    Py_END_ALLOW_THREADS;
    free(room);
    return finished(1);
}

PyDoc_STRVAR(norm_doc,
             "norm(x, gain, shift, eps, rows, width, bytes, scales, out)\n\n"
             "Normalise rows and round the result; with a gain, by a layer norm and x itself too.");

static PyObject *norm(PyObject *self, PyObject *args) {
    Norm n;
    Address x, gain, shift, bytes, scales, out;
    long long rows, width;
    (void)self;
    if (!PyArg_ParseTuple(args, "KKKfLLKKK", &x, &gain, &shift, &n.eps, &rows, &width, &bytes, &scales, &out)) return NULL;
    n.x = AT(float, x), n.gain = AT(float, gain), n.shift = AT(float, shift), n.rows = rows, n.width = width;
    n.bytes = AT(uint8_t, bytes), n.scales = AT(float, scales), n.out = AT(float, out);
    n.room = malloc((size_t)width * sizeof(float) + 64);
    if (n.room == NULL) return finished(0);
    Py_BEGIN_ALLOW_THREADS;
    norm_rows(&n);
    Py_END_ALLOW_THREADS;
    free(n.room);
    return finished(1);
}

PyDoc_STRVAR(attend_doc,
             "attend(qkv, ends, rows, heads, d, bias, stride, centre, dots, out)\n\n"
             "Let every token read its own row; scores are in base 2.");

static PyObject *attend(PyObject *self, PyObject *args) {
    Attention a;
    Address qkv, ends, bias, out;
    long long rows, heads, d, stride, centre;
    int64_t places;
    char *room;
    (void)self;
    if (!PyArg_ParseTuple(args, "KKLLLKLLiK", &qkv, &ends, &rows, &heads, &d, &bias, &stride, &centre, &a.dots, &out))
        return NULL;
    a.qkv = AT(float, qkv), a.ends = AT(int64_t, ends), a.rows = rows, a.heads = heads, a.d = d;
    a.bias = AT(float, bias), a.stride = stride, a.centre = centre, a.out = AT(float, out);
    places = (longest(a.ends, rows) + 15) / 16 * 16;
    room = malloc((size_t)(places * (2 * d + 3 * TALL) + (TALL + 2) * d) * sizeof(float) / 2 + 64);
    if (room == NULL) return finished(0);
    Py_BEGIN_ALLOW_THREADS;
    attend_rows(&a, (float *)(((uintptr_t)room + 63) / 64 * 64), places);
    Py_END_ALLOW_THREADS;
    free(room);
    return finished(1);
}

PyDoc_STRVAR(attend_once_doc,
             "attend_once(queries, keys, values, ends, rows, heads, width, step, head_step, most, out)\n\n"
             "Let one query a head read its row.");

static PyObject *attend_once(PyObject *self, PyObject *args) {
    Once o;
    Address queries, keys, values, ends, out;
    long long rows, heads, width, step, head_step, most;
    float *room;
    (void)self;
    if (!PyArg_ParseTuple(args, "KKKKLLLLLLK", &queries, &keys, &values, &ends, &rows, &heads, &width, &step,
                          &head_step, &most, &out))
        return NULL;
    o.queries = AT(float, queries), o.keys = AT(float, keys), o.values = AT(float, values), o.ends = AT(int64_t, ends);
    o.rows = rows, o.heads = heads, o.width = width, o.step = step, o.head_step = head_step, o.most = most;
    o.out = AT(float, out);
    room = malloc((size_t)(heads * (longest(o.ends, rows) + 16)) * sizeof(float));
    if (room == NULL) return finished(0);
    Py_BEGIN_ALLOW_THREADS;
    once_rows(&o, room);
    Py_END_ALLOW_THREADS;
    free(room);
    return finished(1);
}

PyDoc_STRVAR(affine_doc,
             "affine(x, weight, bias, rows, inputs, panels, activation, halved, out)\n\n"
             "Multiply few rows by a weight in panels of 16 columns.");

static PyObject *affine(PyObject *self, PyObject *args) {
    Affine p;
    Address x, weight, bias, out;
    long long rows, inputs, panels;
    (void)self;
    if (!PyArg_ParseTuple(args, "KKKLLLiiK", &x, &weight, &bias, &rows, &inputs, &panels, &p.activation, &p.halved,
                          &out))
        return NULL;
    p.x = AT(float, x), p.weight = AT(void, weight), p.bias = AT(float, bias);
    p.rows = rows, p.inputs = inputs, p.panels = panels, p.out = AT(float, out);
    Py_BEGIN_ALLOW_THREADS;
    affine_rows(&p);
    Py_END_ALLOW_THREADS;
    return finished(1);
}
#endif

static PyMethodDef methods[] = {{"supported", supported, METH_NOARGS, supported_doc},
#if QUICK
                                {"quantise", quantise, METH_VARARGS, quantise_doc},
                                {"scale", scale, METH_VARARGS, scale_doc},
                                {"needed", needed, METH_NOARGS, needed_doc},
                                {"dots", dots, METH_NOARGS, dots_doc},
                                {"pack", pack, METH_VARARGS, pack_doc},
                                {"multiply", multiply, METH_VARARGS, multiply_doc},
                                {"norm", norm, METH_VARARGS, norm_doc},
                                {"attend", attend, METH_VARARGS, attend_doc},
                                {"attend_once", attend_once, METH_VARARGS, attend_once_doc},
                                {"affine", affine, METH_VARARGS, affine_doc},
#endif
                                {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_wide", "Loops of an int8 encoder.", -1, methods,
                                    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__wide(void) { return PyModule_Create(&module); }
