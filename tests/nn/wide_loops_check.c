/* Runs every loop of _wide.c on numbers of its own making and writes the results, so that those of two processors can
 * be compared. test_foreign_loops.py compiles this; Python itself is not linked.
 */
#include "_wide.c"
#include <stdio.h>

static uint32_t state = 1;
static float number(void) { return (float)((state = state * 1664525u + 1013904223u) >> 8) / 8388608.0f - 1.0f; }

static float *numbers(int64_t count) {
    float *x = aligned_alloc(64, ((size_t)count * sizeof(float) + 63) / 64 * 64);
    for (int64_t i = 0; i < count; i++) x[i] = number();
    return x;
}

static void show(const void *x, int64_t bytes) { fwrite(x, 1, (size_t)bytes, stdout); }

/* Rows are bytes of 1 .. 255, weights lie within -most .. most. */
static int by_dots; /* whether instructions that add up four products are used */

static void run_product(int64_t rows, int64_t inputs, int64_t columns, int most, int activation, int into) {
    uint8_t *x = malloc((size_t)(rows * inputs));
    int8_t *weight = malloc((size_t)(columns * inputs));
    int32_t *zeros = calloc((size_t)columns, sizeof *zeros);
    int64_t *starts = malloc((size_t)(columns / 8 + 1) * sizeof *starts);
    Group *groups = malloc((size_t)(inputs / 2 + 1) * sizeof *groups);
    for (int64_t i = 0; i < rows * inputs; i++) x[i] = (uint8_t)(128.5f + 127.4f * number());
    for (int64_t i = 0; i < inputs && into == STORED; i++) x[i] = i % 2 ? 255 : 1; /* the largest sums there are */
    for (int64_t i = 0; i < columns * inputs; i++) {
        weight[i] = (int8_t)((float)most * number());
        if (i < inputs && into == STORED) weight[i] = (int8_t)(i % 2 ? most : -most);
        zeros[i / inputs] += 128 * weight[i];
    }
    pack_weight(weight, columns, inputs, groups, starts, NULL, NULL, by_dots);
    int32_t *at = calloc((size_t)starts[columns / 8] * TOGETHER, sizeof *at);
    int8_t *packed = calloc((size_t)starts[columns / 8], GROUP_BYTES);
    pack_weight(weight, columns, inputs, groups, starts, at, packed, by_dots);
    Grouped p = {.inputs = inputs, .columns = columns, .starts = starts, .at = at, .zeros = zeros, .packed = packed,
                 .dots = by_dots};
    int64_t width = into == GATED ? columns / 2 : columns;
    float *out = numbers(rows * width);
    Scaled s = {.row_scale = numbers(rows), .column_scale = numbers(columns), .bias = numbers(columns),
                .columns = columns, .activation = activation, .into = into, .out = out, .room = numbers(columns)};
    multiply_and_scale(&p, &s, x, rows, numbers(columns * ROWS_AT_ONCE));
    show(out, rows * width * 4);
}

static void run_rows(int64_t rows, int64_t width) {
    uint8_t *bytes = malloc((size_t)(rows * width));
    float *scales = numbers(rows), *x = numbers(rows * width);
    quantise_rows(x, rows, width, bytes, scales);
    show(bytes, rows * width), show(scales, rows * 4);
    Norm n = {.x = x, .gain = numbers(width), .shift = numbers(width), .eps = 1e-6f, .rows = rows, .width = width,
              .bytes = bytes, .scales = scales, .room = numbers(width)};
    norm_rows(&n);
    show(x, rows * width * 4), show(bytes, rows * width), show(scales, rows * 4);
    n.gain = n.shift = NULL, n.bytes = NULL, n.out = numbers(rows * width);
    norm_rows(&n);
    show(n.out, rows * width * 4);
}

static void run_attention(int64_t heads, int64_t d, int with_bias) {
    static const int64_t ends[] = {0, 1, 16, 49, 49 + 150};
    int64_t tokens = ends[4], places = 160, stride = 2 * (150 + 32) + 1;
    Attention a = {.qkv = numbers(3 * tokens * heads * d), .ends = ends, .rows = 4, .heads = heads, .d = d,
                   .bias = with_bias ? numbers(heads * stride) : NULL, .stride = stride, .centre = stride / 2,
                   .out = numbers(tokens * heads * d), .dots = by_dots};
    for (int64_t i = 0; i < 3 * tokens * heads * d; i++) ((float *)a.qkv)[i] *= 3.0f;
    attend_rows(&a, numbers((places * (2 * d + 3 * TALL) + (TALL + 2) * d) / 2 + 16), places);
    show(a.out, tokens * heads * d * 4);
    Once o = {.queries = numbers(4 * heads * d), .keys = a.qkv, .values = a.qkv + heads * d, .ends = ends, .rows = 4,
              .heads = heads, .width = d, .step = 3 * heads * d, .head_step = d, .most = tokens,
              .out = numbers(4 * heads * d)};
    once_rows(&o, numbers(heads * (places + 16)));
    show(o.out, 4 * heads * d * 4);
}

static uint16_t *halves(int64_t count) {
    uint16_t *x = malloc((size_t)count * sizeof *x);
    for (int64_t i = 0; i < count; i++) {
        float y = number();
        memcpy(x + i, (char *)&y + 2, 2);
    }
    return x;
}

static void run_affine(int64_t rows, int64_t inputs, int64_t panels, int activation, int halved) {
    int64_t weights = panels * inputs * 16;
    Affine p = {.x = numbers(rows * inputs), .weight = halved ? (void *)halves(weights) : numbers(weights),
                .bias = numbers(panels * 16), .rows = rows, .inputs = inputs, .panels = panels,
                .activation = activation, .halved = halved, .out = numbers(rows * panels * 16)};
    affine_rows(&p);
    show(p.out, rows * panels * 16 * 4);
}

int main(int count, char **given) {
    by_dots = count > 1 && given[1][0] == 'd';
    for (int most = 3; most <= 63; most += 20)
        for (int activation = NONE; activation <= SILU; activation++) {
            run_product(70, 64, 48, most, activation, STORED), run_product(9, 100, 32, most, activation, GATED);
            run_affine(5, 33, 2, activation, 0), run_affine(5, 33, 2, activation, 1);
        }
    run_product(33, 384, 64, 63, NONE, ADDED);
    run_rows(7, 96), run_attention(3, 32, 0), run_attention(2, 64, 1);
    return 0;
}
