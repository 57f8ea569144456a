"""reStructuredText as the tokens that Markdown is parsed into, so that one renderer shows both.

docutils parses, in a way that is safe for any text: nothing is included, fetched or run, no role or directive
is defined, messages of the parser are left out. Titles make no sections, as a part of a text may begin within
one; their levels are those of the whole text. Directives and roles of Sphinx, and unknown ones, are shown by
what they hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from copy import copy
from functools import lru_cache
from typing import Any, Final, NamedTuple

from docutils import frontend, nodes, utils
from docutils.parsers.rst import Parser, states
from docutils.parsers.rst.directives import unicode_code
from markdown_it.token import Token

_LINE_END = re.compile(r"\r\n?|\n")
_UNKNOWN = str.maketrans(dict.fromkeys("\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029", " ") | {"\x00": "\ufffd"})
"""Characters that docutils takes for the end of a line or an escape, and other readers do not."""
_TITLE = re.compile(r"^(?:([^\w\s])\1{2,}\n)?[^\s].*\n([^\w\s])\2{2,}[ \t]*$", re.MULTILINE)
_TARGET = re.compile(r"^[ \t]*\.\. _(?!_)(`[^`\n]+`|[^:\n]+): +(\S+)[ \t]*$", re.MULTILINE)
_REPLACED = re.compile(r"^[ \t]*\.\. \|([^|\n]+)\|[ \t]+(replace|unicode)::[ \t]+(.*)$", re.MULTILINE)
_DEFINES = re.compile(r"\.\. +\|[^|\n]+\|")
_MOST_SIGNS: Final = 300
_LONGEST_LINE: Final = 5_000
_LONG_WORD = re.compile(r"\S{1000}")
_DIRECTIVE = re.compile(r"\s*(?:\.\. +)?([\w.:+-]+?) ?::(?: +|$)(.*)")
_OPTION = re.compile(r"\s*:[\w-]+:")
_WITH_TARGET = re.compile(r"(\S.*?)\s<.+>", re.DOTALL)
_OF_DOCUTILS: Final = ("table", "list-table", "csv-table", "parsed-literal", "replace", "unicode")
_CODE: Final = frozenset(
    """
    code code-block sourcecode doctest testcode testsetup testoutput productionlist prompt math raw ipython
    console plot graphviz digraph mermaid ditaa
    """.split()  # noqa: SIM905 - read more easily
)
_HIDDEN: Final = frozenset(
    """
    index highlight default-role role contents sectnum meta include literalinclude rst-class tabularcolumns
    currentmodule py:currentmodule default-domain target-notes header footer title date
    """.split()  # noqa: SIM905 - read more easily
)
_OBJECTS: Final = frozenset(
    """
    function class method attribute data option command envvar module
    """.split()  # noqa: SIM905 - read more easily
)
"""Directives that describe what they name, beside those of a domain ("c:function")."""
_LABELS: Final = {
    "versionadded": "Added in version", "versionchanged": "Changed in version",
    "versionremoved": "Removed in version", "deprecated": "Deprecated since version", "seealso": "See also",
    **{name: name.capitalize() for name in
       ("note", "warning", "tip", "hint", "important", "caution", "danger", "attention", "error", "todo")},
}  # fmt: skip
_NAMES: Final = frozenset(
    """
    ref doc term numref abbr guilabel menuselection download any index
    """.split()  # noqa: SIM905 - read more easily
)
"""Roles whose text is a name or a title, no code."""
_KNOWN_ROLES: Final = frozenset(
    """
    emphasis strong literal subscript sub superscript sup title-reference title t math code
    """.split()  # noqa: SIM905 - read more easily
)
_TAGS: Final[Mapping[type[nodes.Node], str]] = {
    nodes.paragraph: "p", nodes.bullet_list: "ul", nodes.enumerated_list: "ol", nodes.list_item: "li",
    nodes.definition_list: "dl", nodes.definition: "dd", nodes.term: "dt", nodes.field_list: "dl",
    nodes.field_name: "dt", nodes.field_body: "dd", nodes.option_list: "dl", nodes.option_group: "dt",
    nodes.description: "dd", nodes.block_quote: "blockquote", nodes.attribution: "p", nodes.line: "p",
    nodes.table: "table", nodes.thead: "thead", nodes.tbody: "tbody", nodes.row: "tr", nodes.caption: "p",
    nodes.rubric: "p",
}  # fmt: skip
_INLINE_TAGS: Final[Mapping[type[nodes.Node], str]] = {
    nodes.emphasis: "em", nodes.strong: "strong", nodes.title_reference: "em", nodes.subscript: "sub",
    nodes.superscript: "sup",
}  # fmt: skip
_UNSEEN: Final = (
    nodes.comment, nodes.target, nodes.substitution_definition, nodes.pending, nodes.raw, nodes.label,
    nodes.colspec, nodes.classifier, nodes.meta,
)  # fmt: skip


class Names(NamedTuple):
    """Definitions of a text for all of its parts: links, replacements, and the adornments of its titles."""

    links: Mapping[str, str]
    replaced: Mapping[str, str]
    levels: Mapping[str, int]


@lru_cache(maxsize=4)
def names_of(text: str) -> Names:
    """Return what the parts of a text refer to."""
    found = [(match[1] or "") + match[2] for match in _TITLE.finditer(text)]
    links = {_name(match[1].strip("`")): match[2] for match in _TARGET.finditer(text)}
    replaced = {_name(match[1]): _replacement(match) for match in _REPLACED.finditer(text)}
    return Names(links, replaced, {style: at for at, style in enumerate(dict.fromkeys(found), 1)})


def _replacement(match: re.Match[str]) -> str:
    """Return what stands for a name: of "unicode" signs by their numbers, without the comment."""
    if match[2] == "replace":
        return match[3].strip()
    with suppress(ValueError, OverflowError):
        return "".join(map(unicode_code, match[3].partition(".. ")[0].split()))
    return match[3].strip()


def _name(text: str) -> str:
    return " ".join(text.split()).lower()


def tokens_of(text: str, whole: str = "") -> list[Token]:
    """Return the tokens of a part of a ``whole`` text; one paragraph where the parser fails."""
    lines = [line.translate(_UNKNOWN) for line in _LINE_END.split(text)]
    try:
        return _Tokens(_parsed("\n".join(lines)), names_of(whole or text), len(lines)).found
    except Exception:  # noqa: BLE001 - a parser of other people on a stranger's text: it is shown as it is
        return [*_around("p", [_inline([_text(text)], (0, len(lines)))], (0, len(lines)), 0)]


def _parsed(text: str) -> nodes.document:
    if max(map(len, text.split("\n"))) > _LONGEST_LINE:
        raise ValueError(f"lines of at most {_LONGEST_LINE:,} characters are parsed")
    document = utils.new_document("text", copy(_settings()))
    parser = Parser(inliner=_Inliner())
    parser.state_classes = _STATES
    parser.parse(text, document)
    return document


@lru_cache(maxsize=1)
def _settings() -> Any:  # noqa: ANN401 - docutils' own namespace of settings
    settings = frontend.get_default_settings(Parser)  # reads no file of settings
    vars(settings).update({
        "file_insertion_enabled": False, "raw_enabled": False, "report_level": 5, "halt_level": 5,
        "warning_stream": False, "syntax_highlight": "none", "smart_quotes": False,
    })  # fmt: skip
    return settings


_Inside = tuple[list[Any], list[Any]]
"""Nodes of the inside of a paragraph, and the messages of the parser."""


def _interpreted(inliner: Any, rawsource: str, text: str, role: str, lineno: int) -> _Inside:  # noqa: ANN401
    """Return what is shown of a text with a role; a role that docutils does not know by what it holds."""
    if not role or role.lower() in _KNOWN_ROLES:
        known: _Inside = states.Inliner.interpreted(inliner, rawsource, text, role=role, lineno=lineno)
        return known
    shown = nodes.unescape(text).lstrip("!")
    if shown.endswith(">") and (titled := _WITH_TARGET.fullmatch(shown)):
        shown = titled[1].rstrip()
    elif shown.startswith("~"):
        shown = shown[1:].rpartition(".")[2]
    kind = nodes.inline if role.lower().rpartition(":")[2] in _NAMES else nodes.literal
    return [kind(rawsource, shown)], []


def _inlined(inliner: Any, text: str, *where: Any) -> _Inside:  # noqa: ANN401
    """Parse the inside of a paragraph.

    One of very many signs, or with a very long word, takes the square of the time, and stays as it is.
    """
    if sum(map(text.count, "`*|")) > _MOST_SIGNS or _LONG_WORD.search(text):
        return [nodes.Text(text)], []
    parsed: _Inside = states.Inliner.parse(inliner, text, *where)
    return parsed


_OWN: Final = {name: held for name, held in vars(states.Inliner).items() if isinstance(held, str)}
_Inliner: Final[Any] = type(
    "_Inliner", (states.Inliner,), {**_OWN, "interpreted": _interpreted, "parse": _inlined}
)
"""Its patterns are made of what stands in the class itself."""


class _Flat:
    """A state of the parser: titles make no sections, directives are shown by what they hold."""

    nested_sm_cache: list[Any] = []  # noqa: RUF012 - of the parser, which keeps its machines there

    def __init__(self, state_machine: Any, debug: bool = False) -> None:  # noqa: ANN401
        super().__init__(state_machine, debug)  # type: ignore[call-arg]
        self.nested_sm_kwargs = {"state_classes": _STATES, "initial_state": "Body"}

    def section(self, title: str, source: str, style: Any, lineno: int, messages: Any) -> None:  # noqa: ANN401, ARG002
        heading = nodes.title(title, "", *self.inline_text(title, lineno)[0])  # type: ignore[attr-defined]
        heading["style"], heading.line = "".join(style), lineno - 1
        self.parent += heading  # type: ignore[attr-defined]

    def run_directive(self, directive: Any, match: Any, type_name: str, option_presets: Any) -> Any:  # noqa: ANN401
        if type_name in _OF_DOCUTILS:
            return super().run_directive(directive, match, type_name, option_presets)  # type: ignore[misc]
        return self.unknown_directive(type_name)

    def unknown_directive(self, type_name: str) -> tuple[list[nodes.Node], bool]:
        machine, name = self.state_machine, type_name.lower()  # type: ignore[attr-defined]
        at = machine.abs_line_number()
        block, *_, is_end = machine.get_first_known_indented(0, strip_indent=False)
        first, label = _DIRECTIVE.match(block[0]), _LABELS.get(name, "")
        begin = next((n for n in range(1, len(block)) if not block[n].strip()), len(block))
        is_alone = label.endswith("version") or (label and first and not first[2])
        if name in _CODE or is_alone:  # its content may follow at once
            begin = next((n for n in range(1, begin) if not _OPTION.match(block[n])), begin)
        lines = [first[2] if first else block[0], *block[1:begin]]
        content = block[begin:]
        content.trim_left(min((len(one) - len(one.lstrip()) for one in content if one.strip()), default=0))
        arguments = " ".join(line.strip() for line in lines if not _OPTION.match(line)).strip()
        return [*self._held(name, arguments, content, at)], is_end

    def _held(self, name: str, argument: str, content: Any, at: int) -> Iterator[nodes.Node]:  # noqa: ANN401
        """Yield what is shown of a directive that stands at a line, with its arguments and content."""
        lines = [line for line in content if line.strip()]
        if name in _HIDDEN:
            return
        if name in _CODE:
            text = "\n".join(content).strip("\n") or ("" if name == "raw" else argument)
            code = nodes.literal_block(text, text)
            code.line = content.offset(0) + 1 if lines else at
            yield from [code] * bool(text)
            return
        heading = nodes.paragraph()
        heading.line = at
        label = _LABELS.get(name, "")
        if label.endswith("version"):
            heading += nodes.strong("", f"{label} {argument}")
        elif ":" in name or name in _OBJECTS:
            heading += nodes.literal("", argument)
        elif name not in ("image", "figure"):
            words = self.inline_text(argument, at)[0] if argument else []  # type: ignore[attr-defined]
            heading += [*[nodes.strong("", f"{label}: " if words else label)] * bool(label), *words]
        yield from [heading] * bool(heading.astext().strip())
        if lines:
            body = nodes.block_quote()
            self.nested_parse(content, content.offset(0), body)  # type: ignore[attr-defined]
            yield from [body] if heading.children else body.children


_STATES: Final = tuple(type(state.__name__, (_Flat, state), {}) for state in states.state_classes)


class _Tokens:
    """The tokens of a parsed text of ``n_lines`` lines."""

    def __init__(self, document: nodes.document, names: Names, n_lines: int) -> None:
        self._names, self._n_lines, self._line = names, n_lines, 0
        self.found = [token for node in document.children for token in self._block(node, 0)]
        begin = n_lines
        for token in reversed(self.found):  # a block ends where the next one begins
            if token.map and token.nesting != 1:
                token.map, begin = [token.map[0], max(begin, token.map[0] + 1)], token.map[0]
            elif token.map:
                begin = token.map[0]
        self._close()

    def _close(self) -> None:
        """Let containers reach from their first to their last line."""
        opened: list[Token] = []
        last = 0
        for token in self.found:
            if token.nesting == 1:
                opened.append(token)
            elif token.nesting == -1:
                begun = opened.pop()
                if begun.map:
                    begun.map = [begun.map[0], max(last, begun.map[0] + 1)]
            elif token.map:
                last = token.map[1]

    def _at(self, node: nodes.Node) -> tuple[int, int]:
        """Return the first line of a block, which is not before the one above it, and the next."""
        self._line = max(self._line, min((node.line or 0) - 1, self._n_lines - 1))
        return self._line, self._line + 1

    def _block(self, node: nodes.Node, level: int) -> Iterator[Token]:
        """Yield the tokens of a block."""
        if isinstance(node, (*_UNSEEN, nodes.system_message)):  # the lines of these are not in order
            yield from self._not_understood(node, level)
            return
        at = self._at(node)
        match node:
            case nodes.Text() | nodes.Inline():
                yield from _around("p", [_inline([*self._words(node)], at)], at, level)
            case nodes.literal_block() | nodes.doctest_block() | nodes.math_block():
                code = f"{node.astext().rstrip()}\n"
                yield Token("code_block", "", 0, map=[*at], content=code, block=True, level=level)
            case nodes.transition():
                yield Token("hr", "hr", 0, map=[*at], block=True, level=level)
            case nodes.title() if "style" in node:
                tag = f"h{min(6, self._names.levels.get(str(node['style']), 1))}"
                yield from _around(tag, [self._inline_of(node, at)], at, level, kind="heading")
            case nodes.option_group():
                yield from _around("dt", [_inline([_code(node.astext())], at)], at, level)
            case nodes.line_block():
                yield from _around("p", [_inline([*self._lines(node)], at)], at, level)
            case nodes.TextElement():
                yield from _around(_TAGS.get(type(node), "p"), [self._inline_of(node, at)], at, level)
            case nodes.Element():
                yield from self._container(node, level)

    def _not_understood(self, node: nodes.Node, level: int) -> Iterator[Token]:
        """Yield what stands as code in a message of the parser."""
        for one in node.children if isinstance(node, nodes.system_message) else ():
            if isinstance(one, nodes.literal_block) and not _DEFINES.match(one.astext()):
                one.line = one.line or node.line
                yield from self._block(one, level)

    def _container(self, node: nodes.Element, level: int) -> Iterator[Token]:
        """Yield the tokens of what holds blocks; a paragraph alone in an item or a cell is its text."""
        tag, body = _TAGS.get(type(node), ""), [one for one in node.children if not isinstance(one, _UNSEEN)]
        if isinstance(node, nodes.entry):
            tag = "th" if isinstance(node.parent.parent, nodes.thead) else "td"
        if tag in ("li", "dd", "td", "th") and len(body) == 1 and isinstance(body[0], nodes.paragraph):
            inside = [self._inline_of(body[0], self._at(body[0]))]
        else:
            inside = [token for one in body for token in self._block(one, level + bool(tag))]
        if not tag:
            yield from inside
            return
        line = inside[0].map[0] if inside and inside[0].map else self._line
        opening, *rest = _around(tag, inside, (line, line + 1), level)
        for name, held, more in (
            ("start", "start", 0),
            ("colspan", "morecols", 1),
            ("rowspan", "morerows", 1),
        ):
            if held in node:
                opening.attrSet(name, str(int(node[held]) + more))
        yield from (opening, *rest)

    def _lines(self, node: nodes.Node) -> Iterator[Token]:
        for one in node.children:
            yield from self._lines(one) if isinstance(one, nodes.line_block) else self._words(one)
            if isinstance(one, nodes.line):
                yield Token("hardbreak", "br", 0)

    def _inline_of(self, node: nodes.Node, at: tuple[int, int]) -> Token:
        return _inline([token for one in node.children for token in self._words(one)], at)

    def _words(self, node: nodes.Node) -> Iterator[Token]:
        """Yield the tokens of what stands within a line."""
        match node:
            case nodes.Text():
                for number, line in enumerate(str(node).split("\n")):
                    yield from [Token("softbreak", "br", 0)] * bool(number)
                    yield _text(line)
            case nodes.literal() | nodes.math():
                yield _code(node.astext())
            case nodes.substitution_reference():
                yield _text(self._names.replaced.get(_name(node.astext()), node.astext()))
            case nodes.footnote_reference() | nodes.citation_reference():
                yield _text(f"[{node.astext() or '#'}]")
            case nodes.image():
                yield _text(str(node.get("alt", "")))
            case nodes.system_message() | nodes.raw():
                return
            case nodes.reference():
                named = self._names.links.get(_name(str(node.get("refname", ""))), "")
                target = str(node.get("refuri") or named)
                yield Token("link_open", "a", 1, attrs={"href": target})
                yield from (token for one in node.children for token in self._words(one))
                yield Token("link_close", "a", -1)
            case _:
                tag = _INLINE_TAGS.get(type(node), "")
                yield from [Token(f"{tag}_open", tag, 1)] * bool(tag)
                yield from (token for one in node.children for token in self._words(one))
                yield from [Token(f"{tag}_close", tag, -1)] * bool(tag)


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)


def _code(content: str) -> Token:
    return Token("code_inline", "code", 0, content=content)


def _inline(words: list[Token], at: tuple[int, int]) -> Token:
    content = "".join(word.content for word in words)
    return Token("inline", "", 0, map=list(at), children=words, content=content, block=True)


def _around(tag: str, held: list[Token], at: tuple[int, int], level: int, kind: str = "") -> Iterator[Token]:
    """Yield what stands in an element."""
    kind = kind or {"li": "list_item", "p": "paragraph"}.get(tag, tag)
    yield Token(f"{kind}_open", tag, 1, map=list(at), block=True, level=level)
    for token in held:
        if token.type == "inline":
            token.level = level + 1
        yield token
    yield Token(f"{kind}_close", tag, -1, block=True, level=level)
