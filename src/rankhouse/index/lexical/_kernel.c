/* The loops of the lexical index that a compiler does several times faster than numpy.
 *
 * invert, scatter     tokens of a segment -> forward index -> postings
 * rank                postings of a query's terms -> the best k documents, how many match
 * split, find, put    words of a text -> numbers of their terms
 * strings, prefixes   ids of many documents
 *
 * Every formula stays in Python: a term brings a table score[tf][length code], or one score a posting, and
 * this file only looks up, adds in double precision and keeps the best. kernel.py holds the same in numpy,
 * bit for bit; this file is optional. Only the limited C API is used.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "../../text/_words.h"
#include "_rank.h"

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
    Py_buffer views[20];
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

/* Take a column of numbers, which are of the type that numpy gave them. */
static int take_column(Buffers *buffers, PyObject *object, Offsets *column) {
    Py_buffer *view = &buffers->views[buffers->taken];
    if (PyObject_GetBuffer(object, view, PyBUF_ND) < 0) return 0;
    buffers->taken++;
    column->at = view->buf;
    column->width = view->itemsize;
    column->n = view->len / view->itemsize;
    if (column->width == 1 || column->width == 2 || column->width == 4 || column->width == 8) return 1;
    PyErr_SetString(PyExc_ValueError, "a column is of numbers of one, two, four or eight bytes");
    return 0;
}

/* Take a run of bytes and its offsets, of four or eight bytes each. */
static const uint8_t *take_run(Buffers *buffers, PyObject *blob, PyObject *at, Offsets *offsets) {
    const uint8_t *run = take(buffers, blob, 0, 1, &offsets->bytes);
    if (run == NULL || !take_column(buffers, at, offsets)) return NULL;
    if (offsets->width >= 4) return run;
    PyErr_SetString(PyExc_ValueError, "offsets are numbers of four or eight bytes");
    return NULL;
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

/* --- packing ---------------------------------------------------------------------------------------------- */

PyDoc_STRVAR(pack_doc,
             "pack(starts, rows, payload, kind, codes, documents, lists, lists_at, areas) -> int\n\n"
             "Pack postings: starts int64 (terms + 1), rows int32, payload counts of kind bytes, or float32 scores\n"
             "where kind is 0; codes uint8 one of so many documents, or empty. Fills lists uint8, lists_at int64\n"
             "(terms + 1) and areas uint16 of the first terms; returns the bytes of lists.");

static PyObject *pack_postings(PyObject *self, PyObject *args) {
    PyObject *o[7], *result = NULL;
    Buffers buffers = {.taken = 0};
    int kind;
    Py_ssize_t n_starts, n_rows, n_payload, n_codes, n_lists, n_at, n_areas;
    long long documents;
    if (!PyArg_ParseTuple(args, "OOOiOLOOO", &o[0], &o[1], &o[2], &kind, &o[3], &documents, &o[4], &o[5], &o[6]))
        return NULL;
    int size = kind == SCORES ? 4 : kind;
    const int64_t *starts = take(&buffers, o[0], 0, 8, &n_starts);
    const int32_t *rows = starts ? take(&buffers, o[1], 0, 4, &n_rows) : NULL;
    const void *payload = rows && size > 0 ? take(&buffers, o[2], 0, size, &n_payload) : NULL;
    const uint8_t *codes = payload ? take(&buffers, o[3], 0, 1, &n_codes) : NULL;
    uint8_t *lists = codes ? take(&buffers, o[4], 1, 1, &n_lists) : NULL;
    int64_t *lists_at = lists ? take(&buffers, o[5], 1, 8, &n_at) : NULL;
    Area *areas = lists_at ? take(&buffers, o[6], 1, 4, &n_areas) : NULL;
    if (areas != NULL) {
        int64_t n_terms = n_starts - 1, per_term = (documents + AREA - 1) / AREA, used = 0;
        int sound = (size == 1 || size == 2 || size == 4) && n_terms >= 0 && n_payload == n_rows && n_at == n_starts &&
                    (n_codes == 0 || n_codes == documents) && documents >= 0 && starts[0] == 0 && starts[n_terms] == n_rows &&
                    (per_term == 0 ? n_areas == 0 : n_areas % per_term == 0 && n_areas / per_term <= n_terms);
        for (int64_t t = 0; sound && t < n_terms; t++) sound = starts[t] < starts[t + 1];
        for (int64_t i = 0; sound && i < n_rows; i++) sound = rows[i] >= 0 && rows[i] < documents;
        if (sound) {
            Postings from = {rows, payload, n_codes ? codes : NULL, kind};
            Py_BEGIN_ALLOW_THREADS
            memset(areas, 0, sizeof(Area) * (size_t)n_areas);
            for (int64_t t = 0; sound && t < n_terms; t++) {
                int64_t n = starts[t + 1] - starts[t];
                lists_at[t] = used;
                sound = used + HEAD + n * 8 + (n / PACK + 1) * (SKIP + 2) + PAD <= n_lists;
                if (!sound) break;
                used = pack_list(lists + used, &from, starts[t], starts[t + 1]) - lists;
                if (per_term && t < n_areas / per_term) bound_areas(areas + t * per_term, &from, starts[t], starts[t + 1]);
            }
            lists_at[n_terms] = used;
            Py_END_ALLOW_THREADS
        }
        if (sound) {
            memset(lists + used, 0, PAD);
            result = PyLong_FromLongLong(used + PAD);
        } else {
            PyErr_SetString(PyExc_ValueError, "the postings and the outputs do not fit each other");
        }
    }
    give_back(&buffers);
    return result;
}

/* --- ranking ---------------------------------------------------------------------------------------------- */

#define VIEWS 11 /* buffers of a segment */

/* The segments of an index, as long as it is open, and what searches keep between calls. */
typedef struct {
    int n_segments, n_views;
    Segment *segments;
    Py_buffer *views;
    Scratch *free;
} Opened;

static const char *const OPENED = "rankhouse.index.lexical._kernel.Opened";

static void free_scratch(Scratch *s) {
    Room *rooms[] = {&s->terms, &s->keys, &s->sums, &s->touched, &s->candidates, &s->bounds,
                     &s->area_bounds, &s->partial, &s->merged, &s->seeds, &s->marks, &s->asked, &s->records};
    for (size_t i = 0; i < sizeof(rooms) / sizeof(rooms[0]); i++) free(rooms[i]->at);
    free(s);
}

static void close_opened(PyObject *capsule) {
    Opened *opened = PyCapsule_GetPointer(capsule, OPENED);
    if (opened == NULL) return;
    while (opened->n_views > 0) PyBuffer_Release(&opened->views[--opened->n_views]);
    for (Scratch *s = opened->free, *next; s != NULL; s = next) {
        next = s->next;
        free_scratch(s);
    }
    free(opened->views);
    free(opened->segments);
    free(opened);
}

/* Keep a buffer open; NULL with an error set where it is none, or does not hold whole items. */
static const void *keep(Opened *opened, PyObject *arrays, int place, Py_ssize_t item, Py_ssize_t *count) {
    PyObject *array = PyTuple_GetItem(arrays, place);
    Py_buffer *view = &opened->views[opened->n_views];
    if (array == NULL || PyObject_GetBuffer(array, view, item ? PyBUF_SIMPLE : PyBUF_ND) < 0) return NULL;
    opened->n_views++;
    if (item == 0) item = view->itemsize;
    if (view->len % item) {
        PyErr_Format(PyExc_ValueError, "a buffer of %zd bytes does not hold items of %zd", view->len, item);
        return NULL;
    }
    *count = view->len / item;
    return view->buf != NULL ? view->buf : (const void *)"";
}

/* Keep offsets, of four or eight bytes each. */
static int keep_offsets(Opened *opened, PyObject *arrays, int place, Offsets *offsets) {
    offsets->at = keep(opened, arrays, place, 0, &offsets->n);
    offsets->width = offsets->at ? opened->views[opened->n_views - 1].itemsize : 0;
    return offsets->width == 4 || offsets->width == 8;
}

static int keep_segment(Opened *opened, Segment *segment, PyObject *arrays) {
    Py_ssize_t n_terms, n_areas, n_rows, n_lengths, n_rank, n_order, n_dead, n_lists, n_ids;
    if ((segment->lists = keep(opened, arrays, 0, 1, &n_lists)) == NULL ||
        !keep_offsets(opened, arrays, 1, &segment->lists_at) ||
        (segment->frequencies = keep(opened, arrays, 2, 4, &n_terms)) == NULL ||
        (segment->areas = keep(opened, arrays, 3, 4, &n_areas)) == NULL ||
        (segment->codes = keep(opened, arrays, 4, 1, &n_rows)) == NULL ||
        (segment->lengths = keep(opened, arrays, 5, 4, &n_lengths)) == NULL ||
        (segment->id_rank = keep(opened, arrays, 6, 4, &n_rank)) == NULL ||
        (segment->id_order = keep(opened, arrays, 7, 4, &n_order)) == NULL ||
        (segment->dead = keep(opened, arrays, 8, 1, &n_dead)) == NULL ||
        (segment->ids = keep(opened, arrays, 9, 1, &n_ids)) == NULL ||
        !keep_offsets(opened, arrays, 10, &segment->ids_at))
        return 0;
    int64_t per_term = (n_rows + AREA - 1) / AREA;
    if (n_lists < PAD || segment->lists_at.n != n_terms + 1 || n_lengths != n_rows || (n_rank && n_rank != n_rows) || n_order != n_rank || n_rows < 1 ||
        n_rows > INT32_MAX - AREA || n_areas % per_term || n_areas / per_term > n_terms || (n_dead && n_dead < (n_rows + 7) / 8) ||
        segment->ids_at.n != n_rows + 1) {
        PyErr_SetString(PyExc_ValueError, "the segment's arrays do not fit each other");
        return 0;
    }
    if (n_dead == 0) segment->dead = NULL;
    if (n_rank == 0) segment->id_rank = segment->id_order = NULL;
    segment->ids_at.bytes = n_ids;
    segment->n_lists = n_lists;
    segment->n_terms = n_terms;
    segment->n_frequent = n_areas / per_term;
    segment->n_rows = n_rows;
    return 1;
}

PyDoc_STRVAR(open_doc,
             "open_segments(segments) -> capsule\n\n"
             "Keep the arrays of segments for rank. Of each a tuple: lists uint8, lists_at, frequencies int32,\n"
             "areas uint16, codes uint8, lengths, id_rank, id_order int32 (empty where ids are sorted), dead uint8 (a bit\n"
             "a document, or empty), ids uint8, ids_at; lists_at and ids_at of four or eight bytes.");

static PyObject *open_segments(PyObject *self, PyObject *segments) {
    if (!PyList_Check(segments)) {
        PyErr_SetString(PyExc_TypeError, "segments come in a list");
        return NULL;
    }
    Py_ssize_t n = PyList_Size(segments);
    Opened *opened = calloc(1, sizeof(Opened));
    if (opened == NULL) return PyErr_NoMemory();
    opened->segments = calloc((size_t)n + 1, sizeof(Segment));
    opened->views = calloc((size_t)n * VIEWS + 1, sizeof(Py_buffer));
    PyObject *capsule = PyCapsule_New(opened, OPENED, close_opened);
    if (capsule == NULL) return NULL;
    if (opened->segments == NULL || opened->views == NULL) {
        Py_DECREF(capsule);
        return PyErr_NoMemory();
    }
    int64_t first_row = 0;
    for (; opened->n_segments < n; opened->n_segments++) {
        Segment *segment = &opened->segments[opened->n_segments];
        PyObject *arrays = PyList_GetItem(segments, opened->n_segments);
        if (!PyTuple_Check(arrays) || PyTuple_Size(arrays) != VIEWS || !keep_segment(opened, segment, arrays)) {
            if (!PyErr_Occurred()) PyErr_Format(PyExc_TypeError, "a segment is a tuple of %d arrays", VIEWS);
            Py_DECREF(capsule);
            return NULL;
        }
        segment->first_row = first_row;
        first_row += segment->n_rows;
    }
    return capsule;
}

/* A model over the segments of an index, and what it keeps open. */
typedef struct {
    PyObject *segments; /* the capsule */
    Opened *opened;
    Model model;
    Py_buffer views[4];
    int n_views, sorted; /* sorted: whether the segments' ids follow each other */
} OpenedModel;

static const char *const MODEL = "rankhouse.index.lexical._kernel.OpenedModel";

static void close_model(PyObject *capsule) {
    OpenedModel *opened = PyCapsule_GetPointer(capsule, MODEL);
    if (opened == NULL) return;
    while (opened->n_views > 0) PyBuffer_Release(&opened->views[--opened->n_views]);
    Py_XDECREF(opened->segments);
    free(opened);
}

PyDoc_STRVAR(open_model_doc,
             "open_model(opened, form, exact, codes, sorted, ratio, ratio_by_code, fall, prior) -> capsule\n\n"
             "Keep a model's numbers for rank: ratio float32 and fall, prior float64 by length code (by true length\n"
             "where exact), ratio float32 by code; prior may be empty.");

static PyObject *open_model(PyObject *self, PyObject *args) {
    static const Py_ssize_t sizes[4] = {4, 4, 8, 8};
    PyObject *segments, *objects[4];
    OpenedModel *opened = calloc(1, sizeof(OpenedModel));
    if (opened == NULL) return PyErr_NoMemory();
    PyObject *capsule = PyCapsule_New(opened, MODEL, close_model);
    if (capsule == NULL) {
        free(opened);
        return NULL;
    }
    Model *model = &opened->model;
    Py_ssize_t n[4];
    if (!PyArg_ParseTuple(args, "OiiiiOOOO", &segments, &model->form, &model->exact, &model->n_codes, &opened->sorted, &objects[0],
                          &objects[1], &objects[2], &objects[3]) ||
        (opened->opened = PyCapsule_GetPointer(segments, OPENED)) == NULL)
        goto failed;
    for (; opened->n_views < 4; opened->n_views++) {
        if (PyObject_GetBuffer(objects[opened->n_views], &opened->views[opened->n_views], PyBUF_SIMPLE) < 0) goto failed;
        n[opened->n_views] = opened->views[opened->n_views].len / sizes[opened->n_views];
    }
    Py_INCREF(segments);
    opened->segments = segments;
    model->ratio = opened->views[0].buf;
    model->ratio_by_code = opened->views[1].buf;
    model->fall = opened->views[2].buf;
    model->prior = n[3] ? opened->views[3].buf : NULL;
    model->n_lengths = model->form == RATIO ? n[0] : n[2];
    int64_t lengths = model->exact ? 1 : 256;
    if (model->form >= RATIO && model->form <= IMPACT && model->n_codes >= 1 && model->n_codes <= 256 && n[0] >= lengths &&
        n[1] == 256 && n[2] >= lengths && (n[3] == 0 || n[3] >= model->n_lengths))
        return capsule;
    PyErr_SetString(PyExc_ValueError, "the model's numbers do not fit each other");
failed:
    Py_DECREF(capsule);
    return NULL;
}

/* What is asked: terms of all queries, one after the other. */
typedef struct {
    const int64_t *ends; /* of each query's terms */
    const uint8_t **records; /* of each term, see below */
    const double *weights, *priors; /* priors: two a query, or NULL */
    const int64_t *given; /* of lists scored in Python: term, segment, start, end */
    const int32_t *given_rows;
    const float *given_scores;
    int64_t n_given, k;
    int sorted, every; /* every: whether all terms must be held */
} Asked;

/* What a model knows of a term: float64 what its weight is multiplied with; int32 its highest count, and its number in
 * every segment, -1 where it is not there; from the next multiple of 8 bytes on its own table, float64 by count or
 * float32 by count and length code. The highest count is -1 where the term's lists are scored in Python.
 */
#define RECORD 12 /* bytes before the numbers */

static inline int64_t table_at(const Opened *opened) { return (RECORD + 4 * (int64_t)opened->n_segments + 7) / 8 * 8; }

/* Has a record of so many bytes what the model needs? */
static int is_record(const uint8_t *record, int64_t size, const Opened *opened, const Model *model) {
    if (size < RECORD + 4 * (int64_t)opened->n_segments) return 0;
    int64_t counts = (int32_t)load32(record + 8) + (int64_t)1;
    if (counts < 0) return 0;
    if (model->form == SUM) return counts == 0 || size >= table_at(opened) + 8 * counts;
    return model->form != TABLE || counts == 0 || size >= table_at(opened) + 4 * counts * model->n_codes;
}

typedef struct {
    uint32_t score; /* its ordered bits */
    int32_t segment, row;
} Hit;

/* Whether hit a stands before b, of another segment, with the same score. */
static int id_before(const Opened *opened, const Hit *a, const Hit *b) {
    const Segment *one = &opened->segments[a->segment], *other = &opened->segments[b->segment];
    int64_t i, j, m, n;
    if (!span_of(&one->ids_at, a->row, &i, &m) || !span_of(&other->ids_at, b->row, &j, &n)) return 1; /* damaged */
    m -= i;
    n -= j;
    int order = memcmp(one->ids + i, other->ids + j, (size_t)(m < n ? m : n));
    return order ? order < 0 : m < n;
}

/* Join a segment's best to those of the segments before it; returns how many there are then. */
static int64_t join(const Opened *opened, const Asked *asked, Best *best, int number, Hit *hits, int64_t n, Hit *joint) {
    const Segment *segment = &opened->segments[number];
    int64_t i = 0, j = 0, filled = 0;
    while (filled < asked->k && (i < n || j < best->size)) {
        Hit hit = {0, number, 0};
        if (j < best->size) {
            uint32_t place = 0xFFFFFFFFu - (uint32_t)best->keys[j];
            hit.score = (uint32_t)(best->keys[j] >> 32);
            hit.row = place >= segment->n_rows ? 0 : segment->id_order == NULL ? (int32_t)place : segment->id_order[place];
            if (hit.row < 0 || hit.row >= segment->n_rows) hit.row = 0; /* a damaged index */
        }
        if (j == best->size || (i < n && (hits[i].score > hit.score ||
                                          (hits[i].score == hit.score && (asked->sorted || id_before(opened, &hits[i], &hit)))))) {
            joint[filled++] = hits[i++];
        } else {
            joint[filled++] = hit;
            j++;
        }
    }
    return filled;
}

/* Take a list that was scored in Python for a term's. */
static void give_list(Term *term, const Asked *asked, const int64_t *given) {
    *term = (Term){.given = asked->given_scores + given[2], .given_rows = asked->given_rows + given[2], .n = given[3] - given[2]};
    term->n_blocks = (int)((term->n + PACK - 1) / PACK);
}

/* Find the lists of a query's terms in a segment. */
static int open_terms(Search *search, const Opened *opened, const Asked *asked, int number, int64_t first, int64_t end) {
    search->n_terms = 0;
    for (int64_t t = first; t < end; t++) {
        Term *term = &search->terms[search->n_terms];
        const uint8_t *record = asked->records[t];
        int32_t in_segment = (int32_t)load32(record + RECORD + 4 * number);
        double fact;
        memcpy(&fact, record, 8);
        term->given = NULL;
        term->n = 0;
        for (const int64_t *given = asked->given; given < asked->given + 4 * asked->n_given; given += 4)
            if (given[0] == t && given[1] == number) give_list(term, asked, given);
        if (term->given == NULL) {
            if (in_segment < 0) continue;
            if (in_segment >= search->segment->n_terms || (int32_t)load32(record + 8) < 0) search->scratch->failed = 2;
            if (search->scratch->failed || !open_list(search, term, in_segment)) return 0;
        }
        if (term->n == 0) continue;
        term->place = search->n_terms++;
        term->weight = asked->weights[t];
        term->ratio_weight = (float)asked->weights[t] * (float)fact;
        term->highest = (int32_t)load32(record + 8);
        term->rise = (const double *)(record + table_at(opened));
        term->table = (const float *)(record + table_at(opened));
    }
    return 1;
}

/* Open a segment for a query, its terms included; 0 where none of its documents matches. */
static int begin_segment(Search *search, Model *model, const Opened *opened, const Asked *asked, int number, int64_t first, int64_t end) {
    search->segment = &opened->segments[number];
    model->lengths = model->exact ? search->segment->lengths : NULL;
    search->model = model;
    return open_terms(search, opened, asked, number, first, end) && search->n_terms > 0 &&
           (!asked->every || search->n_terms == end - first);
}

/* Rank for one query; returns how many hits there are, and how many documents held all terms where every one must. */
static int64_t rank_query(const Opened *opened, const Asked *asked, const Model *model, int64_t q, Scratch *s, Hit **found, int64_t *matches) {
    int64_t first = q ? asked->ends[q - 1] : 0, end = asked->ends[q], n = 0, k = asked->k;
    int64_t capacity = 2 * k + 64;
    Hit *hits = room(s, &s->merged, 2 * sizeof(Hit) * (size_t)k), *joint = hits + k;
    Best best = {.keys = room(s, &s->keys, sizeof(uint64_t) * (size_t)capacity), .capacity = capacity, .k = k};
    Search search = {.scratch = s, .best = &best};
    Model own = *model;
    if (asked->priors != NULL) {
        search.prior = asked->priors[2 * q];
        search.prior_weight = asked->priors[2 * q + 1];
    }
    search.terms = room(s, &s->terms, sizeof(Term) * (size_t)(end - first + 1));
    if (s->failed) return 0;
    best.bar = (uint64_t)ordered_bits(-INFINITY) << 32;
    for (int number = 0; number < opened->n_segments; number++) {
        if (!begin_segment(&search, &own, opened, asked, number, first, end)) continue;
        best.size = best.placed = 0;
        best.id_rank = search.segment->id_rank;
        if (asked->every) *matches += intersect(&search, 1);
        else rank_segment(&search, s->sums.at, s->touched.at);
        raise_bar(&best);
        if (s->failed) return 0;
        sort_falling(best.keys, 0, best.size);
        n = join(opened, asked, &best, number, hits, n, joint);
        Hit *swapped = hits;
        hits = joint;
        joint = swapped;
        best.bar = (uint64_t)ordered_bits(-INFINITY) << 32;
        if (n == k) best.bar = (uint64_t)hits[k - 1].score << 32; /* scores equal to it may have a better id */
    }
    *found = hits;
    return n;
}

/* Count the documents that match a query. */
static int64_t count_query(const Opened *opened, const Asked *asked, const Model *model, int64_t q, Scratch *s) {
    int64_t first = q ? asked->ends[q - 1] : 0, end = asked->ends[q], n = 0;
    Search search = {.scratch = s, .terms = room(s, &s->terms, sizeof(Term) * (size_t)(end - first + 1))};
    Model own = *model;
    for (int number = 0; number < opened->n_segments && !s->failed; number++)
        if (begin_segment(&search, &own, opened, asked, number, first, end))
            n += asked->every ? intersect(&search, 0) : count_union(&search);
    return n;
}

static Scratch *make_scratch(void) {
    Scratch *s = calloc(1, sizeof(Scratch));
    if (s == NULL) return NULL;
    double *sums = room(s, &s->sums, sizeof(double) * WINDOW);
    room(s, &s->touched, sizeof(int32_t) * (WINDOW + 1));
    for (int i = 0; sums != NULL && i < WINDOW; i++) sums[i] = -0.0;
    if (!s->failed) return s;
    free_scratch(s);
    return NULL;
}

static Scratch *take_scratch(Opened *opened) {
    Scratch *s = opened->free;
    if (s == NULL) return make_scratch();
    opened->free = s->next;
    s->postings = s->unpacked = s->failed = 0;
    return s;
}

static void return_scratch(Opened *opened, Scratch *s) {
    if (s->failed) {
        free_scratch(s); /* its sums may be touched */
        return;
    }
    s->next = opened->free;
    opened->free = s;
}

/* Whether a search went well; else an error is set. */
static int is_done(const Scratch *s) {
    if (s->failed == 1) PyErr_NoMemory();
    else if (s->failed) PyErr_SetString(PyExc_ValueError, "a list of postings is damaged");
    return !s->failed;
}

/* The arrays of a search, each with the bytes of an item; the last four are filled. */
enum { ENDS, RECORDS, WEIGHTS, PRIORS, GIVEN_LISTS, GIVEN_ROWS, GIVEN_SCORES, OUT_ROWS, OUT_SCORES, OUT_COUNTS, OUT_MATCHES, N_ARRAYS };
static const Py_ssize_t item_bytes[N_ARRAYS] = {8, 1, 8, 8, 8, 4, 4, 8, 4, 8, 8};

typedef struct {
    void *at[N_ARRAYS];
    Py_ssize_t n[N_ARRAYS];
} Arrays;

/* Take terms and weights from arrays: records without tables, all of one size. */
static int terms_of_arrays(Arrays *a, const OpenedModel *model, Scratch *s) {
    Py_ssize_t terms = a->n[WEIGHTS], size = terms ? a->n[RECORDS] / terms : 0;
    const uint8_t **records = room(s, &s->asked, sizeof(uint8_t *) * (size_t)(terms + 1));
    if (records == NULL) PyErr_NoMemory();
    for (Py_ssize_t t = 0; records != NULL && t < terms; t++) {
        records[t] = (const uint8_t *)a->at[RECORDS] + t * size;
        if (!is_record(records[t], size, model->opened, &model->model)) {
            PyErr_SetString(PyExc_ValueError, "the arrays of the search do not fit each other");
            return 0;
        }
    }
    a->at[RECORDS] = records;
    return records != NULL;
}

/* Terms of queries as they are taken from Python. */
typedef struct {
    PyObject *known;
    const OpenedModel *model;
    Scratch *scratch;
    int64_t *ends, *starts; /* starts: of their records in the scratch */
    double *weights;
    Py_ssize_t terms, filled;
} Taken;

/* Take a term and its record, which is copied: others may forget it meanwhile. Returns 0 where it is not known, or not
 * with these counts, or with an error set. A term with an empty record is left out: no document holds it. */
static int take_term(Taken *taken, PyObject *term, PyObject *counts, double weight) {
    PyObject *held = PyDict_GetItemWithError(taken->known, term), *record;
    if (held == NULL) return 0;
    if (!PyTuple_Check(held) || PyTuple_Size(held) != 2 || !PyBytes_Check(record = PyTuple_GetItem(held, 1))) {
        PyErr_SetString(PyExc_TypeError, "a term is known as (counts, record)");
        return 0;
    }
    if (counts != NULL && counts != PyTuple_GetItem(held, 0) && PyObject_RichCompareBool(counts, PyTuple_GetItem(held, 0), Py_EQ) != 1) return 0;
    Py_ssize_t size = PyBytes_Size(record);
    if (size == 0) return 1;
    const uint8_t *content = (const uint8_t *)PyBytes_AsString(record);
    if (!is_record(content, size, taken->model->opened, &taken->model->model)) {
        PyErr_SetString(PyExc_ValueError, "the record of a term does not fit the model");
        return 0;
    }
    uint8_t *records = grow(taken->scratch, &taken->scratch->records, (size_t)(taken->filled + size + 8));
    if (records == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    memcpy(records + taken->filled, content, (size_t)size);
    taken->starts[taken->terms] = taken->filled;
    taken->weights[taken->terms++] = weight;
    taken->filled += (size + 7) / 8 * 8;
    return 1;
}

/* Take the terms of a dict: (weight, counts) each. */
static int take_weighted(Taken *taken, PyObject *query) {
    PyObject *term, *asked;
    for (Py_ssize_t at = 0; PyDict_Next(query, &at, &term, &asked);) {
        if (!PyTuple_Check(asked) || PyTuple_Size(asked) != 2) {
            PyErr_SetString(PyExc_TypeError, "a term is asked for as (weight, counts)");
            return 0;
        }
        double weight = PyFloat_AsDouble(PyTuple_GetItem(asked, 0));
        if (PyErr_Occurred() || !take_term(taken, term, PyTuple_GetItem(asked, 1), weight)) return 0;
    }
    return 1;
}

/* Take the terms of a sorted list, in which each weighs as much as it is often. */
static int take_counted(Taken *taken, PyObject *query) {
    Py_ssize_t n = PyList_Size(query);
    for (Py_ssize_t at = 0, next; at < n; at = next) {
        PyObject *term = PyList_GetItem(query, at);
        for (next = at + 1; next < n && PyObject_RichCompareBool(PyList_GetItem(query, next), term, Py_EQ) == 1;) next++;
        if (!take_term(taken, term, NULL, (double)(next - at))) return 0;
    }
    return 1;
}

/* Take the terms of all queries; 0 where a term is not known, or with an error set. */
static int terms_of_queries(Arrays *a, const OpenedModel *model, PyObject *known, PyObject *queries, Scratch *s) {
    Py_ssize_t n = PyList_Size(queries), terms = 0;
    for (Py_ssize_t q = 0; q < n; q++) {
        PyObject *query = PyList_GetItem(queries, q);
        if (!PyDict_Check(query) && !PyList_Check(query)) {
            PyErr_SetString(PyExc_TypeError, "a query is a dict or a list");
            return 0;
        }
        terms += PyDict_Check(query) ? PyDict_Size(query) : PyList_Size(query);
    }
    int64_t *ends = room(s, &s->asked, sizeof(int64_t) * (size_t)(n + 3 * terms + 1));
    if (ends == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    Taken taken = {known, model, s, ends, ends + n, (double *)(ends + n + terms), 0, 0};
    for (Py_ssize_t q = 0; q < n; ends[q++] = taken.terms) {
        PyObject *query = PyList_GetItem(queries, q);
        if (!(PyDict_Check(query) ? take_weighted(&taken, query) : take_counted(&taken, query))) return 0;
    }
    const uint8_t **records = (const uint8_t **)(taken.weights + terms);
    for (Py_ssize_t t = 0; t < taken.terms; t++) records[t] = (const uint8_t *)s->records.at + taken.starts[t];
    a->at[ENDS] = ends;
    a->at[RECORDS] = records;
    a->at[WEIGHTS] = taken.weights;
    a->n[ENDS] = n;
    a->n[WEIGHTS] = taken.terms;
    return 1;
}

/* Do the arrays of a search fit each other? */
static int arrays_fit(const Arrays *a, const Model *model, int64_t k) {
    const Py_ssize_t *n = a->n;
    Py_ssize_t queries = n[ENDS];
    if ((n[PRIORS] && n[PRIORS] != 2 * queries) || (model->prior && !n[PRIORS]) || n[GIVEN_LISTS] % 4 || n[GIVEN_ROWS] != n[GIVEN_SCORES] ||
        k < 0 || n[OUT_COUNTS] != (k ? queries : 0) || n[OUT_ROWS] != queries * k || n[OUT_SCORES] != queries * k ||
        (n[OUT_MATCHES] && n[OUT_MATCHES] != queries))
        return 0;
    const int64_t *ends = a->at[ENDS], *given = a->at[GIVEN_LISTS];
    for (Py_ssize_t q = 0; q < queries; q++)
        if (ends[q] < (q ? ends[q - 1] : 0) || ends[q] > n[WEIGHTS]) return 0;
    for (Py_ssize_t g = 0; g < n[GIVEN_LISTS]; g += 4)
        if (given[g + 2] < 0 || given[g + 3] < given[g + 2] || given[g + 3] > n[GIVEN_ROWS]) return 0;
    return 1;
}

/* Answer all queries. */
static void answer(const OpenedModel *model, const Model *own, const Asked *asked, const Arrays *a, Scratch *s) {
    int64_t k = asked->k, *rows = a->at[OUT_ROWS], *counts = a->at[OUT_COUNTS], *matches = a->n[OUT_MATCHES] ? a->at[OUT_MATCHES] : NULL;
    float *scores = a->at[OUT_SCORES];
    for (Py_ssize_t q = 0; q < a->n[ENDS] && !s->failed; q++) {
        Hit *hits = NULL;
        int64_t n = 0, found = 0;
        if (k) n = rank_query(model->opened, asked, own, q, s, &hits, &found);
        if (matches) matches[q] = k && asked->every ? found : count_query(model->opened, asked, own, q, s);
        if (s->failed) return;
        for (int64_t i = 0; i < n; i++) {
            rows[q * k + i] = model->opened->segments[hits[i].segment].first_row + hits[i].row;
            scores[q * k + i] = score_of((uint64_t)hits[i].score << 32);
        }
        if (k) counts[q] = n;
    }
}

PyDoc_STRVAR(rank_doc,
             "rank(model, pruning, k, every, known, queries, arrays) -> (postings, unpacked) or None\n\n"
             "The best k documents for each of several queries, of those with any of its terms, or with every one.\n"
             "A query is a dict, term -> (weight, counts), or a sorted list of terms, of which each weighs as much as it\n"
             "is often; known says term -> (counts, record), the record empty where no document holds the term. None: a\n"
             "term is not known, or with other counts. Or queries is None, and the terms stand one after the other in\n"
             "arrays: ends int64 a query, records without tables and weights float64 a term. Then priors float64\n"
             "(queries, 2); lists of terms scored in Python: (term, segment, start, end) int64 into rows int32 and scores\n"
             "float32; and what is filled: rows int64, scores float32 (queries, k), best first, counts int64 a\n"
             "query where k is not 0, matches int64 a query, how many documents match. None for no array.\n"
             "Returns how many postings the lists have and how many were unpacked.");

static PyObject *rank(PyObject *self, PyObject *args) {
    PyObject *capsule, *known, *queries, *objects, *result = NULL;
    int pruning, every, is_known;
    long long k;
    if (!PyArg_ParseTuple(args, "OiLiOOO", &capsule, &pruning, &k, &every, &known, &queries, &objects)) return NULL;
    OpenedModel *model = PyCapsule_GetPointer(capsule, MODEL);
    if (model == NULL) return NULL;
    if (!PyTuple_Check(objects) || PyTuple_Size(objects) != N_ARRAYS) return PyErr_Format(PyExc_TypeError, "rank takes %d arrays", N_ARRAYS);
    if (queries != Py_None && (!PyList_Check(queries) || !PyDict_Check(known))) {
        PyErr_SetString(PyExc_TypeError, "queries come in a list, and what is known in a dict");
        return NULL;
    }
    Scratch *s = take_scratch(model->opened);
    if (s == NULL) return PyErr_NoMemory();
    Buffers buffers = {.taken = 0};
    Arrays a = {.n = {0}};
    for (int i = 0; i < N_ARRAYS; i++) {
        PyObject *object = PyTuple_GetItem(objects, i);
        if (object != Py_None && (a.at[i] = take(&buffers, object, i >= OUT_ROWS, item_bytes[i], &a.n[i])) == NULL) goto done;
    }
    is_known = queries == Py_None ? terms_of_arrays(&a, model, s) : terms_of_queries(&a, model, known, queries, s);
    if (is_known && !arrays_fit(&a, &model->model, k)) PyErr_SetString(PyExc_ValueError, "the arrays of the search do not fit each other");
    if (PyErr_Occurred()) goto done;
    if (!is_known) {
        Py_INCREF(Py_None);
        result = Py_None;
        goto done;
    }
    Model own = model->model;
    own.pruning = pruning;
    Asked asked = {.ends = a.at[ENDS], .records = a.at[RECORDS], .weights = a.at[WEIGHTS], .priors = a.at[PRIORS], .given = a.at[GIVEN_LISTS],
                   .given_rows = a.at[GIVEN_ROWS], .given_scores = a.at[GIVEN_SCORES], .n_given = a.n[GIVEN_LISTS] / 4, .k = k,
                   .sorted = model->sorted, .every = every};
    Py_BEGIN_ALLOW_THREADS
    answer(model, &own, &asked, &a, s);
    Py_END_ALLOW_THREADS
    if (is_done(s)) result = Py_BuildValue("LL", (long long)s->postings, (long long)s->unpacked);
done:
    give_back(&buffers);
    return_scratch(model->opened, s);
    return result;
}

/* Decode the id of a row of a segment; NULL with an error set where it has none. */
static PyObject *id_of(const Segment *segment, int64_t row) {
    int64_t start, end;
    if (span_of(&segment->ids_at, row, &start, &end)) return PyUnicode_DecodeUTF8((const char *)segment->ids + start, end - start, "strict");
    return PyErr_Format(PyExc_ValueError, "row %lld has no id", (long long)row);
}

PyDoc_STRVAR(ids_doc,
             "ids(opened, rows) -> list of str\n\n"
             "Decode the ids of documents by rows (int64) of all segments, deleted ones counted in.");

static PyObject *ids(PyObject *self, PyObject *args) {
    PyObject *capsule, *object, *result = NULL;
    Buffers buffers = {.taken = 0};
    Py_ssize_t n;
    if (!PyArg_ParseTuple(args, "OO", &capsule, &object)) return NULL;
    const Opened *opened = PyCapsule_GetPointer(capsule, OPENED);
    const int64_t *rows = opened ? take(&buffers, object, 0, 8, &n) : NULL;
    if (rows != NULL) result = PyList_New(n);
    for (Py_ssize_t i = 0; result != NULL && i < n; i++) {
        int low = 0, high = opened->n_segments - 1;
        while (low < high) {
            int middle = (low + high + 1) / 2;
            if (opened->segments[middle].first_row <= rows[i]) low = middle;
            else high = middle - 1;
        }
        PyObject *text = opened->n_segments ? id_of(&opened->segments[low], rows[i] - opened->segments[low].first_row) : NULL;
        if (text == NULL || PyList_SetItem(result, i, text) < 0) {
            Py_DECREF(result);
            result = NULL;
        }
    }
    give_back(&buffers);
    return result;
}

PyDoc_STRVAR(strings_doc,
             "strings(blob, offsets, rows) -> list of str\n\n"
             "Decode blob[offsets[row] : offsets[row + 1]] as UTF-8 for every row (int64).");

static PyObject *strings(PyObject *self, PyObject *args) {
    PyObject *objects[3], *result = NULL;
    Buffers buffers = {.taken = 0};
    Offsets offsets;
    Py_ssize_t n_rows;
    if (!PyArg_ParseTuple(args, "OOO", &objects[0], &objects[1], &objects[2])) return NULL;
    const char *blob = (const char *)take_run(&buffers, objects[0], objects[1], &offsets);
    const int64_t *rows = blob ? take(&buffers, objects[2], 0, 8, &n_rows) : NULL;
    if (rows != NULL) result = PyList_New(n_rows);
    for (Py_ssize_t i = 0; result != NULL && i < n_rows; i++) {
        PyObject *text = NULL;
        int64_t start, end;
        if (span_of(&offsets, rows[i], &start, &end)) text = PyUnicode_DecodeUTF8(blob + start, end - start, "strict");
        else PyErr_Format(PyExc_ValueError, "row %lld has no string", (long long)rows[i]);
        if (text == NULL || PyList_SetItem(result, i, text) < 0) {
            Py_DECREF(result);
            result = NULL;
        }
    }
    give_back(&buffers);
    return result;
}

static PyObject *none_if(int sound, const char *complaint) {
    if (!sound) {
        PyErr_SetString(PyExc_ValueError, complaint);
        return NULL;
    }
    Py_INCREF(Py_None);
    return Py_None;
}

PyDoc_STRVAR(prefixes_doc,
             "prefixes(blob, offsets, rows, out)\n\n"
             "First 16 bytes of every row's string as two big-endian numbers, (rows, 2) uint64: they compare as\n"
             "the strings do, as far as they go.");

static PyObject *prefixes(PyObject *self, PyObject *args) {
    PyObject *objects[4], *result = NULL;
    Buffers buffers = {.taken = 0};
    Offsets offsets;
    Py_ssize_t n_rows, n_out;
    if (!PyArg_ParseTuple(args, "OOOO", &objects[0], &objects[1], &objects[2], &objects[3])) return NULL;
    const uint8_t *blob = take_run(&buffers, objects[0], objects[1], &offsets);
    const int64_t *rows = blob ? take(&buffers, objects[2], 0, 8, &n_rows) : NULL;
    uint64_t *out = rows ? take(&buffers, objects[3], 1, 16, &n_out) : NULL;
    if (out != NULL) {
        int sound = n_out == n_rows;
        for (Py_ssize_t i = 0; sound && i < n_rows; i++) {
            int64_t start = 0, end = 0;
            sound = span_of(&offsets, rows[i], &start, &end);
            for (int half = 0; sound && half < 2; half++) {
                uint64_t number = 0;
                for (int byte = 8 * half; byte < 8 * half + 8; byte++)
                    number = number << 8 | (byte < end - start ? blob[start + byte] : 0);
                out[2 * i + half] = number;
            }
        }
        result = none_if(sound, "a row has no string, or the output does not fit");
    }
    give_back(&buffers);
    return result;
}

/* --- terms ------------------------------------------------------------------------------------------------ */

/* What an index knows of a term; its numbers in the segments lie elsewhere. */
typedef struct {
    int64_t documents, occurrences, highest;
} Facts;

/* One number of a column of 1, 2, 4 or 8 bytes each. */
static int64_t entry(const Offsets *column, int64_t i) {
    if (column->width == 1) return column->at[i];
    return column->width == 2 ? load16(column->at + 2 * i) : offset(column, i);
}

#define TOGETHER 16 /* strings sought side by side: none waits for what another fetches from memory */

typedef struct {
    const char *wanted; /* NULL where it cannot be among them */
    Py_ssize_t size;
    int64_t low, high, number; /* number: the one looked at; at last -1 for none */
} Sought;

/* Seek the numbers of a few strings among those of a blob, by bisection. */
static void seek_strings(const uint8_t *blob, const Offsets *at, const int32_t *order, Py_ssize_t n_order, Sought *sought, Py_ssize_t n) {
    int64_t start, end;
    for (Py_ssize_t i = 0; i < n; i++) {
        sought[i].low = 0;
        sought[i].high = sought[i].wanted ? at->n - 1 : 0;
        sought[i].number = -1;
    }
    for (int open = 1; open;) {
        open = 0;
        for (Sought *s = sought; s < sought + n; s++) {
            if (s->low >= s->high) continue;
            int64_t middle = s->low + (s->high - s->low) / 2;
            s->number = n_order ? order[middle] : middle;
            __builtin_prefetch(at->at + at->width * s->number);
        }
        for (Sought *s = sought; s < sought + n; s++)
            if (s->low < s->high && span_of(at, s->number, &start, &end)) __builtin_prefetch(blob + start);
        for (Sought *s = sought; s < sought + n; s++) {
            if (s->low >= s->high) continue;
            int64_t middle = s->low + (s->high - s->low) / 2, number = s->number;
            s->number = -1;
            if (!span_of(at, number, &start, &end)) {
                s->high = s->low;
                continue;
            }
            int64_t least = end - start < s->size ? end - start : s->size;
            int compared = memcmp(blob + start, s->wanted, (size_t)least);
            if (compared == 0 && end - start == s->size) {
                s->number = number;
                s->high = s->low;
                continue;
            }
            if (compared < 0 || (compared == 0 && end - start < s->size)) s->low = middle + 1;
            else s->high = middle;
            open |= s->low < s->high;
            if (n_order && s->low < s->high) __builtin_prefetch(&order[s->low + (s->high - s->low) / 2]);
        }
    }
}

/* Find strings in one segment, and add up what it knows of them. */
static int find_in(PyObject *segment, PyObject *strings, Facts *facts, int32_t *numbers, Py_ssize_t step) {
    Buffers buffers = {.taken = 0};
    Offsets at, columns[3];
    Py_ssize_t n_order, n = PyList_Size(strings);
    int done = 0;
    if (!PyTuple_Check(segment) || PyTuple_Size(segment) != 6) {
        PyErr_SetString(PyExc_TypeError, "the terms of a segment are a tuple of 6 arrays");
        return 0;
    }
    const uint8_t *blob = take_run(&buffers, PyTuple_GetItem(segment, 0), PyTuple_GetItem(segment, 1), &at);
    const int32_t *order = blob ? take(&buffers, PyTuple_GetItem(segment, 2), 0, 4, &n_order) : NULL;
    for (int c = 0; order != NULL && c < 3; c++)
        if (!take_column(&buffers, PyTuple_GetItem(segment, 3 + c), &columns[c])) order = NULL;
    if (order == NULL) goto done;
    if (at.n < 1 || (n_order && n_order != at.n - 1) || columns[0].n != at.n - 1 || columns[1].n != at.n - 1 || columns[2].n != at.n - 1) {
        PyErr_SetString(PyExc_ValueError, "the strings, their order and their columns do not fit each other");
        goto done;
    }
    for (Py_ssize_t first = 0; first < n; first += TOGETHER) {
        Sought sought[TOGETHER];
        Py_ssize_t some = n - first < TOGETHER ? n - first : TOGETHER;
        for (Py_ssize_t i = 0; i < some; i++) {
            sought[i].wanted = PyUnicode_AsUTF8AndSize(PyList_GetItem(strings, first + i), &sought[i].size);
            if (sought[i].wanted == NULL) { /* no string of a blob holds half of a surrogate pair */
                if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) goto done;
                PyErr_Clear();
            }
        }
        seek_strings(blob, &at, order, n_order, sought, some);
        for (Py_ssize_t i = 0; i < some; i++) {
            int64_t number = sought[i].number;
            numbers[(first + i) * step] = (int32_t)number;
            if (number < 0) continue;
            Facts *found = &facts[first + i];
            int64_t highest = entry(&columns[2], number);
            found->documents += entry(&columns[0], number);
            found->occurrences += entry(&columns[1], number);
            if (highest > found->highest) found->highest = highest;
        }
    }
    done = 1;
done:
    give_back(&buffers);
    return done;
}

PyDoc_STRVAR(find_terms_doc,
             "find_terms(segments, strings) -> list of (documents, occurrences, highest, numbers)\n\n"
             "Find strings among the terms of segments, of each a tuple: blob uint8, its offsets, order int32 (the\n"
             "terms as they are sorted by their bytes; empty where they are), and unsigned numbers of any size a\n"
             "term: documents, occurrences, largest count. The first two are added up; numbers are int32 a segment,\n"
             "as bytes, -1 for none. A largest count is 1 at least.");

static PyObject *find_terms(PyObject *self, PyObject *args) {
    PyObject *segments, *strings, *result = NULL;
    if (!PyArg_ParseTuple(args, "O!O!", &PyList_Type, &segments, &PyList_Type, &strings)) return NULL;
    Py_ssize_t n = PyList_Size(strings), n_segments = PyList_Size(segments);
    Facts *facts = calloc((size_t)n + 1, sizeof(Facts));
    int32_t *numbers = malloc(sizeof(int32_t) * (size_t)(n * n_segments + 1));
    if (facts == NULL || numbers == NULL) PyErr_NoMemory();
    for (Py_ssize_t i = 0; facts != NULL && i < n; i++) facts[i].highest = 1;
    for (Py_ssize_t s = 0; !PyErr_Occurred() && s < n_segments; s++)
        find_in(PyList_GetItem(segments, s), strings, facts, numbers + s, n_segments);
    if (!PyErr_Occurred()) result = PyList_New(n);
    for (Py_ssize_t i = 0; result != NULL && i < n; i++) {
        PyObject *one = Py_BuildValue("LLLy#", (long long)facts[i].documents, (long long)facts[i].occurrences, (long long)facts[i].highest,
                                      (const char *)(numbers + i * n_segments), 4 * n_segments);
        if (one == NULL || PyList_SetItem(result, i, one) < 0) {
            Py_DECREF(result);
            result = NULL;
        }
    }
    free(facts);
    free(numbers);
    return result;
}

/* --- one query in one call -------------------------------------------------------------------------------- */

/* The terms of a sorted list that are not known, each once. */
static PyObject *unknown_terms(PyObject *known, PyObject *terms) {
    PyObject *fresh = PyList_New(0), *before = NULL;
    for (Py_ssize_t i = 0; fresh != NULL && i < PyList_Size(terms); i++) {
        PyObject *term = PyList_GetItem(terms, i);
        int is_known = before != NULL && PyObject_RichCompareBool(before, term, Py_EQ) == 1 ? 1 : PyDict_Contains(known, term);
        before = term;
        if (is_known < 0 || (!is_known && PyList_Append(fresh, term) < 0)) {
            Py_DECREF(fresh);
            return NULL;
        }
    }
    return fresh;
}

/* Find terms in segments and add what is found to what is known: (counts, record without a table) each, with the number that
 * fact(documents, occurrences) gives. Returns 0 with an error set. */
static int learn(PyObject *known, PyObject *terms, PyObject *segments, PyObject *fact) {
    Py_ssize_t n = PyList_Size(terms), n_segments = PyList_Size(segments), size = RECORD + 4 * n_segments;
    Facts *facts = calloc((size_t)n + 1, sizeof(Facts));
    int32_t *numbers = malloc(sizeof(int32_t) * (size_t)(n * n_segments + 1));
    if (facts == NULL || numbers == NULL) PyErr_NoMemory();
    for (Py_ssize_t s = 0; !PyErr_Occurred() && s < n_segments; s++) find_in(PyList_GetItem(segments, s), terms, facts, numbers + s, n_segments);
    for (Py_ssize_t i = 0; !PyErr_Occurred() && i < n; i++) {
        PyObject *number = facts[i].documents ? PyObject_CallFunction(fact, "LL", (long long)facts[i].documents, (long long)facts[i].occurrences) : NULL;
        double value = number ? PyFloat_AsDouble(number) : 0;
        int32_t highest = facts[i].highest > 1 ? (int32_t)facts[i].highest : 1;
        Py_XDECREF(number);
        if (PyErr_Occurred()) break;
        PyObject *record = PyBytes_FromStringAndSize(NULL, number ? size : 0);
        if (record == NULL) break;
        if (number) {
            char *content = PyBytes_AsString(record);
            memcpy(content, &value, 8);
            memcpy(content + 8, &highest, 4);
            memcpy(content + RECORD, numbers + i * n_segments, 4 * (size_t)n_segments);
        }
        PyObject *held = Py_BuildValue("((LL)N)", (long long)facts[i].documents, (long long)facts[i].occurrences, record);
        if (held != NULL) PyDict_SetItem(known, PyList_GetItem(terms, i), held);
        Py_XDECREF(held);
    }
    free(facts);
    free(numbers);
    return !PyErr_Occurred();
}

/* The scores of hits, each that is not below the one before lowered to the next float32 below that. */
static PyObject *falling_scores(const Hit *hits, int64_t n) {
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, 4 * n);
    if (bytes == NULL) return NULL;
    float *scores = (float *)(void *)PyBytes_AsString(bytes);
    int is_falling = 1;
    for (int64_t i = 0; i < n; i++) {
        scores[i] = score_of((uint64_t)hits[i].score << 32);
        is_falling &= i == 0 || scores[i] < scores[i - 1];
    }
    int64_t before = (int64_t)1 << 32;
    for (int64_t i = 0; !is_falling && i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &scores[i], 4);
        int64_t ordinal = bits & 0x80000000u ? -(int64_t)(bits & 0x7FFFFFFFu) : (int64_t)bits;
        before = ordinal < before ? ordinal : before - 1;
        bits = before >= 0 ? (uint32_t)before : (uint32_t)-before | 0x80000000u;
        memcpy(&scores[i], &bits, 4);
    }
    return bytes;
}

PyDoc_STRVAR(rank_one_doc,
             "rank_one(model, pruning, k, known, terms, segments, fact) -> (ids, scores, postings, unpacked) or None\n\n"
             "The best k documents for one query, a sorted list of terms, as rank finds them: a tuple of ids, and float32\n"
             "scores as bytes, strictly falling. A term that is not known is found in segments, as find_terms does, and\n"
             "then known, its record with fact(documents, occurrences); None where segments are None.");

static PyObject *rank_one(PyObject *self, PyObject *args) {
    PyObject *capsule, *known, *terms, *segments, *fact, *result = NULL, *ids = NULL, *scores = NULL;
    int pruning;
    long long k;
    if (!PyArg_ParseTuple(args, "OiLO!O!OO", &capsule, &pruning, &k, &PyDict_Type, &known, &PyList_Type, &terms, &segments, &fact)) return NULL;
    OpenedModel *model = PyCapsule_GetPointer(capsule, MODEL);
    PyObject *fresh = model ? unknown_terms(known, terms) : NULL;
    if (fresh == NULL) return NULL;
    int is_known = PyList_Size(fresh) == 0, can_learn = PyList_Check(segments) && PyList_Size(segments) == model->opened->n_segments;
    if (!is_known && can_learn) is_known = learn(known, fresh, segments, fact);
    Py_DECREF(fresh);
    if (PyErr_Occurred()) return NULL;
    int64_t most = 0; /* more would not be found, and sizes could overflow */
    for (int number = 0; number < model->opened->n_segments; number++) most += model->opened->segments[number].n_rows;
    if (k > most) k = most;
    if (!is_known || k < 1 || model->model.prior) Py_RETURN_NONE;
    Scratch *s = take_scratch(model->opened);
    if (s == NULL) return PyErr_NoMemory();
    PyObject *queries = Py_BuildValue("[O]", terms);
    Arrays a = {.n = {0}};
    if (queries == NULL || !terms_of_queries(&a, model, known, queries, s)) goto done;
    Model own = model->model;
    own.pruning = pruning;
    Asked asked = {.ends = a.at[ENDS], .records = a.at[RECORDS], .weights = a.at[WEIGHTS], .k = k, .sorted = model->sorted};
    Hit *hits = NULL;
    int64_t n, matches = 0;
    Py_BEGIN_ALLOW_THREADS
    n = rank_query(model->opened, &asked, &own, 0, s, &hits, &matches);
    Py_END_ALLOW_THREADS
    if (!is_done(s) || (ids = PyTuple_New(n)) == NULL || (scores = falling_scores(hits, n)) == NULL) goto done;
    for (int64_t i = 0; i < n; i++) {
        PyObject *id = id_of(&model->opened->segments[hits[i].segment], hits[i].row);
        if (id == NULL || PyTuple_SetItem(ids, i, id) < 0) goto done;
    }
    result = Py_BuildValue("OOLL", ids, scores, (long long)s->postings, (long long)s->unpacked);
done:
    if (result == NULL && !PyErr_Occurred()) {
        Py_INCREF(Py_None); /* another thread forgot a term */
        result = Py_None;
    }
    Py_XDECREF(queries);
    Py_XDECREF(ids);
    Py_XDECREF(scores);
    return_scratch(model->opened, s);
    return result;
}

/* --- forward index ---------------------------------------------------------------------------------------- */

static inline uint8_t *put_varint(uint8_t *out, uint32_t value) {
    for (; value >= 128; value >>= 7) *out++ = (uint8_t)(value | 128);
    *out++ = (uint8_t)value;
    return out;
}

/* Read a number; behind the end it is 0. */
static inline uint32_t get_varint(const uint8_t **in, const uint8_t *end) {
    uint32_t value = 0;
    for (int shift = 0; *in < end && shift < 35; shift += 7) {
        uint8_t byte = *(*in)++;
        value |= (uint32_t)(byte & 127) << shift;
        if (byte < 128) break;
    }
    return value;
}

static inline uint32_t sized(const void *counts, int bytes, int64_t i) {
    return bytes == 1 ? ((const uint8_t *)counts)[i] : bytes == 2 ? ((const uint16_t *)counts)[i] : ((const uint32_t *)counts)[i];
}

PyDoc_STRVAR(pack_forward_doc,
             "pack_forward(ends, terms, tfs, tf_bytes, out, offsets) -> int\n\n"
             "Pack a forward index (ends int64, terms int32, tfs): of each document how many terms it has, the gaps\n"
             "between their sorted numbers, twice each and one more where the term occurs again, and these counts\n"
             "less 2, as numbers of 7 bits a byte. Fills out uint8 (9 bytes an entry and 5 a document at most) and\n"
             "offsets int64 (documents + 1); returns the bytes. Terms and tfs are sorted.");

static PyObject *pack_forward(PyObject *self, PyObject *args) {
    PyObject *o[5], *result = NULL;
    Buffers buffers = {.taken = 0};
    int bytes;
    Py_ssize_t n_ends, n_terms, n_tfs, n_out, n_at;
    if (!PyArg_ParseTuple(args, "OOOiOO", &o[0], &o[1], &o[2], &bytes, &o[3], &o[4])) return NULL;
    const int64_t *ends = take(&buffers, o[0], 0, 8, &n_ends);
    const int32_t *terms = ends ? take(&buffers, o[1], 0, 4, &n_terms) : NULL;
    const void *tfs = terms && bytes > 0 ? take(&buffers, o[2], 0, bytes, &n_tfs) : NULL;
    uint8_t *out = tfs ? take(&buffers, o[3], 1, 1, &n_out) : NULL;
    int64_t *at = out ? take(&buffers, o[4], 1, 8, &n_at) : NULL;
    if (at != NULL) {
        int sound = n_ends > 0 && n_at == n_ends && n_tfs == n_terms && n_out >= 9 * n_terms + 5 * n_ends &&
                    (bytes == 1 || bytes == 2 || bytes == 4) && ends[0] == 0 && ends[n_ends - 1] == n_terms;
        uint64_t *keys = sound ? malloc(sizeof(uint64_t) * (size_t)(n_terms + 1)) : NULL;
        uint8_t *next = out;
        if (sound && keys == NULL) {
            give_back(&buffers);
            return PyErr_NoMemory();
        }
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t row = 0; sound && row + 1 < n_ends; row++) {
            int64_t n = ends[row + 1] - ends[row];
            sound = n >= 0;
            for (int64_t i = 0; sound && i < n; i++) /* falling order of the complement is rising order */
                keys[i] = ~((uint64_t)(uint32_t)terms[ends[row] + i] << 32 | sized(tfs, bytes, ends[row] + i));
            if (!sound) break;
            sort_falling(keys, 0, n);
            at[row] = next - out;
            next = put_varint(next, (uint32_t)n);
            uint32_t before = 0;
            for (int64_t i = 0; i < n; i++) {
                uint32_t term = (uint32_t)(~keys[i] >> 32), count = (uint32_t)~keys[i], gap = term - before;
                uint64_t value = (uint64_t)gap << 1 | (count > 1);
                for (; value >= 128; value >>= 7) *next++ = (uint8_t)(value | 128);
                *next++ = (uint8_t)value;
                before = term + 1;
            }
            for (int64_t i = 0; i < n; i++)
                if ((uint32_t)~keys[i] > 1) next = put_varint(next, (uint32_t)~keys[i] - 2);
        }
        at[n_ends - 1] = next - out;
        Py_END_ALLOW_THREADS
        free(keys);
        if (sound) result = PyLong_FromLongLong(next - out);
        else PyErr_SetString(PyExc_ValueError, "the forward index and the outputs do not fit each other");
    }
    give_back(&buffers);
    return result;
}

PyDoc_STRVAR(unpack_forward_doc,
             "unpack_forward(blob, offsets, rows, ends, terms, tfs) -> int\n\n"
             "Unpack documents: fills ends int64 (rows + 1), terms int32 and tfs uint32, which have room for as\n"
             "many entries as these documents have bytes; returns how many there are.");

static PyObject *unpack_forward(PyObject *self, PyObject *args) {
    PyObject *o[6], *result = NULL;
    Buffers buffers = {.taken = 0};
    Offsets offsets;
    Py_ssize_t n_rows, n_ends, n_terms, n_tfs;
    if (!PyArg_ParseTuple(args, "OOOOOO", &o[0], &o[1], &o[2], &o[3], &o[4], &o[5])) return NULL;
    const uint8_t *blob = take_run(&buffers, o[0], o[1], &offsets);
    const int64_t *rows = blob ? take(&buffers, o[2], 0, 8, &n_rows) : NULL;
    int64_t *ends = rows ? take(&buffers, o[3], 1, 8, &n_ends) : NULL;
    int32_t *terms = ends ? take(&buffers, o[4], 1, 4, &n_terms) : NULL;
    uint32_t *tfs = terms ? take(&buffers, o[5], 1, 4, &n_tfs) : NULL;
    if (tfs != NULL) {
        int sound = n_ends == n_rows + 1 && n_tfs == n_terms;
        int64_t filled = 0, start, end;
        for (Py_ssize_t i = 0; sound && i < n_rows; i++) {
            ends[i] = filled;
            if (!(sound = span_of(&offsets, rows[i], &start, &end))) break;
            const uint8_t *in = blob + start, *stop = blob + end;
            uint32_t n = get_varint(&in, stop), next = 0;
            if (!(sound = n <= end - start && filled + n <= n_terms)) break;
            for (uint32_t j = 0; j < n; j++) {
                uint64_t value = 0;
                for (int shift = 0; in < stop && shift < 42; shift += 7) {
                    uint8_t byte = *in++;
                    value |= (uint64_t)(byte & 127) << shift;
                    if (byte < 128) break;
                }
                next += (uint32_t)(value >> 1);
                terms[filled + j] = (int32_t)next++;
                tfs[filled + j] = 1 + (uint32_t)(value & 1);
            }
            for (uint32_t j = 0; j < n; j++)
                if (tfs[filled + j] > 1) tfs[filled + j] += get_varint(&in, stop);
            filled += n;
        }
        if (sound) {
            ends[n_rows] = filled;
            result = PyLong_FromLongLong(filled);
        } else {
            PyErr_SetString(PyExc_ValueError, "a document has no terms here, or the output does not fit");
        }
    }
    give_back(&buffers);
    return result;
}

/* Both halves of a product, folded. */
static uint64_t folded(uint64_t a, uint64_t b) {
#ifdef __SIZEOF_INT128__
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
#else
    uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
    uint64_t low = a0 * b0, mid = a1 * b0 + (low >> 32), more = a0 * b1 + (uint32_t)mid;
    return ((more << 32) | (uint32_t)low) ^ (a1 * b1 + (mid >> 32) + (more >> 32));
#endif
}

static int64_t hash_of(const uint16_t *units, int64_t n, uint64_t seed) {
    uint64_t hash = seed ^ (uint64_t)n, four;
    for (; n > 4; n -= 4, units += 4) {
        memcpy(&four, units, 8);
        hash = folded(hash ^ four, 0x9E3779B97F4A7C15ull);
    }
    four = 0;
    memcpy(&four, units, 2 * (size_t)n);
    hash = folded(hash ^ four, 0xD6E8FEB86659FD93ull);
    return (int64_t)folded(hash ^ seed, 0xA0761D6478BD642Full);
}

/* Words are found by their 64-bit hash in a table of open addresses, looked at a few words later, when the processor has
 * fetched its place. */
#define EMPTY (-2) /* number of a free slot in a table of words */
#define AHEAD 128  /* words hashed, and their slots fetched from memory, before they are looked at */

/* The slot of a key in a table, or a free one where it would stand. */
static int64_t slot_of(const int64_t *hashes, const int32_t *numbers, Py_ssize_t n_slots, int64_t key) {
    int64_t slot = key & (n_slots - 1);
    Py_ssize_t steps = 0;
    while (numbers[slot] != EMPTY && hashes[slot] != key && steps++ < n_slots) slot = (slot + 1) & (n_slots - 1);
    return slot;
}

PyDoc_STRVAR(split_doc,
             "split(units, ends, kinds, seed, hashes, numbers, out, counts, unknown) -> (words, missed)\n\n"
             "Split plain texts: units (uint16) with the end of each text (int64), kinds (uint8, one for each of\n"
             "65,536 units). Looks each word up as find does. Writes numbers to out (int32), to counts (int32) how\n"
             "many words each text has, -1 for one that is not plain; of words not in the table their place in\n"
             "out, first unit, length and hash to unknown (int64, four a word).");

static PyObject *split(PyObject *self, PyObject *args) {
    PyObject *objects[8], *result = NULL;
    Buffers buffers = {.taken = 0};
    Py_ssize_t n_units, n_texts, n_kinds, n_slots, n_numbers, n_out, n_counts, n_unknown;
    unsigned long long seed;
    if (!PyArg_ParseTuple(args, "OOOKOOOOO", &objects[0], &objects[1], &objects[2], &seed, &objects[3], &objects[4],
                          &objects[5], &objects[6], &objects[7]))
        return NULL;
    const uint16_t *units = take(&buffers, objects[0], 0, 2, &n_units);
    const int64_t *ends = units ? take(&buffers, objects[1], 0, 8, &n_texts) : NULL;
    const uint8_t *kinds = ends ? take(&buffers, objects[2], 0, 1, &n_kinds) : NULL;
    const int64_t *hashes = kinds ? take(&buffers, objects[3], 0, 8, &n_slots) : NULL;
    const int32_t *numbers = hashes ? take(&buffers, objects[4], 0, 4, &n_numbers) : NULL;
    int32_t *out = numbers ? take(&buffers, objects[5], 1, 4, &n_out) : NULL;
    int32_t *counts = out ? take(&buffers, objects[6], 1, 4, &n_counts) : NULL;
    int64_t *unknown = counts ? take(&buffers, objects[7], 1, 8, &n_unknown) : NULL;
    if (unknown == NULL) goto done;
    int sound = n_kinds == 65536 && n_numbers == n_slots && n_slots > 0 && !(n_slots & (n_slots - 1)) &&
                n_counts == n_texts && n_unknown >= 4 * n_out;
    Py_ssize_t words = 0, missed = 0;
    int64_t at = 0;
    for (Py_ssize_t text = 0; sound && text < n_texts; at = ends[text++]) {
        sound = ends[text] >= at && ends[text] <= n_units && words + (ends[text] - at + 1) / 2 <= n_out;
        if (!sound) break;
        int64_t begins[AHEAD], lengths[AHEAD], keys[AHEAD];
        Py_ssize_t words_before = words, missed_before = missed;
        int found = 1;
        while (found > 0) {
            int ahead = 0;
            while (ahead < AHEAD && (found = next_word(units, ends[text], kinds, &at, &begins[ahead])) > 0) {
                lengths[ahead] = at - begins[ahead];
                keys[ahead] = hash_of(units + begins[ahead], lengths[ahead], seed);
                __builtin_prefetch(&hashes[keys[ahead] & (n_slots - 1)]);
                __builtin_prefetch(&numbers[keys[ahead] & (n_slots - 1)]);
                ahead++;
            }
            for (int i = 0; i < ahead; i++, words++) {
                int64_t slot = slot_of(hashes, numbers, n_slots, keys[i]);
                if (numbers[slot] != EMPTY && hashes[slot] == keys[i]) {
                    out[words] = numbers[slot];
                    continue;
                }
                const int64_t place[4] = {words, begins[i], lengths[i], keys[i]};
                memcpy(unknown + 4 * missed++, place, sizeof place);
            }
        }
        counts[text] = found < 0 ? -1 : (int32_t)(words - words_before);
        if (found < 0) {
            words = words_before;
            missed = missed_before;
        }
    }
    if (sound) result = Py_BuildValue("nn", words, missed);
    else PyErr_SetString(PyExc_ValueError, "the texts, the table and the outputs do not fit each other");
done:
    give_back(&buffers);
    return result;
}

PyDoc_STRVAR(find_doc,
             "find(words, hashes, numbers, out, unknown) -> int\n\n"
             "Look the words of a list up in a table: hashes (int64; hash ^ length) and numbers (int32, -2 where\n"
             "free), a power of two long. Writes numbers to out (int32), the places of words not in the table to unknown\n"
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
            /* Python's hash is one of bytes, which "Am" (of one byte a letter) and U+6D41 share. */
            PyObject *word = PyList_GetItem(words, i);
            Py_ssize_t length = PyUnicode_GetLength(word);
            Py_hash_t key = length < 0 ? -1 : PyObject_Hash(word);
            if (key == -1) goto done;
            key ^= length;
            keys[i - start] = key;
            __builtin_prefetch(&hashes[key & (n_slots - 1)]);
            __builtin_prefetch(&numbers[key & (n_slots - 1)]);
        }
        for (Py_ssize_t i = start; i < stop; i++) {
            int64_t key = keys[i - start], slot = slot_of(hashes, numbers, n_slots, key);
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
                                {"find_terms", find_terms, METH_VARARGS, find_terms_doc},
                                {"pack_forward", pack_forward, METH_VARARGS, pack_forward_doc},
                                {"unpack_forward", unpack_forward, METH_VARARGS, unpack_forward_doc},
                                {"split", split, METH_VARARGS, split_doc},
                                {"find", find, METH_VARARGS, find_doc},
                                {"put", put, METH_VARARGS, put_doc},
                                {"prefixes", prefixes, METH_VARARGS, prefixes_doc},
                                {"pack", pack_postings, METH_VARARGS, pack_doc},
                                {"open_segments", open_segments, METH_O, open_doc},
                                {"open_model", open_model, METH_VARARGS, open_model_doc},
                                {"ids", ids, METH_VARARGS, ids_doc},
                                {"rank", rank, METH_VARARGS, rank_doc},
                                {"rank_one", rank_one, METH_VARARGS, rank_one_doc},
                                {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernel", "Loops of the lexical index.", -1, methods,
                                    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernel(void) {
#ifdef WIDEST
    unpacks_eights = processor_has(AVX2);
#endif
    return PyModule_Create(&module);
}
