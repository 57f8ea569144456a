/* What the compiled loops share: sixteen floats at once, addresses, the way back to Python. Behind Python.h. */
#ifndef RANKHOUSE_VECTOR_H
#define RANKHOUSE_VECTOR_H

#include <immintrin.h>

#define VECTOR static inline __attribute__((always_inline, target("avx512f")))

/* 2^x for x <= 127, relative error 2e-7. */
VECTOR __m512 exp2_(__m512 x) {
    x = _mm512_max_ps(_mm512_set1_ps(-140.0f), x); /* NaN is kept: it is the second operand */
    __m512 whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 f = _mm512_sub_ps(x, whole), y = _mm512_set1_ps(1.5403530e-4f);
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(1.3333558e-3f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(9.6181291e-3f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(5.5504109e-2f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(2.4022651e-1f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(6.9314718e-1f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(y, whole);
}

#define AT(type, address) ((type *)(uintptr_t)(address))
typedef unsigned long long Address;

/* None, or MemoryError. */
static PyObject *finished(int memory) {
    if (!memory) return PyErr_NoMemory();
    Py_INCREF(Py_None);
    return Py_None;
}

#endif
