"""Reading rules: ``judged("qrels.txt") & (taught("teacher", threshold=0.5) | ~ranked("bm25.run", 10))``.

Names and arguments are those of :mod:`rankhouse.core.notation`; between them stand ``&``, ``|``, ``~`` and
parentheses, which bind as in Python. The whole text is checked before the first file is opened.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import NoReturn

from rankhouse.core.errors import WrongUse
from rankhouse.core.notation import ONE_PARSER, choose, escaped, make, parse
from rankhouse.core.nouns import Ranker
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Run
from rankhouse.io.trec import read_qrels, read_run
from rankhouse.labels.leaf_rules import judged, ranked, taught
from rankhouse.labels.rules import And, Not, Or, Rule
from rankhouse.labels.thresholds import read_threshold


def _no_rankers(name: str) -> NoReturn:
    raise WrongUse(f'taught("{name}"): no function opens rankers; pass one as Openers(ranker=...)')


@dataclass(frozen=True)
class Openers:
    """Functions that open what a rule names.

    Attributes:
        qrels: For ``judged``; reads a TREC file.
        run: For ``ranked``; reads a TREC file.
        ranker: For ``taught``; has to be given, since labels know no models.
    """

    qrels: Callable[[str], Qrels] = field(default=read_qrels)
    run: Callable[[str], Run] = field(default=read_run)
    ranker: Callable[[str], Ranker] = field(default=_no_rankers)


def rules(openers: Openers) -> dict[str, Callable[..., Rule]]:
    """Return the table of names: what each name in a rule makes. What is named twice is opened once."""
    open_qrels, open_run, open_ranker = cache(openers.qrels), cache(openers.run), cache(openers.ranker)

    def make_judged(qrels: str, at_least: int = 1, by: str = "document") -> Rule:
        return judged(open_qrels(_named("judged", qrels)), at_least, by, qrels)

    def make_taught(
        ranker: str, threshold: float | str = 0.5, scale: str = "", best: int | None = None
    ) -> Rule:
        least = read_threshold(threshold) if isinstance(threshold, str) else threshold
        return taught(open_ranker(_named("taught", ranker)), least, scale, ranker, best=best)

    def make_ranked(run: str, k: int) -> Rule:
        return ranked(open_run(_named("ranked", run)), k, run)

    return {"judged": make_judged, "taught": make_taught, "ranked": make_ranked}


def _named(rule: str, name: object) -> str:
    if not isinstance(name, str):
        raise WrongUse(f'{rule}({name!r}): the first argument is a name in quotes, like {rule}("{name}")')
    return name


def read(text: str, openers: Openers | None = None) -> Rule:
    """Read a rule.

    Raises:
        WrongUse: A syntax error or an unknown name, with its place; arguments a rule does not take.
        RankhouseError: What a name stands for cannot be opened.
    """
    text = escaped(text.replace("\n", " ").strip())
    table = rules(openers or Openers())
    root = _tree(text)
    for leaf in _leaves(root, text):
        _check(leaf, text, table)
    return _build(root, text, table)


def _tree(text: str) -> ast.expr:
    if not text:
        raise WrongUse(
            'the rule is empty; write one like  judged("qrels.txt") & taught("DIR", threshold=0.5)'
        )
    try:
        with ONE_PARSER:
            return ast.parse(text, mode="eval").body
    except SyntaxError as error:
        # Where something is missing at the end, the parser points behind it, or at a line that is not there.
        column = error.offset - 1 if error.offset and error.lineno == 1 else len(text)
        raise _marked(text, column, f"the rule cannot be read here ({error.msg})") from None
    except (ValueError, MemoryError, RecursionError) as error:
        raise WrongUse(
            f"the rule cannot be read ({error or 'it is nested too deeply'}): {text[:200]}"
        ) from None


def _leaves(node: ast.expr, text: str) -> Iterator[ast.expr]:
    """Return the names and calls of an expression; anything but & | ~ between them is refused."""
    match node:
        case ast.BinOp(left, ast.BitAnd() | ast.BitOr(), right):
            yield from _leaves(left, text)
            yield from _leaves(right, text)
        case ast.UnaryOp(ast.Invert(), operand):
            yield from _leaves(operand, text)
        case ast.Name() | ast.Call(ast.Name()):
            yield node
        case ast.BoolOp() | ast.UnaryOp(ast.Not()):
            raise _marked(
                text, _column(node, text), "rules are joined with & | ~, not with and, or, not; from here"
            )
        case _:
            what = (
                "a rule is made of judged(...), taught(...), ranked(...), joined with & | ~ and parentheses; "
                "this is something else"
            )
            raise _marked(text, _column(node, text), what)


def _check(leaf: ast.expr, text: str, table: dict[str, Callable[..., Rule]]) -> None:
    """Refuse an unknown name or wrong arguments before anything is opened."""
    try:
        spec = parse(ast.get_source_segment(text, leaf) or "")
        factory = choose(spec.name, table, "rule")
        signature = inspect.signature(factory)
        try:
            signature.bind(*spec.args, **spec.kwargs)
        except TypeError as error:
            bare = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
            accepted = f"{spec.name}{inspect.Signature(bare)}"
            raise WrongUse(f'"{spec}": {error}; accepted: {accepted}') from None
    except WrongUse as error:
        raise _marked(text, _column(leaf, text), str(error)) from None


def _build(node: ast.expr, text: str, table: dict[str, Callable[..., Rule]]) -> Rule:
    match node:
        case ast.BinOp(left, ast.BitAnd(), right):
            return And(_build(left, text, table), _build(right, text, table))
        case ast.BinOp(left, _, right):
            return Or(_build(left, text, table), _build(right, text, table))
        case ast.UnaryOp(_, operand):
            return Not(_build(operand, text, table))
    try:
        return make(ast.get_source_segment(text, node) or "", table, "rule")
    except WrongUse as error:
        raise _marked(text, _column(node, text), str(error)) from error


def _column(node: ast.expr, text: str) -> int:
    """Count the characters before a node; the parser counts bytes."""
    return len(text.encode()[: node.col_offset].decode())


def _marked(text: str, column: int, reason: str) -> WrongUse:
    return WrongUse(f"{reason} (character {column + 1}):\n  {text}\n  {' ' * column}^")
