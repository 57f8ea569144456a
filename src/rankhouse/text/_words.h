/* Words of texts by Unicode's rules, for texts of plain letters, digits and marks between them, as
 * text/lucene.py's expression for such texts reads them; other texts are left to Python.
 *
 * A text is UTF-16 code units; a table says what each unit is.
 */
#include <stdint.h>

/* What a unit is; text/lucene.py makes the table. */
enum { LETTER = 1, DIGIT = 2, LOW = 4, BETWEEN_LETTERS = 8, BETWEEN_DIGITS = 16, NOT_PLAIN = 32 };
enum { WORDLY = LETTER | DIGIT | LOW, LONGEST = 255 };

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
