"""Reading and analysing are linear in the length of a text, whatever the text is made of.

Executed lines and the peak of memory are counted: eight times the text needs about eight times as many where
the work is linear, and sixty-four times where it is quadratic. What regular expressions and BlingFire do
inside C cannot be counted, so the slow tier compares processor time too, on texts long enough for a square
to stand out.
"""

import sys
import time
import tracemalloc

import pytest

from rankhouse.core.errors import BadData
from rankhouse.core.nouns import Document
from rankhouse.io.corpora import read_documents, read_queries
from rankhouse.io.readers.process import read_parts
from rankhouse.text.analyze import ANALYZERS
from rankhouse.text.snippets import snippet
from rankhouse.text.split import SPLITTERS
from rankhouse.text.words import BLINGFIRE, WORDS

TIMES, MOST_STEPS, MOST_GROWTH = 8, 12, 24
FEW, SHORT = 400, 6_000

TEXTS = {
    "one word": "a",
    "one word of é": "é",
    "digits": "7",
    "underscores": "_",
    "apostrophes": "a'",
    "dotted": "a.",
    "full stops": ".",
    "hex dump": "deadbeef 00ff",
    "minified code": "a(b){c['d'];};",
    "at signs": "@",
    "tags": "#a",
    "links": "a.co/",
    "brackets": "(",
    "joined emoji": "\U0001f600\u200d",
    "joiners": "\u200d",
    "flags": "\U0001f1e6",
    "accents": "\u0301",
    "ideographs": "中",
    "Thai": "ก",
    "keycaps": "#\ufe0f",
    "spaces": " ",
    "references": "&#9",
}


def lines(work, text):
    """Return how many lines of Python are executed."""
    count = 0

    def traced(frame, event, argument):
        nonlocal count
        count += event == "line"
        return traced

    before = sys.gettrace()
    sys.settrace(traced)
    try:
        work(text)
    finally:
        sys.settrace(before)
    return count


def most_memory(work, text):
    tracemalloc.start()
    try:
        work(text)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def processor_seconds(work, text):
    started = time.process_time()
    work(text)
    return time.process_time() - started


def two_texts(length, unit, before="", behind=""):
    return [before + unit * (n // len(unit)) + behind for n in (length, length * TIMES)]


def counts_grow_linearly(work, *made_of):
    short, long = two_texts(FEW, *made_of)
    work(short)  # fills caches
    few, many = lines(work, short), lines(work, long)
    assert many < MOST_STEPS * max(few, 1_000), (
        f"{made_of}: {few:,} lines, and {many:,} for {TIMES} times the text"
    )
    little, much = most_memory(work, short), most_memory(work, long)
    assert much < MOST_GROWTH * max(little, 1 << 16), (
        f"{made_of}: {little:,} bytes, and {much:,} for {TIMES} times the text"
    )


def time_grows_linearly(work, *made_of):
    """Measure again while the growth looks too large: a cache or another process may have been in the way."""
    short, long = two_texts(SHORT, *made_of)
    work(short[:1000])
    little, much = (most_memory(work, text) for text in (short, long))
    assert much < MOST_GROWTH * max(little, 1 << 18), (
        f"{made_of}: {little:,} bytes, and {much:,} for {TIMES} times the text"
    )
    least = most = float("inf")
    for _ in range(12):
        least, most = min(least, processor_seconds(work, short)), min(most, processor_seconds(work, long))
        growth = most / max(least, 0.002)
        if growth <= MOST_GROWTH:
            return
    pytest.fail(
        f"{made_of}: {growth:.0f} times as long for {TIMES} times the text ({least:.3f} and {most:.3f} s)"
    )


@pytest.fixture(params=["counts", pytest.param("time", marks=pytest.mark.slow)])
def grows_linearly(request):
    return {"counts": counts_grow_linearly, "time": time_grows_linearly}[request.param]


@pytest.mark.quick("counts-[!t]*")
@pytest.mark.parametrize("name", ANALYZERS)
def test_analysers(name, grows_linearly):
    analyzer = ANALYZERS[name]()
    for unit in TEXTS.values():
        grows_linearly(lambda content: (analyzer(content), list(analyzer.spans(content))), unit)


@pytest.mark.parametrize("name", SPLITTERS)
def test_splitters(name, grows_linearly):
    pytest.importorskip(BLINGFIRE)
    split = SPLITTERS[name]()
    for unit in TEXTS.values():
        grows_linearly(lambda content: split(Document("d", content)), unit)


@pytest.mark.parametrize("name", WORDS)
def test_word_splitters(name, grows_linearly):
    pytest.importorskip(BLINGFIRE)
    for unit in TEXTS.values():
        grows_linearly(WORDS[name](), unit)


def test_snippets(grows_linearly):
    analyzer = ANALYZERS["english"]()
    weights = dict.fromkeys(analyzer("a 7 00ff"), 1.0)
    for unit in TEXTS.values():
        grows_linearly(lambda content: snippet(content, weights, analyzer), unit)


@pytest.mark.parametrize("before", ["", "=====\n", "# ", "---\ntitle: 'a", "---\n"])
@pytest.mark.parametrize("reader", ["plain", "markdown", "restructured", "manual", "marked_up"])
def test_titles_of_files(before, reader, tmp_path, grows_linearly):
    def work(content):
        (tmp_path / "a").write_text(content)
        list(read_parts(tmp_path / "a", f"text:{reader}"))

    for unit in (
        "a",
        " ",
        "=",
        "a ",
        "# ",
        "'",
        "a\n",
        "---\n",
        "title: '\n",
        "<!--",
        "[",
        "*a ",
        "```\n",
        ".. \n ",
    ):
        grows_linearly(work, unit, before)


MARKUP = ["<", "<a", "<TEXT>", "</TEXT>", "<DOCNO>", "</DOCNO", "<DOCHDR>", "<TITLE>", "<!--", "&", ">"]
MARKUP += ["<DOC", "<DOC>", "</DOC>", "<top>", "</top>", "<TEXT ", " ", "\n", "<DOC>\n<DOCNO>1</DOCNO>\n"]


@pytest.mark.parametrize(
    ("before", "behind"),
    [("", ""), ("<DOC><DOCNO>1</DOCNO>", "</DOC>"), ("<DOC><DOCNO>1", ""), ("<top><num>1<title>", "</top>")],
)
def test_markup(tmp_path, before, behind, grows_linearly):
    path = tmp_path / "x.trec"

    def read(content):
        path.write_text(content)
        for reader in (lambda: list(read_documents([path])), lambda: read_queries(path)):
            try:
                reader()
            except BadData:
                continue

    for unit in MARKUP:
        grows_linearly(read, unit, before, behind)
