/* Porter's stemmer for ASCII words, as text/lucene.py has it, letter for letter; optional. M. F. Porter, "An
 * algorithm for suffix stripping", Program 14(3), 1980, with its author's later departures -bli -> -ble and
 * -logi -> -log. Only the limited C API is used.
 */
#include <Python.h>
#include <string.h>

#define LONGEST 255

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

static int ends(const Word *word, const char *suffix) {
    int n = (int)strlen(suffix);
    return n <= word->n && memcmp(word->letters + word->n - n, suffix, (size_t)n) == 0;
}

static void put(Word *word, int n, const char *ending) {
    strcpy(word->letters + n, ending);
    word->n = n + (int)strlen(ending);
}

/* Suffix and replacement by turns, up to NULL; the first that fits is the only one tried. */
static void replace(Word *word, const char *const *rules) {
    for (; *rules != NULL; rules += 2)
        if (ends(word, rules[0])) {
            int left = word->n - (int)strlen(rules[0]);
            if (shape_of(word, left).measure > 0) put(word, left, rules[1]);
            return;
        }
}

static const char *const STEP_2[] = {
    "ational", "ate", "tional", "tion", "enci", "ence", "anci", "ance", "izer", "ize", "logi", "log",
    "bli", "ble", "alli", "al", "entli", "ent", "ousli", "ous", "eli", "e", "ization", "ize", "ation", "ate",
    "ator", "ate", "alism", "al", "iveness", "ive", "fulness", "ful", "ousness", "ous", "aliti", "al",
    "iviti", "ive", "biliti", "ble", NULL};
static const char *const STEP_3[] = {"icate", "ic", "ative", "", "alize", "al", "iciti", "ic",
                                     "ical", "ic", "ful", "", "ness", "", NULL};
static const char *const STEP_4[] = {"al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent",
                                     "sion", "tion", "ou", "ism", "ate", "iti", "ous", "ive", "ize", NULL};

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
        for (const char *const *suffix = STEP_4; *suffix != NULL; suffix++)
            if (ends(word, *suffix)) {
                int length = (int)strlen(*suffix), left = word->n - (ends(word, "ion") ? 3 : length);
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

static PyMethodDef methods[] = {{"stem", stem, METH_O, stem_doc}, {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_porter", "Porter's stemmer.", -1, methods,
                                    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__porter(void) { return PyModule_Create(&module); }
