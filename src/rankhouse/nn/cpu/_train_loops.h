/* The loops of a training step over LANES floats at once (see _vector.h). _train.c includes this file once for each
 * set of instructions, with names of its own each time.
 */
#define JOIN(name, lanes) name##_##lanes
#define JOINED(name, lanes) JOIN(name, lanes)
#define NAMED(name) JOINED(name, LANES)
#define floats NAMED(floats)
#define ints NAMED(ints)
#define doubles NAMED(doubles)
#define halves NAMED(halves)
#define mask NAMED(mask)
#define all NAMED(all)
#define all_ints NAMED(all_ints)
#define first NAMED(first)
#define above NAMED(above)
#define is_number NAMED(is_number)
#define keep NAMED(keep)
#define pick NAMED(pick)
#define pick_ints NAMED(pick_ints)
#define load NAMED(load)
#define store NAMED(store)
#define store_ints NAMED(store_ints)
#define fused NAMED(fused)
#define lost_of_square NAMED(lost_of_square)
#define larger NAMED(larger)
#define total NAMED(total)
#define totals NAMED(totals)
#define add_squares NAMED(add_squares)
#define total_doubles NAMED(total_doubles)
#define nearest NAMED(nearest)
#define times_power NAMED(times_power)
#define exp2_ NAMED(exp2_)
#define exp2_times NAMED(exp2_times)
#define power NAMED(power)
#define add_scaled NAMED(add_scaled)
#define dot NAMED(dot)
#define columns NAMED(columns)
#define put_columns NAMED(put_columns)
#define product NAMED(product)
#define attend_head NAMED(attend_head)
#define attend_head_back NAMED(attend_head_back)
#define norm_row_back NAMED(norm_row_back)
#define meet NAMED(meet)
#define meet_back NAMED(meet_back)
#define kernel NAMED(kernel)
#define kernel_sum NAMED(kernel_sum)
#define climb NAMED(climb)
#define pool_row NAMED(pool_row)
#define place NAMED(place)
#define sweep_one_back NAMED(sweep_one_back)
#define make_gram NAMED(make_gram)
#define gram_back NAMED(gram_back)
#define attend_rows NAMED(attend_rows)
#define attend_rows_back NAMED(attend_rows_back)
#define norm_rows NAMED(norm_rows)
#define norm_rows_back NAMED(norm_rows_back)
#define match_texts NAMED(match_texts)
#define match_texts_back NAMED(match_texts_back)
#define load_halves NAMED(load_halves)
#define load_bytes NAMED(load_bytes)
#define widened NAMED(widened)
#define meet_stored NAMED(meet_stored)
#define meet_text NAMED(meet_text)
#define count_texts NAMED(count_texts)
#define pool_rows NAMED(pool_rows)
#define pool_rows_back NAMED(pool_rows_back)
#define sweep_texts NAMED(sweep_texts)
#define sweep_texts_back NAMED(sweep_texts_back)
#define gram_texts NAMED(gram_texts)
#define gram_texts_back NAMED(gram_texts_back)
#define shorts NAMED(shorts)
#define load_shorts NAMED(load_shorts)
#define add_products NAMED(add_products)
#define totals_of_ints NAMED(totals_of_ints)
#define minus NAMED(minus)
#define exponent_bits NAMED(exponent_bits)
#define exponents NAMED(exponents)
#define log2_ NAMED(log2_)
#define meet_bytes NAMED(meet_bytes)
#define round_words NAMED(round_words)
#define multiply_few NAMED(multiply_few)
#define half_rows NAMED(half_rows)
#define weigh_texts NAMED(weigh_texts)
#define loops NAMED(loops)

#include "_vector.h"

/* to += by * from, count numbers. */
VECTOR void add_scaled(float *to, float by, const float *from, int64_t count) {
    for (int64_t i = 0; i < count; i += LANES)
        store(to + i, count - i, fused(all(by), load(from + i, count - i), load(to + i, count - i)));
}

VECTOR float dot(const float *a, const float *b, int64_t count) {
    floats sum = all(0);
    for (int64_t i = 0; i < count; i += LANES) sum = fused(load(a + i, count - i), load(b + i, count - i), sum);
    return total(sum);
}

/* -------- attention: sixteen queries stand side by side, keys come one after the other */

/* Columns of d numbers of 16 tokens from `from`, the last token again where there are fewer. */
VECTOR void columns(const int d, const float *x, int64_t stride, int64_t from, int64_t length, floats *to) {
    float each[LANES];
    for (int c = 0; c < d; c++) {
        for (int i = 0; i < LANES; i++) each[i] = x[(from + i < length ? from + i : length - 1) * stride + c];
        to[c] = load(each, LANES);
    }
}

VECTOR void put_columns(const int d, float *x, int64_t stride, int64_t from, int64_t length, const floats *values) {
    float each[LANES];
    for (int c = 0; c < d; c++) {
        store(each, LANES, values[c]);
        for (int i = 0; i < LANES && from + i < length; i++) x[(from + i) * stride + c] = each[i];
    }
}

VECTOR floats product(const int d, const floats *q, const float *k) {
    floats sum = q[0] * all(k[0]);
    for (int c = 1; c < d; c++) sum = fused(q[c], all(k[c]), sum);
    return sum;
}

VECTOR void attend_head(const int d, const Attention *a, int64_t start, int64_t length, int64_t head) {
    int64_t width = a->heads * d, stride = 3 * width;
    const float *q = a->qkv + start * stride + head * d, *k = q + width, *v = k + width;
    float *stats = a->stats + head * 2 * a->tokens + start;
    for (int64_t i = 0; i < length; i += LANES) {
        floats asked[DEEPEST], heard[DEEPEST], most = all(-INFINITY), sum = all(0);
        columns(d, q, stride, i, length, asked);
        for (int c = 0; c < d; c++) {
            asked[c] = asked[c] * all(a->scale);
            heard[c] = all(0);
        }
        for (int64_t j = 0; j < length; j++) most = larger(most, product(d, asked, k + j * stride));
        for (int64_t j = 0; j < length; j++) {
            floats weight = exp2_(product(d, asked, k + j * stride) - most);
            sum = sum + weight;
            for (int c = 0; c < d; c++) heard[c] = fused(weight, all(v[j * stride + c]), heard[c]);
        }
        floats by = all(1) / sum;
        for (int c = 0; c < d; c++) heard[c] = heard[c] * by;
        put_columns(d, a->out + start * width + head * d, width, i, length, heard);
        store(stats + i, length - i, most);
        store(stats + a->tokens + i, length - i, by);
    }
}

/* `room` holds (length, 2, d) sums of 16 queries each for keys and values. */
VECTOR void attend_head_back(const int d, const Attention *a, int64_t start, int64_t length, int64_t head,
                             floats *room) {
    int64_t width = a->heads * d, stride = 3 * width;
    const float *q = a->qkv + start * stride + head * d, *k = q + width, *v = k + width;
    const float *stats = a->stats + head * 2 * a->tokens + start;
    const float *out = a->out + start * width + head * d, *gradient = a->gradient + start * width + head * d;
    float *to_q = a->back + start * stride + head * d, *to_k = to_q + width, *to_v = to_k + width;
    floats natural = all(a->scale / LOG2E);
    memset(room, 0, (size_t)length * 2 * (size_t)d * sizeof(floats));
    for (int64_t i = 0; i < length; i += LANES) {
        floats asked[DEEPEST], scaled[DEEPEST], own[DEEPEST], heard[DEEPEST], to_asked[DEEPEST];
        floats most = load(stats + i, length - i), by = load(stats + a->tokens + i, length - i);
        floats shared = all(0);
        columns(d, q, stride, i, length, asked);
        columns(d, out, width, i, length, heard);
        columns(d, gradient, width, i, length, own);
        for (int c = 0; c < d; c++) {
            own[c] = keep(first(length - i), own[c]);
            shared = fused(own[c], heard[c], shared);
            scaled[c] = asked[c] * all(a->scale);
            asked[c] = asked[c] * natural;
            to_asked[c] = all(0);
        }
        for (int64_t j = 0; j < length; j++) {
            const float *key = k + j * stride, *value = v + j * stride;
            floats *sums = room + j * 2 * d;
            floats weight = exp2_(product(d, scaled, key) - most) * by;
            weight = keep(first(length - i), weight);
            floats slope = weight * (product(d, own, value) - shared);
            for (int c = 0; c < d; c++) {
                to_asked[c] = fused(slope, all(key[c]), to_asked[c]);
                sums[c] = fused(slope, asked[c], sums[c]);
                sums[d + c] = fused(weight, own[c], sums[d + c]);
            }
        }
        for (int c = 0; c < d; c++) to_asked[c] = to_asked[c] * natural;
        put_columns(d, to_q, stride, i, length, to_asked);
    }
    for (int64_t j = 0; j < length; j++)
        for (int c = 0; c < d; c++) {
            to_k[j * stride + c] = total(room[j * 2 * d + c]);
            to_v[j * stride + c] = total(room[j * 2 * d + d + c]);
        }
}

FOR_LANES static void attend_rows(const Attention *a) {
    for (int64_t row = 0; row < a->rows; row++)
        for (int64_t head = 0; head < a->heads; head++) {
            int64_t start = a->ends[row], length = a->ends[row + 1] - start;
            if (a->d == 2) attend_head(2, a, start, length, head);
            else if (a->d == 4) attend_head(4, a, start, length, head);
            else attend_head((int)a->d, a, start, length, head);
        }
}

/* Returns 0 where there is no memory. */
FOR_LANES static int attend_rows_back(const Attention *a) {
    int64_t longest = 1;
    for (int64_t row = 0; row < a->rows; row++)
        if (a->ends[row + 1] - a->ends[row] > longest) longest = a->ends[row + 1] - a->ends[row];
    char *room = malloc((size_t)(longest * 2 * a->d) * sizeof(floats) + 64);
    if (room == NULL) return 0;
    floats *sums = (floats *)(room + (64 - (uintptr_t)room % 64));
    for (int64_t row = 0; row < a->rows; row++)
        for (int64_t head = 0; head < a->heads; head++) {
            int64_t start = a->ends[row], length = a->ends[row + 1] - start;
            if (a->d == 2) attend_head_back(2, a, start, length, head, sums);
            else if (a->d == 4) attend_head_back(4, a, start, length, head, sums);
            else attend_head_back((int)a->d, a, start, length, head, sums);
        }
    free(room);
    return 1;
}

/* -------- layer norm: gain (x - mean) inverse + shift */

FOR_LANES static void norm_rows(const Norm *n) {
    for (int64_t row = 0; row < n->rows; row++) {
        const float *x = n->x + row * n->width;
        float *out = n->out + row * n->width;
        floats sum = all(0), squares = sum;
        for (int64_t i = 0; i < n->width; i += LANES) sum = sum + load(x + i, n->width - i);
        float mean = total(sum) / (float)n->width;
        for (int64_t i = 0; i < n->width; i += LANES) {
            floats off = keep(first(n->width - i), load(x + i, n->width - i) - all(mean));
            squares = fused(off, off, squares);
        }
        float variance = total(squares) / (float)n->width;
        float inverse = n->outer ? 1 / (sqrtf(variance) + n->eps) : 1 / sqrtf(variance + n->eps);
        for (int64_t i = 0; i < n->width; i += LANES) {
            floats y = (load(x + i, n->width - i) - all(mean)) * all(inverse);
            y = fused(y, load(n->gain + i, n->width - i), load(n->shift + i, n->width - i));
            store(out + i, n->width - i, y);
        }
        n->stats[row] = mean;
        n->stats[n->rows + row] = inverse;
    }
}

VECTOR void norm_row_back(const Norm *n, int64_t row, float *to_gain, float *to_shift) {
    const float *x = n->x + row * n->width, *gradient = n->gradient + row * n->width;
    float *to_x = n->to_x + row * n->width;
    floats mean = all(n->stats[row]), inverse = all(n->stats[n->rows + row]);
    floats sum = all(0), along = sum;
    for (int64_t i = 0; i < n->width; i += LANES) {
        int64_t left = n->width - i;
        floats scaled = (load(x + i, left) - mean) * inverse;
        floats own = load(gradient + i, left), weighed = own * load(n->gain + i, left);
        sum = sum + weighed;
        along = fused(weighed, scaled, along);
        store(to_gain + i, left, fused(own, scaled, load(to_gain + i, left)));
        store(to_shift + i, left, own + load(to_shift + i, left));
    }
    floats level = all(total(sum) / (float)n->width);
    floats tilt = all(total(along) / (float)n->width);
    for (int64_t i = 0; i < n->width; i += LANES) {
        int64_t left = n->width - i;
        floats scaled = (load(x + i, left) - mean) * inverse;
        floats y = load(gradient + i, left) * load(n->gain + i, left) - level;
        store(to_x + i, left, (y - scaled * tilt) * inverse);
    }
}

/* Returns 0 where there is no memory. */
FOR_LANES static int norm_rows_back(const Norm *n) {
    float *part = malloc((size_t)(2 * n->width + 1) * sizeof(float));
    if (part == NULL) return 0;
    memset(n->to_gain, 0, (size_t)n->width * sizeof(float));
    memset(n->to_shift, 0, (size_t)n->width * sizeof(float));
    for (int64_t start = 0; start < n->rows; start += TOGETHER) {
        memset(part, 0, (size_t)(2 * n->width) * sizeof(float));
        for (int64_t row = start; row < start + TOGETHER && row < n->rows; row++)
            norm_row_back(n, row, part, part + n->width);
        add_scaled(n->to_gain, 1, part, n->width);
        add_scaled(n->to_shift, 1, part + n->width, n->width);
    }
    free(part);
    return 1;
}

/* -------- match matrices */

/* Products of `few` rows with one. */
VECTOR void meet(const int few, const Match *m, const int64_t *asked, const float *said, float *out) {
    floats sums[FEW];
    const float *rows[FEW];
    UNROLL for (int r = 0; r < few; r++) {
        sums[r] = all(0);
        rows[r] = m->table + asked[r] * m->d;
    }
    for (int64_t i = 0; i < m->d; i += LANES) {
        floats own = load(said + i, m->d - i);
        UNROLL for (int r = 0; r < few; r++) sums[r] = fused(load(rows[r] + i, m->d - i), own, sums[r]);
    }
    UNROLL for (int r = 0; r < few; r++) out[r * m->p] = total(sums[r]);
}

FOR_LANES static void match_texts(const Match *m) {
    memset(m->out, 0, (size_t)(m->texts * m->q * m->p) * sizeof(float));
    for (int64_t text = 0; text < m->texts; text++) {
        const int64_t *asked = m->query + text * m->q, *said = m->passage + text * m->p;
        for (int64_t j = 0; j < m->lengths[text]; j++) {
            const float *own = m->table + said[j] * m->d;
            float *out = m->out + text * m->q * m->p + j;
            int64_t i = 0, count = m->query_lengths[text];
            for (; i + FEW <= count; i += FEW) meet(FEW, m, asked + i, own, out + i * m->p);
            if (count - i == 3) meet(3, m, asked + i, own, out + i * m->p);
            else if (count - i == 2) meet(2, m, asked + i, own, out + i * m->p);
            else if (count - i == 1) meet(1, m, asked + i, own, out + i * m->p);
        }
    }
}

/* Sixteen columns of `few` query words and of all words of a passage; the sides may share rows. */
VECTOR void meet_back(const int few, const Match *m, const int64_t *asked, const int64_t *said, int64_t length,
                      const float *gradient, int64_t column) {
    int64_t left = m->d - column;
    floats own[FEW], sums[FEW];
    UNROLL for (int r = 0; r < few; r++) {
        own[r] = load(m->table + asked[r] * m->d + column, left);
        sums[r] = all(0);
    }
    for (int64_t j = 0; j < length; j++) {
        float *to = m->to_table + said[j] * m->d + column;
        floats word = load(m->table + said[j] * m->d + column, left), sum = load(to, left);
        UNROLL for (int r = 0; r < few; r++) {
            floats slope = all(gradient[r * m->p + j]);
            sum = fused(slope, own[r], sum);
            sums[r] = fused(slope, word, sums[r]);
        }
        store(to, left, sum);
    }
    UNROLL for (int r = 0; r < few; r++) {
        float *to = m->to_table + asked[r] * m->d + column;
        store(to, left, load(to, left) + sums[r]);
    }
}

FOR_LANES static void match_texts_back(const Match *m) {
    for (int64_t text = 0; text < m->texts; text++) {
        const int64_t *asked = m->query + text * m->q, *said = m->passage + text * m->p;
        int64_t count = m->query_lengths[text], length = m->lengths[text];
        for (int64_t i = 0; i < count; i += FEW) {
            const float *gradient = m->gradient + (text * m->q + i) * m->p;
            for (int64_t column = 0; column < m->d; column += LANES) {
                if (count - i >= FEW) meet_back(FEW, m, asked + i, said, length, gradient, column);
                else if (count - i == 3) meet_back(3, m, asked + i, said, length, gradient, column);
                else if (count - i == 2) meet_back(2, m, asked + i, said, length, gradient, column);
                else meet_back(1, m, asked + i, said, length, gradient, column);
            }
        }
    }
}

/* -------- kernels: sum over a row's first `length` similarities of exp(-(similarity - centre)^2 / 2 width^2) */

VECTOR floats kernel(floats off, float steepness, mask there) {
    floats power = (off * off) * all(steepness);
    there &= above(power, all(NOTHING)); /* NaN is kept */
    return keep(there, exp2_(power));
}

/* One kernel by its formula; of similarities only whose squared distance from `middle` is larger than `beyond`. */
VECTOR float kernel_sum(const Pool *p, int64_t k, const float *match, int64_t length, float middle, float beyond) {
    floats sum = all(0);
    for (int64_t i = 0; i < length; i += LANES) {
        floats x = load(match + i, length - i), y = x - all(middle);
        mask there = first(length - i) & above(y * y, all(beyond));
        sum = sum + kernel(x - all(p->centres[k]), p->steepness[k], there);
    }
    return total(sum);
}

/* The kernels of a ladder. Return whether similarities were too far from its middle, and are not counted. */
VECTOR int climb(const Ladder *l, const int64_t half, const int top, const float *match, int64_t length, float *counts) {
    floats sums[2 * HIGHEST + LANES];
    mask strays = above(all(0), all(0));
    for (int64_t k = 0; k < 2 * half + LANES; k++) sums[k] = all(0);
    for (int64_t i = 0; i < length; i += LANES) {
        floats y = load(match + i, length - i) - all(l->middle);
        if (length - i < LANES) y = pick(first(length - i), y, all(INFINITY));
        mask beyond = above(y * y, all(l->reach)), near = ~beyond;
        strays |= beyond & above(all(l->far), y * y); /* so is NaN */
        y = keep(near, y);
        floats square = y * y, g = keep(near, exp2_times(square, lost_of_square(y), l->steepness));
        floats step = exp2_times(y, all(0), l->step), back = all(1) / step;
        floats up = g * step, down = g * back, two = step * step, two_back = back * back;
        UNROLL for (int64_t k = 0; k < half; k++) {
            floats *higher = sums + top + half - 1 - k, *lower = sums + top + half + k;
            *higher = *higher + up;
            *lower = *lower + down;
            if (k + 1 < half) up = up * two;
            down = down * two_back;
        }
        if (top) sums[0] = sums[0] + up * step;
    }
    for (int64_t k = 0; k < 2 * half + top; k += LANES)
        store(counts + k, 2 * half + top - k, totals(sums + k) * load(l->scales + k, LANES));
    return total(keep(strays, all(1))) > 0;
}

VECTOR void pool_row(const Pool *p, const Ladder *l, const float *match, int64_t length, float *counts) {
    int64_t from = l->from, to = from + 2 * l->half + l->top, strays = 0;
    if (l->half == 5 && l->top) strays = climb(l, 5, 1, match, length, counts + from);
    else if (l->half == 5) strays = climb(l, 5, 0, match, length, counts + from);
    else if (l->half) strays = climb(l, l->half, l->top, match, length, counts + from);
    for (int64_t k = 0; k < p->kernels; k++)
        if (k < from || k >= to) counts[k] = kernel_sum(p, k, match, length, 0, -1);
        else if (strays) counts[k] += kernel_sum(p, k, match, length, l->middle, l->reach);
}

FOR_LANES static void pool_rows(const Pool *p) {
    Ladder l = ladder(p);
    unsigned before = flush_tiny();
    for (int64_t row = 0; row < p->texts * p->rows; row++)
        pool_row(p, &l, p->match + row * p->places, p->lengths[row / p->rows], p->counts + row * p->kernels);
    restore(before);
}

FOR_LANES static void pool_rows_back(const Pool *p) {
    for (int64_t row = 0; row < p->texts * p->rows; row++) {
        const float *match = p->match + row * p->places, *gradient = p->gradient + row * p->kernels;
        float *back = p->back + row * p->places;
        int64_t length = p->lengths[row / p->rows];
        for (int64_t i = 0; i < p->places; i += LANES) {
            floats sum = all(0), similarity = load(match + i, length > i ? length - i : 0);
            for (int64_t k = 0; k < p->kernels && i < length; k++) {
                floats off = similarity - all(p->centres[k]);
                float slope = gradient[k] * p->steepness[k] * (2 / LOG2E);
                floats value = kernel(off, p->steepness[k], first(length - i));
                sum = fused(value * off, all(slope), sum);
            }
            store(back + i, p->places - i, sum);
        }
    }
}

/* -------- kernel sums of stored rows: their products with a query's words are made text by text */

VECTOR floats widened(const int size, const char *row, int64_t i) {
    row += i * size;
    return size == 4 ? load((const float *)row, LANES) : load_halves((const uint16_t *)row);
}

/* Two rows meet `few` words. The last numbers of a row overlap those before them, where the words then have zeros. */
VECTOR void meet_stored(const int size, const int few, const Stored *s, const char *const *rows, const float *words,
                        const float *scales, float *out, int64_t places) {
    int64_t d = s->d < LANES ? LANES : s->d, wide = (d + LANES - 1) / LANES * LANES;
    floats sums[2 * MANY + LANES];
    float each[2 * MANY + LANES];
    UNROLL for (int r = 0; r < 2 * MANY + LANES; r++) sums[r] = all(0);
    for (int64_t i = 0; i < wide; i += LANES) {
        int64_t at = i < d - LANES ? i : d - LANES;
        floats one = widened(size, rows[0], at), other = widened(size, rows[1], at);
        UNROLL for (int r = 0; r < few; r++) {
            floats word = load(words + r * wide + i, LANES);
            IN_REGISTER(word); /* loaded once, not once an operation */
            sums[2 * r] = fused(word, one, sums[2 * r]);
            sums[2 * r + 1] = fused(word, other, sums[2 * r + 1]);
        }
    }
    UNROLL for (int r = 0; r < 2 * few; r += LANES) store(each + r, LANES, totals(sums + r) * load(scales, LANES));
    UNROLL for (int r = 0; r < few; r++) memcpy(out + r * places, each + 2 * r, 2 * sizeof(float));
}

/* The same of rows of bytes, and of words rounded to 16 bits: whole sums, exact, `by` is what they stand for. */
VECTOR void meet_bytes(const int vnni, const int few, const Stored *s, const char *const *rows, const int16_t *words,
                       const float *by, const float *scales, float *out, int64_t places) {
    int64_t d = s->d < 2 * LANES ? 2 * LANES : s->d, wide = (d + 2 * LANES - 1) / (2 * LANES) * (2 * LANES);
    ints sums[2 * MANY + LANES];
    float each[2 * MANY + LANES];
    UNROLL for (int r = 0; r < 2 * MANY + LANES; r++) sums[r] = all_ints(0);
    for (int64_t i = 0; i < wide; i += 2 * LANES) {
        int64_t at = i < d - 2 * LANES ? i : d - 2 * LANES;
        shorts one = load_bytes((const int8_t *)rows[0] + at), other = load_bytes((const int8_t *)rows[1] + at);
        UNROLL for (int r = 0; r < few; r++) {
            shorts word = load_shorts(words + r * wide + i);
            IN_REGISTER(word);
            sums[2 * r] = add_products(vnni, sums[2 * r], word, one);
            sums[2 * r + 1] = add_products(vnni, sums[2 * r + 1], word, other);
        }
    }
    UNROLL for (int r = 0; r < 2 * few; r += LANES)
        store(each + r, LANES, totals_of_ints(sums + r) * load(scales, LANES) * load(by + r, LANES));
    UNROLL for (int r = 0; r < few; r++) memcpy(out + r * places, each + 2 * r, 2 * sizeof(float));
}

/* `kind`: 4 float32, 2 float16, 1 int8, 0 int8 by VNNI. */
VECTOR void meet_text(const int kind, const Stored *s, const Words *w, char *end, int64_t begin, int64_t length,
                      float *match, int64_t places) {
    const int size = kind ? kind : 1, step = size == 1 ? 2 * LANES : LANES;
    int64_t bytes = s->d * size;
    float scales[LANES];
    store(scales, LANES, all(1));
#define MEET(few)                                                                                        \
    if (size == 1) meet_bytes(!kind, few, s, rows, w->whole + i * w->wide, w->by + 2 * i, scales, out, places); \
    else meet_stored(size, few, s, rows, w->words + i * w->wide, scales, out, places)
    for (int64_t j = 0; j < length; j += 2) {
        const char *rows[2], *ahead = (const char *)((uintptr_t)s->rows + (uintptr_t)((begin + j) * bytes + AHEAD));
        for (int64_t i = 0; i < 2 * bytes; i += 64) __builtin_prefetch(ahead + i);
        for (int64_t r = 0; r < 2; r++) {
            int64_t row = begin + (j + r < length ? j + r : j);
            rows[r] = (const char *)s->rows + row * bytes;
            if (s->d < step) rows[r] = memcpy(end + r * 4 * LANES, rows[r], (size_t)bytes);
            for (int i = 0; i < LANES && s->scales; i += 2) scales[i + r] = s->scales[row];
        }
        for (int64_t i = 0, few; i < s->q; i += few) {
            int64_t left = s->q - i;
            float *out = match + i * places + j;
            few = left >= 2 * MANY || left == MANY ? MANY : left > MANY ? left / 2 : left;
            if (few == 6) { MEET(6); }
            else if (few == 5) { MEET(5); }
            else if (few == 4) { MEET(4); }
            else if (few == 3) { MEET(3); }
            else if (few == 2) { MEET(2); }
            else { MEET(1); }
        }
    }
#undef MEET
}

/* Put words in the order in which they meet rows: the last `step` numbers of a row overlap those before them. Those
 * that meet bytes are rounded to 16 bits, or so few that a sum fits into 32; each has a scale of its own. */
FOR_LANES static void round_words(const Stored *s, Words *w, int64_t step) {
    int64_t whole = s->d < step ? s->d : s->d / step * step;
    float most = s->d <= 512 ? 32767.0f : floorf(16777215.0f / (float)s->d);
    for (int64_t i = 0; i < s->q; i++) {
        const float *from = s->query + i * s->d;
        float largest = 0, by;
        for (int64_t c = 0; c < s->d; c++) /* NaN stays */
            if (largest == largest && !(fabsf(from[c]) <= largest)) largest = fabsf(from[c]);
        by = largest / most;
        for (int64_t c = 0; c < s->d; c++) {
            int64_t to = c < whole ? i * w->wide + c : (i + 1) * w->wide - s->d + c;
            if (s->size > 1) w->words[to] = from[c];
            else if (by > 1e-30f && by < INFINITY) w->whole[to] = (int16_t)lrintf(from[c] / by);
        }
        if (s->size == 1) w->by[2 * i] = w->by[2 * i + 1] = by;
    }
}

/* Returns 0 where there is no memory. */
FOR_LANES static int count_texts(const Stored *s) {
    int64_t most = 0, step = s->size == 1 ? 2 * LANES : LANES, wide = (s->d + step - 1) / step * step;
    for (int64_t text = 0; text < s->texts; text++)
        if (s->offsets[text + 1] - s->offsets[text] > most) most = s->offsets[text + 1] - s->offsets[text];
    most = (most + 1) / 2 * 2; /* rows come in pairs */
    float *own = calloc((size_t)(s->q * (wide + most + 2) + 4 * LANES), sizeof(float));
    if (own == NULL) return 0;
    float *words = own + (-(uintptr_t)own / sizeof(float)) % LANES; /* no number of LANES crosses a line of the cache */
    float *match = words + s->q * wide, *end = match + s->q * most;
    Words w = {.words = words, .whole = (int16_t *)words, .by = end + 2 * LANES, .wide = wide};
    round_words(s, &w, step);
    Pool p = {.kernels = s->kernels, .centres = s->centres, .steepness = s->steepness};
    Ladder l = ladder(&p);
    unsigned before = flush_tiny();
    for (int64_t text = 0; text < s->texts; text++) {
        int64_t begin = s->offsets[text], length = s->offsets[text + 1] - begin;
        if (s->size == 1 && s->vnni) meet_text(0, s, &w, (char *)end, begin, length, match, most);
        else if (s->size == 1) meet_text(1, s, &w, (char *)end, begin, length, match, most);
        else if (s->size == 2) meet_text(2, s, &w, (char *)end, begin, length, match, most);
        else meet_text(4, s, &w, (char *)end, begin, length, match, most);
        for (int64_t i = 0; i < s->q; i++)
            pool_row(&p, &l, match + i * most, length, s->counts + (text * s->q + i) * s->kernels);
    }
    restore(before);
    free(own);
    return 1;
}

/* Scores of soft counts: over blocks and kernels, weights times sums over the words of logarithms and of counts. */
FOR_LANES static void weigh_texts(const Weighing *w) {
    for (int64_t text = 0; text < w->texts; text++) {
        const float *counts = w->counts + text * w->blocks * w->q * w->kernels;
        floats score = all(0), share = all(1 / ((float)w->lengths[text] + 1));
        for (int64_t block = 0; block < w->blocks; block++)
            for (int64_t k = 0; k < w->kernels; k += LANES) {
                int64_t left = w->kernels - k, at = block * w->kernels + k;
                floats logs = all(0), sums = all(0);
                for (int64_t i = 0; i < w->q; i++) {
                    floats count = load(counts + (block * w->q + i) * w->kernels + k, left);
                    logs = logs + log2_(larger(all(w->least), count)); /* NaN is kept */
                    sums = sums + count;
                }
                score = fused(logs, load(w->log_weights + at, left), score);
                score = fused(sums * share, load(w->weights + at, left), score);
            }
        w->scores[text] = total(score);
    }
}

/* -------- half a layer of an encoder over few rows */

/* x Wᵀ + b; a number has the same bits whatever rows stand beside its own. */
FOR_LANES static void multiply_few(const float *x, int64_t rows, int64_t inputs, const float *weight,
                                   const float *bias, int64_t outputs, float *out) {
    const int beside = LANES / FEW;
    for (int64_t row = 0; row < rows; row += FEW)
        for (int64_t column = 0; column < outputs; column += beside) {
            const float *own[FEW], *by[LANES / FEW];
            floats sums[LANES];
            float each[LANES];
            UNROLL for (int r = 0; r < FEW; r++) own[r] = x + (row + r < rows ? row + r : rows - 1) * inputs;
            UNROLL for (int c = 0; c < beside; c++)
                by[c] = weight + (column + c < outputs ? column + c : outputs - 1) * inputs;
            UNROLL for (int i = 0; i < LANES; i++) sums[i] = all(0);
            for (int64_t i = 0; i < inputs; i += LANES) {
                floats some[FEW];
                UNROLL for (int r = 0; r < FEW; r++) some[r] = load(own[r] + i, inputs - i);
                UNROLL for (int c = 0; c < beside; c++) {
                    floats factor = load(by[c] + i, inputs - i);
                    UNROLL for (int r = 0; r < FEW; r++) sums[c * FEW + r] = fused(factor, some[r], sums[c * FEW + r]);
                }
            }
            store(each, LANES, totals(sums));
            for (int r = 0; r < FEW && row + r < rows; r++)
                for (int c = 0; c < beside && column + c < outputs; c++)
                    out[(row + r) * outputs + column + c] = each[c * FEW + r] + bias[column + c];
        }
}

/* norm(x + W2 inner(W1 x + b1) + b2), where inner is ReLU or, with heads, attention. */
FOR_LANES static int half_rows(const Half *h) {
    int64_t wide = h->heads ? 3 * h->inner : h->inner, rows = h->rows;
    float *first = malloc((size_t)(rows * (wide + h->inner + h->width) + 2 * rows * (h->heads + 1) + 1) * sizeof(float));
    if (first == NULL) return 0;
    float *heard = first + rows * wide, *sum = heard + rows * h->inner, *stats = sum + rows * h->width;
    multiply_few(h->x, rows, h->width, h->inward, h->inward_bias, wide, first);
    if (h->heads) {
        const int64_t ends[2] = {0, rows};
        Attention a = {.qkv = first, .ends = ends, .rows = 1, .heads = h->heads, .d = h->inner / h->heads,
                       .tokens = rows, .scale = h->scale, .out = heard, .stats = stats};
        attend_rows(&a);
    } else {
        for (int64_t i = 0; i < rows * wide; i++) heard[i] = first[i] < 0 ? 0 : first[i];
    }
    multiply_few(heard, rows, h->inner, h->outward, h->outward_bias, h->width, sum);
    for (int64_t i = 0; i < rows * h->width; i++) sum[i] += h->x[i];
    Norm n = {.x = sum, .gain = h->gain, .shift = h->shift, .rows = rows, .width = h->width, .outer = h->outer,
              .eps = h->eps, .out = h->out, .stats = stats};
    norm_rows(&n);
    free(first);
    return 1;
}

/* -------- sweeps: place o of a text holds its words o - k + 1 to o, zeros beyond both ends */

VECTOR floats place(const Sweeps *s, const int64_t *index, const float *scales, int64_t length, int64_t o, int64_t i) {
    floats sum = all(0);
    for (int64_t r = 0; r < s->k; r++) {
        int64_t word = o + r - s->k + 1;
        if (word < 0 || word >= length) continue;
        floats own = load(s->products + (index[word] * s->k + r) * s->f + i, s->f - i);
        if (scales) sum = fused(own, all(scales[word]), sum);
        else sum = sum + own;
    }
    return sum;
}

FOR_LANES static void sweep_texts(const Sweeps *s) {
    for (int64_t sweep = 0; sweep < s->sweeps; sweep++) {
        const int64_t *index = s->index + sweep / s->repeat * s->places;
        const float *scales = s->scales ? s->scales + sweep * s->places : NULL;
        int64_t length = s->lengths[sweep / s->repeat];
        for (int64_t i = 0; i < s->f; i += LANES) {
            floats best = all(-INFINITY);
            ints winner = all_ints(0);
            for (int64_t o = 0; o < length + s->k - 1; o++) {
                floats value = place(s, index, scales, length, o, i);
                /* the first of equals wins; NaN wins and stays */
                mask more = above(value, best) & is_number(best);
                best = pick(more, value, best);
                winner = pick_ints(more, all_ints((int)o), winner);
            }
            store(s->best + sweep * s->f + i, s->f - i, best);
            store_ints(s->winners + sweep * s->f + i, s->f - i, winner);
        }
    }
}

/* One sweep's gradients. hits, ends: which filters won with each word; sum, read: (d) floats. */
VECTOR void sweep_one_back(const Sweeps *s, int64_t sweep, int32_t *hits, int32_t *ends, float *sum, float *read) {
    const int64_t *index = s->index + sweep / s->repeat * s->places;
    const float *scales = s->scales ? s->scales + sweep * s->places : NULL, *gradient = s->gradient + sweep * s->f;
    const int32_t *winners = s->winners + sweep * s->f;
    const float *left = s->left ? s->words + s->left[sweep] * s->d : NULL;
    float *to_left = s->left ? s->to_words + s->left[sweep] * s->d : NULL;
    int64_t length = s->lengths[sweep / s->repeat];
    memset(ends, 0, (size_t)(length + 1) * sizeof(int32_t));
    for (int64_t i = 0; i < s->f; i++)
        for (int64_t r = 0; r < s->k; r++) {
            int64_t word = winners[i] + r - s->k + 1;
            if (gradient[i] != 0 && word >= 0 && word < length) ends[word + 1]++;
        }
    for (int64_t word = 0; word < length; word++) ends[word + 1] += ends[word];
    int32_t total = ends[length];
    for (int64_t i = s->f - 1; i >= 0; i--)
        for (int64_t r = s->k - 1; r >= 0; r--) {
            int64_t word = winners[i] + r - s->k + 1;
            if (gradient[i] != 0 && word >= 0 && word < length) hits[--ends[word + 1]] = (int32_t)(i * s->k + r);
        }
    for (int64_t word = 0; word < length; word++) {
        /* ends[word + 1] is now where the word's hits begin, ends[word + 2] where the next word's do */
        int64_t from = ends[word + 1], to = word + 1 < length ? ends[word + 2] : total;
        float by = scales ? scales[word] : 1;
        const float *own = s->words + index[word] * s->d;
        if (from == to) continue;
        memset(sum, 0, (size_t)s->d * sizeof(float));
        for (int64_t i = 0; i < s->d; i += LANES) {
            floats x = load(own + i, s->d - i) * all(by);
            if (left) x = x * load(left + i, s->d - i);
            store(read + i, s->d - i, x);
        }
        for (int64_t hit = from; hit < to; hit++) {
            float slope = gradient[hits[hit] / s->k];
            add_scaled(sum, slope, s->weight + hits[hit] * s->d, s->d);
            add_scaled(s->to_weight + hits[hit] * s->d, slope, read, s->d);
        }
        if (s->to_scales) s->to_scales[sweep * s->places + word] = dot(sum, own, s->d);
        for (int64_t i = 0; i < s->d; i += LANES) {
            float *to_own = s->to_words + index[word] * s->d + i;
            floats y = load(sum + i, s->d - i) * all(by);
            if (left) {
                floats mine = fused(y, load(own + i, s->d - i), load(to_left + i, s->d - i));
                y = y * load(left + i, s->d - i);
                store(to_left + i, s->d - i, mine);
            }
            store(to_own, s->d - i, load(to_own, s->d - i) + y);
        }
    }
}

/* Returns 0 where there is no memory. */
FOR_LANES static int sweep_texts_back(const Sweeps *s) {
    int32_t *hits = malloc((size_t)(s->f * s->k + s->places + 2) * sizeof(int32_t));
    float *rows = malloc((size_t)(2 * s->d + 1) * sizeof(float));
    if (hits == NULL || rows == NULL) {
        free(hits);
        free(rows);
        return 0;
    }
    for (int64_t sweep = 0; sweep < s->sweeps; sweep++)
        sweep_one_back(s, sweep, hits, hits + s->f * s->k, rows, rows + s->d);
    free(hits);
    free(rows);
    return 1;
}

/* -------- n-grams: sums of the products of a word and those that follow it, ReLU, length 1 */

VECTOR void make_gram(const Grams *g, int64_t text, int64_t m, int64_t at) {
    const int64_t *index = g->index + text * g->places;
    int64_t row = (text * g->grams + m - 1) * g->places + at, length = g->lengths[text];
    float *out = g->out + row * g->f;
    doubles squares = {0}; /* an exact match is narrow: its similarity must be 1 to the last digit */
    for (int64_t i = 0; i < g->f; i += LANES) {
        int64_t left = g->f - i;
        floats sum = load(g->bias + (m - 1) * g->f + i, left);
        for (int64_t r = 0; r < m && at + r < length; r++)
            sum = sum + load(g->products + (index[at + r] * g->blocks + m * (m - 1) / 2 + r) * g->f + i, left);
        sum = larger(all(0), sum); /* NaN is kept: it is the second operand */
        squares = add_squares(squares, sum);
        store(out + i, left, sum);
    }
    float length_ = (float)sqrt(total_doubles(squares)) + g->eps;
    for (int64_t i = 0; i < g->f; i += LANES) store(out + i, g->f - i, load(out + i, g->f - i) / all(length_));
    g->inverse[row] = 1 / length_;
}

FOR_LANES static void gram_texts(const Grams *g) {
    for (int64_t text = 0; text < g->texts; text++)
        for (int64_t m = 1; m <= g->grams; m++)
            for (int64_t at = 0; at < g->places; at++) make_gram(g, text, m, at);
}

VECTOR void gram_back(const Grams *g, int64_t text, int64_t m, int64_t at) {
    const int64_t *index = g->index + text * g->places;
    int64_t row = (text * g->grams + m - 1) * g->places + at, length = g->lengths[text];
    const float *out = g->out + row * g->f, *gradient = g->gradient + row * g->f;
    float *to_bias = g->to_bias + (m - 1) * g->f;
    floats along = all(-dot(gradient, out, g->f)), inverse = all(g->inverse[row]);
    for (int64_t i = 0; i < g->f; i += LANES) {
        int64_t left = g->f - i;
        floats own = load(out + i, left);
        floats y = fused(own, along, load(gradient + i, left)) * inverse;
        y = keep(above(own, all(0)), y);
        store(to_bias + i, left, load(to_bias + i, left) + y);
        for (int64_t r = 0; r < m && at + r < length; r++) {
            float *to = g->to_products + (index[at + r] * g->blocks + m * (m - 1) / 2 + r) * g->f + i;
            store(to, left, load(to, left) + y);
        }
    }
}

FOR_LANES static void gram_texts_back(const Grams *g) {
    for (int64_t text = 0; text < g->texts; text++)
        for (int64_t m = 1; m <= g->grams; m++)
            for (int64_t at = 0; at < g->places; at++) gram_back(g, text, m, at);
}

static const Loops loops = {attend_rows,      attend_rows_back, norm_rows,        norm_rows_back, match_texts,
                            match_texts_back, count_texts,      weigh_texts,      half_rows,       pool_rows,        pool_rows_back, sweep_texts,
                            sweep_texts_back, gram_texts,       gram_texts_back};
