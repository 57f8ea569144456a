"""reStructuredText as pages show it: rendered as Markdown is, without the parser's messages, harmless."""

import re

import pytest
from tests.serve.page.conftest import XSS
from tests.test_linear import lines

from rankhouse.core.nouns import Document
from rankhouse.serve.engine.waiting import ENDLESS, Deadline
from rankhouse.serve.page.document import sections
from rankhouse.serve.page.extract import extract, form_of, pieces, read_blocks, rendered
from rankhouse.serve.page.restructured import tokens_of
from rankhouse.text.analyze import ANALYZERS

GUIDE = """\
.. include:: /etc/passwd
.. highlight:: sh

========
Lighting
========

Beacons are *lit* by `keepers`_, see :ref:`below <hours>`, :func:`~lamp.burn` and |oil|.

.. _keepers: https://example.org/keepers
.. |oil| replace:: whale oil

.. code-block:: sh
   :linenos:

   beacon --light
       --bright <now>

.. note:: Nobody else
   lights them.

.. versionadded:: 3.2

.. c:function:: int burn(lamp *one)

   Burns a lamp.

Hours
-----

#. Dusk
#. Dawn

   and the fog

======  =====
oil     hours
======  =====
whale   9
seal    7
======  =====

lamp
    What burns.

:Keeper: Anna

.. raw:: html

   <script>alert(1)</script>

.. image:: javascript:alert(1)
   :alt: x

.. csv-table::
   :file: /etc/passwd

`y <javascript:alert(1)>`_ and an unclosed ``literal
"""


def html_of(text, **asked):
    return "".join(str(one.html) for one in rendered(text, "restructured", **asked))


def test_what_people_write_is_rendered():
    html = html_of(GUIDE)
    for part in (
        "<h2>Lighting</h2>", "<h3>Hours</h3>", "<em>lit</em>",
        '<a href="https://example.org/keepers" rel="noreferrer nofollow">keepers</a>',
        "see below, <code>burn</code> and whale oil.",
        "<pre><code>beacon --light\n    --bright &lt;now&gt;\n</code></pre>",
        "<strong>Note: </strong>Nobody else lights them.", "<strong>Added in version 3.2</strong>",
        "<p><code>int burn(lamp *one)</code></p>\n<blockquote>\n<p>Burns a lamp.</p>", "<li>Dusk</li>",
        "<th>oil</th>", "<td>whale</td>", "<dt>lamp</dt>\n<dd>What burns.</dd>",
        "<dt>Keeper</dt>\n<dd>Anna</dd>",
        "&lt;script&gt;alert(1)&lt;/script&gt;", "<a>y</a>", "``literal",
    ):  # fmt: skip
        assert part in html, part
    assert "<li>\n<p>Dawn</p>\n<p>and the fog</p>\n</li>" in html


def test_nothing_is_included_and_no_message_of_the_parser_is_shown():
    html = html_of(GUIDE)
    for absent in ("root:", "system-message", "Unknown", "WARNING", "ERROR", "problematic", "linenos", "<img",
                   'href="javascript'):  # fmt: skip
        assert absent not in html
    assert "href=" not in html_of(GUIDE, links=False)
    odd = "Title\n=====\n\n:no-such:`x`, *open, |none| [1]_ none_\n\n+--+\n| a\n\n"
    odd += ".. no-such:: a\n   :b: c\n\n   d\n"
    html = html_of(odd)
    for part in (
        "<h2>Title</h2>",
        "<code>x</code>, *open, none [1] ",
        "| a",
        "<p>a</p>\n<blockquote>\n<p>d</p>",
    ):
        assert part in html
    assert "Unknown" not in html


def test_what_is_defined_is_not_shown_and_stands_for_its_name():
    """Pictures of a project's state were shown as code, and signs as their numbers."""
    text = """\
|state| |c| 2001 |TM|

.. |state| image:: https://example.org/state.svg
   :target: https://example.org/
.. |c| unicode:: 0xA9 .. copyright sign
.. |TM| unicode:: U+2122
   :trim:

Text.
"""
    assert html_of(text) == "<p>state © 2001 ™</p>\n<p>Text.</p>\n"


def test_messages_of_the_parser_do_not_move_blocks():
    """A link named twice is told before its paragraph, with the line of the paragraph's last."""
    text = "See `a <https://a.org/1>`_.\n\nLong words\nand more of them, see\nthis `a <https://a.org/2>`_.\n"
    blocks = rendered(text, "restructured")
    assert [text[one.start : one.end].strip()[:10] for one in blocks] == ["See `a <ht", "Long words"]


def test_a_file_is_told_by_its_name():
    names = ("a/b.rst", "B.REST.gz", "c.rst.txt", "d.md", "e.txt", "rst")
    assert [form_of(Document(one, "")) for one in names] == [
        "restructured", "restructured", "restructured", "markdown", "plain", "plain",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text", ["", "a", "a\r\nb\r\n\r\nc\n=\n", "\u2028x\x0by\n\n- z\n\n  - w", "::\n\n  open", "\x00", *XSS]
)
def test_any_text_is_rendered_whole_and_harmless(text):
    for around in (
        "{}",
        "* a\n\n* {}\n",
        "{}\n====\n",
        ".. a:: {}\n\n   {}\n",
        ":r:`{}`",
        "`{} <{}>`_",
        ".. raw:: html\n\n   {}",
    ):
        source = around.replace("{}", text)
        blocks = rendered(
            source, "restructured", found=(0, len(source)), mark=lambda words: ((0, len(words) // 2),)
        )
        assert "".join(source[one.start : one.end] for one in blocks) == (source if blocks else "")
        html = "".join(str(one.html) for one in blocks).lower()
        for live in (
            "<script",
            "<img",
            "<svg",
            "<style",
            "<base",
            "<textarea",
            'href="javascript',
            "<a href=//",
        ):
            assert live not in html


def test_blocks_stand_where_their_text_does():
    blocks = rendered(GUIDE, "restructured")
    assert "".join(GUIDE[one.start : one.end] for one in blocks) == GUIDE
    places = {
        word: next(one for one in blocks if f">{word}" in str(one.html))
        for word in ("Lighting", "Hours", "Dusk", "oil")
    }
    for word, block in places.items():
        assert word in GUIDE[block.start : block.end]


def test_a_part_of_a_text_knows_the_links_and_levels_of_the_whole():
    at = GUIDE.index("Hours\n---")
    assert "<h2>Hours</h2>" in html_of(GUIDE[at:], whole=GUIDE)  # one below the page's own, without a gap
    part = GUIDE[GUIDE.index("Beacons are") : GUIDE.index(".. _keepers")]
    assert '<a href="https://example.org/keepers"' in html_of(part, whole=GUIDE)
    titles = "A\n=\n\na\n\nB\n-\n\nb\n\nC\n~\n\nc\n\nD\n-\n\nd\n"
    assert "<h2>C</h2>" in (html := html_of(titles[titles.index("C\n~") :], whole=titles))
    assert "<h2>D</h2>" in html


def test_items_rows_and_words_of_a_passage_are_marked():
    start = GUIDE.index("Dawn")
    html = html_of(
        GUIDE, found=(start, start + 4), mark=lambda text: ((0, 4),) if text.startswith("Dawn") else ()
    )
    assert '<li class="here">\n<p><mark>Dawn</mark></p>' in html
    start = GUIDE.index("seal")
    html = html_of(GUIDE, found=(start, start + 4))
    assert html.count('class="here"') == 1
    assert '<tr class="here">\n<td>seal</td>' in html
    start = GUIDE.index("What burns")
    assert '<dd class="here">What burns.</dd>' in html_of(GUIDE, found=(start, start + 4))


def test_a_document_is_shown_in_sections():
    document = Document("guide.rst", GUIDE)
    start = GUIDE.index("Burns a lamp")
    shown = list(sections(document, (0, len(GUIDE)), (start, start + 5)))
    assert [one.is_here for one in shown].count(True) == 1
    assert all(one.html for one in shown)


@pytest.mark.parametrize(
    ("name", "text"), [("a.rst", "- *a* b\n" * 5_000), ("a.md", "# a\n[b](c)\n" * 12_000)]
)
def test_what_takes_too_long_to_render_is_shown_as_it_was_written(name, text):
    """A hostile file of 400 kB took 49 seconds as "whole text"; each part is looked at by the clock now."""
    document, seen = Document(name, text), (0, len(text))
    late = list(
        sections(
            document, seen, (len(text) - 9, len(text)), until=Deadline.after(0), mark=lambda _: ((0, 1),)
        )
    )
    assert "".join(one.text for one in late) == text
    assert all(one.is_code and not one.html for one in late)
    assert [one.is_here for one in late].index(True) == len(late) - 1
    assert late[-1].marks == ((0, 1),)

    class OfThreeParts:
        parts = 0

        @property
        def passed(self):
            self.parts += 1
            return self.parts > 3

    both = list(sections(document, seen, None, until=OfThreeParts()))
    assert both[0].html
    assert [one.is_code for one in both] == sorted(one.is_code for one in both), "rendered, then the rest"
    assert not both[-1].html
    assert both[-1].text == late[-1].text
    timely = list(sections(document, seen, None, until=ENDLESS))
    assert all(one.html for one in timely)


def test_links_of_a_long_text_are_its_own():
    """What one text defines is remembered for its parts, and must not be known in another."""
    for text, linked in (("[a]\n\n[a]: https://a.org", True), ("[a]", False)):
        for whole in (text, ""):
            assert ("https://a.org" in str(rendered(text, whole=whole)[0].html)) == linked


def test_an_extract_is_read_without_its_signs():
    analyzer, start = ANALYZERS["english"](), GUIDE.index("Beacons")
    blocks = extract(Document("guide.rst", GUIDE), (start, GUIDE.index("Hours")), {"beacon": 1.0}, analyzer)
    assert blocks[0].text == "Beacons are lit by keepers, see below, burn and whale oil."
    assert (blocks[1].text, blocks[1].is_code) == ("beacon --light\n    --bright <now>", True)
    assert [blocks[0].text[a:b] for a, b in blocks[0].marks] == ["Beacons"]
    assert [one.text for one in read_blocks("=== ===\na   b\n=== ===\n1   2\n=== ===\n", "restructured")] == [
        "a · b",
        "1 · 2",
    ]


def test_of_a_long_passage_only_a_part_is_parsed():
    """A list without full stops is one sentence; of 40,000 characters it took 2.6 seconds."""
    rows = "- aa\n" * 2_000
    text = f"{rows}\nA foghorn sounds.\n\n{rows}"

    def extracted(text):
        return extract(Document("a.rst", text), (0, len(text)), {"foghorn": 1.0}, ANALYZERS["english"]())

    [block] = [one for one in extracted(text) if one.marks]
    assert [block.text[a:b] for a, b in block.marks] == ["foghorn"]
    short = text[len(rows) - 2_000 : len(rows) + 3_000]
    assert lines(extracted, text) < 3 * lines(extracted, short)


def test_a_long_table_is_cut_between_rows():
    """Cut elsewhere it was shown as code, which was said to stand in its last line."""
    rule = f"+{'':-<42}+{'':-<42}+\n"
    text = rule + "".join(
        f"| {n!s:40} | {n!s:40} |\n" + f"| {'':40} | {'':40} |\n" * 4 + rule for n in range(40)
    )
    parts = pieces(text, "restructured")
    assert len(parts) > 1
    for start, end in parts:
        assert text[:end].endswith("-+\n")
        for one in rendered(text[start:end], "restructured", whole=text):
            assert "<pre>" not in one.html
            first = re.search(r"<td>(\d+)|^<p>(\d+)", str(one.html))
            assert f"| {first[1] or first[2]} " in text[start + one.start : start + one.end]


def test_pieces_do_not_end_in_code():
    text = ("Some words. " * 100 + "\n\n::\n\n" + "  a = 1\n\n" * 300 + "\n") * 6
    parts = pieces(text, "restructured")
    assert len(parts) > 2
    assert all(not text[a].isspace() for a, _ in parts)
    assert any(text[a : a + 4] == "Some" for a, _ in parts[1:])
    ruled = "Title\n~~~~~\n\n" + "Some words and more of them.\n\n" * 900
    assert len(pieces(ruled, "restructured")) > 2  # an underline is no fence


HOSTILE = {
    "tables": "+---+---+\n| a | b |\n", "options": "-a  b\n", "quotes": "::\n\n> a\n\n",
    "bombs": ".. |a| replace:: |b||b|\n.. |b| replace:: |a||a|\n\n|a|\n\n",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_take_a_time_that_is_bounded(name):
    few, many = ((HOSTILE[name] * size)[:size] for size in (250, 2_000))
    assert tokens_of(many)
    assert lines(tokens_of, many) < 12 * lines(tokens_of, few) + 20_000


@pytest.mark.parametrize("start", ["`<", "``a ", "*a ", "|a ", ":a:`", "`a\n*b\n|c\n"])
def test_a_paragraph_of_very_many_signs_stays_as_it_is(start):
    """Signs that open and never close took the square of their number, nine seconds for a page."""
    text = start * 3_000
    assert "".join(one.content or "\n" for one in tokens_of(text)[1].children).strip() == text.strip()


@pytest.mark.parametrize("word", ["a-", "-", "a:", "a/", "a'"])
def test_a_very_long_word_is_no_address(word):
    """Looking for an address in it took the square of its length: 1.3 seconds for a line."""
    text = f"*a* {word * 1_000}"
    assert [one.type for one in tokens_of(text)[1].children] == ["text"]
    assert [one.type for one in tokens_of(f"*a* {word * 50}")[1].children][:3] == [
        "em_open",
        "text",
        "em_close",
    ]


def test_very_deep_and_very_long_texts_are_shown_as_they_are():
    deep = "".join(f"{'  ' * depth}* a\n\n" for depth in range(300))
    for text in (deep, "word " * 4_000, "- " * 2_000 + "a"):
        html = html_of(text)
        assert html.count("a" if text is deep else "word" if "word" in text else "-") >= 300


def test_the_border_of_a_table_that_is_cut_off_is_not_shown():
    table = "=====  =====\nhorn   depth\n=====  =====\nnorth  4 m\n=====  =====\n"
    text = f"Ask the keeper for the foghorn.\n\n{table}"
    span = 0, text.index("=====") + 3
    blocks = extract(Document("a.rst", text), span, {"foghorn": 1.0}, ANALYZERS["english"]())
    assert [block.text.strip(" …") for block in blocks] == ["Ask the keeper for the foghorn."]
