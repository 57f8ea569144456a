"""The text of a system, read: Python's own grammar and precedence, of which few things are allowed.

Nothing is evaluated: names are looked up in the tables of models, fusions, splitters and pools, arguments are
literals. Texts come over the network too, so length, depth and numbers have bounds.
"""

from __future__ import annotations

import ast
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar, cast

from rankhouse.core import notation
from rankhouse.core.arguments import signature_of
from rankhouse.core.errors import WrongUse, did_you_mean
from rankhouse.core.notation import Spec, write_spec
from rankhouse.index.lexical.feedback import FEEDBACKS
from rankhouse.index.lexical.weighting import WEIGHTINGS
from rankhouse.io.files import wrong_kind
from rankhouse.models.families import DESIGNS, PAIRWISE, PUBLISHED, arguments_of
from rankhouse.ranking.fuse import FUSIONS, NORMALISATIONS
from rankhouse.ranking.pool import POOLS
from rankhouse.systems.stage import DEFAULT, PAIRWISE_OPTIONS, STAGE_OPTIONS, Stage, is_ranker
from rankhouse.systems.system import ENCODED, FusedSystem, Lexical, RerankedSystem, System, total
from rankhouse.text.split import SPLITTERS

T = TypeVar("T")

_MOST_TEXT: Final = 10_000
_DEEPEST: Final = 60
_NAMED: Final = 40
_SHOWN: Final = 60
"""Characters shown on either side of a fault."""
_CALL: Final = re.compile(r"\s*(?P<name>[A-Za-z_]\w*)\s*\(.*\)\s*\Z|\s*see\s*\(.*>>.*", re.DOTALL)
_LIVE: Final = re.compile(r"<(?:ranker|run) ")
_NOTATIONS: Final[dict[str, tuple[Mapping[str, Callable[..., object]], str]]] = {
    "split": (SPLITTERS, "splitter"),
    "pool": (POOLS, "pool"),
}
_FIRST: Final = {**WEIGHTINGS, **ENCODED, **FUSIONS}
_SYSTEM: Final = f"a first stage ({', '.join([*WEIGHTINGS, *ENCODED])}) or a fusion ({', '.join(FUSIONS)})"
_RANKER: Final = 'a ranker: a folder in quotes, "DIR", or crossencoder("DIR"), monot5("DIR"), default ...'
_LITERAL: Final = "a finite number, a text in quotes, True, False, None or a list"
_AFTER: Final = {">>": _RANKER, "%": "the number of documents to keep", "=": _LITERAL}
"""Signs, and what stands right of them."""


def system(text: str | System) -> System:
    """Read a system: ``bm25 % 100 >> crossencoder("DIR")``.

    >>> import rankhouse as rh
    >>> print(rh.system("bm25(b=.3,k1=1.2)+0.7*(dense('DIR')%50)>>'my-ranker'"))
    bm25(k1=1.2, b=0.3) + 0.7 * (dense("DIR") % 50) >> "my-ranker"
    >>> rh.system("bm25") + 0.7 * rh.system("ql") == rh.system("bm25 + 0.7 * ql")
    True

    Args:
        text: The expression; a system is returned as it is.

    Raises WrongUse: it cannot be read: says where, what was expected and the nearest name.
    """
    if isinstance(text, System):
        return text
    if not isinstance(text, str):
        raise wrong_kind("a system", text, 'its notation, for example "bm25 % 100"')
    return _Reader(text).read(_Reader.system)


def read_stage(text: str) -> Stage:
    """Read what stands right of ``>>``: a call, or the name of a folder; WrongUse if it is neither."""
    is_name = text.strip().isidentifier() and is_ranker(text.strip())
    if os.path.exists(text) or not (is_name or _CALL.match(text)):  # noqa: PTH110 - any text
        return Stage(text)
    return _Reader(text).read(_Reader.stage)


class _Reader:
    """One text at work; each method reads one kind of thing at a node of Python's tree."""

    def __init__(self, text: str) -> None:
        self._text = re.sub(r"\s", " ", text).strip()
        self._depth = 0

    def read(self, kind: Callable[[_Reader, ast.expr], T]) -> T:
        """Parse the text and read the whole of it as one kind of thing; WrongUse if it cannot be read."""
        text = self._text
        if len(text) > _MOST_TEXT:
            raise WrongUse(f"this system has {len(text):,} characters; {_MOST_TEXT:,} at most are read")
        if live := _LIVE.search(text):
            raise self._fault(
                live.start(), "this part stands for an object of another process; save it and name its folder"
            )
        try:
            node = notation.parsed(text)
        except SyntaxError as error:
            # Python 3.13 and newer point to the beginning of "k=".
            lacks_value = "expected argument value" in (error.msg or "")
            offset = error.end_offset if lacks_value else error.offset
            place = min((offset or len(text) + 1) - 1, len(text))
            wanted = next(
                (what for sign, what in _AFTER.items() if text[:place].rstrip().endswith(sign)), _SYSTEM
            )
            reason = f"the system cannot be read here; expected {wanted}"
            raise self._fault(place, _open_bracket(error) or reason) from None
        except (ValueError, MemoryError, RecursionError):
            raise self._fault(
                0, "the system cannot be read: nested too deep, or with characters of no text"
            ) from None
        end = self._place(node.end_col_offset)
        if "#" in text[end:]:
            raise self._fault(text.index("#", end), "a comment hides what follows it; leave it out")
        return kind(self, node)

    # --- systems

    def system(self, node: ast.expr) -> System:
        """Read a system."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._at(node, f"is nested more than {_DEEPEST} deep")
        try:
            match node:
                case ast.BinOp():
                    return self._operation(node)
                case ast.Call(func=ast.Name(id=name)):
                    return self._named(node, name, node)
                case ast.Name(id=name):
                    return self._named(node, name, None)
            raise self._at(node, f"is no system; expected {_SYSTEM}")
        finally:
            self._depth -= 1

    def _operation(self, node: ast.BinOp) -> System:
        left, right = node.left, node.right
        match node.op:
            case ast.RShift():
                stage = self.stage(right)
                match left:
                    case ast.BinOp(
                        op=ast.RShift(), left=earlier, right=ast.Call(func=ast.Name(id="see")) as see
                    ):
                        before, stage = self.system(earlier), self._seen(see, stage)
                    case _:
                        before = self.system(left)
                return self._made(left, lambda: RerankedSystem(before, stage))
            case ast.Mod():
                cut, k = self.system(left), cast(object, self._literal(right))
                return self._made(right, lambda: cut % k)
            case ast.Mult():
                weight, part = (
                    (left, right) if isinstance(left, ast.Constant | ast.UnaryOp) else (right, left)
                )
                factor, weighed = cast(object, self._literal(weight)), self.system(part)
                if isinstance(factor, bool) or not isinstance(factor, int | float):
                    raise self._at(weight, "is no weight; expected a number, like  0.7 * bm25")
                return self._made(weight, lambda: weighed * factor)
            case ast.Add():
                added = [right]
                while isinstance(left, ast.BinOp) and isinstance(left.op, ast.Add):
                    added.append(left.right)
                    left = left.left
                parts = [self.system(one) for one in (left, *reversed(added))]
                return self._made(node, lambda: total(parts))
        raise self._at(node, "joins systems by an operator that they lack; they have  >>  +  *  %")

    def _named(self, node: ast.expr, name: str, call: ast.Call | None) -> System:
        """Read a first stage or a fusion, with its arguments where it is called."""
        if name not in _FIRST:
            if is_ranker(name) or name == DEFAULT:
                raise self._at(node, f"is a ranker; put what it reads before it:  bm25 % 100 >> {name} ...")
            raise self._at(
                node, f"is not a known system{did_you_mean(name.lower(), _FIRST)}; expected {_SYSTEM}"
            )
        if name in FUSIONS:
            return self._fusion(node, name, call)
        args, kwargs = self._arguments(call)
        if name in ENCODED:
            return self._encoded(node, name, call)
        self._check_names(call, kwargs, [*signature_of(WEIGHTINGS[name]).parameters, "feedback"])
        feedback = self._notation(kwargs.pop("feedback", None), FEEDBACKS, "feedback")
        spec = write_spec(name, [self._literal(one) for one in args], self._literals(kwargs))
        return self._made(node, lambda: Lexical(spec, feedback))

    def _encoded(self, node: ast.expr, name: str, call: ast.Call | None) -> System:
        args, kwargs = self._arguments(call)
        if "ranker" in kwargs or not args:
            family = "biencoder" if name == "dense" else name
            raise self._at(node, f'is written  {name}(RANKER), the ranker being "DIR" or  {family}("DIR")')
        self._check_names(call, kwargs, [*signature_of(ENCODED[name]).parameters][1:])
        stage = self.stage(args[0])
        if stage != Stage(stage.ranker):
            raise self._at(args[0], "is an encoder, which takes no split, pool, depth and the like")
        named, rest = self._literals(kwargs), [self._literal(one) for one in args[1:]]
        spec = Spec(name, (stage.ranker, *rest), named)
        return self._made(node, lambda: notation.make(spec, ENCODED, "model"))

    def _fusion(self, node: ast.expr, name: str, call: ast.Call | None) -> System:
        args, kwargs = self._arguments(call)
        parts = tuple(self.system(one) for one in args)
        if "normalise" in kwargs:
            kwargs = {"norm": kwargs.pop("normalise")} | kwargs
        known = [*signature_of(FUSIONS[name]).parameters, "weights"]
        self._check_names(call, kwargs, ["norm" if one == "normalise" else one for one in known])
        if len(parts) < 2:
            raise self._at(node, f"fuses two systems or more, like  {name}(bm25, ql)")
        named = self._literals(kwargs)
        weights: Any = named.pop("weights", None)
        if weights is not None and not _are_numbers(weights):
            raise self._at(
                kwargs["weights"], "is no list of weights; expected a number per system, like [0.3, 0.7]"
            )
        if "norm" in named:
            named["normalise"] = norm = cast(str, named.pop("norm"))  # choose refuses what is none
            self._made(kwargs["norm"], lambda: notation.choose(norm, NORMALISATIONS, "normalisation"))
        method = write_spec(name, (), named)
        shares = None if weights is None else tuple(weights)
        return self._made(node, lambda: FusedSystem(method, parts, shares))

    # --- rankers

    def stage(self, node: ast.expr) -> Stage:
        """Read a ranker with the options of its stage."""
        match node:
            case ast.Constant(value=str(text)) if text.strip() and self._literal(node):
                called = _CALL.match(text)
                is_call = called is not None and (called["name"] is None or is_ranker(called["name"]))
                return self._made(node, lambda: read_stage(text) if is_call else Stage(text))
            case ast.BinOp(ast.Call(func=ast.Name(id="see")) as see, ast.RShift(), right):
                return self._seen(see, self.stage(right))
            case ast.Call(func=ast.Name(id="see")) | ast.Name(id="see"):
                raise self._at(node, 'is followed by a ranker:  see(keep=0.5) >> crossencoder("DIR")')
            case ast.Name(id=name) if name in _FIRST:
                raise self._at(node, f"is a first stage or fusion; expected {_RANKER}")
            case ast.Name(id=name) if not is_ranker(name) or os.path.exists(name):  # noqa: PTH110
                return Stage(name)
            case ast.Name(id=name):
                raise self._at(node, f'is a kind of ranker; expected  {name}("DIR"), or a folder "./{name}"')
            case ast.Call(func=ast.Name(id=name)):
                return self._called_ranker(node, name)
        raise self._at(node, f"is no ranker; expected {_RANKER}")

    def _seen(self, call: ast.Call, stage: Stage) -> Stage:
        """Read the share of documents that a ranker reads, before the ranker."""
        args, kwargs = self._arguments(call)
        given = [*args, *(kwargs[key] for key in kwargs if key == "keep")]
        if len(given) != 1 or len(kwargs) > 1 - len(args) or stage.see != 1:
            raise self._at(call, "is written once before a ranker, as  see(keep=0.5) >> crossencoder(...)")
        return self._made(call, lambda: replace(stage, see=self._literal(given[0])))

    def _called_ranker(self, node: ast.Call, name: str) -> Stage:
        if name in DESIGNS:
            raise self._at(node, 'is a ranker still to be trained; train it, and name its folder: >> "DIR"')
        if not is_ranker(name):
            near = did_you_mean(name.lower(), (*PUBLISHED, *PAIRWISE, "open"))
            raise self._at(node, f'"{name}" is not a known ranker{near}; expected {_RANKER}')
        args, kwargs = self._arguments(node)
        options: dict[str, Any] = {key: kwargs.pop(key) for key in STAGE_OPTIONS if key in kwargs}
        for key, one in options.items():
            table = _NOTATIONS.get(key)
            options[key] = self._literal(one) if table is None else self._notation(one, *table)
        if name == "open":
            self._check_names(node, kwargs, STAGE_OPTIONS)
            if len(args) != 1:
                raise self._at(node, 'is written  open("DIR", depth=50, ...)')
            inner = self.stage(args[0])
            return self._made(node, lambda: replace(inner, **options))
        if (own := arguments_of(name)) is not None:
            others = PAIRWISE_OPTIONS if name in PAIRWISE else ()
            self._check_names(node, kwargs, [*own.parameters, *others, *STAGE_OPTIONS])
        named = {key: self._ranker_argument(key, one) for key, one in kwargs.items()}
        ranker = write_spec(name, [self._literal(one) for one in args], named)
        return self._made(node, lambda: Stage(ranker, **options))

    def _ranker_argument(self, key: str, node: ast.expr) -> object:
        """Read an argument of a ranker's own: a literal, or for duot5 the ranker that chooses passages."""
        if key == "passages" and isinstance(node, ast.Call):
            return self.stage(node).text(notation.as_given)
        return self._literal(node)

    # --- arguments

    def _arguments(self, call: ast.Call | None) -> tuple[list[ast.expr], dict[str, ast.expr]]:
        if call is None:
            return [], {}
        named = {one.arg: one.value for one in call.keywords if one.arg is not None}
        if len(named) < len(call.keywords) or any(isinstance(one, ast.Starred) for one in call.args):
            raise self._at(call, "has arguments with a star; expected them one by one")
        return list(call.args), named

    def _check_names(
        self, call: ast.Call | None, given: Mapping[str, ast.expr], known: Iterable[str]
    ) -> None:
        """Refuse the first named argument that a call does not take, at its place."""
        names = [one.removesuffix("_") for one in known]
        for one in call.keywords if call else ():
            if one.arg in given and (key := (one.arg or "").removesuffix("_")) not in names:
                near, takes = did_you_mean(key, names), ", ".join(names) or "none"
                place = self._place(one.col_offset)
                raise self._fault(place, f'there is no option "{_visible(key)}"{near}; known: {takes}')

    def _notation(self, node: ast.expr | None, table: Mapping[str, Callable[..., object]], what: str) -> str:
        """Read a notation as an argument, with or without quotes; return it written in one way."""
        match node:
            case None:
                return ""
            case ast.Constant(value=str(text)):
                spec = self._made(node, lambda: notation.parse(text)) if text else Spec("")
            case ast.Name(id=name):
                spec = Spec(name)
            case ast.Call(func=ast.Name(id=name)):
                args, kwargs = self._arguments(node)
                if name in table:
                    self._check_names(node, kwargs, signature_of(table[name]).parameters)
                spec = Spec(name, tuple(self._literal(one) for one in args), self._literals(kwargs))
            case _:
                raise self._at(node, f"is no {what}; choose from: {', '.join(sorted(table))}")
        if spec.name:
            self._made(node, lambda: notation.make(spec, table, what))
        return write_spec(*spec)

    def _literals(self, nodes: Mapping[str, ast.expr]) -> dict[str, object]:
        return {key: self._literal(one) for key, one in nodes.items()}

    def _literal(self, node: ast.expr) -> Any:  # noqa: ANN401 - whatever a literal can be
        """Read a number, text, truth value, None, or a list of them."""
        try:
            value = ast.literal_eval(node)
            if _is_plain(value):
                return value
        except (ValueError, TypeError, MemoryError, RecursionError):
            pass
        hint = f'; a text is written "{node.id}"' if isinstance(node, ast.Name) else ""
        raise self._at(node, f"is no literal; expected {_LITERAL}{hint}")

    # --- faults

    def _made(self, node: ast.expr, make: Callable[[], T]) -> T:
        """Return what a function makes; an error is raised with the place."""
        try:
            return make()
        except WrongUse as error:
            if "\n" in str(error):  # has its place already
                raise
            raise self._fault(self._place(node.col_offset), str(error)) from None

    def _at(self, node: ast.expr, reason: str) -> WrongUse:
        shown = ast.get_source_segment(self._text, node) or ""
        shown = shown if len(shown) <= _NAMED else f"{shown[:_NAMED]} ..."
        return self._fault(self._place(node.col_offset), f"{_visible(shown)}: {reason}")

    def _place(self, offset: int | None) -> int:
        """Return the character at an offset of Python's tree, which counts bytes."""
        return len(self._text.encode()[:offset].decode())

    def _fault(self, place: int, reason: str) -> WrongUse:
        """Return the error with the text around the place, and a caret below it."""
        text = _visible(self._text)
        start = max(0, place - _SHOWN)
        lead, tail = "... " * (start > 0), " ..." * (place + _SHOWN < len(text))
        line = f"{lead}{text[start : place + _SHOWN]}{tail}"
        return WrongUse(f"{reason}\n  {line}\n  {' ' * (len(lead) + place - start)}^")


def _open_bracket(error: SyntaxError) -> str:
    found = re.match(r"'(.)' was never closed", error.msg or "")
    return f'the system cannot be read: this "{found[1]}" is never closed' if found else ""


def _visible(text: str) -> str:
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)


def _are_numbers(value: object) -> bool:
    return isinstance(value, list | tuple) and all(
        isinstance(one, int | float) and not isinstance(one, bool) for one in value
    )


def _is_plain(value: object) -> bool:
    """Return whether a literal is one that a notation may hold; numbers are finite and of 64 bits."""
    match value:
        case bool() | None:
            return True
        case str():
            return "\0" not in value
        case int():
            return abs(value) < 2**63
        case float():
            return math.isfinite(value)
        case list() | tuple():
            return all(map(_is_plain, value))
    return False
