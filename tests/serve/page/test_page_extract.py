"""Texts as pages show them: Markdown without its signs and dangers, code in lines, long texts in pieces."""

import pytest
from tests.serve.page.conftest import CHRONICLE, GUIDE, XSS

from rankhouse.core.nouns import Document
from rankhouse.serve.page.document import code_spans
from rankhouse.serve.page.extract import (
    extract,
    is_code,
    pieces,
    plain_blocks,
    read_blocks,
    rendered,
)
from rankhouse.text.analyze import ANALYZERS

ENGLISH = ANALYZERS["english"]()


def test_rendered_blocks_are_the_whole_text_and_hold_nothing_live():
    blocks = rendered(GUIDE)
    assert "".join(GUIDE[one.start : one.end] for one in blocks) == GUIDE
    html = "".join(str(one.html) for one in blocks)
    assert "introduced_in" not in html
    assert "<h2>Lighting</h2>" in html
    assert '<a href="https://example.org/keepers" rel="noreferrer nofollow">keepers</a>' in html
    assert "<a>below</a>" in html
    assert "beacon --light\n    --bright &lt;now&gt;" in html
    assert "<th>oil</th>" in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "<img" not in html
    assert 'href="javascript' not in html
    assert "href=" not in "".join(str(one.html) for one in rendered(GUIDE, links=False))


@pytest.mark.parametrize(
    "text", ["", "a", "a\r\nb\r\n\r\n# c\n", "\u2028x\x0by\n\n- z\n  - w", "```\nopen", *XSS]
)
def test_any_text_is_rendered_whole_and_harmless(text):
    blocks = rendered(text)
    assert "".join(text[one.start : one.end] for one in blocks) == (text if blocks else "")
    html = "".join(str(one.html) for one in blocks).lower()
    for live in ("<script", "<img", "<svg", "<style", "<base", "<textarea", 'href="javascript', "<a href=//"):
        assert live not in html


@pytest.mark.parametrize("text", XSS)
def test_what_is_marked_in_a_text_is_harmless_too(text):
    for around in ("{}", "* a\n* {}\n", "| a |\n|---|\n| {} |\n"):
        source = around.format(text)
        blocks = rendered(source, found=(0, len(source)), mark=lambda words: ((0, len(words) // 2),))
        html = "".join(str(one.html) for one in blocks).lower()
        for live in ("<script", "<img", "<svg", "<style", "<base", 'href="javascript', "<a href=//"):
            assert live not in html


def test_an_extract_of_markdown_begins_with_its_block():
    """It began within links, and after a fence in a list prose was code and code was prose."""
    text = (
        "# Steps\n\n"
        + "1. [Tag the lantern](#tag)\n" * 3
        + "2. Light it:\n\n    ```sh\n    beacon --on\n    ```\n\n"
    )
    text += "Then rest.\n"
    document = Document("steps.md", text)
    [first, *_] = shown(document, text.index("lantern](#tag)\n2"), len(text))
    assert first.text == "Tag the lantern"
    blocks = shown(document, text.index("eacon --on"), len(text))
    assert [(one.text, one.is_code) for one in blocks] == [("beacon --on", True), ("Then rest.", False)]


def test_headings_leave_no_gap():
    html = "".join(str(one.html) for one in rendered("#### Deep\n\n# Top\n\n###### Deepest\n"))
    assert [html[at + 2] for at in range(len(html)) if html.startswith("<h", at)] == ["2", "2", "3"]


def test_markdown_is_read_without_its_signs_and_code_stays():
    blocks = list(read_blocks(GUIDE, "markdown"))
    assert blocks[0].text == "Lighting"
    assert blocks[1].text == "Beacons are lit by keepers, see below and here."
    assert (blocks[2].text, blocks[2].is_code) == ("beacon --light\n    --bright <now>", True)
    assert [one.text for one in plain_blocks("one\ntwo\n\n>>> f(1)\n2\n")] == ["one\ntwo", ">>> f(1)\n2"]
    assert [is_code(one) for one in (">>> f(1)\n2", "a\n    b\n    c", "one\ntwo")] == [True, True, False]
    prose = (
        "\tThe lantern has to be lit before the sun\n\tgoes down; otherwise, ships will not find the way.\n"
    )
    table = "    when   who    what\n    dusk   Anna   lights it and goes home"
    assert [is_code(one) for one in (prose, table)] == [False, True]  # indented, as in old FAQs


def shown(document, start, end, most=300):
    blocks = extract(document, (start, end), {"lantern": 1.0, "beacon": 1.0}, ENGLISH, most=most)
    for one in blocks:
        assert all(one.text[a:b].lower().startswith(("lantern", "beacon")) for a, b in one.marks)
    return blocks


def test_an_extract_is_the_stretch_with_the_words():
    document = Document("chronicle", CHRONICLE)
    at = CHRONICLE.index("A lantern")
    blocks = shown(document, at - 700, at + 600)
    text = " ".join(one.text for one in blocks)
    assert "A lantern was hung" in text
    assert len(text) < 420
    assert text.startswith("… ")
    assert text.endswith(" …")
    assert sum(len(one.marks) for one in blocks) == 1
    assert shown(document, 0, 60)[0].text.startswith("Entry 0")


def test_an_extract_that_begins_in_code_is_code():
    document = Document("guide.md", GUIDE)
    at = GUIDE.index("    --bright")
    (first, *_) = shown(document, at, len(GUIDE))
    assert (first.text, first.is_code) == ("--bright <now>", True)


def test_code_in_an_extract_stands_at_the_left_and_in_one_box():
    text = (
        "SEE\n\n        --only-this\n            Show only the lamp.\n\n        --all\n            Show all."
    )
    words, analyzer = {"show": 1.0}, ANALYZERS["english"]()
    [head, code] = extract(Document("stash.txt", text), (0, len(text)), words, analyzer)
    assert (head.text, head.is_code) == ("SEE", False)
    assert code.text == "--only-this\n    Show only the lamp.\n--all\n    Show all."
    assert [code.text[a:b] for a, b in code.marks] == ["Show", "Show"]
    start = text.index("this")
    [code] = extract(Document("stash.txt", text), (start, len(text)), words, analyzer)
    assert code.text == "this\n    Show only the lamp.\n--all\n    Show all."


def test_a_row_of_a_table_is_one_line():
    table = "# Speed\n\n| way | q/s |\n|---|---|\n| `bm25` | 4,142 |\n| | 7 |\n"
    assert [one.text for one in read_blocks(table, "markdown")] == ["Speed", "way · q/s", "bm25 · 4,142", "7"]


def test_pieces_are_the_whole_text_and_end_with_paragraphs():
    for text in (CHRONICLE, GUIDE, "", "x" * 50_000, "word " * 9_000, "line\n" * 9_000):
        parts = pieces(text)
        assert "".join(text[a:b] for a, b in parts) == text
        assert all(b - a <= 9_000 for a, b in parts)
    assert all(CHRONICLE[b - 2 : b] == "\n\n" for _, b in pieces(CHRONICLE)[:-1])


def test_pieces_of_markdown_do_not_end_in_code():
    code = "```\n" + "a = 1\n\n" * 300 + "```\n\n"
    text = ("Some words. " * 100 + "\n\n" + code) * 6
    parts = pieces(text, "markdown")
    assert len(parts) > 2
    assert all(text[a:b].count("```") % 2 == 0 for a, b in parts)


def test_links_of_a_part_are_defined_in_the_whole_text():
    """Links whose addresses stand at the end of a long text were shown as "[fork()][]"."""
    text = "See [`fork()`][] and [the guide][g].\n\nMore.\n\n[`fork()`]: #fork\n[g]: https://example.org/g\n"
    [block] = rendered(text[:38], whole=text)
    assert '<a href="https://example.org/g"' in str(block.html)
    assert "<code>fork()</code></a> and" in str(block.html)
    assert [one.text for one in read_blocks(text[:38], "markdown", whole=text)] == [
        "See fork() and the guide."
    ]
    assert "[g]" in str(rendered(text[:38])[0].html)
    noted = text.replace("[g]:", "[note]: no link at all\n[g]:")  # and what follows a line that is none
    assert '<a href="https://example.org/g"' in str(rendered(text[:38], whole=noted)[0].html)


def test_a_link_that_is_defined_twice_leads_to_the_first_address():
    """Such a text had no page, and no question that found it had an answer."""
    text = "See [g].\n\n[g]: https://example.org/1\n\n[g]: https://example.org/2\n"
    for part in (text, text[:8]):
        assert '<a href="https://example.org/1"' in str(rendered(part, whole=text)[0].html)
        assert [one.text for one in read_blocks(part, "markdown", whole=text)] == ["See g."]


def test_rows_of_a_table_are_lines():
    """The rows of a CSV file ran into each other."""
    blocks = shown(Document("log.csv", "day | pots\n1 May | 20\n2 May | 37"), 0, 34)
    assert [one.text for one in blocks] == ["day | pots", "1 May | 20", "2 May | 37"]
    mixed = plain_blocks(
        "Lines of\nprose.\nday | pots\n1 May | 20\nThe end.\n\n    cat a | wc\n    ls | wc\n"
    )
    assert [(one.text, one.is_code) for one in mixed] == [
        ("Lines of\nprose.", False), ("day | pots", False), ("1 May | 20", False), ("The end.", False),
        ("    cat a | wc\n    ls | wc", True),
    ]  # fmt: skip


def test_code_within_prose_is_shown_as_code_and_the_prose_is_not():
    """A document was shown in one font or the other, whole."""
    text = "It says:\n\n    if tide:\n        sail()\n\n    wait()\n\nAnd then no more.\n"
    found = list(code_spans(text, 0, len(text)))
    assert [(text[a:b].strip(), code) for a, b, code in found] == [
        ("It says:", False), ("if tide:\n        sail()\n\n    wait()", True), ("And then no more.", False),
    ]  # fmt: skip
    assert (found[0][0], found[-1][1]) == (0, len(text))


def test_an_extract_that_ends_within_a_sentence_says_so():
    text = (
        "The lantern is lit at dusk. It burns until the oil is gone or the keeper comes.\n\nA beacon is not."
    )
    document = Document("a.txt", text)
    assert shown(document, 0, text.index("until") + 5)[-1].text.endswith("burns until …")
    assert shown(document, 0, text.index(" It"))[-1].text.endswith("dusk.")
    assert shown(document, 0, len(text))[-1].text == "A beacon is not."
