"""Reading and analysing take time linear in the length of a text, whatever the text is made of.

Processor time is measured, not the clock, so a busy machine changes little: eight times the text takes about
eight times as long where the time is linear, and sixty-four times where it is quadratic. Memory likewise.
"""

import time
import tracemalloc

import pytest

from rankhouse.core.errors import BadData
from rankhouse.core.nouns import Document
from rankhouse.io.corpora import read_documents, read_queries
from rankhouse.serve.folder.texts import text_document
from rankhouse.text.analyze import ANALYZERS
from rankhouse.text.snippets import snippet
from rankhouse.text.split import SPLITTERS
from rankhouse.text.words import WORDS

TIMES, MOST_GROWTH = 8, 24
SHORT = 12_000

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


def seconds(work, text):
    started = time.process_time()
    work(text)
    return time.process_time() - started


def most_memory(work, text):
    tracemalloc.start()
    try:
        work(text)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def grows_linearly(work, unit, before="", behind=""):
    """Measure again while the growth looks too large: a cache or another process may have been in the way."""
    short, long = (before + unit * (n // len(unit)) + behind for n in (SHORT, SHORT * TIMES))
    work(short[:1000])
    little, much = (most_memory(work, text) for text in (short, long))
    assert much < MOST_GROWTH * max(little, 1 << 18), (
        f"{little:,} bytes, and {much:,} for {TIMES} times the text"
    )
    for _ in range(4):
        least, most = (min(seconds(work, text) for _ in range(2)) for text in (short, long))
        growth = most / max(least, 0.002)
        if growth <= MOST_GROWTH:
            return
    pytest.fail(f"{TIMES} times the text took {growth:.0f} times as long ({least:.3f} and {most:.3f} s)")


@pytest.mark.parametrize("name", ANALYZERS)
@pytest.mark.parametrize("text", TEXTS)
def test_analysers(name, text):
    analyzer = ANALYZERS[name]()
    grows_linearly(lambda content: (analyzer(content), list(analyzer.spans(content))), TEXTS[text])


@pytest.mark.parametrize("name", SPLITTERS)
@pytest.mark.parametrize("text", TEXTS)
def test_splitters(name, text):
    pytest.importorskip("blingfire")
    split = SPLITTERS[name]()
    grows_linearly(lambda content: split(Document("d", content)), TEXTS[text])


@pytest.mark.parametrize("name", WORDS)
@pytest.mark.parametrize("text", TEXTS)
def test_word_splitters(name, text):
    pytest.importorskip("blingfire")
    grows_linearly(WORDS[name](), TEXTS[text])


@pytest.mark.parametrize("text", TEXTS)
def test_snippets(text):
    analyzer = ANALYZERS["english"]()
    weights = dict.fromkeys(analyzer("a 7 00ff"), 1.0)
    grows_linearly(lambda content: snippet(content, weights, analyzer), TEXTS[text])


@pytest.mark.parametrize("before", ["", "=====\n", "# ", "---\ntitle: 'a", "---\n"])
@pytest.mark.parametrize("unit", ["a", " ", "=", "a ", "# ", "'", "a\n", "---\n", "title: '\n"])
def test_titles_of_files(before, unit, tmp_path):
    def work(content):
        (tmp_path / "a.md").write_text(content)
        text_document(tmp_path / "a.md", "a")

    grows_linearly(work, unit, before)


MARKUP = ["<", "<a", "<TEXT>", "</TEXT>", "<DOCNO>", "</DOCNO", "<DOCHDR>", "<TITLE>", "<!--", "&", ">"]
MARKUP += ["<DOC", "<DOC>", "</DOC>", "<top>", "</top>", "<TEXT ", " ", "\n", "<DOC>\n<DOCNO>1</DOCNO>\n"]


@pytest.mark.parametrize("unit", MARKUP, ids=repr)
@pytest.mark.parametrize(
    ("before", "behind"),
    [("", ""), ("<DOC><DOCNO>1</DOCNO>", "</DOC>"), ("<DOC><DOCNO>1", ""), ("<top><num>1<title>", "</top>")],
)
def test_markup(tmp_path, unit, before, behind):
    path = tmp_path / "x.trec"

    def read(content):
        path.write_text(content)
        for reader in (lambda: list(read_documents([path])), lambda: read_queries(path)):
            try:
                reader()
            except BadData:
                continue

    grows_linearly(read, unit, before, behind)
