"""TREC markup as it is found: whatever is written in it is read, or named with its line."""

import random
import re

import pytest

from rankhouse.core.errors import BadData
from rankhouse.core.nouns import Document, Query
from rankhouse.io.corpora import read_documents, read_queries
from rankhouse.io.files import Skips


def written(tmp_path, content, name="x.trec"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def documents(tmp_path, content, skips=None):
    return list(read_documents([written(tmp_path, content)], skips))


@pytest.mark.parametrize(
    "content",
    [
        "<DOC><DOCNO>1</DOCNO><TEXT>one</TEXT></DOC><DOC><DOCNO>2</DOCNO><TEXT>two</TEXT></DOC>",
        "<DOC>\n<DOCNO>1</DOCNO>\n<TEXT>one</TEXT>\n</DOC><DOC>\n<DOCNO>2</DOCNO><TEXT>two</TEXT></DOC>",
        "<DOC\tid=1>\n<DOCNO>1</DOCNO><TEXT>one</TEXT></DOC>\n<DOC\nid='2'\n>\n<DOCNO>2</DOCNO><TEXT>two</TEXT></DOC\n>",
        "<doc  x><docno> 1 </docno><text>one</text></doc ><Doc><DocNo>2</DocNo>two</Doc>\x1a",
        "<DOC><DOCNO>1</DOCNO><TEXT>one</DOC>\n<DOC><DOCNO>2</DOCNO><TEXT>\ntwo\n</DOC>",
        "<?xml?>\n<!-- no\nrecord --><r>\n<DOC><DOCNO>1</DOCNO>one</DOC>\t<DOC><DOCNO>2</DOCNO><LP>two</DOC>",
    ],
)
def test_documents_are_read_however_their_tags_stand(tmp_path, content):
    assert documents(tmp_path, content) == [Document("1", "one"), Document("2", "two")]


def test_a_section_that_is_not_closed_loses_nothing(tmp_path):
    def read(inside):
        return documents(tmp_path, f"<DOC><DOCNO>1</DOCNO>{inside}</DOC>")[0]

    assert read("<TEXT>a <HEADLINE>h</HEADLINE> b") == Document("1", "a b", "h")
    assert read("<HEADLINE>h <TEXT>a</TEXT>") == Document("1", "a", "h")
    assert read("<HEAD><TITLE>h</TITLE><BODY>a <p> b") == Document("1", "a b", "h")
    assert read("<TEXT>a</TEXT><TEXT>b") == Document("1", "a b")
    assert read("<TITLE>h") == Document("1", "", "h")
    assert read("a &amp; c <i> d > e < f &#" + "9" * 5000 + ";") == Document("1", "a & c d > e < f \ufffd")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("<DOC><DOCNO>1</DOCNO>a</DOC>\n\n<DOCNO>2</DOCNO>\n b\n</DOC>", 'line 3: "2 b" stands outside'),
        ("<DOC><DOCNO>1</DOCNO>a</DOC>\n</DOC>", "line 2: </DOC> without a <DOC>"),
        (
            "\n<DOC><DOCNO>1</DOCNO>a\n<DOCNO>2</DOCNO>b</DOC>",
            'line 2: the record has several <DOCNO>, "1" and "2"',
        ),
        ("<DOC>\n<DOCNO>1</DOCNO><TITLE>t</TITLE>\nb</TEXT></DOC>", "line 3: a </TEXT> without a <TEXT>"),
        ("<DOC><DOCNO>1</DOC>", "line 1: the <DOCNO> of this record is not closed"),
        ("words only", 'line 1: "words only" stands outside of every <DOC>'),
        (b"<DOC><DOCNO>1</DOCNO>\na\nb\xff</DOC>", "line 3: byte 2 of the line .0xff. is not UTF-8"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line_and_can_be_skipped(tmp_path, content, complaint):
    with pytest.raises(BadData, match=complaint):
        documents(tmp_path, content)
    skips = Skips(9)
    documents(tmp_path, content, skips)
    assert re.search(complaint, str(skips.seen[0]))


@pytest.mark.parametrize(
    "content",
    [
        "<top><num>1</num><title>one</title></top><top><num>2</num><title>two</title></top>",
        "<top>\n<num> Number: 1\n<title> one\n\n<top>\n<num> Number: 2\n<title> two\n",
        "<top\tlang=en>\n<num>1\n<title>one\n</top>\n<TOP\n>\n<num>2\n<title>two\n</top >",
        '<topic number="1"><query>one</query></topic><topic\nnumber="2"><query>two</query></topic>',
    ],
)
def test_topics_are_read_however_their_tags_stand(tmp_path, content):
    assert read_queries(written(tmp_path, content)) == [Query("1", "one"), Query("2", "two")]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("<top>\n<num>1\n<title>one\n</top>\n<num>2\n<title>two\n</top>", 'line 5: "2 two" stands outside'),
        ("<num>1\n<title>one\n</top>\n<top>\n<num>2\n<title>two\n</top>", 'line 1: "1 one" stands outside'),
        (
            "<top><num>1</num><title>one</title>\n<num>2</num><title>two</title></top>",
            'several <num>, "1" and "2"',
        ),
        ("<top><num>1<title>one</top></top>", "line 1: </top> without a <top>"),
    ],
)
def test_topics_that_cannot_be_read_are_named(tmp_path, content, complaint):
    with pytest.raises(BadData, match=complaint):
        read_queries(written(tmp_path, content))


def test_no_word_vanishes_whatever_tags_are_missing(tmp_path):
    """Tags are dropped, doubled and joined at random: every word is in a document, or a fault was named."""
    rng = random.Random(8)
    lost = 0
    for trial in range(400):
        pieces = []
        for number in range(3):
            record = ["<DOC>", f"<DOCNO>d{number}", "</DOCNO>", "<HEADLINE>", f"h{number}x", "</HEADLINE>"]
            record += ["<TEXT>", f"a{number}x <p> b{number}x", "</TEXT>", "</DOC>"]
            if rng.random() < 0.5:
                at = rng.choice([0, 2, 3, 5, 6, 8, 9])
                record[at : at + 1] = [] if rng.random() < 0.7 else [record[at]] * 2
            pieces += record
        content = "".join(piece + rng.choice(["", "\n", " ", "\t"]) for piece in pieces)
        skips = Skips(100)
        found = documents(tmp_path, content, skips)
        read = " ".join(document.full_text for document in found).split()
        missing = set(re.findall(r"[hab]\dx", content)) - set(read)
        lost += bool(missing)
        assert not missing or skips.seen, (trial, content)
    assert lost  # the trials do break records
