/* Words of texts by Unicode's rules, for texts of plain letters, digits and marks between them, as
 * text/lucene.py's expression for such texts reads them; other texts are left to Python.
 *
 * A text is UTF-16 code units; a table says what each unit is. Words are found by their 64-bit hash in a
 * table of open addresses, looked at a few words later, when the processor has fetched its place.
 */
#include <stdint.h>
#include <string.h>

/* What a unit is; text/lucene.py makes the table. */
enum { LETTER = 1, DIGIT = 2, LOW = 4, BETWEEN_LETTERS = 8, BETWEEN_DIGITS = 16, NOT_PLAIN = 32 };
enum { WORDLY = LETTER | DIGIT | LOW, LONGEST = 255 };

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

/* Find the next word at or behind *at; write where it begins, and where it ends to *at.
 * Returns 1; 0 where there is none; -1 where the text is not plain, or has a word that is too long. */
static int next_word(const uint16_t *text, int64_t end, const uint8_t *kinds, int64_t *at, int64_t *begin) {
    int64_t i = *at;
    for (;;) {
        uint8_t kind = 0;
        while (i < end && !((kind = kinds[text[i]]) & (WORDLY | NOT_PLAIN))) i++;
        if (i == end) return 0;
        *begin = i;
        while (i < end && (kind = kinds[text[i]]) & LOW) i++;
        if (i - *begin >= LONGEST) return -1;
        if (i < end && kind & (LETTER | DIGIT)) break;
        if (i < end && kind & NOT_PLAIN) return -1;
    }
    for (;;) {
        while (i < end && kinds[text[i]] & WORDLY) i++;
        if (i + 1 >= end) break;
        uint8_t before = kinds[text[i - 1]], mark = kinds[text[i]], after = kinds[text[i + 1]];
        if (mark & BETWEEN_LETTERS && before & LETTER && after & LETTER) i++;
        else if (mark & BETWEEN_DIGITS && before & DIGIT && after & DIGIT) i++;
        else break;
    }
    *at = i;
    return i - *begin > LONGEST ? -1 : 1;
}
