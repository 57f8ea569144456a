/* The loops of the lexical index that a compiler does several times faster than numpy.
 *
 * invert, scatter     tokens of a segment -> forward index -> postings
 * rank                postings of a query's terms -> the best k documents
 * find, put           words of a text -> numbers of their terms
 * strings, prefixes   ids of many documents
 *
 * Every formula stays in Python: a term brings a table score[tf][length code], or one score a posting, and
 * this file only looks up, adds in double precision and keeps the best. kernel.py holds the same in numpy,
 * bit for bit; this file is optional. Only the limited C API is used.
 */
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 32768 /* documents scored at a time: their accumulators stay in the second-level cache */

/* The best k so far, as one integer each: the score's bits above, the document's place in the order of ids
 * below, both so that greater is better. Scores may be negative; their bits are mirrored.
 *
 * Keys gather in a buffer of a bit more than 2k; when it is full, the better k stay and the worst of them
 * becomes the bar. That is cheaper than a heap, whose every insertion costs log k.
 */
typedef struct {
    uint64_t *keys, bar;
    int64_t size, capacity, k;
    const int32_t *id_rank;
} Best;

static inline uint32_t ordered_bits(float score) {
    uint32_t bits;
    memcpy(&bits, &score, 4);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static inline float score_of(uint64_t key) {
    uint32_t bits = (uint32_t)(key >> 32);
    bits = bits & 0x80000000u ? bits & 0x7FFFFFFFu : ~bits;
    float score;
    memcpy(&score, &bits, 4);
    return score;
}

static inline void swap(uint64_t *a, uint64_t *b) {
    uint64_t t = *a;
    *a = *b;
    *b = t;
}

/* Split keys [low, high] at a middle value: returns i, j with keys[..j] >= pivot >= keys[i..], j < i. */
static void split(uint64_t *keys, int64_t low, int64_t high, int64_t *left, int64_t *right) {
    uint64_t a = keys[low], b = keys[low + (high - low) / 2], c = keys[high];
    uint64_t pivot = a > b ? (b > c ? b : (a > c ? c : a)) : (a > c ? a : (b > c ? c : b));
    int64_t i = low, j = high;
    while (i <= j) {
        while (keys[i] > pivot) i++;
        while (keys[j] < pivot) j--;
        if (i <= j) swap(&keys[i++], &keys[j--]);
    }
    *left = i;
    *right = j;
}

/* Bring the greatest k of n keys to the front, in any order. */
static void select_greatest(uint64_t *keys, int64_t n, int64_t k) {
    int64_t low = 0, high = n - 1;
    while (low < high) {
        int64_t i, j;
        split(keys, low, high, &i, &j);
        if (k - 1 <= j) high = j;
        else if (k - 1 >= i) low = i;
        else return;
    }
}

static void sort_falling(uint64_t *keys, int64_t low, int64_t high) {
    while (high - low > 16) {
        int64_t i, j;
        split(keys, low, high, &i, &j);
        if (j - low < high - i) {
            sort_falling(keys, low, j);
            low = i;
        } else {
            sort_falling(keys, i, high);
            high = j;
        }
    }
    for (int64_t i = low + 1; i <= high; i++) {
        uint64_t key = keys[i];
        int64_t j = i - 1;
        for (; j >= low && keys[j] < key; j--) keys[j + 1] = keys[j];
        keys[j + 1] = key;
    }
}

static void raise_bar(Best *best) {
    if (best->size <= best->k) return;
    select_greatest(best->keys, best->size, best->k);
    best->size = best->k;
    uint64_t least = best->keys[0];
    for (int64_t i = 1; i < best->k; i++) least = best->keys[i] < least ? best->keys[i] : least;
    best->bar = least;
}

static inline void offer(Best *best, float score, int32_t row) {
    uint64_t key = (uint64_t)ordered_bits(score) << 32 | (0xFFFFFFFFu - (uint32_t)best->id_rank[row]);
    if (key <= best->bar) return;
    best->keys[best->size++] = key;
    if (best->size == best->capacity) raise_bar(best);
}

typedef struct {
    const int32_t *rows;    /* documents of the term, ascending */
    const void *tfs;        /* tf_bytes each */
    const float *table;     /* [tf][code], or NULL */
    const float *scores;    /* one a posting, or NULL */
    int64_t table_rows, at, block_end, end;
} Term;

/* First position in [from, end) whose row is >= bound. */
static int64_t advance(const int32_t *rows, int64_t from, int64_t end, int32_t bound) {
    int64_t step = 1, low = from;
    while (low + step < end && rows[low + step] < bound) {
        low += step;
        step *= 2;
    }
    int64_t high = low + step < end ? low + step : end;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (rows[middle] < bound) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* The bounds hold for every sound index; they keep a damaged one from reading or writing elsewhere. */
#define ADD_UP(TYPE)                                                                            \
    for (int64_t i = term->at; i < term->block_end; i++) {                                      \
        uint32_t local = (uint32_t)rows[i] - (uint32_t)start, tf = ((const TYPE *)term->tfs)[i]; \
        if (local < width && tf < term->table_rows)                                             \
            sums[local] += term->table[(int64_t)tf * n_codes + codes[rows[i]]];                 \
    }

/* A sum of -0.0 means "untouched": adding +0.0, a match worth nothing, makes it +0.0. */
static void add_up(const Term *term, double *sums, int32_t start, uint32_t width, const uint8_t *codes,
                   int n_codes, int tf_bytes) {
    const int32_t *rows = term->rows;
    if (term->scores != NULL) {
        for (int64_t i = term->at; i < term->block_end; i++) {
            uint32_t local = (uint32_t)rows[i] - (uint32_t)start;
            if (local < width) sums[local] += term->scores[i];
        }
    } else if (tf_bytes == 1) {
        ADD_UP(uint8_t)
    } else if (tf_bytes == 2) {
        ADD_UP(uint16_t)
    } else {
        ADD_UP(uint32_t)
    }
}

static inline void settle(Best *best, double *sum, int32_t row, const double *prior) {
    if (*sum == 0.0 && signbit(*sum)) return;
    float score = (float)(prior == NULL ? *sum : *sum + prior[row]);
    *sum = -0.0;
    if ((uint64_t)ordered_bits(score) >= best->bar >> 32) offer(best, score, row);
}

static void collect(Best *best, const Term *terms, int n_terms, double *sums, int32_t start, int32_t width,
                    const double *prior, int64_t touched) {
    if (touched < width / 8) { /* few documents: go back to them only */
        for (int t = 0; t < n_terms; t++)
            for (int64_t i = terms[t].at; i < terms[t].block_end; i++) {
                uint32_t local = (uint32_t)terms[t].rows[i] - (uint32_t)start;
                if (local < (uint32_t)width) settle(best, &sums[local], start + (int32_t)local, prior);
            }
        return;
    }
    for (int32_t j = 0; j < width; j += 16) {
        float bar = best->bar ? score_of(best->bar) : 0;
        int32_t stop = j + 16 < width ? j + 16 : width;
        if (prior == NULL && bar > 0 && stop == j + 16) {
            /* Most stretches hold nothing good enough: one pass of maxima, which vectorises, tells. */
            double top[4] = {sums[j], sums[j + 1], sums[j + 2], sums[j + 3]};
            for (int32_t i = j + 4; i < stop; i += 4)
                for (int lane = 0; lane < 4; lane++)
                    top[lane] = sums[i + lane] > top[lane] ? sums[i + lane] : top[lane];
            double one = top[0] > top[1] ? top[0] : top[1], two = top[2] > top[3] ? top[2] : top[3];
            if ((float)(one > two ? one : two) < bar) continue;
        }
        for (int32_t i = j; i < stop; i++) settle(best, &sums[i], start + i, prior);
    }
    for (int32_t j = 0; j < width; j++) sums[j] = -0.0;
}

static void rank_all(Best *best, Term *terms, int n_terms, double *sums, int32_t n_rows,
                     const uint8_t *codes, int n_codes, int tf_bytes, const double *prior) {
    for (int64_t start = 0; start < n_rows; start += BLOCK) {
        int32_t width = n_rows - start < BLOCK ? (int32_t)(n_rows - start) : BLOCK;
        int64_t touched = 0;
        int open = 0;
        for (int t = 0; t < n_terms; t++) {
            Term *term = &terms[t];
            term->block_end = term->at < term->end && term->rows[term->at] < start + width
                                  ? advance(term->rows, term->at, term->end, (int32_t)(start + width))
                                  : term->at;
            touched += term->block_end - term->at;
            open |= term->block_end < term->end;
            if (term->block_end > term->at)
                add_up(term, sums, (int32_t)start, (uint32_t)width, codes, n_codes, tf_bytes);
        }
        if (touched) collect(best, terms, n_terms, sums, (int32_t)start, width, prior, touched);
        for (int t = 0; t < n_terms; t++) terms[t].at = terms[t].block_end;
        if (!open) break;
    }
}

/* Write the best rows and scores, best first. */
static int64_t unload(Best *best, const int32_t *id_order, int64_t n_rows, int32_t *rows, float *scores) {
    raise_bar(best);
    sort_falling(best->keys, 0, best->size - 1);
    for (int64_t i = 0; i < best->size; i++) {
        uint32_t place = 0xFFFFFFFFu - (uint32_t)best->keys[i];
        rows[i] = place < n_rows ? id_order[place] : 0; /* always inside, unless the index is damaged */
        scores[i] = score_of(best->keys[i]);
    }
    return best->size;
}

/* The largest count of a term in one document. seen_at and counts are scratch, one a term. */
static uint32_t highest_count(const int32_t *tokens, const int32_t *lengths, int64_t n_rows, int64_t *seen_at,
                              uint32_t *counts) {
    uint32_t highest = 0;
    int64_t token = 0;
    for (int64_t row = 0; row < n_rows; row++)
        for (int32_t i = 0; i < lengths[row]; i++, token++) {
            int32_t term = tokens[token];
            if (seen_at[term] != row) {
                seen_at[term] = row;
                counts[term] = 0;
            }
            if (++counts[term] > highest) highest = counts[term];
        }
    return highest;
}

/* Each term of a document once, with its count, document by document. The terms may be written over the
 * tokens: there are never more of them than tokens read. */
#define FORWARD_PASS(NAME, TYPE)                                                                            \
    static int64_t NAME(const int32_t *tokens, const int32_t *lengths, int64_t n_rows, int64_t *seen_at,    \
                        int64_t *ends, int32_t *terms, TYPE *tfs) {                                         \
        int64_t token = 0, filled = 0;                                                                      \
        for (int64_t row = 0; row < n_rows; row++) {                                                        \
            int64_t begin = filled;                                                                         \
            for (int32_t i = 0; i < lengths[row]; i++, token++) {                                           \
                int32_t term = tokens[token];                                                               \
                if (seen_at[term] >= begin) {                                                               \
                    tfs[seen_at[term]]++;                                                                   \
                } else {                                                                                    \
                    seen_at[term] = filled;                                                                 \
                    terms[filled] = term;                                                                   \
                    tfs[filled++] = 1;                                                                      \
                }                                                                                           \
            }                                                                                               \
            ends[row + 1] = filled;                                                                         \
        }                                                                                                   \
        return filled;                                                                                      \
    }

FORWARD_PASS(forward_pass_1, uint8_t)
FORWARD_PASS(forward_pass_2, uint16_t)
FORWARD_PASS(forward_pass_4, uint32_t)

typedef struct {
    Py_buffer views[16];
    int taken;
} Buffers;

static void *take(Buffers *buffers, PyObject *object, int writable, Py_ssize_t item, Py_ssize_t *count) {
    Py_buffer *view = &buffers->views[buffers->taken];
    if (PyObject_GetBuffer(object, view, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) < 0) return NULL;
    buffers->taken++;
    if (view->len % item) {
        PyErr_Format(PyExc_ValueError, "a buffer of %zd bytes does not hold items of %zd", view->len, item);
        return NULL;
    }
    if (count != NULL) *count = view->len / item;
    return view->buf != NULL ? view->buf : (void *)"";
}

static void give_back(Buffers *buffers) {
    while (buffers->taken > 0) PyBuffer_Release(&buffers->views[--buffers->taken]);
}

/* Do lengths add up to the tokens, and is every token a term? */
static int tokens_fit(const int32_t *tokens, Py_ssize_t n_tokens, const int32_t *lengths, Py_ssize_t n_rows,
                      Py_ssize_t n_terms) {
    int64_t total = 0;
    for (Py_ssize_t i = 0; i < n_rows; i++) {
        if (lengths[i] < 0) return 0;
        total += lengths[i];
    }
    for (Py_ssize_t i = 0; i < n_tokens; i++)
        if (tokens[i] < 0 || tokens[i] >= n_terms) return 0;
    return total == n_tokens;
}

PyDoc_STRVAR(highest_doc,
             "highest(tokens, lengths, seen_at, counts) -> int\n\n"
             "Largest count of a term in one document. seen_at (int64) and counts (uint32) are scratch, one a\n"
             "term; seen_at starts as -1.");

static PyObject *highest(PyObject *self, PyObject *args) {
    PyObject *objects[4], *result = NULL;
    Buffers buffers = {.taken = 0};
    Py_ssize_t n_tokens, n_rows, n_terms, n_counts;
    if (!PyArg_ParseTuple(args, "OOOO", &objects[0], &objects[1], &objects[2], &objects[3])) return NULL;
    const int32_t *tokens = take(&buffers, objects[0], 0, 4, &n_tokens);
    const int32_t *lengths = tokens ? take(&buffers, objects[1], 0, 4, &n_rows) : NULL;
    int64_t *seen_at = lengths ? take(&buffers, objects[2], 1, 8, &n_terms) : NULL;
    uint32_t *counts = seen_at ? take(&buffers, objects[3], 1, 4, &n_counts) : NULL;
    if (counts != NULL) {
        if (n_counts == n_terms && tokens_fit(tokens, n_tokens, lengths, n_rows, n_terms)) {
            uint32_t found;
            Py_BEGIN_ALLOW_THREADS
            found = highest_count(tokens, lengths, n_rows, seen_at, counts);
            Py_END_ALLOW_THREADS
            result = PyLong_FromUnsignedLong(found);
        } else {
            PyErr_SetString(PyExc_ValueError, "tokens, lengths and scratch do not fit each other");
        }
    }
    give_back(&buffers);
    return result;
}

PyDoc_STRVAR(invert_doc,
             "invert(tokens, lengths, seen_at, ends, terms, tfs, tf_bytes) -> int\n\n"
             "Fill ends (n+1) int64, terms int32 (may be tokens itself) and tfs (tokens) with each document's\n"
             "distinct terms and counts; seen_at is scratch, one -1 (int64) a term. Returns how many entries\n"
             "were filled. tf_bytes (1, 2 or 4) must have room for the highest count.");

static PyObject *invert(PyObject *self, PyObject *args) {
    PyObject *objects[6];
    int tf_bytes;
    Buffers buffers = {.taken = 0};
    Py_ssize_t n_tokens, n_rows, n_terms, n_ends, n_out, n_tfs;
    if (!PyArg_ParseTuple(args, "OOOOOOi", &objects[0], &objects[1], &objects[2], &objects[3], &objects[4],
                          &objects[5], &tf_bytes))
        return NULL;
    PyObject *result = NULL;
    const int32_t *tokens = take(&buffers, objects[0], 0, 4, &n_tokens);
    const int32_t *lengths = tokens ? take(&buffers, objects[1], 0, 4, &n_rows) : NULL;
    int64_t *seen_at = lengths ? take(&buffers, objects[2], 1, 8, &n_terms) : NULL;
    int64_t *ends = seen_at ? take(&buffers, objects[3], 1, 8, &n_ends) : NULL;
    int32_t *terms = ends ? take(&buffers, objects[4], 1, 4, &n_out) : NULL;
    void *tfs = terms && tf_bytes > 0 ? take(&buffers, objects[5], 1, tf_bytes, &n_tfs) : NULL;
    if (tfs != NULL) {
        int64_t filled = 0;
        if ((tf_bytes == 1 || tf_bytes == 2 || tf_bytes == 4) && n_ends == n_rows + 1 && n_out >= n_tokens &&
            n_tfs >= n_tokens && tokens_fit(tokens, n_tokens, lengths, n_rows, n_terms)) {
            Py_BEGIN_ALLOW_THREADS
            ends[0] = 0;
            if (tf_bytes == 1) filled = forward_pass_1(tokens, lengths, n_rows, seen_at, ends, terms, tfs);
            else if (tf_bytes == 2) filled = forward_pass_2(tokens, lengths, n_rows, seen_at, ends, terms, tfs);
            else filled = forward_pass_4(tokens, lengths, n_rows, seen_at, ends, terms, tfs);
            Py_END_ALLOW_THREADS
            result = PyLong_FromLongLong(filled);
        } else {
            PyErr_SetString(PyExc_ValueError, "tokens, lengths and outputs do not fit each other");
        }
    }
    give_back(&buffers);
    return result;
}

PyDoc_STRVAR(scatter_doc,
             "scatter(ends, terms, tfs, tf_bytes, starts, rows_out, tfs_out)\n\n"
             "Turn a forward index (ends int64, terms int32, tfs) into postings: rows_out int32 and\n"
             "tfs_out, where each term's stretch begins at starts (int64, moved along).");

#define SCATTER(TYPE) ((TYPE *)tfs_out)[place] = ((const TYPE *)tfs)[i]

static PyObject *scatter(PyObject *self, PyObject *args) {
    PyObject *objects[6];
    int tf_bytes;
    Buffers buffers = {.taken = 0};
    Py_ssize_t n_ends, n_entries, n_tfs, n_terms, n_rows_out, n_tfs_out;
    if (!PyArg_ParseTuple(args, "OOOiOOO", &objects[0], &objects[1], &objects[2], &tf_bytes, &objects[3],
                          &objects[4], &objects[5]))
        return NULL;
    PyObject *result = NULL;
    const int64_t *ends = take(&buffers, objects[0], 0, 8, &n_ends);
    const int32_t *terms = ends ? take(&buffers, objects[1], 0, 4, &n_entries) : NULL;
    const void *tfs = terms ? take(&buffers, objects[2], 0, tf_bytes, &n_tfs) : NULL;
    int64_t *starts = tfs ? take(&buffers, objects[3], 1, 8, &n_terms) : NULL;
    int32_t *rows_out = starts ? take(&buffers, objects[4], 1, 4, &n_rows_out) : NULL;
    void *tfs_out = rows_out ? take(&buffers, objects[5], 1, tf_bytes, &n_tfs_out) : NULL;
    if (tfs_out != NULL) {
        int sound = n_ends > 0 && (tf_bytes == 1 || tf_bytes == 2 || tf_bytes == 4) && n_tfs == n_entries && n_rows_out == n_entries && n_tfs_out == n_entries;
        if (sound) {
            Py_BEGIN_ALLOW_THREADS
            for (Py_ssize_t row = 0; sound && row + 1 < n_ends; row++)
                for (int64_t i = ends[row]; i < ends[row + 1]; i++) {
                    int64_t place = terms[i] >= 0 && terms[i] < n_terms ? starts[terms[i]]++ : -1;
                    if (place < 0 || place >= n_entries) {
                        sound = 0;
                        break;
                    }
                    rows_out[place] = (int32_t)row;
                    if (tf_bytes == 1) SCATTER(uint8_t);
                    else if (tf_bytes == 2) SCATTER(uint16_t);
                    else SCATTER(uint32_t);
                }
            Py_END_ALLOW_THREADS
        }
        if (sound) {
            Py_INCREF(Py_None);
            result = Py_None;
        } else {
            PyErr_SetString(PyExc_ValueError, "the forward index and the outputs do not fit each other");
        }
    }
    give_back(&buffers);
    return result;
}

PyDoc_STRVAR(rank_doc,
             "rank(rows, tfs, tf_bytes, codes, n_codes, spans, tables, scores, id_rank, id_order, prior,\n"
             "     floor, out_rows, out_scores) -> int\n\n"
             "Best documents of one segment. rows int32 and tfs are the segment's postings; codes uint8 and\n"
             "id_rank, id_order int32 one a document. spans (t, 5) int64: first posting, end, offset into tables\n"
             "(float32) or -1, offset into scores (float32, one a posting) or -1, rows of the table.\n"
             "prior float64 one a document, or empty. Scores below floor are left out. Fills out_rows int32 and out_scores float32 best first,\n"
             "returns how many.");

/* Does every span lie inside the postings, its table and its scores? */
static int spans_fit(const int64_t *spans, Py_ssize_t n_terms, Py_ssize_t n_postings, Py_ssize_t n_tables,
                     Py_ssize_t n_scores, int n_codes) {
    for (Py_ssize_t t = 0; t < n_terms; t++) {
        const int64_t *span = &spans[5 * t];
        if (span[0] < 0 || span[1] < span[0] || span[1] > n_postings) return 0;
        if (span[2] >= 0 ? span[2] + span[4] * n_codes > n_tables
                         : span[3] < 0 || span[3] + span[1] - span[0] > n_scores)
            return 0;
    }
    return 1;
}

static PyObject *rank(PyObject *self, PyObject *args) {
    PyObject *o[11];
    int tf_bytes, n_codes;
    float floor;
    Buffers buffers = {.taken = 0};
    Py_ssize_t n_postings, n_tf, n_rows, n_spans, n_tables, n_scores, n_ids, n_order, n_prior, k,
        k_scores;
    if (!PyArg_ParseTuple(args, "OOiOiOOOOOOfOO", &o[0], &o[1], &tf_bytes, &o[2], &n_codes, &o[3], &o[4], &o[5],
                          &o[6], &o[7], &o[8], &floor, &o[9], &o[10]))
        return NULL;
    PyObject *result = NULL;
    Term *terms = NULL;
    uint64_t *keys = NULL;
    double *sums = NULL;
    const int32_t *rows = take(&buffers, o[0], 0, 4, &n_postings);
    const char *tfs = rows ? take(&buffers, o[1], 0, tf_bytes, &n_tf) : NULL;
    const uint8_t *codes = tfs ? take(&buffers, o[2], 0, 1, &n_rows) : NULL;
    const int64_t *spans = codes ? take(&buffers, o[3], 0, 40, &n_spans) : NULL;
    const float *tables = spans ? take(&buffers, o[4], 0, 4, &n_tables) : NULL;
    const float *scores = tables ? take(&buffers, o[5], 0, 4, &n_scores) : NULL;
    const int32_t *id_rank = scores ? take(&buffers, o[6], 0, 4, &n_ids) : NULL;
    const int32_t *id_order = id_rank ? take(&buffers, o[7], 0, 4, &n_order) : NULL;
    const double *prior = id_order ? take(&buffers, o[8], 0, 8, &n_prior) : NULL;
    int32_t *out_rows = prior ? take(&buffers, o[9], 1, 4, &k) : NULL;
    float *out_scores = out_rows ? take(&buffers, o[10], 1, 4, &k_scores) : NULL;
    if (out_scores == NULL) goto done;
    if (n_tf != n_postings || n_ids != n_rows || n_order != n_rows || (n_prior && n_prior != n_rows) || k != k_scores || k < 1 ||
        n_rows > INT32_MAX || !spans_fit(spans, n_spans, n_postings, n_tables, n_scores, n_codes)) {
        PyErr_SetString(PyExc_ValueError, "the segment's arrays and the query's spans do not fit each other");
        goto done;
    }
    terms = malloc(sizeof(Term) * (n_spans ? n_spans : 1));
    keys = malloc(sizeof(uint64_t) * (2 * k + 64));
    sums = malloc(sizeof(double) * BLOCK);
    if (terms == NULL || keys == NULL || sums == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t t = 0; t < n_spans; t++) {
        const int64_t *span = &spans[5 * t];
        terms[t] = (Term){.rows = rows, .tfs = tfs, .at = span[0], .block_end = span[0], .end = span[1], .table_rows = span[4],
                          .table = span[2] >= 0 ? tables + span[2] : NULL,
                          .scores = span[2] >= 0 ? NULL : scores + span[3] - span[0]};
    }
    /* The low half of a key is never 0, so scores equal to the floor still pass. */
    Best best = {keys, (uint64_t)ordered_bits(floor) << 32, 0, 2 * k + 64, k, id_rank};
    Py_BEGIN_ALLOW_THREADS
    for (int i = 0; i < BLOCK; i++) sums[i] = -0.0;
    rank_all(&best, terms, (int)n_spans, sums, (int32_t)n_rows, codes, n_codes, tf_bytes,
             n_prior ? prior : NULL);
    k = unload(&best, id_order, n_rows, out_rows, out_scores);
    Py_END_ALLOW_THREADS
    result = PyLong_FromSsize_t(k);
done:
    free(terms);
    free(keys);
    free(sums);
    give_back(&buffers);
    return result;
}

PyDoc_STRVAR(strings_doc,
             "strings(blob, offsets, rows) -> list of str\n\n"
             "Decode blob[offsets[row] : offsets[row + 1]] as UTF-8 for every row (int64).");

static PyObject *strings(PyObject *self, PyObject *args) {
    PyObject *objects[3], *result = NULL;
    Buffers buffers = {.taken = 0};
    Py_ssize_t n_bytes, n_offsets, n_rows;
    if (!PyArg_ParseTuple(args, "OOO", &objects[0], &objects[1], &objects[2])) return NULL;
    const char *blob = take(&buffers, objects[0], 0, 1, &n_bytes);
    const int64_t *offsets = blob ? take(&buffers, objects[1], 0, 8, &n_offsets) : NULL;
    const int64_t *rows = offsets ? take(&buffers, objects[2], 0, 8, &n_rows) : NULL;
    if (rows != NULL) result = PyList_New(n_rows);
    for (Py_ssize_t i = 0; result != NULL && i < n_rows; i++) {
        PyObject *text = NULL;
        int64_t row = rows[i];
        if (row >= 0 && row + 1 < n_offsets && offsets[row] >= 0 && offsets[row] <= offsets[row + 1] &&
            offsets[row + 1] <= n_bytes)
            text = PyUnicode_DecodeUTF8(blob + offsets[row], offsets[row + 1] - offsets[row], "strict");
        else
            PyErr_Format(PyExc_ValueError, "row %lld has no string", (long long)row);
        if (text == NULL || PyList_SetItem(result, i, text) < 0) {
            Py_DECREF(result);
            result = NULL;
        }
    }
    give_back(&buffers);
    return result;
}

PyDoc_STRVAR(prefixes_doc,
             "prefixes(blob, offsets, rows, out)\n\n"
             "First 16 bytes of every row's string as two big-endian numbers, (rows, 2) uint64: they compare as\n"
             "the strings do, as far as they go.");

static PyObject *prefixes(PyObject *self, PyObject *args) {
    PyObject *objects[4], *result = NULL;
    Buffers buffers = {.taken = 0};
    Py_ssize_t n_bytes, n_offsets, n_rows, n_out;
    if (!PyArg_ParseTuple(args, "OOOO", &objects[0], &objects[1], &objects[2], &objects[3])) return NULL;
    const unsigned char *blob = take(&buffers, objects[0], 0, 1, &n_bytes);
    const int64_t *offsets = blob ? take(&buffers, objects[1], 0, 8, &n_offsets) : NULL;
    const int64_t *rows = offsets ? take(&buffers, objects[2], 0, 8, &n_rows) : NULL;
    uint64_t *out = rows ? take(&buffers, objects[3], 1, 16, &n_out) : NULL;
    if (out != NULL) {
        int sound = n_out == n_rows;
        for (Py_ssize_t i = 0; sound && i < n_rows; i++) {
            int64_t row = rows[i];
            sound = row >= 0 && row + 1 < n_offsets && offsets[row] >= 0 && offsets[row] <= offsets[row + 1] &&
                    offsets[row + 1] <= n_bytes;
            int64_t length = sound ? offsets[row + 1] - offsets[row] : 0;
            for (int half = 0; half < 2; half++) {
                uint64_t number = 0;
                for (int byte = 8 * half; byte < 8 * half + 8; byte++)
                    number = number << 8 | (byte < length ? blob[offsets[row] + byte] : 0);
                out[2 * i + half] = number;
            }
        }
        if (sound) {
            Py_INCREF(Py_None);
            result = Py_None;
        } else {
            PyErr_SetString(PyExc_ValueError, "a row has no string, or the output does not fit");
        }
    }
    give_back(&buffers);
    return result;
}

#define EMPTY (-2) /* number of a free slot in a table of words */
#define AHEAD 128  /* words hashed, and their slots fetched from memory, before they are looked at */

PyDoc_STRVAR(find_doc,
             "find(words, hashes, numbers, out, unknown) -> int\n\n"
             "Look the words of a list up in a table: hashes (int64) and numbers (int32, -2 where free), a power\n"
             "of two long. Writes numbers to out (int32), the places of words not in the table to unknown\n"
             "(int64), and returns how many those are.");

static PyObject *find(PyObject *self, PyObject *args) {
    PyObject *words, *objects[4], *result = NULL;
    Buffers buffers = {.taken = 0};
    Py_ssize_t n_slots, n_numbers, n_out, n_unknown;
    if (!PyArg_ParseTuple(args, "OOOOO", &words, &objects[0], &objects[1], &objects[2], &objects[3])) return NULL;
    const int64_t *hashes = take(&buffers, objects[0], 0, 8, &n_slots);
    const int32_t *numbers = hashes ? take(&buffers, objects[1], 0, 4, &n_numbers) : NULL;
    int32_t *out = numbers ? take(&buffers, objects[2], 1, 4, &n_out) : NULL;
    int64_t *unknown = out ? take(&buffers, objects[3], 1, 8, &n_unknown) : NULL;
    if (unknown == NULL) goto done;
    if (!PyList_Check(words) || PyList_Size(words) != n_out || n_unknown < n_out || n_numbers != n_slots ||
        n_slots < 1 || (n_slots & (n_slots - 1))) {
        PyErr_SetString(PyExc_ValueError, "the list of words, the table and the outputs do not fit each other");
        goto done;
    }
    Py_ssize_t missed = 0;
    int64_t keys[AHEAD];
    for (Py_ssize_t start = 0; start < n_out; start += AHEAD) {
        Py_ssize_t stop = start + AHEAD < n_out ? start + AHEAD : n_out;
        for (Py_ssize_t i = start; i < stop; i++) {
            Py_hash_t key = PyObject_Hash(PyList_GetItem(words, i));
            if (key == -1) goto done;
            keys[i - start] = key;
            __builtin_prefetch(&hashes[key & (n_slots - 1)]);
            __builtin_prefetch(&numbers[key & (n_slots - 1)]);
        }
        for (Py_ssize_t i = start; i < stop; i++) {
            int64_t key = keys[i - start], slot = key & (n_slots - 1);
            Py_ssize_t steps = 0;
            while (numbers[slot] != EMPTY && hashes[slot] != key && steps++ < n_slots)
                slot = (slot + 1) & (n_slots - 1);
            if (numbers[slot] != EMPTY && hashes[slot] == key) out[i] = numbers[slot];
            else unknown[missed++] = i;
        }
    }
    result = PyLong_FromSsize_t(missed);
done:
    give_back(&buffers);
    return result;
}

PyDoc_STRVAR(put_doc,
             "put(keys, values, hashes, numbers)\n\n"
             "Put hashes of new words (int64) and their numbers (int32, -1 or more) into a table, which must have\n"
             "room for them.");

static PyObject *put(PyObject *self, PyObject *args) {
    PyObject *objects[4], *result = NULL;
    Buffers buffers = {.taken = 0};
    Py_ssize_t n_keys, n_values, n_slots, n_numbers;
    if (!PyArg_ParseTuple(args, "OOOO", &objects[0], &objects[1], &objects[2], &objects[3])) return NULL;
    const int64_t *keys = take(&buffers, objects[0], 0, 8, &n_keys);
    const int32_t *values = keys ? take(&buffers, objects[1], 0, 4, &n_values) : NULL;
    int64_t *hashes = values ? take(&buffers, objects[2], 1, 8, &n_slots) : NULL;
    int32_t *numbers = hashes ? take(&buffers, objects[3], 1, 4, &n_numbers) : NULL;
    if (numbers != NULL) {
        int sound = n_keys == n_values && n_numbers == n_slots && n_slots > 0 && !(n_slots & (n_slots - 1));
        for (Py_ssize_t i = 0; sound && i < n_keys; i++) {
            int64_t slot = keys[i] & (n_slots - 1);
            Py_ssize_t steps = 0;
            while (numbers[slot] != EMPTY && steps++ < n_slots) slot = (slot + 1) & (n_slots - 1);
            sound = numbers[slot] == EMPTY;
            if (sound) {
                hashes[slot] = keys[i];
                numbers[slot] = values[i];
            }
        }
        if (sound) {
            Py_INCREF(Py_None);
            result = Py_None;
        } else {
            PyErr_SetString(PyExc_ValueError, "the table of words has no room, or does not fit");
        }
    }
    give_back(&buffers);
    return result;
}

static PyMethodDef methods[] = {{"highest", highest, METH_VARARGS, highest_doc},
                                {"invert", invert, METH_VARARGS, invert_doc},
                                {"scatter", scatter, METH_VARARGS, scatter_doc},
                                {"strings", strings, METH_VARARGS, strings_doc},
                                {"find", find, METH_VARARGS, find_doc},
                                {"put", put, METH_VARARGS, put_doc},
                                {"prefixes", prefixes, METH_VARARGS, prefixes_doc},
                                {"rank", rank, METH_VARARGS, rank_doc},
                                {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernel", "Loops of the lexical index.", -1, methods,
                                    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernel(void) { return PyModule_Create(&module); }
