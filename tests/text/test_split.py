"""Splitters: the promises hold on thousands of documents, and the windows are the references' windows."""

import json
import math
import pickle
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankhouse.core.errors import MissingExtra, WrongUse
from rankhouse.core.notation import make
from rankhouse.core.nouns import Document, Passage
from rankhouse.text.split import SPLITTERS, Sentences, Whole, Windows, Words
from rankhouse.text.words import BLINGFIRE, blingfire_sentences

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "text_passages.json").read_text(encoding="utf-8"))


def of_dots(text):
    """Sentences that end with a full stop before white space."""
    return [part for part in text.replace(". ", ".\n").split("\n") if part]


def numbered(n_words, sentence_lengths=()):
    """A document of words w0 w1 ..., full stops by the lengths in turn: each word is told from each other."""
    words = [f"w{i}" for i in range(n_words)]
    at = 0
    while sentence_lengths and at < n_words:
        for length in sentence_lengths:
            at += length
            if at <= n_words:
                words[at - 1] += "."
    return Document("d", " ".join(words))


def numbers(passage):
    return [int(word.strip(".")[1:]) for word in passage.text.split()]


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(
    n_words=st.integers(0, 400),
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=8),
    size=st.integers(1, 12),
    stride=st.integers(1, 12),
    limit=st.integers(1, 60),
    most=st.none() | st.integers(2, 6),
)
def test_every_word_is_in_some_passage_in_order_and_none_lies_inside_its_predecessor(
    n_words, lengths, size, stride, limit, most
):
    document = numbered(n_words, lengths)
    stride = min(stride, size)
    splitters = [
        Whole(),
        Sentences(size, stride, find=of_dots),
        Words(limit, find=of_dots),
        Windows(size * 5, stride * 5, limit=most),
    ]
    for splitter in splitters:
        passages = splitter(document)
        assert [(p.doc_id, p.index) for p in passages] == [("d", i) for i in range(len(passages))]
        assert passages
        spans = [numbers(p) for p in passages]
        for span in spans:  # each is an unbroken stretch
            assert span == list(range(span[0], span[-1] + 1)) if span else n_words == 0
        for before, after in pairwise(spans):
            assert before[0] < after[0]
            assert before[-1] < after[-1]
        covered = {number for span in spans for number in span}
        assert covered <= set(range(n_words))
        assert n_words - len(covered) == splitter.dropped(document)
        if not isinstance(splitter, Windows) or most is None:
            assert splitter.dropped(document) == 0


@settings(max_examples=500, deadline=None)
@given(
    n_words=st.integers(0, 500),
    lengths=st.lists(st.integers(1, 90), min_size=1, max_size=6),
    limit=st.integers(1, 50),
)
def test_blocks_of_words_are_disjoint_end_with_sentences_and_are_bounded(n_words, lengths, limit):
    document = numbered(n_words, lengths)
    passages = Words(limit, find=of_dots)(document)
    assert " ".join(p.text for p in passages) == document.text
    for passage in passages[:-1]:
        count = len(passage.text.split())
        assert limit <= count <= 2 * limit
        assert passage.text.endswith(".") or count == 2 * limit
        sentence_before_last = passage.text[:-1].rfind(". ")
        if sentence_before_last >= 0:  # without its last sentence the passage was not full yet
            assert len(passage.text[: sentence_before_last + 1].split()) < limit
    assert len(passages[-1].text.split()) <= 2 * limit


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(
    text=st.text(
        st.sampled_from("abcABC  .!?…。\n\t'\"”)\u200b\ufeff\x00\x07\u2028\u00a0é日😀\u0301\ud800.,;"),
        max_size=120,
    )
    | st.text(max_size=80)
)
def test_blingfire_sentences_hold_every_character_of_the_text_in_order(text):
    found = blingfire_sentences(text)
    behind = 0
    for sentence in found:
        assert sentence
        assert sentence == sentence.strip()
        at = text.index(sentence, behind)
        assert not text[behind:at].strip()
        behind = at + len(sentence)
    assert not text[behind:].strip()


@settings(max_examples=300, deadline=None)
@given(
    text=st.lists(
        st.sampled_from(["Dr.", "A", "word.", "End!", "Why?", "3.5", "\n", "…", "日本。", "e.g.", "x" * 300]),
        max_size=150,
    ).map(" ".join),
    title=st.sampled_from(["", "A title", "T."]),
)
def test_with_blingfire_every_word_of_text_and_title_is_kept(text, title):
    document = Document("d", text, title)
    for splitter in (Whole(), Sentences(), Words(20), Windows(10, 5, limit=None)):
        passages = splitter(document)
        assert {word for p in passages for word in p.text.split()} >= set(text.split())
        assert all(p.text.startswith(title) for p in passages)
        assert splitter.dropped(document) == 0


@pytest.mark.parametrize("case", GOLDEN["pygaggle"], ids=lambda case: str(case["n_sentences"]))
def test_sentence_windows_are_pygaggles(case):
    text = " ".join(f"Sentence number {i} ends here." for i in range(case["n_sentences"]))
    for find in (of_dots, blingfire_sentences):
        passages = Sentences(10, 5, find=find)(Document("d", text, case["title"]))
        assert [p.text for p in passages] == (case["segments"] or [case["title"]])


@pytest.mark.parametrize("case", GOLDEN["dai_callan"], ids=lambda case: f"{case['n_words']}-{case['plen']}")
def test_word_windows_are_dai_and_callans_without_the_suffixes(case):
    stride = case["plen"] - case["overlap"]
    passages = Windows(case["plen"], stride, limit=None)(numbered(case["n_words"]))
    theirs = [tuple(span) for span in case["spans"]]
    wanted = [span for before, span in zip([(0, -1), *theirs], theirs, strict=False) if span[1] > before[1]]
    found = [(n[0], n[-1] + 1) if (n := numbers(p)) else (0, 0) for p in passages]
    assert found == wanted


def test_spacy_and_blingfire_part_ways_where_the_docs_say():
    spacy = dict(GOLDEN["spacy_sentencizer"])
    same = [text for text, sentences in spacy.items() if blingfire_sentences(text) == sentences]
    assert same == ["No punctuation at all"]
    assert blingfire_sentences("One.Two.Three") == ["One.Two.Three"]
    assert blingfire_sentences('He came. "Was it late?" she asked.') == [
        "He came.",
        '"Was it late?"',
        "she asked.",
    ]


def test_any_sentence_function_can_be_handed_in():
    spacy = dict(GOLDEN["spacy_sentencizer"])
    splitter = Sentences(2, 1, find=lambda text: spacy[text])
    assert [p.text for p in splitter(Document("d", "One.Two.Three"))] == ["One. Two.", "Two. Three"]


@pytest.mark.parametrize("notation", sorted(SPLITTERS))
def test_a_document_without_text_keeps_one_passage(notation):
    splitter = make(notation, SPLITTERS, "splitter")
    assert splitter(Document("d", "")) == [Passage("d", 0, "")]
    assert splitter(Document("d", "", "Only title")) == [Passage("d", 0, "Only title")]
    assert splitter.dropped(Document("d", "", "Only title")) == 0


def test_the_title_stands_before_each_passage():
    document = numbered(20, [5])._replace(title="A title")
    windows = Sentences(1, 1, find=of_dots)(document)
    assert [p.text[:11].strip() for p in windows] == [
        "A title. w0",
        "A title. w5",
        "A title. w1",
        "A title. w1",
    ]
    assert [p.text[:10] for p in Words(5, find=of_dots)(document)] == ["A title w0", "A title w5"] + [
        "A title w1"
    ] * 2
    assert [p.text[:10] for p in Windows(5, 5)(document)] == ["A title w0", "A title w5"] + ["A title w1"] * 2
    assert Whole()(document)[0].text.startswith("A title w0")


def test_a_title_left_out_is_counted_as_dropped():
    document = Document("d", "One two. Three four.", "A long title")
    for splitter in (Sentences(title=False), Windows(title=False)):
        assert [p.text for p in splitter(document)] == ["One two. Three four."]
        assert splitter.dropped(document) == 3
        assert splitter(document._replace(text=" "))[0].text == "A long title"


@settings(max_examples=300, deadline=None)
@given(text=st.text("ab. \n", max_size=60), cut=st.integers(1, 70))
def test_words_behind_max_chars_are_counted(text, cut):
    splitter = Sentences(max_chars=cut, find=of_dots)
    whole = [i for i, _ in enumerate(text.split())]
    kept = text[:cut].split()
    full = [a for a, b in zip(text.split(), kept, strict=False) if a == b]
    assert splitter.dropped(Document("d", text)) == len(whole) - len(full)


def test_max_chars_reads_the_authors_ten_thousand_characters():
    document = Document("d", "A sentence of words. " * 1000)
    passages = Sentences(10, 5, max_chars=10_000)(document)
    assert len(passages) == math.ceil((math.ceil(10_000 / 21) - 10) / 5) + 1
    assert Sentences(10, 5, max_chars=10_000).dropped(document) == 4000 - 4 * 476 - 1  # one more word


def test_many_windows_keep_the_first_the_last_and_a_sample_in_order():
    document = numbered(10_000)
    every = Windows(limit=None)(document)
    kept = Windows()(document)
    texts = [p.text for p in every]
    places = [texts.index(p.text) for p in kept]
    assert len(kept) == 30
    assert len(every) == 1 + math.ceil((10_000 - 150) / 75)
    assert places[0] == 0
    assert places[-1] == len(every) - 1
    assert places == sorted(set(places))
    assert [p.index for p in kept] == list(range(30))


def test_the_sample_depends_on_seed_and_document_id_alone():
    document = numbered(10_000)
    assert Windows()(document) == Windows()(document)
    assert Windows(seed=1)(document) != Windows()(document)
    other = Windows()(document._replace(id="e"))
    assert [p.text for p in other] != [p.text for p in Windows()(document)]
    drawn = [numbers(p)[0] // 75 for p in Windows(limit=6)(document)]
    assert drawn == [0, 3, 9, 29, 61, 132]  # the same on every machine and in every release


def test_each_middle_window_is_drawn_about_as_often():
    counts = [0] * 20
    for i in range(600):
        for passage in Windows(2, 2, limit=11)(numbered(40)._replace(id=f"doc{i}")):
            counts[numbers(passage)[0] // 2] += 1
    assert counts[0] == counts[-1] == 600
    assert all(230 < count < 370 for count in counts[1:-1])  # 300 expected, deviation 12


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("whole", "whole"),
        ("whole()", "whole"),
        ("sentences", "sentences(10, 5)"),
        ("sentences(10, 5)", "sentences(10, 5)"),
        ("sentences(8, stride=4, max_chars=10000)", "sentences(8, 4, max_chars=10000)"),
        ("sentences(title=False)", "sentences(10, 5, title=False)"),
        ("words", "words(100)"),
        ("words(limit=50)", "words(50)"),
        ("windows", "windows(150, 75, limit=30)"),
        ("windows(100, 50, limit=None, seed=7)", "windows(100, 50, limit=None, seed=7)"),
    ],
)
def test_a_splitter_is_written_as_it_is_read(written, canonical):
    splitter = make(written, SPLITTERS, "splitter")
    assert str(splitter) == canonical
    assert make(str(splitter), SPLITTERS, "splitter") == splitter
    assert pickle.loads(pickle.dumps(splitter)) == splitter
    assert hash(splitter) == hash(make(canonical, SPLITTERS, "splitter"))


def test_another_sentence_function_shows_in_the_notation():
    assert str(Words(find=of_dots)).startswith("words(100, find=")
    assert str(Words(find=of_dots)).endswith("of_dots')")
    assert str(Sentences(find=str.splitlines)) == "sentences(10, 5, find='str.splitlines')"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("sentences(5, 6)", "stride=6 is larger than size=5"),
        ("sentences(0)", "size=0"),
        ("sentences(max_chars=0)", "max_chars=0"),
        ("words(0)", "limit=0"),
        ("words(2.5)", "limit=2.5"),
        ("words(True)", "limit=True"),
        ("windows(limit=1)", "at least 2"),
        ("windows(10, 20)", "stride of at most 10"),
        ("words(find='spacy')", "what only Python can hand in"),
        ("sentenses", "choose from: sentences, whole, windows, words"),
    ],
)
def test_wrong_numbers_and_names_are_explained(wrong, said):
    with pytest.raises(WrongUse, match=said):
        make(wrong, SPLITTERS, "splitter")


def test_without_blingfire_the_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, BLINGFIRE, None)
    with pytest.raises(MissingExtra, match=r"rankhouse\[neural\]"):
        Words()(Document("d", "Some text."))
    assert Windows()(Document("d", "Some text."))[0].text == "Some text."


def test_one_word_of_a_hundred_thousand_characters_is_one_passage():
    document = Document("d", "x" * 100_000)
    for name in SPLITTERS:
        assert [p.text for p in make(name, SPLITTERS, "splitter")(document)] == [document.text]


TEXTS = st.text(
    st.sampled_from("ab.!? \n\t\u3000\u00a0Zé") | st.characters(exclude_categories=["Cs"]), max_size=300
) | st.lists(
    st.sampled_from(["One two.", "One two.", "  ", "\n\n", "Three!", "four", "end.Begin", "\x1c"]),
    max_size=60,
).map(" ".join)


@settings(max_examples=300, deadline=None)
@given(text=TEXTS, title=st.sampled_from(["", "A title"]), size=st.integers(1, 6), limit=st.integers(1, 9))
def test_spans_are_where_the_passages_stand(text, title, size, limit):
    """Repeated sentences included: the next passage begins behind the beginning of the one before it."""
    document = Document("d", text, title=title)
    for split in (
        Whole(),
        Sentences(size, (size + 1) // 2),
        Sentences(size, size, max_chars=50, title=False),
        Words(limit),
        Windows(limit, (limit + 1) // 2, 3, title=False),
        Windows(limit, limit, None),
    ):
        passages, spans = split(document), split.spans(document)
        assert len(passages) == len(spans)
        assert all(a < b or not text.strip() for (a, _), (b, _) in pairwise(spans))
        if text.strip():
            for passage, (start, end) in zip(passages, spans, strict=True):
                words = "".join(passage.text.split()).removeprefix(
                    "Atitle." if isinstance(split, Sentences) else "Atitle"
                )
                assert words == "".join(text[start:end].split())
                assert isinstance(split, Whole) or text[start:end] == text[start:end].strip()


def test_spans_tell_equal_sentences_apart():
    document = Document("d", "  Again.  Again.\nAgain. Again.")
    assert Sentences(1, 1).spans(document) == [(2, 8), (10, 16), (17, 23), (24, 30)]
    assert Words(1).spans(document) == [(2, 8), (10, 16), (17, 23), (24, 30)]
    assert Windows(2, 1).spans(document) == [(2, 16), (10, 23), (17, 30)]
    assert [s.spans(Document("d", " ", "T")) for s in (Sentences(), Words(), Windows())] == [[(0, 0)]] * 3
