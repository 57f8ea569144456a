"""Texts as people read them: markup rendered, code in lines of its own, words of the question marked.

Nothing of a text is trusted: what Markdown and reStructuredText render is escaped, tags in it are left out,
pictures are their descriptions, and links lead to the web or nowhere.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, groupby
from pathlib import Path
from textwrap import dedent
from typing import Any, Final, Literal, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from rankhouse.core.nouns import Document, Marks
from rankhouse.io.files import kind_of
from rankhouse.io.readers.kinds import ENDINGS, MARKDOWN, RST
from rankhouse.serve.page.restructured import tokens_of
from rankhouse.serve.search.passages import SHOWN
from rankhouse.text.analyze import Analyzer
from rankhouse.text.snippets import windows
from rankhouse.text.words import Span

PIECE: Final = 6_000  # about how many characters of a long text are shown at a time
Form = Literal["plain", "markdown", "restructured"]
BLANK_LINE = re.compile(r"\n[ \t]*\n")
_FENCE = re.compile(r"(`{3,}|~{3,})([^\n`]*)$", re.MULTILINE)
_BEFORE_FENCE: Final = " \t>*+-0123456789.)"  # a code block may be in a list or a quotation
_BLOCK = re.compile(r"^(?:(?<=\n\n)(?=\S)|(?=[-*+] |\d+[.)] |#{1,6} ))", re.MULTILINE)  # or an item
_DEFINED = re.compile(r"^ {0,3}\[[^\[\]\n]+\]:[^\n]*$", re.MULTILINE)
_BORDER = re.compile(r"^[ \t]*\+[-=+]+\+[ \t]*\n", re.MULTILINE)  # what ends a row of a table
_NEAR: Final = 2_000  # characters before a place within which its block is expected to begin
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_TAG = re.compile(
    r"</?(?:a|b|br|center|code|dd|del|details|div|dl|dt|em|h[1-6]|hr|i|img|ins|kbd|li|ol|p|picture|pre|s|small|"
    r"source|span|strong|sub|summary|sup|table|tbody|td|th|thead|tr|u|ul)(?:\s[^<>]*)?/?>",
    re.IGNORECASE,
)  # of HTML that people write in Markdown
HERE: Final = ' class="here"'  # of the item of a list or the row of a table that was asked for
_PARTS: Final = {"list_item_open": 1, "tr_open": 2, "dt_open": 1, "dd_open": 1}  # depth in nothing else
_LINE_END = re.compile(r"\r\n?|\n")
_CODE_LINE = re.compile(r"(?: {4,}|\t|>>> |\.\.\. |\$ )\S")
_DRAWN = re.compile(r"\s*([-=_*~#+.])\1{2,}\s*")
_PROSE_LINE = re.compile(r"\s*(?:[(\"'\w][\w'’-]*[.,;:?!)\"']{0,2} {1,2}){5,}\S{1,40}\s*")


class Block(NamedTuple):
    """Lines of a text that belong together, a paragraph or code, with the question's words in them."""

    text: str
    is_code: bool = False
    marks: Marks = ()


def form_of(document: Document) -> Form:
    """Return how a document's file is written, by its name."""
    if document.id.endswith(".rst.txt"):  # as Sphinx keeps sources
        return "restructured"
    kind = ENDINGS.get(kind_of(Path(document.id)))
    return "markdown" if kind is MARKDOWN else "restructured" if kind is RST else "plain"


def extract(
    document: Document, span: Span, weights: Mapping[str, float], analyzer: Analyzer, most: int = SHOWN
) -> list[Block]:
    """Return the part of a passage with most of the question's words, for a list of results.

    ``weights`` are those of the question's terms; about ``most`` characters are shown.
    """
    start, end = span
    form = form_of(document)
    if is_rendered := form != "plain":
        start, end = _parsed_part(document.text, span, weights, analyzer)
        blocks = [*_blocks_within(document.text, start, end, form)]
    else:
        blocks = [*plain_blocks(document.text[start:end])]
    joined = "\n".join(block.text for block in blocks)
    low, high = _shown(joined, weights, analyzer, most)
    begins = accumulate((len(one.text) + 1 for one in blocks), initial=0)
    parts: list[tuple[str, bool, bool]] = []  # text, whether it is code, and whether it begins within a line
    for block, begin in zip(blocks, begins, strict=False):
        a, b = max(low - begin, 0), min(high - begin, len(block.text))
        if a < b and block.text[a:b].strip(" \t\n=+-|~"):  # more than the border of a table that is cut off
            part = block.text[a:b].strip("\n")
            before = block.text[:a] or ("" if begin or is_rendered else document.text[:start])
            within = before[-1:] not in {"", "\n"}
            if block.is_code and parts and parts[-1][1]:
                above, _, within = parts.pop()
                part = f"{above}\n{part}"
            parts.append((part, block.is_code, within))
    found: list[Block] = []
    for part, in_lines, within in parts:
        read = _to_the_left(part, within=within) if in_lines else " ".join(part.split())
        marks = tuple((x, y) for x, y, _ in analyzer.matches(read, weights))
        found.append(Block(read, in_lines, marks))
    is_within = not is_rendered and document.text[max(0, start - 3) : start].rstrip(" ")[-1:] not in ".!?:\n"
    is_cut = end < len(document.text.rstrip()) and bool(found) and found[-1].text[-1:].isalnum()
    return _with_dots(found, begins=low > 0 or is_within, ends=high < len(joined) or is_cut)


def _parsed_part(text: str, span: Span, weights: Mapping[str, float], analyzer: Analyzer) -> Span:
    """Return a passage, or that much of one that is a whole book, around most of the question's words."""
    start, end = span
    if end - start > PIECE and (found := windows(text[start:end], weights, analyzer, width=SHOWN)):
        start += max(0, found[0].start - SHOWN)
    return start, min(end, start + PIECE)


def _to_the_left(code: str, *, within: bool) -> str:
    """Take away the space before all lines, but for the first where it begins within a line."""
    first, end, rest = code.partition("\n")
    return first + end + dedent(rest) if within else dedent(code)


def _shown(text: str, weights: Mapping[str, float], analyzer: Analyzer, most: int) -> Span:
    """Return where the part to show stands in a passage."""
    if len(text) <= most * 1.3:
        return 0, len(text)
    found = windows(text, weights, analyzer, width=most * 2 // 3)
    low = found[0].start if found and found[0].end > most else 0
    if low > len(text) - most:
        low = text.find(" ", len(text) - most) + 1
    end = text.find(" ", low + most)
    return low, len(text) if end < 0 or end > low + most + 40 else end


def _with_dots(found: list[Block], *, begins: bool, ends: bool) -> list[Block]:
    """Show where text was left out."""
    if begins and found and not found[0].is_code:
        text, _, marks = found[0]
        found[0] = Block(f"… {text}", False, tuple((a + 2, b + 2) for a, b in marks))
    if ends and found and not found[-1].is_code:
        found[-1] = found[-1]._replace(text=f"{found[-1].text} …")
    return found


def plain_blocks(text: str) -> Iterator[Block]:
    """Cut a plain text into paragraphs, rows of tables, and code, which is indented or comes after a prompt.

    Lines that are drawn are left out.
    """
    for part in BLANK_LINE.split(text):
        lines = [line for line in part.split("\n") if line.strip() and not _DRAWN.fullmatch(line)]
        code = is_code(part)
        for is_row, group in groupby(lines, lambda line: not code and " | " in line):  # noqa: B023 - used at once
            if is_row:
                yield from map(Block, group)
            else:
                yield Block("\n".join(group), code)


def is_code(text: str) -> bool:
    """Return whether most lines of a text are indented, and no prose, or come after a prompt."""
    lines = [line for line in text.split("\n") if line.strip()]
    indented = bool(lines) and 2 * sum(bool(_CODE_LINE.match(line)) for line in lines) >= len(lines)
    return indented and 2 * sum(bool(_PROSE_LINE.fullmatch(line)) for line in lines) <= len(lines)


def _blocks_within(text: str, start: int, end: int, form: Form) -> Iterator[Block]:
    """Return the blocks in a part of a text; one that begins before it is whole, but for code."""
    begin, line = block_start(text, start, form), text.find("\n", end, end + SHOWN)
    end = end if line < 0 else line
    if begin == start and form == "markdown" and _fence_at(text, start) >= 0:
        yield from read_blocks(f"```\n{text[start:end]}", form)
    else:
        yield from read_blocks(text[begin:end], form, text.count("\n", begin, start), whole=text)


def read_blocks(text: str, form: Form, first: int = 0, whole: str = "") -> Iterator[Block]:
    """Return a text as people read it, without its signs; a row of a table is one block.

    Blocks that end before the line numbered ``first`` are left out, and such lines of code. The links of a
    part are named in the ``whole`` text.
    """
    row: list[str] | None = None
    for token in _parsed(text, whole, form):
        begin, end = token.map or (first, first + 1)
        if end <= first:
            continue
        if token.type == "tr_open":
            row = []
        elif token.type == "tr_close" and row:
            yield Block(" · ".join(row))
            row = None
        elif token.type in ("fence", "code_block"):
            lines = token.content.rstrip("\n").split("\n")
            yield Block("\n".join(lines[max(0, first - begin - (token.type == "fence")) :]), is_code=True)
        elif token.type in ("inline", "html_block"):
            read = "".join(map(_read, token.children or [token])).strip()
            if read and row is not None:
                row.append(read)
            elif read:
                yield Block(read)


def _read(token: Token) -> str:
    match token.type:
        case "softbreak" | "hardbreak":
            return "\n"
        case "html_inline" | "html_block":
            return without_tags(token.content)
        case "text" | "code_inline" | "image":
            return token.content
    return ""


# --- markup as a page shows it ------------------------------------------------------------------------------


class RenderedBlock(NamedTuple):
    """A part of a text: where it stands in the text, and what it looks like."""

    start: int
    end: int
    html: Markup


def rendered(
    text: str,
    form: Form = "markdown",
    *,
    links: bool = True,
    found: Span | None = None,
    mark: Callable[[str], Marks] = lambda _: (),
    whole: str = "",
) -> list[RenderedBlock]:
    """Render markup block by block; the places together are all of it, a part of ``whole``.

    Links to the web lead there only where ``links`` says so: not in a saved page. Items of lists and rows of
    tables in the part that was ``found`` have the class "here", and the words that ``mark`` finds are marked.
    """
    parser, tokens = _markdown(), _parsed(text, whole, form)
    lines = [0, *(match.end() for match in _LINE_END.finditer(text)), len(text)]
    _for_a_page(tokens, links=links)
    if found:
        _mark_found(tokens, [bisect_right(lines, at) - 1 for at in (found[0], found[1] - 1)], mark)
    blocks: list[RenderedBlock] = []
    first, start = 0, 0
    for place, token in enumerate(tokens, 1):
        if token.level or token.nesting == 1:
            continue
        last = max((one.map[1] for one in tokens[first:place] if one.map), default=0)
        html = parser.renderer.render(tokens[first:place], parser.options, {})
        end = max(start, lines[min(last, len(lines) - 1)])
        blocks.append(RenderedBlock(start, end, Markup(html)))  # noqa: S704 - the renderer escapes texts
        first, start = place, end
    if blocks:
        blocks[-1] = blocks[-1]._replace(end=len(text))
    return blocks


def _for_a_page(tokens: Sequence[Token], *, links: bool) -> None:
    """Put headings below the page's own, without a gap; show no picture, no markup, no foreign link."""
    above = 1
    for token in tokens:
        if token.type == "heading_open":
            above = min(int(token.tag[1]) + 1, above + 1, 6)
        if token.type.startswith("heading_"):
            token.tag = f"h{above}"
        for child in token.children or ():
            if child.type == "image":
                child.type, child.content = "text", child.content
            elif child.type == "html_inline":
                child.type, child.content = "text", without_tags(child.content)
            elif child.type == "link_open":
                target = str(child.attrs.get("href", ""))
                is_web = links and target.lower().startswith(("https://", "http://", "mailto:"))
                child.attrs = {"href": target, "rel": "noreferrer nofollow"} if is_web else {}
        if token.type == "html_block":
            token.type, token.tag = "inline", ""
            token.children = [Token("text", "", 0, content=without_tags(token.content).strip())]


def _mark_found(tokens: Sequence[Token], found: Sequence[int], mark: Callable[[str], Marks]) -> None:
    """Mark the items, rows and words in a part of the text; ``found`` are its first and last line."""
    here = False
    for token in tokens:
        if token.map:
            here = token.map[0] <= found[1] and token.map[1] > found[0]
        if here and token.type in _PARTS and token.level <= _PARTS[token.type]:
            token.attrSet("class", "here")
        if here and token.children:
            token.children = [part for child in token.children for part in _marked(child, mark)]


def _marked(token: Token, mark: Callable[[str], Marks]) -> Iterator[Token]:
    """Cut a text where words are to be marked."""
    if token.type != "text":
        yield token
        return
    for piece, is_marked in marked(token.content, mark(token.content)):
        yield from [Token("mark_open", "mark", 1)] * is_marked
        yield Token("text", "", 0, content=piece)
        yield from [Token("mark_close", "mark", -1)] * is_marked


def marked(text: str, marks: Marks) -> Iterator[tuple[str, bool]]:
    """Cut a text where words are to be marked."""
    last = 0
    for start, end in marks:
        if last < start:
            yield text[last:start], False
        yield text[start:end], True
        last = end
    if last < len(text):
        yield text[last:], False


def without_tags(text: str) -> str:
    """Return a text of HTML without comments and the tags that texts have; all else stays as it is."""
    return _TAG.sub("", _COMMENT.sub("", text))


def _parsed(text: str, whole: str, form: Form) -> list[Token]:
    if form == "restructured":
        return tokens_of(text, whole)
    return _markdown().parse(text, {"references": {**_links_of(whole)}})  # parsing adds to them


@lru_cache(maxsize=1)
def _markdown() -> MarkdownIt:
    return MarkdownIt("commonmark").enable("table")


@lru_cache(maxsize=4)
def _links_of(text: str) -> dict[str, Any]:
    """Return the links that a text defines, "[name]: address", which its parts refer to."""
    found: dict[str, dict[str, Any]] = {"references": {}}
    _markdown().parse("\n\n".join(match[0] for match in _DEFINED.finditer(text)), found)
    return found["references"]


# --- long texts ---------------------------------------------------------------------------------------------


def pieces(text: str, form: Form = "plain") -> list[Span]:
    """Cut a long text where paragraphs end, or else lines or words; markup not inside of code."""
    found, start = list[Span](), 0
    while len(text) - start > PIECE * 3 // 2:
        end = _piece_end(text, start, form)
        found.append((start, end))
        start = end
    return [*found, (start, len(text))]


def _piece_end(text: str, start: int, form: Form) -> int:
    least, most = start + PIECE * 3 // 4, start + PIECE * 5 // 4
    for match in BLANK_LINE.finditer(text, least, most):
        end = match.end()
        if form == "plain" or (not text[end : end + 1].isspace() and not _is_fenced(text, end, form, start)):
            return end
    if form == "restructured" and (ends := [match.end() for match in _BORDER.finditer(text, least, most)]):
        return ends[-1]
    for sign in "\n ":
        if (at := text.rfind(sign, least, most)) > 0:
            return at + 1
    return most


def block_start(text: str, at: int, form: Form) -> int:
    """Return where the block of markup, or the item of a list, begins that a place is in.

    It is the place itself where no block begins near it.
    """
    begins = [0] if at <= _NEAR else []
    begins += [match.start() for match in _BLOCK.finditer(text, max(0, at - _NEAR), at + 1)]
    return next((one for one in reversed(begins) if not _is_fenced(text, one, form)), at)


def block_end(text: str, at: int, form: Form) -> int:
    """Return where the block of markup, or the item of a list, ends that the text before a place is in."""
    ends = (match.start() for match in _BLOCK.finditer(text, at, at + _NEAR))
    return next((one for one in ends if not _is_fenced(text, one, form)), min(len(text), at + _NEAR))


def _is_fenced(text: str, at: int, form: Form, since: int = 0) -> bool:
    """Return whether a place is in a code block of Markdown; other markup indents code."""
    return form == "markdown" and _fence_at(text, at, since) >= 0


def _fence_at(text: str, at: int, since: int = 0) -> int:
    """Return where the code block begins that a place is in; -1 where it is in none."""
    opened, sign = -1, ""
    for match in _FENCE.finditer(text, since, at):
        if text[text.rfind("\n", 0, match.start()) + 1 : match.start()].strip(_BEFORE_FENCE):
            continue
        if opened < 0:
            opened, sign = match.start(), match[1]
        elif match[1].startswith(sign) and not match[2].strip():
            opened = -1
    return opened
