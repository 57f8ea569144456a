/* CRC-32 by carry-less multiplication: zlib's numbers at four times its speed, where the processor has it.
 *
 * crc32(data, value=0)    the checksum of value's data with data behind it
 *
 * Gopal and others, "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel 2009): the
 * content is folded 64 bytes at a time onto its last 64, then onto 16, and reduced as Barrett does. On another
 * processor the module cannot be imported, and zlib does the work. Only the limited C API is used.
 */
#include <Python.h>
#include <stdint.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define HAS_FOLDING 1
#include <immintrin.h>

#include "../core/_processor.h"

#define FOLDING __attribute__((target("pclmul,sse4.1")))

/* Move 128 bits on by the distance whose constants are k, and put what stands there on top. */
FOLDING static inline __m128i fold(__m128i x, __m128i k, __m128i there) {
    return _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00), _mm_clmulepi64_si128(x, k, 0x11)), there);
}

FOLDING static inline __m128i load(const uint8_t *at) { return _mm_loadu_si128((const __m128i *)at); }

/* Powers of x modulo the polynomial, bit-reflected: x^(4*128+32), x^(4*128-32), x^(128+32), x^(128-32), x^64. */
FOLDING static uint32_t folded(const uint8_t *data, Py_ssize_t size, uint32_t crc) {
    const __m128i by_64 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4), by_16 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    const __m128i by_8 = _mm_set_epi64x(0, 0x163cd6124), barrett = _mm_set_epi64x(0x1f7011641, 0x1db710641);
    const __m128i low = _mm_setr_epi32(~0, 0, ~0, 0);
    const uint8_t *end = data + size;
    __m128i x[4] = {_mm_xor_si128(load(data), _mm_cvtsi32_si128((int)crc)), load(data + 16), load(data + 32),
                    load(data + 48)};
    for (data += 64; end - data >= 64; data += 64)
        for (int i = 0; i < 4; i++) x[i] = fold(x[i], by_64, load(data + 16 * i));
    __m128i y = fold(fold(fold(x[0], by_16, x[1]), by_16, x[2]), by_16, x[3]);
    for (; data < end; data += 16) y = fold(y, by_16, load(data));
    y = _mm_xor_si128(_mm_srli_si128(y, 8), _mm_clmulepi64_si128(y, by_16, 0x10));
    y = _mm_xor_si128(_mm_srli_si128(y, 4), _mm_clmulepi64_si128(_mm_and_si128(y, low), by_8, 0x00));
    __m128i t = _mm_and_si128(_mm_clmulepi64_si128(_mm_and_si128(y, low), barrett, 0x10), low);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(y, _mm_clmulepi64_si128(t, barrett, 0x00)), 1);
}

static uint32_t checksum(const uint8_t *data, Py_ssize_t size, uint32_t crc) {
    Py_ssize_t even = size < 64 ? 0 : size & ~(Py_ssize_t)15;
    crc = ~crc;
    if (even) crc = folded(data, even, crc);
    for (Py_ssize_t i = even; i < size; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0xEDB88320u & (0u - (crc & 1)));
    }
    return ~crc;
}
#else
#define HAS_FOLDING 0
static uint32_t checksum(const uint8_t *data, Py_ssize_t size, uint32_t crc) { return crc; }
#endif

PyDoc_STRVAR(crc32_doc, "crc32(data, value=0)\n\nReturn the CRC-32 of a buffer, as zlib.crc32 does.");

static PyObject *crc32(PyObject *self, PyObject *args) {
    PyObject *object;
    unsigned int value = 0;
    Py_buffer buffer;
    if (!PyArg_ParseTuple(args, "O|I", &object, &value)) return NULL;
    if (PyObject_GetBuffer(object, &buffer, PyBUF_SIMPLE)) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    value = checksum(buffer.buf, buffer.len, value);
    Py_END_ALLOW_THREADS;
    PyBuffer_Release(&buffer);
    return PyLong_FromUnsignedLong(value);
}

static PyMethodDef methods[] = {{"crc32", crc32, METH_VARARGS, crc32_doc}, {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_crc32", "CRC-32.", -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__crc32(void) {
    int has = HAS_FOLDING;
#if HAS_FOLDING
    has = processor_has(CARRYLESS);
#endif
    if (!has) {
        PyErr_SetString(PyExc_ImportError, "this processor has no carry-less multiplication");
        return NULL;
    }
    return PyModule_Create(&module);
}
