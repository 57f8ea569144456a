/* Runs every loop of _train.c on numbers of its own making and writes the results, so that the loops of two processors
 * can be compared. test_foreign_loops.py compiles this; Python itself is not linked.
 */
#include "_train.c"
#include <stdio.h>

#if defined(__x86_64__)
#define RUN loops_8
#else
#define RUN loops_4
#endif

static uint32_t state = 1;
static float number(void) { return (float)((state = state * 1664525u + 1013904223u) >> 8) / 8388608.0f - 1.0f; }

static float *numbers(int64_t count) {
    float *x = malloc((size_t)count * sizeof(float));
    for (int64_t i = 0; i < count; i++) x[i] = number();
    return x;
}

static void show(const float *x, int64_t count) { fwrite(x, sizeof(float), (size_t)count, stdout); }

#define TEXTS 3
#define PLACES 37
#define WORDS 9
static const int64_t lengths[TEXTS] = {PLACES, 0, 18}, query_lengths[TEXTS] = {7, 2, 5};
static const int64_t ends[TEXTS + 1] = {0, PLACES, PLACES, PLACES + 18};

static void run_attention(int64_t heads, int64_t d) {
    int64_t t = ends[TEXTS], w = heads * d;
    Attention a = {.qkv = numbers(3 * t * w), .ends = ends, .rows = TEXTS, .heads = heads, .d = d, .tokens = t,
                   .scale = 2, .out = numbers(t * w), .stats = numbers(heads * 2 * t), .gradient = numbers(t * w),
                   .back = numbers(3 * t * w)};
    RUN.attend(&a), RUN.attend_back(&a);
    show(a.out, t * w), show(a.stats, heads * 2 * t), show(a.back, 3 * t * w);
}

static void run_words(int64_t d, const int64_t *index) {
    Norm n = {.x = numbers(PLACES * d), .gain = numbers(d), .shift = numbers(d), .rows = PLACES, .width = d,
              .eps = 1e-6f, .out = numbers(PLACES * d), .stats = numbers(2 * PLACES), .gradient = numbers(PLACES * d),
              .to_x = numbers(PLACES * d), .to_gain = numbers(d), .to_shift = numbers(d)};
    RUN.norm(&n), RUN.norm_back(&n);
    show(n.out, PLACES * d), show(n.to_x, PLACES * d), show(n.to_gain, d), show(n.to_shift, d);
    int64_t cells = TEXTS * 7 * PLACES;
    Match m = {.table = numbers(WORDS * d), .query = index, .passage = index, .query_lengths = query_lengths,
               .lengths = lengths, .texts = TEXTS, .q = 7, .p = PLACES, .d = d, .out = numbers(cells),
               .gradient = numbers(cells), .to_table = calloc(WORDS * (size_t)d, sizeof(float))};
    RUN.match(&m), RUN.match_back(&m);
    show(m.out, cells), show(m.to_table, WORDS * d);
    const float centres[7] = {1, 0.9f, 0.7f, 0.5f, 0.3f, 0.1f, -0.3f}, steepness[7] = {-70, -72, -72, -72, -72, -72, -300};
    Pool p = {.match = numbers(cells), .lengths = lengths, .texts = TEXTS, .rows = 7, .places = PLACES, .kernels = 7,
              .centres = centres, .steepness = steepness, .counts = numbers(TEXTS * 7 * 7),
              .gradient = numbers(TEXTS * 7 * 7), .back = numbers(cells)};
    RUN.pool(&p), RUN.pool_back(&p);
    show(p.counts, TEXTS * 7 * 7), show(p.back, cells);
    float *scales = numbers(ends[TEXTS]); /* sums as large as cosines: a kernel is steep */
    for (int64_t i = 0; i < ends[TEXTS]; i++) scales[i] /= sqrtf((float)d);
    Stored s = {.query = numbers(7 * d), .rows = numbers(ends[TEXTS] * d), .scales = scales,
                .offsets = ends, .texts = TEXTS, .q = 7, .d = d, .kernels = 7, .size = 4, .centres = centres,
                .steepness = steepness, .counts = numbers(TEXTS * 7 * 7)};
    RUN.count(&s);
    show(s.counts, TEXTS * 7 * 7);
    int8_t *bytes = malloc((size_t)(ends[TEXTS] * d));
    for (int64_t i = 0; i < ends[TEXTS] * d; i++) bytes[i] = (int8_t)lrintf(((const float *)s.rows)[i] * 127);
    for (int64_t i = 0; i < ends[TEXTS]; i++) scales[i] /= 127;
    s.rows = bytes, s.size = 1;
    RUN.count(&s);
    show(s.counts, TEXTS * 7 * 7);
    Weighing w = {.counts = s.counts, .log_weights = numbers(7), .weights = numbers(7), .lengths = lengths,
                  .texts = TEXTS, .blocks = 1, .q = 7, .kernels = 7, .least = 1e-10f, .scores = numbers(TEXTS)};
    RUN.weigh(&w);
    show(w.scores, TEXTS);
    Half h = {.x = numbers(6 * d), .inward = numbers(3 * 8 * d), .inward_bias = numbers(3 * 8), .outward = numbers(8 * d),
              .outward_bias = numbers(d), .gain = numbers(d), .shift = numbers(d), .rows = 6, .width = d, .inner = 8,
              .scale = 0.5f, .outer = 1, .eps = 1e-6f, .out = numbers(6 * d)};
    RUN.half_layer(&h);
    show(h.out, 6 * d);
    h.heads = 4;
    RUN.half_layer(&h);
    show(h.out, 6 * d);
}

static void run_filters(int64_t f, const int64_t *index) {
    int64_t k = 2, d = 12, grams = 3, blocks = 6, vectors = TEXTS * grams * PLACES;
    Sweeps s = {.products = numbers(WORDS * k * f), .index = index, .lengths = lengths,
                .scales = numbers(TEXTS * PLACES), .sweeps = TEXTS, .repeat = 1, .places = PLACES, .k = k, .f = f,
                .best = numbers(TEXTS * f),
                .winners = malloc(TEXTS * (size_t)f * 4), .words = numbers(WORDS * d), .weight = numbers(f * k * d),
                .gradient = numbers(TEXTS * f), .d = d, .to_words = calloc(WORDS * (size_t)d, 4),
                .to_weight = calloc((size_t)(f * k * d), 4), .to_scales = calloc(TEXTS * PLACES, 4)};
    RUN.sweep(&s), RUN.sweep_back(&s);
    show(s.best, f), show(s.best + 2 * f, f); /* the second text is empty */
    show(s.to_words, WORDS * d), show(s.to_weight, f * k * d), show(s.to_scales, TEXTS * PLACES);
    Grams g = {.products = numbers(WORDS * blocks * f), .index = index, .lengths = lengths, .bias = numbers(grams * f),
               .texts = TEXTS, .places = PLACES, .blocks = blocks, .grams = grams, .f = f, .eps = 1e-13f,
               .out = numbers(vectors * f), .inverse = numbers(vectors), .gradient = numbers(vectors * f),
               .to_products = calloc((size_t)(WORDS * blocks * f), 4), .to_bias = calloc((size_t)(grams * f), 4)};
    RUN.grams(&g), RUN.grams_back(&g);
    show(g.out, vectors * f), show(g.to_products, WORDS * blocks * f), show(g.to_bias, grams * f);
}

int main(void) {
    int64_t index[TEXTS * PLACES];
    for (int i = 0; i < TEXTS * PLACES; i++) index[i] = (int64_t)((number() + 1) / 2 * WORDS);
    run_attention(16, 2), run_attention(2, 4), run_attention(1, 20);
    run_words(300, index), run_words(5, index);
    run_filters(128, index), run_filters(21, index);
    return 0;
}
