/* The best k documents of a segment for weighted terms, behind _postings.h.
 *
 * A document's score is the sum of its terms' values in double precision, in the order in which the terms are
 * given, rounded to float32 once. Equal scores are ordered by document id. There are two ways to the same bits:
 *
 * exhaustive   term after term, window after window of documents, everything is added up;
 * pruned       what cannot reach the k-th score is left out. Lists are divided in two:
 *              sparse lists are added up first, those with the highest bounds, until the others cannot make a
 *              result together (MaxScore, Turtle & Flood 1995); of a list that needs the frequent ones for a result,
 *              only postings whose count, and the bounds around their document, are high enough;
 *              frequent lists have a bound for every 64 documents (block maxima, Ding & Suel 2011; ranges of
 *              documents as in BMP, Mallia et al. 2024): only the areas where the sum of these bounds reaches the k-th
 *              score can hold a result with no word of the sparse lists, and only they are read.
 *              A document found is looked up in the other lists as long as its sum and their bounds reach the k-th
 *              score; that of a window is known before the next one begins.
 *
 * Documents that hold all terms are found from the rarest list, whose documents are sought in the others.
 *
 * Bounds hold for values that rise with the count and fall with the length. Where sums are made in another order
 * than the terms', a sum too close to a rounding boundary of float32 is made again in theirs.
 */
#ifndef RANKHOUSE_RANK_H
#define RANKHOUSE_RANK_H

#include <math.h>
#include <stdlib.h>

#include "_postings.h"

#define WINDOW 32768        /* documents added up at a time: their sums stay in the second-level cache */
#define WORTH_PRUNING 1024  /* postings of a query in a segment below which adding up is quicker */
#define PRUNED_SHARE 8192   /* documents for each that is asked for, below which adding up is quicker */
#define DEAR 32              /* postings read by the way in the time of one looked up */
#define FEW 16               /* postings of a block that are read one by one */
#define CEILINGS 16          /* counts that have bounds of their own */
#define MANY 16              /* one of so many areas: then all are read */
#define SEED_BLOCKS 4        /* of a list, from which a first k-th score comes */
#define MARKED 65536        /* documents marked at a time, a bit each, where matches are counted */
#define SLACK (1 - 1e-6)    /* of a k-th score: bounds are rounded, float32 itself is worth 6e-8 */

/* --- the best so far ------------------------------------------------------------------------------------ */

/* One integer each: the score's bits above, the document's place in the order of ids below, both so that greater
 * is better. Scores may be negative; their bits are mirrored. New ones hold the row instead of the place, which is
 * looked up for all of them when the buffer is full: then the better k stay, and the worst of them becomes the
 * bar. That is cheaper than a heap, whose every insertion costs log k, and than a cache miss for every offer.
 */
typedef struct {
    uint64_t *keys, bar;
    int64_t size, placed, capacity, k;
    const int32_t *id_rank; /* NULL where ids are sorted */
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

static inline uint64_t middle_of(const uint64_t *keys, int64_t low, int64_t end) {
    uint64_t a = keys[low], b = keys[low + (end - low) / 2], c = keys[end - 1];
    return a > b ? (b > c ? b : (a > c ? c : a)) : (a > c ? a : (b > c ? c : b));
}

/* Bring the keys of [low, end) that are at least so great to the front, without a branch to be guessed; returns
 * the end of these. */
static int64_t partition(uint64_t *keys, int64_t low, int64_t end, uint64_t least) {
    int64_t kept = low;
    for (int64_t i = low; i < end; i++) {
        uint64_t key = keys[i];
        keys[i] = keys[kept];
        keys[kept] = key;
        kept += key >= least;
    }
    return kept;
}

/* Bring the greatest k of n keys to the front, in any order. */
static void select_greatest(uint64_t *keys, int64_t n, int64_t k) {
    int64_t low = 0, end = n;
    while (end - low > 1 && low < k && k < end) {
        uint64_t pivot = middle_of(keys, low, end);
        int64_t greater = partition(keys, low, end, pivot + 1);
        if (k <= greater) end = greater;
        else low = partition(keys, greater, end, pivot);
    }
}

static uint64_t least_of(const uint64_t *keys, int64_t n) {
    uint64_t least = keys[0];
    for (int64_t i = 1; i < n; i++) least = keys[i] < least ? keys[i] : least;
    return least;
}

static void sort_falling(uint64_t *keys, int64_t low, int64_t end) {
    while (end - low > 16) {
        uint64_t pivot = middle_of(keys, low, end);
        int64_t greater = partition(keys, low, end, pivot + 1), equal = partition(keys, greater, end, pivot);
        if (greater - low < end - equal) {
            sort_falling(keys, low, greater);
            low = equal;
        } else {
            sort_falling(keys, equal, end);
            end = greater;
        }
    }
    for (int64_t i = low + 1; i < end; i++) {
        uint64_t key = keys[i];
        int64_t j = i - 1;
        for (; j >= low && keys[j] < key; j--) keys[j + 1] = keys[j];
        keys[j + 1] = key;
    }
}

static void raise_bar(Best *best) {
    int64_t kept = best->placed;
    for (int64_t i = best->placed; i < best->size; i++) {
        uint64_t row = best->keys[i] & 0xFFFFFFFFu;
        uint32_t place = best->id_rank == NULL ? (uint32_t)row : (uint32_t)best->id_rank[row];
        uint64_t key = (best->keys[i] >> 32 << 32) | (0xFFFFFFFFu - place);
        best->keys[kept] = key;
        kept += key > best->bar;
    }
    if (kept > best->k) {
        select_greatest(best->keys, kept, best->k);
        kept = best->k;
    }
    best->size = best->placed = kept;
    if (kept == best->k) {
        uint64_t least = least_of(best->keys, kept);
        if (least > best->bar) best->bar = least;
    }
}

/* Scores below this are of no use. */
static inline float bar_score(const Best *best) { return score_of(best->bar); }

static inline void offer(Best *best, float score, int32_t row) {
    uint32_t bits = ordered_bits(score);
    if (bits < best->bar >> 32) return;
    best->keys[best->size++] = (uint64_t)bits << 32 | (uint32_t)row;
    if (best->size == best->capacity) raise_bar(best);
}

/* A floor that scores may equal. */
static inline void set_floor(Best *best, float score) {
    uint64_t bar = (uint64_t)ordered_bits(score) << 32;
    if (bar > best->bar) best->bar = bar;
}

/* --- terms ---------------------------------------------------------------------------------------------- */

/* How a posting's value comes from its count f and its document's length; the formulas themselves are Python's.
 *
 * RATIO    float32 w - w / (1 + f g), with g by length (BM25)
 * SUM      max(0, w (rise(f) + fall)), with fall by length, as float32 (query likelihood)
 * TABLE    float32 by count and length
 * GIVEN    float32 by posting
 * IMPACT   w times the posting's float32 score, in double precision
 */
enum { RATIO, SUM, TABLE, GIVEN, IMPACT };

typedef struct {
    int form, pruning, exact; /* pruning: 0 never, 1 where it is worth it, 2 always; exact: by true lengths */
    const int32_t *lengths;  /* of this segment where lengths are exact, else NULL: then codes */
    int64_t n_lengths;       /* entries of the tables by length */
    const float *ratio, *ratio_by_code;
    const double *fall, *prior;
    int n_codes;
} Model;

typedef struct {
    const uint8_t *lists, *codes, *dead, *ids;
    Offsets lists_at, ids_at;
    const int32_t *frequencies, *lengths, *id_rank, *id_order;
    const Area *areas;
    int64_t n_lists, n_terms, n_frequent, n_rows, first_row;
} Segment;

typedef struct {
    const uint8_t *skips, *blocks, *end; /* skips NULL for a list of one block */
    const int32_t *given_rows;
    const float *given, *table; /* table: [count][code] */
    const double *rise;
    const Area *areas;  /* of a frequent term */
    float *area_bounds; /* [count][length code], or NULL */
    double weight, bound;
    float ratio_weight, least, by_count[CEILINGS]; /* least: of a posting with one occurrence, or of all */
    /* by_count: what a posting with so many occurrences, or more, is worth at most */
    int64_t n;
    int n_blocks, highest, place; /* place: in the order of sums */
    int block, count, at, counted, scored; /* the block that is unpacked, its postings, the next of them */
    int32_t before, rows[PACK], counts[PACK];
    double values[PACK];
} Term;

typedef struct {
    int32_t row, from;
    double sum, rest; /* of the terms before from; what the others add at most */
} Candidate;

typedef struct {
    void *at;
    size_t size;
} Room;

/* What a search needs besides its arrays; kept between calls. */
typedef struct Scratch {
    struct Scratch *next;
    Room terms, keys, sums, touched, candidates, bounds, area_bounds, partial, merged, seeds, marks, asked, records;
    int64_t postings, unpacked;
    int failed; /* 1 no memory, 2 a damaged list */
} Scratch;

static void *room(Scratch *s, Room *room, size_t size) {
    if (room->size < size) {
        void *larger = realloc(room->at, size + size / 2);
        if (larger == NULL) {
            s->failed = 1;
            return NULL;
        }
        room->at = larger;
        room->size = size + size / 2;
    }
    return room->at;
}

/* The same, what it holds kept. */
static void *grow(Scratch *s, Room *room, size_t size) {
    if (room->size < size) {
        void *larger = realloc(room->at, 2 * size);
        if (larger == NULL) {
            s->failed = 1;
            return NULL;
        }
        room->at = larger;
        room->size = 2 * size;
    }
    return room->at;
}

typedef struct {
    Scratch *scratch;
    const Segment *segment;
    const Model *model;
    Term *terms; /* in the order of sums */
    int n_terms;
    Best *best;
    double prior, prior_weight;
} Search;

static inline int length_of(const Model *model, const Segment *segment, int32_t row) {
    if (model->lengths == NULL) return segment->codes[row];
    int32_t length = model->lengths[row];
    return length >= 0 && length < model->n_lengths ? length : 0;
}

static inline int is_dead(const Segment *segment, int32_t row) {
    return segment->dead != NULL && (segment->dead[row >> 3] >> (row & 7) & 1);
}

/* Where a block's bytes begin, its widths and how many postings it has; 0 where they do not fit the list. */
static int block_facts(const Term *term, int block, const uint8_t **at, int *gap_bits, int *count_bits, int *n) {
    int64_t left = term->n - (int64_t)PACK * block;
    *n = left < PACK ? (int)left : PACK;
    if (term->skips == NULL) {
        *at = term->blocks;
        *gap_bits = term->blocks[-HEAD];
        *count_bits = term->blocks[1 - HEAD];
    } else {
        const uint8_t *skip = term->skips + (int64_t)SKIP * block;
        *at = term->blocks + (block ? load32(skip - SKIP + 4) : 0);
        *gap_bits = skip[8];
        *count_bits = skip[9];
    }
    return *gap_bits <= 32 && *count_bits <= 32 &&
           *at + bytes_of(*n, *gap_bits) + bytes_of(*n, *count_bits) <= term->end;
}

static inline int32_t last_row(const Term *term, int block) {
    return (int32_t)load32(term->skips + (int64_t)SKIP * block);
}

/* Unpack the rows of a block; counts are when they are needed. */
static int load(Search *search, Term *term, int block) {
    const uint8_t *at;
    int gap_bits, count_bits, n;
    term->block = block;
    term->at = term->counted = term->scored = 0;
    if (term->given != NULL) {
        int64_t left = term->n - (int64_t)PACK * block;
        term->count = n = left < PACK ? (int)left : PACK;
        term->before = block ? term->given_rows[(int64_t)PACK * block - 1] : -1;
        memcpy(term->rows, term->given_rows + (int64_t)PACK * block, 4 * (size_t)n);
    } else {
        if (!block_facts(term, block, &at, &gap_bits, &count_bits, &n)) goto damaged;
        term->count = n;
        term->before = block ? last_row(term, block - 1) : -1;
        unpack_rows(at, term->end, gap_bits, n, term->before, term->rows);
        search->scratch->unpacked += n;
        /* Gaps of so many bits could add up to more than 32. */
        if (gap_bits > 24)
            for (int i = 1; i < n; i++)
                if (term->rows[i] <= term->rows[i - 1]) goto damaged;
    }
    if (term->rows[0] < 0 || term->rows[n - 1] >= search->segment->n_rows || term->before >= term->rows[n - 1] ||
        (term->skips != NULL && term->rows[n - 1] != last_row(term, block)))
        goto damaged;
    for (int i = n; i < PACK; i++) term->rows[i] = INT32_MAX;
    return 1;
damaged:
    search->scratch->failed = 2;
    term->count = 0;
    term->block = term->n_blocks;
    return 0;
}

/* See to it that counts [from, to) of the block are there; scores of impacts are read where they lie. */
static void load_counts(Term *term, int from, int to) {
    const uint8_t *at;
    int gap_bits, count_bits, n;
    if (term->counted || term->given != NULL) return;
    block_facts(term, term->block, &at, &gap_bits, &count_bits, &n);
    at += bytes_of(n, gap_bits);
    if (to - from < FEW) {
        for (int i = from; i < to; i++) term->counts[i] = 1 + (int32_t)packed(at, i, count_bits);
    } else {
        unpack_counts(at, term->end, count_bits, n, term->counts);
        term->counted = 1;
    }
}

static inline double sum_value(const Term *term, const Model *model, int32_t count, int length) {
    double value = term->weight * (term->rise[count <= term->highest ? count : 0] + model->fall[length]);
    return (double)(float)(value > 0 ? value : 0);
}

static inline float ratio_value(const Term *term, float count, float by_length) {
    return term->ratio_weight - term->ratio_weight / (1.0f + count * by_length);
}

static inline double table_value(const Term *term, const Model *model, int32_t count, int code) {
    return term->table[(int64_t)(count <= term->highest ? count : 0) * model->n_codes + (code < model->n_codes ? code : 0)];
}

/* Values of postings [from, to) of the unpacked block. */
static void score(const Search *search, Term *term, int from, int to) {
    double *values = term->values;
    const Model *model = search->model;
    const Segment *segment = search->segment;
    const int32_t *rows = term->rows, *counts = term->counts;
    if (term->given != NULL) {
        const float *given = term->given + (int64_t)PACK * term->block;
        for (int i = from; i < to; i++) values[i] = given[i];
        return;
    }
    if (model->form == IMPACT) {
        const uint8_t *at;
        int gap_bits, count_bits, n;
        block_facts(term, term->block, &at, &gap_bits, &count_bits, &n);
        at += bytes_of(n, gap_bits);
        for (int i = from; i < to; i++) {
            float value;
            memcpy(&value, at + 4 * i, 4);
            values[i] = term->weight * (double)value;
        }
        return;
    }
    load_counts(term, from, to);
    if (model->form == RATIO) {
        float by_length[PACK];
        if (model->lengths == NULL)
            for (int i = from; i < to; i++) by_length[i] = model->ratio[segment->codes[rows[i]]];
        else
            for (int i = from; i < to; i++) by_length[i] = model->ratio[length_of(model, segment, rows[i])];
        for (int i = from; i < to; i++) values[i] = ratio_value(term, (float)counts[i], by_length[i]);
    } else if (model->form == SUM) {
        for (int i = from; i < to; i++)
            values[i] = sum_value(term, model, counts[i], length_of(model, segment, rows[i]));
    } else {
        for (int i = from; i < to; i++) values[i] = table_value(term, model, counts[i], segment->codes[rows[i]]);
    }
}

/* Values of n postings of the unpacked block: of all, where that is quicker. */
static void score_places(const Search *search, Term *term, const uint8_t *places, int n) {
    const Model *model = search->model;
    if (term->scored || n == 0) return;
    if (2 * n > term->count || (n > FEW && (term->given != NULL || model->form != RATIO || model->lengths != NULL))) {
        score(search, term, 0, term->count);
        term->scored = 1;
    } else if (n <= FEW / 4 || term->given != NULL || model->form != RATIO || model->lengths != NULL) {
        for (int j = 0; j < n; j++) score(search, term, places[j], places[j] + 1);
    } else {
        float by_length[PACK], counts[PACK];
        load_counts(term, 0, term->count);
        for (int j = 0; j < n; j++) by_length[j] = model->ratio[search->segment->codes[term->rows[places[j]]]];
        for (int j = 0; j < n; j++) counts[j] = (float)term->counts[places[j]];
        for (int j = 0; j < n; j++) counts[j] = ratio_value(term, counts[j], by_length[j]);
        for (int j = 0; j < n; j++) term->values[places[j]] = counts[j];
    }
}

/* The value that a bound stands for. */
static double value_of_bound(const Model *model, const Term *term, uint16_t bound) {
    if (model->form == IMPACT) {
        uint32_t bits = (uint32_t)bound << 16;
        float value;
        memcpy(&value, &bits, 4);
        return term->weight * (double)value;
    }
    if (bound == 0) return 0;
    int count = bound >> 8, code = bound & 255;
    if (count == 255 || count > term->highest) count = term->highest;
    if (model->form == RATIO) return ratio_value(term, (float)count, model->ratio_by_code[code]);
    if (model->form == SUM) return sum_value(term, model, count, code);
    return table_value(term, model, count, code);
}

/* Find what no posting of a list exceeds, and none of each count. */
static void bound_list(const Model *model, Term *term) {
    int code = 255;
    uint16_t best = 255;
    term->bound = 0;
    if (term->given != NULL)
        for (int64_t i = 0; i < term->n; i++) term->bound = term->given[i] > term->bound ? term->given[i] : term->bound;
    for (int block = 0; term->given == NULL && block < term->n_blocks; block++) {
        uint16_t bound = load16(term->skips == NULL ? term->blocks - 2 : term->skips + (int64_t)SKIP * block + 10);
        if (bound >> 8 <= best >> 8 && (bound & 255) >= (best & 255) && model->form != IMPACT) continue; /* not above another */
        best = bound;
        double value = value_of_bound(model, term, bound);
        term->bound = value > term->bound ? value : term->bound;
        code = (bound & 255) < code ? bound & 255 : code;
    }
    term->least = (float)term->bound;
    if (term->given != NULL || model->form == IMPACT) return;
    for (int count = 0; count < CEILINGS - 1; count++) term->by_count[count] = (float)value_of_bound(model, term, (uint16_t)(count << 8 | code));
    term->by_count[CEILINGS - 1] = (float)term->bound;
    term->least = term->by_count[1];
}

/* --- exhaustive ------------------------------------------------------------------------------------------- */

static inline int is_untouched(double sum) {
    uint64_t bits;
    memcpy(&bits, &sum, 8);
    return bits == 0x8000000000000000u;
}

typedef struct {
    Term **terms;    /* sparse ones, then frequent ones, both by falling bound */
    double *rest;    /* rest[i]: bounds of the terms from i on */
    int n, n_sparse, e; /* e: how many are added up */
    double theta;    /* what a sum must reach */
} Pruning;

static inline float score_of_half(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float score;
    memcpy(&score, &bits, 4);
    return score;
}

/* Whether a document may hold a term: 0 where none of its four does. */
static inline int may_hold(const Term *term, int32_t row) {
    return term->areas == NULL || (term->areas[row / AREA].fours >> (row / 4 & 15) & 1);
}

/* A bound in an area, or 0 where none of the four documents around a row holds the term: without a branch to be guessed. */
static inline float bound_if(Area area, int32_t row, float bound) {
    uint32_t bits;
    memcpy(&bits, &bound, 4);
    bits &= 0u - (area.fours >> ((uint32_t)row / 4 & 15) & 1u);
    memcpy(&bound, &bits, 4);
    return bound;
}

/* What a term adds to a document at most, by its bound in the area and the document's own length. */
static inline double bound_in(const Search *search, const Term *term, int32_t row) {
    if (term->areas == NULL) return term->bound;
    Area area = term->areas[(uint32_t)row / AREA];
    if (search->model->form == IMPACT) return term->weight * (double)bound_if(area, row, score_of_half(area.bound));
    return bound_if(area, row, term->area_bounds[(area.bound & 0xFF00) | search->segment->codes[row]]);
}

/* Find what postings [from, to) of a term are worth at most with the frequent terms behind it, without a branch to be guessed. */
static void find_ceilings(const Search *search, const Pruning *p, int i, int from, int to, float *ceilings) {
    Term *term = p->terms[i];
    const int32_t *rows = term->rows;
    int is_impact = search->model->form == IMPACT;
    if (i >= p->n_sparse) {
        for (int at = from; at < to; at++) ceilings[at] = 0;
    } else if (term->given != NULL || is_impact) {
        if (!term->scored) score(search, term, 0, term->count);
        term->scored = 1;
        for (int at = from; at < to; at++) ceilings[at] = (float)term->values[at];
    } else {
        load_counts(term, 0, term->count);
        for (int at = from; at < to; at++) ceilings[at] = term->by_count[term->counts[at] < CEILINGS ? term->counts[at] : CEILINGS - 1];
    }
    for (int f = i < p->n_sparse ? p->n_sparse : i; f < p->n; f++) {
        const Area *areas = p->terms[f]->areas;
        const float *bounds = p->terms[f]->area_bounds, weight = (float)p->terms[f]->weight;
        for (int at = from; at < to; at++) {
            Area area = areas[(uint32_t)rows[at] / AREA];
            ceilings[at] += bound_if(area, rows[at], is_impact ? weight * score_of_half(area.bound) : bounds[area.bound]);
        }
    }
}

/* Bring the places of those postings [from, to) of a term to the front that may belong to a result: their documents
 * were touched by terms before, or have enough of this term and those behind it. Returns how many. */
static int worthy(const Search *search, const Pruning *p, int i, int from, int to, const double *sums, int32_t start,
                  uint8_t *places) {
    const int32_t *rows = p->terms[i]->rows;
    int n = 0;
    double others = i < p->n_sparse ? p->rest[i + 1] - p->rest[p->n_sparse] : 0; /* sparse ones behind it */
    float least = (float)(p->theta - others) * (1 - 1e-5f), ceilings[PACK];
    find_ceilings(search, p, i, from, to, ceilings);
    for (int at = from; at < to; at++) {
        places[n] = (uint8_t)at;
        n += (ceilings[at] >= least) | (i > 0 && !is_untouched(sums[rows[at] - start]));
    }
    return n;
}

/* The same for a term that cannot make a result: only touched documents count. */
static int touched_before(const int32_t *rows, int from, int to, const double *sums, int32_t start, uint8_t *places) {
    int n = 0;
    for (int at = from; at < to; at++) {
        places[n] = (uint8_t)at;
        n += !is_untouched(sums[rows[at] - start]);
    }
    return n;
}

/* Take the next postings [from, to) of a term in one block, of documents before a row; 0 where there are none. */
static int take_part(Search *search, Term *term, int32_t stop, int *from, int *to) {
    if (term->block >= term->n_blocks) return 0;
    if (term->at == term->count && (term->block + 1 == term->n_blocks || !load(search, term, term->block + 1))) {
        term->block = term->n_blocks;
        return 0;
    }
    *from = term->at;
    *to = term->count;
    if (term->rows[*to - 1] >= stop)
        for (*to = *from; term->rows[*to] < stop;) ++*to;
    term->at = *to;
    return *from < *to;
}

/* Add up those postings [from, to) of a block that may belong to a result. */
static __attribute__((noinline)) int64_t add_kept(const Search *search, Term *term, int from, int to, int32_t start, double *sums, int32_t *touched, int64_t n,
                        const Pruning *p, int i) {
    uint8_t places[PACK];
    const int32_t *rows = term->rows;
    int kept = i >= p->e ? touched_before(rows, from, to, sums, start, places) : worthy(search, p, i, from, to, sums, start, places);
    score_places(search, term, places, kept);
    for (int j = 0; j < kept; j++) {
        int at = places[j];
        touched[n] = rows[at];
        n += is_untouched(sums[rows[at] - start]);
        sums[rows[at] - start] += term->values[at];
    }
    return n;
}

/* Add a term up in the documents [start, stop). A sum of -0.0 means "untouched": adding +0.0, a match worth
 * nothing, makes it +0.0. Those touched first are noted, unless so many are touched that all are looked at. */
static int64_t add_window(Search *search, Term *term, int32_t start, int32_t stop, double *sums, int32_t *touched,
                          int64_t n, const Pruning *p, int i) {
    const int32_t *rows = term->rows;
    const double *values = term->values;
    for (int from, to; take_part(search, term, stop, &from, &to);) {
        if (p != NULL) {
            n = add_kept(search, term, from, to, start, sums, touched, n, p, i);
        } else {
            if (!term->scored) score(search, term, 0, term->count);
            term->scored = 1;
            if (touched == NULL) {
                for (int at = from; at < to; at++) sums[rows[at] - start] += values[at];
            } else {
                for (int at = from; at < to; at++) {
                    double sum = sums[rows[at] - start];
                    touched[n] = rows[at];
                    n += is_untouched(sum);
                    sums[rows[at] - start] = sum + values[at];
                }
            }
        }
    }
    return n;
}

static inline void settle(Search *search, double *sum, int32_t row) {
    double all = *sum;
    *sum = -0.0;
    if (search->model->prior != NULL)
        all += search->prior + search->prior_weight * search->model->prior[length_of(search->model, search->segment, row)];
    float score = (float)all;
    if (ordered_bits(score) >= search->best->bar >> 32 && !is_dead(search->segment, row))
        offer(search->best, score, row);
}

static void settle_all(Search *search, double *sums, int32_t start, int32_t width) {
    for (int32_t j = 0; j < width; j += 16) {
        float bar = search->best->bar ? bar_score(search->best) : 0;
        int32_t stop = j + 16 < width ? j + 16 : width;
        if (search->model->prior == NULL && bar > 0 && stop == j + 16) {
            /* Most stretches hold nothing good enough: one pass of maxima, which vectorises, tells. */
            double top[4] = {sums[j], sums[j + 1], sums[j + 2], sums[j + 3]};
            for (int32_t i = j + 4; i < stop; i += 4)
                for (int lane = 0; lane < 4; lane++)
                    top[lane] = sums[i + lane] > top[lane] ? sums[i + lane] : top[lane];
            double one = top[0] > top[1] ? top[0] : top[1], two = top[2] > top[3] ? top[2] : top[3];
            if ((float)(one > two ? one : two) < bar) continue;
        }
        for (int32_t i = j; i < stop; i++)
            if (!is_untouched(sums[i])) settle(search, &sums[i], start + i);
    }
    for (int32_t j = 0; j < width; j++) sums[j] = -0.0;
}

/* Sums below this are of no use, whatever they are rounded to. */
static inline double theta_of(const Best *best) {
    float bar = score_of(best->bar);
    return bar > 0 ? bar * SLACK : -INFINITY;
}

static void settle_touched(Search *search, double *sums, int32_t start, const int32_t *touched, int64_t n) {
    int has_prior = search->model->prior != NULL;
    double least = has_prior ? -INFINITY : theta_of(search->best);
    for (int64_t i = 0; i < n; i++) {
        double *sum = &sums[touched[i] - start];
        if (*sum < least) {
            *sum = -0.0;
        } else {
            settle(search, sum, touched[i]);
            if (!has_prior) least = theta_of(search->best);
        }
    }
}

static void rank_exhaustive(Search *search, double *sums, int32_t *touched, int64_t postings) {
    int64_t n_rows = search->segment->n_rows;
    int is_dense = postings > n_rows / 8;
    for (int t = 0; t < search->n_terms; t++) load(search, &search->terms[t], 0);
    for (int64_t start = 0; start < n_rows; start += WINDOW) {
        int32_t width = n_rows - start < WINDOW ? (int32_t)(n_rows - start) : WINDOW;
        int64_t n = 0;
        int open = 0;
        for (int t = 0; t < search->n_terms; t++) {
            Term *term = &search->terms[t];
            n = add_window(search, term, (int32_t)start, (int32_t)(start + width), sums, is_dense ? NULL : touched, n, NULL, 0);
            open |= term->block < term->n_blocks;
        }
        if (is_dense) settle_all(search, sums, (int32_t)start, width);
        else settle_touched(search, sums, (int32_t)start, touched, n);
        if (!open) break;
    }
}

/* --- pruned ----------------------------------------------------------------------------------------------- */

/* The first row of the unpacked block that is not below another: its place. */
static inline int first_from(const Term *term, int32_t row) {
    const int32_t *rows = term->rows;
    int at = 0;
    for (int step = PACK / 2; step; step /= 2) at += step & -(rows[at + step - 1] < row); /* no branch to be guessed */
    return at + (rows[at] < row);
}

/* Unpack the block in which a row would stand; 0 where it lies behind the last. */
static int seek(Search *search, Term *term, int32_t row) {
    if (term->block < term->n_blocks && term->count && row > term->before && row <= term->rows[term->count - 1]) return 1;
    if (term->n_blocks == 1 || term->given != NULL) {
        int low = 0, high = term->n_blocks;
        while (low < high && term->given != NULL) {
            int middle = (low + high) / 2;
            int64_t last = (int64_t)PACK * (middle + 1) < term->n ? (int64_t)PACK * (middle + 1) : term->n;
            if (term->given_rows[last - 1] < row) low = middle + 1;
            else high = middle;
        }
        if (low == term->n_blocks || ((term->block != low || !term->count) && !load(search, term, low))) return 0;
        return row <= term->rows[term->count - 1];
    }
    int low = term->block < term->n_blocks && last_row(term, term->block) < row ? term->block + 1 : 0, high;
    int step = 1;
    while (low + step < term->n_blocks && last_row(term, low + step - 1) < row) {
        low += step;
        step *= 2;
    }
    high = low + step < term->n_blocks ? low + step : term->n_blocks;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (last_row(term, middle) < row) low = middle + 1;
        else high = middle;
    }
    return low < term->n_blocks && load(search, term, low);
}

/* Whether a term occurs in a document: then its place in the unpacked block is noted. */
static int holds(Search *search, Term *term, int32_t row) {
    if (!seek(search, term, row)) return 0;
    term->at = first_from(term, row);
    return term->rows[term->at] == row;
}

/* The value of the posting whose place was noted. */
static double noted_value(Search *search, Term *term) {
    score(search, term, term->at, term->at + 1);
    return term->values[term->at];
}

/* Whether a term occurs in a document, and with what value. */
static int look_up(Search *search, Term *term, int32_t row, double *value) {
    if (!holds(search, term, row)) return 0;
    *value = noted_value(search, term);
    return 1;
}

/* A sum made in another order, as the float32 that the right order gives. */
static float rounded(Search *search, double sum, int32_t row) {
    uint64_t bits;
    memcpy(&bits, &sum, 8);
    int64_t beyond = (int64_t)(bits & 0x1FFFFFFF) - 0x10000000; /* from the middle between two float32 */
    if (beyond > 4096 || beyond < -4096) return (float)sum;
    sum = -0.0;
    for (int t = 0; t < search->n_terms; t++) {
        double value;
        if (look_up(search, &search->terms[t], row, &value)) sum += value;
    }
    return (float)sum;
}

/* Tabulate the bounds of a frequent term's areas: only the rows and columns in use are touched. */
static void tabulate(const Model *model, Term *term, float *table) {
    int highest = term->highest < 255 ? term->highest : 255;
    for (int count = 0; count <= highest; count++)
        for (int code = 0; code < model->n_codes; code++)
            table[256 * count + code] = (float)value_of_bound(model, term, (uint16_t)(count << 8 | code));
    term->area_bounds = table;
}

/* Add up the frequent terms' bounds in the areas of [start, stop); returns them from the first area on. */
static const float *bound_areas_in(Search *search, const Pruning *p, int32_t start, int32_t stop) {
    int64_t first = start / AREA, n = (stop + AREA - 1) / AREA - first;
    float *bounds = room(search->scratch, &search->scratch->bounds, sizeof(float) * (WINDOW / AREA));
    if (bounds == NULL) return NULL;
    for (int64_t a = 0; a < n; a++) bounds[a] = 0;
    for (int t = p->n_sparse; t < p->n; t++) {
        const Term *term = p->terms[t];
        const Area *areas = term->areas + first;
        if (search->model->form == IMPACT) {
            float weight = (float)term->weight * (1 + 1e-6f);
            for (int64_t a = 0; a < n; a++) bounds[a] += weight * score_of_half(areas[a].bound);
        } else {
            for (int64_t a = 0; a < n; a++) bounds[a] += term->area_bounds[areas[a].bound];
        }
    }
    return bounds;
}

/* How many terms must be added up, so that a document with none of them cannot be a result. */
static int essential(const Pruning *p) {
    int e = p->n;
    while (e > 0 && p->rest[e - 1] < p->theta) e--;
    return e;
}

/* Go on in a list from a row. */
static void go_on(Search *search, Term *term, int32_t row) {
    if (term->block < term->n_blocks && seek(search, term, row)) term->at = first_from(term, row);
    else term->block = term->n_blocks;
}

/* Keep the touched documents that can still be results, of terms from one on. */
static int64_t sift(const Search *search, const Pruning *p, int from, double *sums, int32_t start, int32_t *touched, int64_t n) {
    int64_t kept = 0;
    double least = p->theta - p->rest[from];
    for (int64_t i = 0; i < n; i++) {
        int32_t row = touched[i];
        double both[2] = {-0.0, sums[row - start]}; /* no branch to be guessed */
        int is_kept = both[1] >= least;
        sums[row - start] = both[is_kept];
        touched[kept] = row;
        kept += is_kept;
    }
    return kept;
}

/* Add up the frequent terms in those areas of [start, stop) that can hold a result with none of the sparse terms: one by
 * one, or all where these are many. */
static int64_t add_areas(Search *search, const Pruning *p, double *sums, int32_t start, int32_t stop, int32_t *touched) {
    float least = (float)p->theta * (1 - 1e-5f);
    int64_t n = 0, n_areas = 0;
    const float *bounds = bound_areas_in(search, p, start, stop);
    if (bounds == NULL) return 0;
    for (int32_t first = start; first < stop; first += AREA) n_areas += bounds[(first - start) / AREA] >= least;
    int32_t step = n_areas * MANY > (stop - start) / AREA ? stop - start : AREA;
    for (int32_t first = start; n_areas && first < stop; first += step) {
        if (step == AREA && bounds[(first - start) / AREA] < least) continue;
        for (int i = p->n_sparse; i < p->e; i++) {
            go_on(search, p->terms[i], first);
            n = add_window(search, p->terms[i], start, first + step < stop ? first + step : stop, sums, touched, n, p, i);
        }
    }
    return n;
}

/* Choose those touched documents that may be results by their bounds for the terms from one on; their sums become +0.0. */
static int64_t choose(Search *search, const Pruning *p, int from, double *sums, int32_t start, const int32_t *touched, int64_t n, int64_t n_found) {
    Candidate *found = grow(search->scratch, &search->scratch->candidates, sizeof(Candidate) * (size_t)(n_found + n + 1));
    int frequent = from > p->n_sparse ? from : p->n_sparse;
    for (int64_t j = 0; found != NULL && j < n; j++) {
        int32_t row = touched[j];
        double sum = sums[row - start], rest = p->rest[from] - p->rest[frequent];
        for (int t = frequent; t < p->n; t++) rest += bound_in(search, p->terms[t], row);
        int is_found = sum + rest >= p->theta && !is_dead(search->segment, row);
        sums[row - start] = is_found ? 0.0 : -0.0;
        found[n_found] = (Candidate){row, from, sum, rest};
        n_found += is_found;
    }
    return n_found;
}

/* Look a document found up in the other lists, as long as it may be a result. */
static void complete(Search *search, const Pruning *p, const Candidate *found) {
    double sum = found->sum, rest = found->rest, value;
    for (int t = found->from; t < p->n; t++) {
        if (sum + rest < p->theta) return;
        double bound = bound_in(search, p->terms[t], found->row);
        rest -= bound * (1 - 1e-12);
        if (bound > 0 && look_up(search, p->terms[t], found->row, &value)) sum += value;
    }
    if (sum >= p->theta) offer(search->best, rounded(search, sum, found->row), found->row);
}

/* Add up the essential terms, window after window; complete the documents whose sum and what may come reach the k-th score. */
static void gather(Search *search, Pruning *p, double *sums, int32_t *touched) {
    const Segment *segment = search->segment;
    Scratch *s = search->scratch;
    int64_t width = WINDOW / 16;
    for (int64_t start = 0; start < segment->n_rows; start += width, width = width < WINDOW ? 2 * width : WINDOW) {
        int32_t stop = (int32_t)(start + width < segment->n_rows ? start + width : segment->n_rows);
        int64_t n = 0;
        int i = 0, open = 0;
        p->e = essential(p);
        for (; i < p->e && i < p->n_sparse; i++) {
            go_on(search, p->terms[i], (int32_t)start);
            int is_filtered = p->terms[i]->least + p->rest[i + 1] - p->rest[p->n_sparse] < p->theta;
            n = add_window(search, p->terms[i], (int32_t)start, stop, sums, touched, n, is_filtered ? p : NULL, i);
            open |= p->terms[i]->block < p->terms[i]->n_blocks;
        }
        n = sift(search, p, i, sums, (int32_t)start, touched, n);
        /* Reading a short list by the way is quicker than looking many documents up. */
        for (; i < p->n_sparse && n && (double)p->terms[i]->n * (double)width < (double)n * DEAR * (double)segment->n_rows; i++) {
            go_on(search, p->terms[i], (int32_t)start);
            add_window(search, p->terms[i], (int32_t)start, stop, sums, touched, n, p, i);
            n = sift(search, p, i + 1, sums, (int32_t)start, touched, n);
        }
        int64_t n_found = choose(search, p, i, sums, (int32_t)start, touched, n, 0);
        if (p->e > p->n_sparse) {
            n = add_areas(search, p, sums, (int32_t)start, stop, touched);
            n_found = choose(search, p, p->e, sums, (int32_t)start, touched, n, n_found);
            open = 1;
        }
        if (s->failed) return;
        const Candidate *found = s->candidates.at;
        for (int64_t j = 0; j < n_found; j++) sums[found[j].row - start] = -0.0;
        for (int64_t j = 0; j < n_found; j++) complete(search, p, &found[j]);
        if (search->best->size > search->best->placed) raise_bar(search->best);
        p->theta = theta_of(search->best);
        if (!open) break;
    }
}

/* A first k-th score, of some documents that promise much: those with the highest values of the first terms. */
static void sow(Search *search, Pruning *p) {
    int64_t k = search->best->k, wanted = k + 4, n = 0, n_sums = 0;
    uint64_t *seeds = room(search->scratch, &search->scratch->seeds, sizeof(uint64_t) * (size_t)(SEED_BLOCKS * PACK + wanted) );
    if (seeds == NULL) return;
    for (int i = 0; i < p->n && n < wanted; i++) {
        Term *term = p->terms[i];
        for (int block = 0; block < term->n_blocks && block < SEED_BLOCKS && n < SEED_BLOCKS * PACK; block++) {
            if (!load(search, term, block)) return;
            score(search, term, 0, term->count);
            for (int at = 0; at < term->count && n < SEED_BLOCKS * PACK + wanted; at++)
                seeds[n++] = (uint64_t)ordered_bits((float)term->values[at]) << 32 | (uint32_t)term->rows[at];
        }
        if (n > wanted) {
            select_greatest(seeds, n, wanted);
            n = wanted;
        }
    }
    for (int64_t j = 0; j < n; j++) seeds[j] = 0xFFFFFFFFu - (uint32_t)seeds[j]; /* below 2^63: sorting adds 1 */
    sort_falling(seeds, 0, n);
    for (int64_t j = 0; j < n; j++) {
        int32_t row = (int32_t)(0xFFFFFFFFu - (uint32_t)seeds[j]);
        double sum = 0, value;
        if ((j + 1 < n && seeds[j] == seeds[j + 1]) || is_dead(search->segment, row)) continue;
        for (int t = 0; t < p->n; t++)
            if (bound_in(search, p->terms[t], row) > 0 && look_up(search, p->terms[t], row, &value)) sum += value;
        seeds[n_sums++] = ordered_bits((float)sum); /* over those that were read */
    }
    if (n_sums < k) return;
    select_greatest(seeds, n_sums, k);
    set_floor(search->best, score_of(least_of(seeds, k) << 32));
    p->theta = theta_of(search->best);
}

static int stands_before(const Term *one, const Term *other) {
    if ((one->areas == NULL) != (other->areas == NULL)) return one->areas == NULL;
    return one->bound > other->bound;
}

static void rank_pruned(Search *search, double *sums, int32_t *touched) {
    Scratch *s = search->scratch;
    int n = search->n_terms, n_frequent;
    double *place = room(s, &s->partial, (sizeof(Term *) + sizeof(double)) * (size_t)(n + 1));
    if (place == NULL) return;
    Pruning p = {.n = n, .rest = place, .terms = (Term **)(place + n + 1)};
    for (int t = 0; t < n; t++) {
        Term *term = &search->terms[t];
        int i = t;
        for (; i > 0 && stands_before(term, p.terms[i - 1]); i--) p.terms[i] = p.terms[i - 1];
        p.terms[i] = term;
        p.n_sparse += term->areas == NULL;
    }
    n_frequent = n - p.n_sparse;
    if (search->model->form != IMPACT) {
        float *tables = room(s, &s->area_bounds, sizeof(float) * 65536 * (size_t)n_frequent);
        if (s->failed) return; /* tables is NULL, too, where there are no frequent terms */
        for (int t = 0; t < n; t++)
            if (search->terms[t].areas != NULL) tabulate(search->model, &search->terms[t], tables + 65536 * (size_t)--n_frequent);
    }
    p.rest[n] = 0;
    for (int i = n; i > 0; i--) p.rest[i - 1] = p.rest[i] + p.terms[i - 1]->bound;
    p.theta = theta_of(search->best);
    if (p.theta == -INFINITY) sow(search, &p); /* else the segments before this one say more */
    gather(search, &p, sums, touched);
}

/* --- matches ----------------------------------------------------------------------------------------------- */

/* Find the documents that hold all terms, and offer them where they are ranked; returns how many. */
static int64_t intersect(Search *search, int is_ranked) {
    int n = search->n_terms;
    Term **terms = room(search->scratch, &search->scratch->partial, sizeof(Term *) * (size_t)n);
    int64_t found = 0;
    if (terms == NULL) return 0;
    for (int t = 0; t < n; t++) {
        int i = t;
        for (; i > 0 && search->terms[t].n < terms[i - 1]->n; i--) terms[i] = terms[i - 1];
        terms[i] = &search->terms[t];
    }
    Term *rarest = terms[0];
    for (int block = 0; block < rarest->n_blocks && load(search, rarest, block); block++)
        for (int at = 0; at < rarest->count; at++) {
            int32_t row = rarest->rows[at];
            int t = 1;
            while (t < n && may_hold(terms[t], row)) t++;
            if (t < n || is_dead(search->segment, row)) continue;
            for (t = 1; t < n && holds(search, terms[t], row);) t++;
            if (t < n) continue;
            found++;
            if (!is_ranked) continue;
            rarest->at = at;
            double sum = -0.0;
            for (t = 0; t < n; t++) sum += noted_value(search, &search->terms[t]);
            settle(search, &sum, row);
        }
    return found;
}

/* Count the documents that hold any term. */
static int64_t count_union(Search *search) {
    const Segment *segment = search->segment;
    if (segment->dead == NULL && search->n_terms == 1) return search->terms[0].n;
    if (segment->dead == NULL && search->n_terms == 2) return search->terms[0].n + search->terms[1].n - intersect(search, 0);
    uint64_t *marks = room(search->scratch, &search->scratch->marks, MARKED / 8);
    if (marks == NULL) return 0;
    int64_t found = 0;
    for (int t = 0; t < search->n_terms; t++) load(search, &search->terms[t], 0);
    for (int64_t start = 0; start < segment->n_rows; start += MARKED) {
        int32_t stop = (int32_t)(start + MARKED < segment->n_rows ? start + MARKED : segment->n_rows);
        memset(marks, 0, (size_t)(stop - start + 63) / 64 * 8);
        for (int t = 0; t < search->n_terms; t++)
            for (int from, to; take_part(search, &search->terms[t], stop, &from, &to);)
                for (int at = from; at < to; at++) {
                    int32_t row = search->terms[t].rows[at], place = row - (int32_t)start;
                    uint64_t held = marks[place >> 6], bit = (uint64_t)1 << (place & 63);
                    marks[place >> 6] = held | bit;
                    found += !(held & bit) & !is_dead(segment, row);
                }
    }
    return found;
}

/* --- a segment ------------------------------------------------------------------------------------------- */

/* Find the list of a term; 0 where the segment does not have it or it is damaged. */
static int open_list(Search *search, Term *term, int64_t number) {
    const Segment *segment = search->segment;
    int64_t start = offset(&segment->lists_at, number), end = offset(&segment->lists_at, number + 1);
    term->n = segment->frequencies[number];
    if (start < 0 || end < start + HEAD || end > segment->n_lists - PAD || term->n < 1 || term->n > segment->n_rows) goto damaged;
    term->n_blocks = (int)((term->n + PACK - 1) / PACK);
    term->end = segment->lists + end;
    term->skips = term->n < PACK ? NULL : segment->lists + start;
    term->blocks = segment->lists + start + (term->n < PACK ? HEAD : (int64_t)SKIP * term->n_blocks);
    term->areas = number < segment->n_frequent ? segment->areas + number * ((segment->n_rows + AREA - 1) / AREA) : NULL;
    if (term->blocks > term->end) goto damaged;
    term->block = term->count = 0;
    return 1;
damaged:
    search->scratch->failed = 2;
    return 0;
}

/* Gather a segment's best; sums are untouched before and after. */
static void rank_segment(Search *search, double *sums, int32_t *touched) {
    int64_t postings = 0;
    int can_prune = search->model->pruning && search->model->prior == NULL;
    for (int t = 0; t < search->n_terms; t++) {
        Term *term = &search->terms[t];
        postings += term->n;
        can_prune &= term->weight > 0;
    }
    search->scratch->postings += postings;
    if (search->model->pruning == 1)
        can_prune &= postings >= WORTH_PRUNING && search->best->k * PRUNED_SHARE <= search->segment->n_rows;
    if (!can_prune) {
        rank_exhaustive(search, sums, touched, postings);
        return;
    }
    for (int t = 0; t < search->n_terms; t++) bound_list(search->model, &search->terms[t]);
    rank_pruned(search, sums, touched);
}
#endif
