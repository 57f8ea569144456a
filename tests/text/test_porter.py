"""Porter's stemmer against nltk's, over words made of suffixes, arbitrary text and the standard library."""

import random
import re
import sysconfig
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.stem.porter import PorterStemmer

from rankhouse.text.lucene import _stem, stem, words

ORACLE = PorterStemmer(PorterStemmer.MARTIN_EXTENSIONS)
ENDINGS = (
    "ational tional enci anci izer logi bli alli entli ousli eli ization ation ator alism iveness fulness "
    "ousness aliti iviti biliti icate ative alize iciti ical ful ness al ance ence er ic able ible ant ement "
    "ment ent ion sion tion ou ism ate iti ous ive ize e ll y yy s es ies sses ss ed eed ing yyed yying"
)
SUFFIXES = ENDINGS.split()
DATA = Path(__file__).parents[3] / "shared" / "data"


def oracle(word):
    return ORACLE.stem(word, to_lowercase=False)


def differing(vocabulary):
    """Words whose stem is not nltk's, compiled where it is or in plain Python."""
    known = {word: oracle(word) for word in sorted(vocabulary)}
    return [(word, known[word]) for word in known if not stem(word) == known[word] == _stem(word)]


def test_stacked_suffixes_on_short_stems_agree_with_nltk():
    draw = random.Random(7)
    made = {
        "".join(draw.choices("aeiouybcdlstwxzé'3", k=draw.randint(0, 6)))
        + "".join(draw.choices(SUFFIXES, k=draw.randint(0, 3)))
        for _ in range(30_000)
    }
    assert len(made) > 20_000
    assert not differing(made - {""})


@pytest.mark.slow
def test_every_word_of_the_standard_library_agrees_with_nltk():
    library = Path(sysconfig.get_path("stdlib"))
    vocabulary = set()
    for path in sorted(library.glob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace").lower()
        vocabulary.update(words(text), re.findall("[a-z]+", text))
    assert len(vocabulary) > 10_000
    assert not differing(vocabulary)


@settings(max_examples=500, deadline=None)
@given(
    st.text(
        st.characters(max_codepoint=0xFFFF, exclude_categories=["Lu", "Lt", "Cs"]), min_size=1, max_size=12
    )
)
def test_any_characters_agree_with_nltk(word):
    if word == word.lower():
        assert stem(word) == oracle(word)


@settings(max_examples=500, deadline=None)
@given(st.text("aeiouylsdgnt𐐨", min_size=1, max_size=9))
def test_a_stem_is_never_empty_nor_longer_than_its_word_by_more_than_an_e(word):
    stemmed = stem(word)
    assert 1 <= len(stemmed) <= len(word)
    stemmed.encode()  # no half of a character is left over


@pytest.mark.parametrize(
    ("word", "stemmed"),
    [
        ("archaeology", "archaeolog"),  # the author's departures: logi -> log
        ("possibly", "possibl"),  # bli -> ble
        ("caresses", "caress"),
        ("ponies", "poni"),
        ("hopping", "hop"),
        ("filing", "file"),
        ("controlling", "control"),
        ("is", "is"),
        ("café", "café"),
        ("cafés", "café"),
        ("日本s", "日本"),
    ],
)
def test_known_words(word, stemmed):
    assert stem(word) == stemmed


@pytest.mark.parametrize(
    ("word", "stemmed"), [("𐐨s", "𐐨"), ("a𐐨e", "a𐐨"), ("i𐐨𐐨ed", "i𐐨𐐨"), ("ka𐐨ing", "ka𐐨")]
)
def test_characters_beyond_the_basic_plane_count_as_two_consonants_as_in_lucene(word, stemmed):
    assert stem(word) == stemmed


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason="the measured collections are not beside this checkout")
def test_the_words_of_real_collections_agree_with_nltk():
    import gzip

    for name in ("cranfield", "nfcorpus"):
        with gzip.open(DATA / name / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
            vocabulary = {word for line in lines for word in words(line.lower())}
        assert not differing(vocabulary)
