/* Porter's stemmer for ASCII words, as text/lucene.py has it, letter for letter, and the English analyser over it;
 * optional. M. F. Porter, "An algorithm for suffix stripping", Program 14(3), 1980, with its author's later
 * departures -bli -> -ble and -logi -> -log. Only the limited C API is used.
 */
#include <Python.h>
#include <string.h>

#include "_words.h"

typedef struct {
    char letters[LONGEST + 2]; /* room for an e that is put back */
    int n;
} Word;

static int is_vowel_letter(char c) { return c == 'a' || c == 'e' || c == 'i' || c == 'o' || c == 'u'; }

/* The measure m of the first n letters, [C](VC)^m[V], and what they and the last one are. */
typedef struct {
    int measure, has_vowel, ends_in_consonant;
} Shape;

static Shape shape_of(const Word *word, int n) {
    Shape shape = {0, 0, 0};
    int was_vowel = 0;
    for (int i = 0; i < n; i++) {
        char c = word->letters[i];
        int vowel = is_vowel_letter(c) || (c == 'y' && i > 0 && !was_vowel);
        shape.has_vowel |= vowel;
        shape.measure += was_vowel && !vowel;
        was_vowel = vowel;
    }
    shape.ends_in_consonant = n > 0 && !was_vowel;
    return shape;
}

/* Do the first n letters have measure 1 and end in consonant, vowel, consonant other than w, x, y? */
static int is_short(const Word *word, int n) {
    if (n < 3 || memchr("aeiouwxy", word->letters[n - 1], 8)) return 0;
    Shape before = shape_of(word, n - 2), with_vowel = shape_of(word, n - 1);
    return !before.has_vowel && !with_vowel.ends_in_consonant;
}

static int ends_in(const Word *word, const char *suffix, int n) {
    return n <= word->n && word->letters[word->n - 1] == suffix[n - 1] &&
           memcmp(word->letters + word->n - n, suffix, (size_t)n) == 0;
}

#define ends(word, suffix) ends_in(word, suffix, (int)sizeof(suffix) - 1) /* of a literal */

static void put(Word *word, int n, const char *ending) {
    strcpy(word->letters + n, ending);
    word->n = n + (int)strlen(ending);
}

/* A suffix, its length, and what replaces it. */
typedef struct {
    const char *suffix, *ending;
    int n;
} Rule;

#define R(suffix, ending) {suffix, ending, (int)sizeof(suffix) - 1}

/* Rules up to one without a suffix; the first that fits is the only one tried. */
static void replace(Word *word, const Rule *rules) {
    for (; rules->n; rules++)
        if (ends_in(word, rules->suffix, rules->n)) {
            int left = word->n - rules->n;
            if (shape_of(word, left).measure > 0) put(word, left, rules->ending);
            return;
        }
}

static const Rule STEP_2[] = {
    R("ational", "ate"), R("tional", "tion"), R("enci", "ence"), R("anci", "ance"), R("izer", "ize"),
    R("logi", "log"), R("bli", "ble"), R("alli", "al"), R("entli", "ent"), R("ousli", "ous"), R("eli", "e"),
    R("ization", "ize"), R("ation", "ate"), R("ator", "ate"), R("alism", "al"), R("iveness", "ive"),
    R("fulness", "ful"), R("ousness", "ous"), R("aliti", "al"), R("iviti", "ive"), R("biliti", "ble"), {0}};
static const Rule STEP_3[] = {
    R("icate", "ic"), R("ative", ""), R("alize", "al"), R("iciti", "ic"), R("ical", "ic"), R("ful", ""),
    R("ness", ""), {0}};
static const Rule STEP_4[] = {
    R("al", ""), R("ance", ""), R("ence", ""), R("er", ""), R("ic", ""), R("able", ""), R("ible", ""),
    R("ant", ""), R("ement", ""), R("ment", ""), R("ent", ""), R("sion", ""), R("tion", ""), R("ou", ""),
    R("ism", ""), R("ate", ""), R("iti", ""), R("ous", ""), R("ive", ""), R("ize", ""), {0}};

static void without_past(Word *word) {
    if (ends(word, "eed")) {
        if (shape_of(word, word->n - 3).measure > 0) word->n--;
        return;
    }
    int left = word->n - (word->letters[word->n - 1] == 'd' ? 2 : 3);
    Shape shape = shape_of(word, left);
    if (!shape.has_vowel) return;
    word->n = left;
    if (ends(word, "at") || ends(word, "bl") || ends(word, "iz")) {
        put(word, left, "e");
        return;
    }
    char last = word->letters[left - 1];
    if (left > 1 && last == word->letters[left - 2] && shape.ends_in_consonant) {
        if (last != 'l' && last != 's' && last != 'z') word->n--;
    } else if (is_short(word, left)) {
        put(word, left, "e");
    }
}

static void stem_word(Word *word) {
    if (word->n < 3) return;
    if (word->letters[word->n - 1] == 's') {
        if (ends(word, "sses") || ends(word, "ies")) word->n -= 2;
        else if (word->letters[word->n - 2] != 's') word->n--;
    }
    if (ends(word, "ed") || ends(word, "ing")) without_past(word);
    if (word->letters[word->n - 1] == 'y' && shape_of(word, word->n - 1).has_vowel) word->letters[word->n - 1] = 'i';
    if (word->n > 1) {
        replace(word, STEP_2);
        replace(word, STEP_3);
        for (const Rule *rule = STEP_4; rule->n; rule++)
            if (ends_in(word, rule->suffix, rule->n)) {
                int left = word->n - (ends(word, "ion") ? 3 : rule->n);
                if (shape_of(word, left).measure > 1) word->n = left;
                break;
            }
    }
    if (word->letters[word->n - 1] == 'e') {
        int measure = shape_of(word, word->n - 1).measure;
        if (measure > 1 || (measure == 1 && !is_short(word, word->n - 1))) word->n--;
    }
    if (ends(word, "ll") && shape_of(word, word->n).measure > 1) word->n--;
}

PyDoc_STRVAR(stem_doc,
             "stem(word) -> str\n\n"
             "Stem an ASCII word of at most 255 letters; ValueError for others.");

static PyObject *stem(PyObject *self, PyObject *object) {
    Py_ssize_t n;
    const char *letters = PyUnicode_AsUTF8AndSize(object, &n);
    if (letters == NULL) return NULL;
    if (n > LONGEST || n != PyUnicode_GetLength(object)) {
        PyErr_SetString(PyExc_ValueError, "not an ASCII word of at most 255 letters");
        return NULL;
    }
    Word word = {.n = (int)n};
    memcpy(word.letters, letters, (size_t)n);
    stem_word(&word);
    return PyUnicode_FromStringAndSize(word.letters, word.n);
}

static int lower(int unit) { return unit >= 'A' && unit <= 'Z' ? unit + 32 : unit; }

/* Without the possessive, in lower case; 0 where that is not ASCII. */
static int lowered(const uint16_t *units, int64_t n, Word *word) {
    if (n > 1 && (units[n - 1] == 's' || units[n - 1] == 'S') && (units[n - 2] == '\'' || units[n - 2] == 0x2019 || units[n - 2] == 0xFF07)) n -= 2;
    word->n = (int)n;
    for (int64_t i = 0; i < n; i++) {
        if (units[i] > 127) return 0;
        word->letters[i] = (char)lower(units[i]);
    }
    return 1;
}

/* How words begin that may become a term that is wanted, a row of bits for each first letter. The stemmer keeps the
 * first letter, and keeps the second, drops it, or makes an i of a y. Bit 0 stands for terms of one letter. */
typedef uint8_t Heads[128][16];

static int bit_of(char second) { return second == 'y' ? 'i' : second; }

/* May a word become a wanted term? Told by its first two units, so that few words are read whole. */
static int may_become(const uint16_t *units, int64_t n, Heads heads) {
    if (n == 0 || units[0] > 127 || (n > 1 && units[1] > 127)) return 1;
    const uint8_t *row = heads[lower(units[0])];
    int second = n > 1 ? bit_of((char)lower(units[1])) : 0;
    return (row[0] & 1) || row[second >> 3] >> (second & 7) & 1;
}

/* Note how the terms that are wanted begin. */
static void note_heads(PyObject *wanted, Heads heads) {
    memset(heads, 0, sizeof(Heads));
    PyObject *term, *value;
    Py_ssize_t at = 0, n;
    while (PyDict_Next(wanted, &at, &term, &value)) {
        const char *letters = PyUnicode_AsUTF8AndSize(term, &n);
        if (letters == NULL) PyErr_Clear(); /* no word of a text has half of a surrogate pair */
        if (letters == NULL || n == 0 || letters[0] & 0x80 || (n > 1 && letters[1] & 0x80)) continue;
        int second = n > 1 ? bit_of(letters[1]) : 0;
        heads[(int)letters[0]][second >> 3] |= (uint8_t)(1 << (second & 7));
    }
}

/* The term of a word in lower case; empty where it is dropped. */
static PyObject *term_of(Word *word, PyObject *stopped) {
    PyObject *term = PyUnicode_FromStringAndSize(word->letters, word->n);
    int is_stopped = term ? PySet_Contains(stopped, term) : -1;
    if (is_stopped == 0 && word->n < 3) return term;
    Py_XDECREF(term);
    if (is_stopped < 0) return NULL;
    if (is_stopped) word->n = 0;
    stem_word(word);
    return PyUnicode_FromStringAndSize(word->letters, word->n);
}

/* The term of a word that is not ASCII. */
static PyObject *other_term(const uint16_t *units, int64_t n, PyObject *other) {
    PyObject *raw = PyUnicode_DecodeUTF16((const char *)units, 2 * n, "strict", NULL);
    PyObject *term = raw ? PyObject_CallFunctionObjArgs(other, raw, NULL) : NULL;
    Py_XDECREF(raw);
    return term;
}

/* Append a term to a list, with its place where there are terms that are wanted, if it is one of them; or return -1. */
static int append(PyObject *list, PyObject *term, PyObject *wanted, int64_t begin, int64_t end) {
    if (term == NULL) return -1;
    Py_ssize_t n = PyUnicode_GetLength(term); /* -1 where it is no str */
    if (n <= 0) return (int)n;
    if (wanted == NULL) return PyList_Append(list, term);
    int is_wanted = PyDict_Contains(wanted, term);
    if (is_wanted <= 0) return is_wanted;
    PyObject *located = Py_BuildValue("LLO", (long long)begin, (long long)end, term);
    int done = located ? PyList_Append(list, located) : -1;
    Py_XDECREF(located);
    return done;
}

PyDoc_STRVAR(terms_doc,
             "terms(text, kinds, stopped, other) -> list of str, or None\n\n"
             "The English terms of a plain text, by kinds uint8 of all 65,536 UTF-16 units, a frozenset of words to\n"
             "drop, and other(word) for words that are not ASCII; None for a text that is not plain.");
PyDoc_STRVAR(matches_doc,
             "matches(text, kinds, stopped, other, wanted) -> list of (start, end, term), or None\n\n"
             "Those terms of a plain text that are keys of the dict wanted, with their places in it.");

static PyObject *terms(PyObject *self, PyObject *args) {
    PyObject *text, *kinds, *stopped, *other, *wanted = NULL, *result = NULL;
    Py_buffer view;
    Heads heads;
    Word word;
    if (!PyArg_ParseTuple(args, "UOOO|O!", &text, &kinds, &stopped, &other, &PyDict_Type, &wanted)) return NULL;
    if (wanted != NULL) note_heads(wanted, heads);
    PyObject *spelled = PyUnicode_AsUTF16String(text); /* with a byte order mark */
    if (spelled == NULL) { /* half of a surrogate pair */
        if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) return NULL;
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    if (PyObject_GetBuffer(kinds, &view, PyBUF_SIMPLE) < 0) {
        Py_DECREF(spelled);
        return NULL;
    }
    const uint16_t *units = (const uint16_t *)PyBytes_AsString(spelled) + 1;
    int64_t end = PyBytes_Size(spelled) / 2 - 1, at = 0, begin;
    int found = 1;
    if (view.len == 65536) result = PyList_New(0);
    else PyErr_SetString(PyExc_ValueError, "kinds are of 65,536 units");
    while (result != NULL && (found = next_word(units, end, view.buf, &at, &begin)) > 0) {
        if (wanted != NULL && !may_become(units + begin, at - begin, heads)) continue;
        int is_ascii = lowered(units + begin, at - begin, &word);
        PyObject *term = is_ascii ? term_of(&word, stopped) : other_term(units + begin, at - begin, other);
        if (append(result, term, wanted, begin, at) < 0) Py_CLEAR(result);
        Py_XDECREF(term);
    }
    if (result != NULL && found < 0) {
        Py_DECREF(result);
        Py_INCREF(Py_None);
        result = Py_None;
    }
    PyBuffer_Release(&view);
    Py_DECREF(spelled);
    return result;
}

static PyMethodDef methods[] = {{"stem", stem, METH_O, stem_doc},
                                {"terms", terms, METH_VARARGS, terms_doc},
                                {"matches", terms, METH_VARARGS, matches_doc},
                                {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_porter", "Porter's stemmer.", -1, methods,
                                    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__porter(void) { return PyModule_Create(&module); }
