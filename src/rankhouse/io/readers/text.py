"""Text, Markdown, reStructuredText, manual pages, source code, notebooks: their titles and what is text."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from pathlib import Path
from textwrap import shorten
from typing import Any
from unicodedata import normalize

import msgspec

from rankhouse.core.errors import BadData
from rankhouse.io.decoding import from_json
from rankhouse.io.files import kind_of, read_whole
from rankhouse.io.readers.parts import LONGEST_TITLE, FilePart, Piece, file_title, joined, squeezed

_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_front_matter = re.compile(r"---[ \t]*\n(?P<fields>(?:.*\n){0,200}?)(?:---|\.\.\.)[ \t]*(?:\n|$)")
_title_field = re.compile(r"^title:[ \t]*(?P<title>\S.*)$", re.MULTILINE)
# Fields at the head of a text, as of a message: "Author: ...", a value may go on in indented lines.
_fields = re.compile(r"(?:[A-Za-z][\w-]{0,40}:(?:[ \t][^\n]*)?\n(?:[ \t]+\S[^\n]*\n)*){2,60}(?=[ \t]*\n)")
_titling_field = re.compile(
    r"^(?:title|subject):[ \t]*(?P<title>\S[^\n]*(?:\n[ \t]+\S[^\n]*)*)", re.MULTILINE | re.IGNORECASE
)
_comment = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_fence = re.compile(r"^(?P<mark>```+|~~~+).*?(?:^(?P=mark)|\Z)", re.DOTALL | re.MULTILINE)
_heading = re.compile(r"^#{1,6}[ \t]+(?P<title>.*?)[ \t]*#*[ \t]*$", re.MULTILINE)
_html_heading = re.compile(r"^[ \t]*<h1\b[^<>]*>(?P<title>.{1,400}?)</h1>[ \t]*$", re.DOTALL | re.MULTILINE)
_link = re.compile(r"!?\[(?P<shown>[^\[\]]*)\](?:\([^()]*\)|\[[^\[\]]*\])")
_emphasis = re.compile(r"(?<!\w)(\*\*|__|\*|_|`+)(?P<inner>\S(?:.*?\S)?)\1(?!\w)")
_tag = re.compile(r"<[A-Za-z/!][^<>]*>")
# A first line with a line of one sign below it, in reStructuredText perhaps above it as well.
_underlined = re.compile(
    r"(?:([=\-~^\"'`*+#])\1{2,}[ \t]*\n)?(?=[^\n]{0,300}\w)(?P<title>[^\n]{1,300})\n"
    r"([=\-~^\"'`*+#])\3{2,}[ \t]*(?:\n|$)"
)
# A comment, directive or target of reStructuredText with what is indented below it; a field of a page's list.
_explicit = re.compile(
    r"(?:\.\.(?:[ \t][^\n]*)?(?:\n[ \t]+[^\n]*|\n(?=\s*\n[ \t]))*|:[\w -]+:[^\n]*)(?:\n\s*|$)"
)
_rst_comment = re.compile(r"^\.\.[ \t]+(?!\[|_|\||[\w:+-]+::)[^\n]*(?:\n[ \t]+[^\n]*)*\n?", re.MULTILINE)
_role = re.compile(r":[\w:+.-]{1,60}:`(?P<inner>[^`<]*)(?:<[^`]*>)?`|``(?P<literal>[^`]+)``")
_overstruck = re.compile(r"(?<!_)_+\x08+|[^\n]\x08")  # before a letter: an underlined or a bold one
_sentence_end = re.compile(r"[^\W\d_]{3}[.?!] +[A-Z]")
_SCRIPTS = (".js", ".mjs", ".cjs", ".css")
_PACKED = 1_000  # characters of its lines on average, more than people write
_LEAST_PACKED = 4_000  # characters: a sentence or a poem in a script may be one line
_WRAPPED = 50
"""Characters of a line, from which prose is wrapped."""


def decoded(raw: bytes, path: Path) -> str:
    """Decode UTF-8, UTF-16 with its mark, or else Windows' western letters."""
    coding = _MARKS.get(raw[:2], "utf-8")
    if coding == "utf-8" and b"\0" in raw:
        raise BadData("is no text: it holds zero bytes", path)
    try:
        text = raw.decode(coding)
    except UnicodeDecodeError:
        text = raw.decode("cp1252", "replace")
    return _overstruck.sub("", text.replace("\r\n", "\n")).strip()


def plain(path: Path) -> Iterator[FilePart]:
    """Read a text: its title is its first line where that looks like one."""
    yield _titled(decoded(read_whole(path), path))


def _titled(text: str) -> FilePart:
    """Take a first line for the title where it stands apart, or stands above longer lines.

    Where fields stand at the head, it is the one that says so.
    """
    if (fields := _fields.match(text)) and (field := _titling_field.search(fields[0])):
        return FilePart(text, squeezed(field["title"]))
    if match := _underlined.match(text):
        title = match["title"].strip()
        return FilePart(text[match.end() :].strip() or title, title)
    first, _, rest = text.partition("\n")
    below, first = rest.partition("\n")[0].strip(), first.strip()
    goes_on = _sentence_end.search(first) or (len(first) > _WRAPPED and below[:1].islower())
    looks_like_one = (
        len(first) <= LONGEST_TITLE
        and (first[:1].isupper() or first[:1].isdigit() or (first[:1].isalpha() and not first.isascii()))
        and not first.endswith((",", ";", ".", "{", "\\"))
        and sum(map(str.isalpha, first)) > len(first) / 2
        and (not below or (len(below) > len(first) and not goes_on))
    )
    return FilePart(rest.strip(), first) if looks_like_one and rest.strip() else FilePart(text)


def markdown(path: Path) -> Iterator[FilePart]:
    """Read Markdown: its title is that of its front matter, else its first heading."""
    text, title = decoded(read_whole(path), path), ""
    if front := _front_matter.match(text):
        text = text[front.end() :]
        if match := _title_field.search(front["fields"]):
            title = _unquoted(match["title"].strip())
    text = _comment.sub("", text).strip()
    if title:
        yield FilePart(text, title)
    elif match := _underlined.match(text):
        yield _without(text, match)
    else:
        start = _fence.sub(lambda code: "\n".ljust(len(code[0]) - 1) + "\n", text[:4_000])
        found = [match for heading in (_heading, _html_heading) if (match := heading.search(start))]
        first = min(found, key=re.Match.start, default=None)
        yield _titled(text) if first is None else _without(text, first)


def _without(text: str, heading: re.Match[str]) -> FilePart:
    """Return a text without its heading, which is its title."""
    title = inline(heading["title"])
    rest = (text[: heading.start()] + text[heading.end() :]).strip()
    return FilePart(rest or title, title)


def inline(text: str) -> str:
    """Return a line of Markdown without links, emphasis and tags."""
    text = _link.sub(lambda link: link["shown"], _link.sub(lambda link: link["shown"], text))
    return squeezed(html.unescape(_tag.sub("", _emphasis.sub(lambda marked: marked["inner"], text))))


def _unquoted(title: str) -> str:
    """Return a field of front matter without the quotes around it."""
    return title[1:-1] if len(title) > 2 and title[0] == title[-1] in "\"'" else title


def restructured(path: Path) -> Iterator[FilePart]:
    """Read reStructuredText: comments are no text, directives and fields above the heading no title."""
    text = _rst_comment.sub("", decoded(read_whole(path), path)).strip()
    at = 0
    while match := _explicit.match(text, at):
        at = match.end()
    if heading := _underlined.match(text, at):
        title = squeezed(_role.sub(lambda role: role["inner"] or role["literal"] or "", heading["title"]))
        rest = f"{text[:at].strip()}\n{text[heading.end() :].strip()}".strip()
        yield FilePart(rest or title, title)
    else:
        part = _titled(text[at:].strip())
        yield FilePart(f"{text[:at].strip()}\n{part.text}".strip(), part.title)


def source(path: Path) -> Iterator[FilePart]:
    """Read source code, settings and the like: called as the file is, with its ending.

    Scripts and styles that programs packed into few lines, indexes of search pages above all, are no text of
    people: such an index is near to every question.
    """
    text = decoded(read_whole(path), path)
    width = len(text) // (1 + text.count("\n") + text.count("\r"))
    if kind_of(path) in _SCRIPTS and width > _PACKED and len(text) > _LEAST_PACKED:
        raise BadData(f"is generated or minified ({width:,} characters a line)", path)
    yield FilePart(text, file_title(path, keep_ending=True))


def marked_up(path: Path) -> Iterator[FilePart]:
    """Read XML: what stands between its tags."""
    text = _comment.sub("", decoded(read_whole(path), path))
    behind = text.rfind(">") + 1  # further on, no "<" needs to look for its end
    blocks = re.sub(r"<[^<>]*>", "\n", text[:behind]) + text[behind:]
    lines = (squeezed(html.unescape(line)) for line in blocks.split("\n"))
    yield FilePart("\n".join(filter(None, lines)), file_title(path, keep_ending=True))


# --- manual pages ------------------------------------------------------------------------------------------

_roff_escape = re.compile(
    r"(\\\\)|\\(?:f(?:\[[^]\\]*\]|\(..|.)|s[+-]?\d+|[&|^/,:c%{}du]|m\[[^]\\]*\]|[bDhHlLNoRSvwxXZ]'[^']{0,999}')"
)
_roff_signs = {
    r"\-": "-", r"\(bu": "•", r"\(co": "©", r"\(em": "—", r"\(en": "–", r"\e": "\\", "\\\\": "\\",
    r"\.": ".", r"\~": " ", r"\ ": " ", r"\(lq": "“", r"\(rq": "”", r"\*(lq": "“", r"\*(rq": "”",
    r"\(oq": "‘", r"\(cq": "’", r"\(aq": "'", r"\(dq": '"', r"\*(Aq": "'", r"\(ss": "ß", r"\(ae": "æ",
    r"\(AE": "Æ", r"\(/o": "ø", r"\(oa": "å",
}  # fmt: skip
_roff_accents = {":": "\u0308", "'": "\u0301", "`": "\u0300", "^": "\u0302", "~": "\u0303", ",": "\u0327"}
_roff_accent = re.compile(r"\\(?:\(|\[)(?P<accent>[:'`^~,])(?P<letter>[A-Za-z])\]?")
_roff_sign = re.compile("|".join(map(re.escape, sorted(_roff_signs, key=len, reverse=True))))
_LONGEST_NAME = 400  # characters of the name line, which may list all that a page is about
# Requests whose arguments are settings, not text; those that begin a line; from where lines stay, to where.
_ROFF_SET = frozenset(
    """
TH Dd Dt Os de ds nr if ie el ig so ft nh ad hy ta ll ne ps rm rr tr de1 am als PD IX Bd Sm ss mso LINKSTYLE
""".split()  # noqa: SIM905 - read more easily
)
_ROFF_BREAKS = frozenset("TP TQ HP RS RE Bl sp br ti in".split())  # noqa: SIM905 - read more easily
_ROFF_AS_IT_IS, _ROFF_AGAIN = {"nf", "EX", "TS"}, {"fi", "EE", "TE", "Ed", "SH", "SS", "Sh", "Ss"}
_ROFF_MACROS = {"ig": 0, "de": 1, "de1": 1, "am": 1}  # not shown, up to the macro that this argument names
# Requests of mdoc(7) that are called in the arguments of others as well: ".Op Fl a Ar rounds".
_ROFF_CALLED = frozenset(
    """
Ac Ad An Ao Ap Aq Ar At Bc Bo Bq Brc Bro Brq Bsx Bx Cd Cm Dc Do Dq Dv Em En Er Ev Fa Fc Fl Fn Fo Ft Ic It
Li Lk Ms Mt Nm No Ns Nx Oc Oo Op Ox Pa Pc Pf Po Pq Qc Ql Qo Qq Sc So Sq Sx Sy Ta Tn Ux Va Vt Xc Xo Xr
""".split()  # noqa: SIM905 - read more easily
)
_ROFF_FONTS = frozenset({"BI", "BR", "IB", "IR", "RB", "RI"})  # of words without space between them
_ROFF_INLINE = {"", "B", "I", "R", "SM", "SB", "UR", "UE", "MT", "ME", "URL", "MTO"}
_ROFF_INLINE |= (_ROFF_CALLED - {"It"}) | _ROFF_FONTS
_on_paper = re.compile(r"[.'][ \t]*(?:el|i[ef][ \t]+t)\b[^{]*\\\{")
_name_line = re.compile(r"^\S.{0,80}? [-–—] ")
_request = re.compile(r"[ \t]*(\w*)[ \t]*(.*)")
_roff_word = re.compile(r'"(?P<quoted>(?:[^"]|"")*)"|(?:\\ |\S)+')
_roff_page = re.compile(r"\bXr (\S+) (\d\w*)")
_table_separator, _table_block = re.compile(r"\btab ?\((.)\)"), re.compile(r"^T\}|T\{$")
_before_stop = re.compile(r" (?=[,.;:?!)\]]+(?: |$))")


def manual(path: Path) -> Iterator[FilePart]:
    """Read a manual page: the title is its name line, "ls - list directory contents".

    That is the first section, whatever it is called in the page's language.
    """
    lines, named, headings = list[str](), list[str](), list[str]()
    for request, given in _filled(_requests(decoded(read_whole(path), path))):
        if request in {"SH", "Sh"}:
            if headings:
                lines.append("")
            headings.append(given)
        if len(headings) != 1:
            if given or (lines and lines[-1]):
                lines.append(given)
        elif given and request not in {"SH", "Sh"}:
            named.append(f"- {given}" if request == "Nd" else given)
    title = shorten(whole := " ".join(named), _LONGEST_NAME, placeholder=" …")
    if title.endswith("…"):
        lines = [whole, *lines]  # all of it is found
    if headings and headings[0].upper() != "NAME" and not _name_line.search(title):
        title, lines = "", [headings[0], *named, *lines]
    yield FilePart("\n".join(lines).strip() or title, title)


def _filled(requests: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Join the lines that roff fills, text and words in other fonts; examples and tags of lists stay."""
    held, fills, is_tag = list[str](), True, False
    for request, given in chain(requests, [("br", "")]):
        fills = request in _ROFF_AGAIN or (fills and request not in _ROFF_AS_IT_IS)
        if fills and not is_tag and given and request in _ROFF_INLINE:
            held.append(given)
            continue
        if held:
            yield "", _before_stop.sub("", " ".join(held))
            held.clear()
        if request not in _ROFF_BREAKS:
            yield request, given
        is_tag = request in {"TP", "TQ"} or (is_tag and not given)


def _requests(text: str) -> Iterator[tuple[str, str]]:
    """Yield the lines of a manual page as requests, "" for plain text, and what they show.

    What begins a line of its own, and shows nothing, is "br".
    """
    end, is_synopsis, name = "", False, ""
    for line in "\n".join(_without_layout(_on_terminal(text))).replace("\\c\n", " ").split("\n"):
        if end:
            end = "" if line.startswith((".", "'")) and line[1:].lstrip().startswith(end) else end
        elif line.startswith((".", "'")) and not line.startswith("..."):
            request, given = _request.findall(line[1:])[0]
            if request in _ROFF_MACROS:
                end = " ".join(given.partition('\\"')[0].split()[_ROFF_MACROS[request] :][:1]) or "."
            if request == "Bd" and re.search("-(?:literal|unfilled)", given):
                yield "nf", ""
            if request in _ROFF_BREAKS or (request == "Nm" and is_synopsis):
                yield request if request != "Nm" else "br", ""
            if request and request not in _ROFF_SET and request not in _ROFF_BREAKS:
                shown = _shown(request, given)
                if request == "Nm":
                    shown, name = shown or name, name or shown
                is_synopsis = shown == "SYNOPSIS" if request == "Sh" else is_synopsis
                yield request, shown
        else:
            if line.startswith((" ", "\t")):
                yield "br", ""
            yield "", _unescaped(line)


def _shown(request: str, given: str) -> str:
    """Return what a request shows of its arguments."""
    if request in _ROFF_CALLED:
        given = _roff_page.sub(r"\1(\2)", f"{request} {given}")
    words = [match["quoted"] or match[0].strip('"') for match in _roff_word.finditer(given)]
    if request in _ROFF_CALLED:
        words = list(_without_calls(words))
    return _unescaped(("" if request in _ROFF_FONTS else " ").join(words[:1] if request == "IP" else words))


def _without_calls(words: list[str]) -> Iterator[str]:
    """Yield the words of a line of mdoc(7) that are no requests; one behind ``Fl`` has a hyphen."""
    for before, word in pairwise(["", *words]):
        if word not in _ROFF_CALLED:
            yield f"-{word}" if before == "Fl" else word


def _on_terminal(text: str) -> Iterator[str]:
    """Yield the lines that a terminal shows: of two forms, one is for paper (``.el``, ``.if t``)."""
    depth = 0
    for line in text.split("\n"):
        if depth or _on_paper.match(line):
            depth += line.count("\\{") - line.count("\\}")
        elif line.strip() != ".\\}":
            yield line


def _without_layout(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines without what only lays out tables, by tbl(1): options, formats, rules, signs of blocks."""
    is_format, separator, is_block = False, "", False
    for line in lines:
        if line.startswith((".TS", ".T&")):
            is_format, separator, is_block = True, separator or "\t", False
        if line.startswith(".TE"):
            is_format, separator = False, ""
        if not separator or line.startswith((".TS", ".TE")):
            yield line
        elif is_format:
            named = _table_separator.search(line)
            is_format = not line.partition('\\"')[0].rstrip().endswith(".")
            separator = named[1] if named else separator
        elif line.startswith((".", "'")) or (is_block and not line.startswith("T}")):
            yield line
        else:
            is_block = line.rstrip().endswith("T{")
            if line.strip() not in {"_", "=", "T{", "T}"}:
                cells = (_table_block.sub("", cell.strip()).strip() for cell in line.split(separator))
                yield " | ".join(filter(None, cells))


def _unescaped(line: str) -> str:
    shown = _roff_escape.sub(r"\1", line.partition('\\"')[0])
    shown = _roff_accent.sub(
        lambda one: normalize("NFC", one["letter"] + _roff_accents[one["accent"]]), shown
    )
    plain = _roff_sign.sub(lambda sign: _roff_signs[sign[0]], shown)
    return re.sub(r"\\\*?(?:\(..|\[[^]\\]*\])|\\\*.", "", plain).strip()


_LEAST = 80  # words of a part


class _Cell(msgspec.Struct):
    cell_type: str = ""
    source: str | list[str] = ""
    input: str | list[str] = ""  # what the third format calls the source of code

    @property
    def text(self) -> str:
        source = self.source or self.input
        return (source if isinstance(source, str) else "".join(source)).strip()


class _Worksheet(msgspec.Struct):
    cells: list[_Cell] = []


class _Notebook(_Worksheet):
    metadata: dict[str, Any] = {}
    worksheets: list[_Worksheet] = []  # of the third format


_decoder = msgspec.json.Decoder(_Notebook)


def notebook(path: Path) -> Iterator[FilePart]:
    """Read a notebook: neighbouring cells are a part, a heading begins a new one.

    What a cell printed is no text of the person's, and left out.
    """
    read = from_json(_decoder, read_whole(path), "not a notebook in JSON; save it again", path)
    cells = read.cells or [cell for sheet in read.worksheets for cell in sheet.cells]
    pieces = [Piece(number, cell.text) for number, cell in enumerate(cells, 1) if cell.text]
    if not pieces:
        raise BadData("holds no text", path)
    headed = [cell.text for cell in cells if cell.cell_type in {"markdown", "heading"}]
    lines = (line for text in headed for line in text.split("\n") if line.startswith("#"))
    named = read.metadata.get("title")
    title = named if isinstance(named, str) and named else inline(next(lines, "").lstrip("# "))
    for part in joined(pieces, "cell", least=_LEAST):
        yield msgspec.structs.replace(part, title=title)
