"""The measures' notation, ir_measures' own: ``AP``, ``P@30``, ``nDCG(gains={1: 1, 2: 3})@10``.

Reads it, says what can be computed on this machine, and refuses with a suggestion what cannot. The checks
come first because the C code behind some measures ends the whole process on a cutoff of 0.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache
from typing import Any

from rankhouse.core.errors import WrongUse, needs
from rankhouse.core.notation import ONE_PARSER
from rankhouse.evaluation.own_measures import OwnMeasures, own_measures

EXAMPLES = "AP  P@30  nDCG@20  RR@10  R@1000  Success@1  Judged@10  AP(rel=2)"

# The library's programs, tried in this order. Left out: "accuracy" (it leaves queries without a value) and
# those that need packages of their own.
OWN = "own"
PROVIDERS = ("pytrec_eval", "judged", "msmarco", "compat", "gdeval")
_LARGEST = 2**31 - 1  # the C code counts ranks in ints
_RANGES = {"cutoff": (1, _LARGEST), "rel": (1, _LARGEST), "recall": (0, 1), "beta": (0, math.inf)}

# trec_eval's names and the field's nicknames, in lower case.
_HABITS = {
    "map": "AP",
    "map_cut": "AP",
    "recip_rank": "RR",
    "mrr": "RR",
    "ndcg": "nDCG",
    "ndcg_cut": "nDCG",
    "recall": "R",
    "precision": "P",
    "hit": "Success",
    "hits": "Success",
    "hit_rate": "Success",
    "hole": "Judged",
    "iprec_at_recall": "IPrec",
    "num_ret": "NumRet",
    "num_rel_ret": "NumRelRet",
    "set_p": "SetP",
    "set_recall": "SetR",
    "set_f": "SetF",
    "set_map": "SetAP",
}


Measure = Any
"""One of ir_measures' measures, which are untyped; ``str`` of one is its name and reads back."""


def parse(measures: str | Iterable[str]) -> tuple[Measure, ...]:
    """Read measures: ``"AP P@30"``, ``"AP, P@30"`` or ``["AP", "P(rel=2)@30"]``; each is kept once.

    Raises WrongUse: unknown name, wrong argument, or a measure that nothing here can compute.
    """
    texts = [measures] if isinstance(measures, str) else list(measures)
    parsed = {str(m): m for text in texts for piece in _pieces(text) for m in [_parse_one(piece)]}
    if not parsed:
        raise WrongUse(f"no measure was given; name one or more, like  {EXAMPLES}")
    return tuple(parsed.values())


def graded(measures: str | Iterable[str], least: int) -> tuple[Measure, ...]:
    """Read measures, and let grades from ``least`` up be relevant in those that do not say it themselves.

    Measures that count no relevant documents, like nDCG, stay as they are.

    Raises WrongUse: as :func:`parse` does.
    """
    return tuple(
        measure(rel=least) if "rel" in measure.SUPPORTED_PARAMS and "rel" not in measure.params else measure
        for measure in parse(measures)
    )


def known() -> tuple[str, ...]:
    """List the names that can be computed here: what the library's programs provide, and one's own."""
    return tuple(sorted({*_of_library(), *own_measures()}, key=str.lower))


def _of_library() -> set[str]:
    available = [registry()[name] for name in PROVIDERS if registry()[name].is_available()]
    offered = {str(measure.__name__) for provider in available for measure in provider.SUPPORTED_MEASURES}
    return (offered | {"NumRelRet", "SetRelP"}) - {"NumQ", "NumRel"}  # which say nothing about a run


def provider_of(measure: Measure) -> str:
    """Name the program that computes a measure; WrongUse if none on this machine does."""
    for name in (*PROVIDERS, OWN):
        if registry()[name].is_available() and registry()[name].supports(measure):
            return name
    bare = measure.__name__
    hint = "" if "cutoff" in measure.params else f" (perhaps with a cutoff: {bare}@10)"
    raise WrongUse(f'"{measure}" cannot be computed on this machine in this form{hint}; {_choices()}')


@cache
def registry() -> dict[str, Any]:
    """Return the programs by name: the library's, and the one for measures of one's own."""
    with needs("measures", "evaluation"):
        from ir_measures.providers import registry as programs  # noqa: PLC0415 - only evaluation pays for it

    return {**programs, OWN: OwnMeasures()}


@cache
def _library_names() -> dict[str, Measure]:
    """Return every name of the library that is computable here, aliases too, with its measure."""
    with needs("measures", "evaluation"):
        from ir_measures.measures import registry as measures  # noqa: PLC0415 - only evaluation pays for it

    computable = _of_library()
    return {name: m for name, m in measures.items() if m.__name__ in computable or name in computable}


def _pieces(text: str) -> list[str]:
    """Split at white space and commas outside brackets."""
    pieces, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if depth <= 0 and (letter.isspace() or letter == ","):
            pieces.append("")
        else:
            pieces[-1] += letter
    return [piece for piece in pieces if piece]


def _parse_one(text: str) -> Measure:
    """Read one measure. The library's own reader leans on parts of ``ast`` that Python 3.14 drops."""
    meant, cutoff = _meant(text)
    if meant and text not in own_measures():
        text = f"{meant}@{cutoff}"
    name, arguments, at = _split_call(text)
    # Packages with measures of their own are looked for only where the library does not know a name.
    measure = _library_names().get(name) or own_measures().get(name)
    if measure is None:
        measure = _library_names().get(_folded().get(name.lower(), ""))
    if measure is None:
        guess = _guess(name, "" if at is None else str(at))
        raise WrongUse(f'"{text}" is not a known measure{guess}; {_choices()}')
    if at is not None:
        arguments[measure.AT_PARAM] = at
    for key, value in arguments.items():
        info = measure.SUPPORTED_PARAMS.get(key)
        if info is not None and info.dtype is float and type(value) is int:
            arguments[key] = float(value)
    measure = measure(**arguments)
    _check(text, measure)
    return measure


def _split_call(text: str) -> tuple[str, dict[str, Any], float | None]:
    """Take ``Name(key=value)@at`` apart; ``at`` is None where it is not written."""
    at = None
    try:
        with ONE_PARSER:
            node = ast.parse(text, mode="eval").body
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            at, node = ast.literal_eval(node.right), node.left
        arguments: dict[str, Any] = {}
        if isinstance(node, ast.Call) and not node.args:
            arguments = {str(k.arg): ast.literal_eval(k.value) for k in node.keywords}
            node = node.func
        if isinstance(node, ast.Name):
            return node.id, arguments, at
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        pass
    raise WrongUse(f'"{text}" cannot be read as a measure; {_choices()}')


def _check(text: str, measure: Measure) -> None:
    """Refuse what the library would not compute, or would compute wrongly, or would crash on."""
    name, accepted = measure.__name__, ", ".join(measure.SUPPORTED_PARAMS) or "none"
    if unknown := [key for key in measure.params if key not in measure.SUPPORTED_PARAMS]:
        raise WrongUse(f'"{text}": {name} has no parameter "{unknown[0]}"; it has: {accepted}')
    needed = [k for k, info in measure.SUPPORTED_PARAMS.items() if info.required and k not in measure.params]
    if needed:
        number = 0.5 if needed[0] == "recall" else 10
        raise WrongUse(f'"{text}": {name} needs a {needed[0]}, like  {name}@{number}')
    try:
        measure.validate_params()
    except AssertionError as error:
        raise WrongUse(f'"{text}": {error}; {name} takes: {accepted}; like  {EXAMPLES}') from None
    for key, (least, most) in _RANGES.items():
        value = measure.params.get(key, least)
        if isinstance(value, bool) or not least <= value <= most:
            raise WrongUse(f'"{text}": {key} = {value} was given; it must be from {least} to {most}')
    recall = measure.params.get("recall", 0.0)
    if round(recall, 2) != recall:
        raise WrongUse(f'"{text}": recall levels are given in hundredths, like  {name}@{recall:.2f}')
    beta = measure.params.get("beta", 1.0)
    if not repr(beta).replace(".", "").isdigit():  # an exponent would be cut off: 1e-07 would count as 1
        raise WrongUse(f'"{text}": beta = {beta} was given; it must be 0, or from 0.0001 to below 1e16')
    gains = measure.params.get("gains", {})
    if any(type(number) is not int or number < 0 for pair in gains.items() for number in pair):
        raise WrongUse(f'"{text}": gains map grades to whole numbers of 0 or more, like  {{1: 1, 2: 3}}')
    provider_of(measure)


def _choices() -> str:
    return f"choose from: {', '.join(known())}; written like  {EXAMPLES}"


def _folded() -> dict[str, str]:
    return {key.lower(): key for key in _library_names() | own_measures()} | _HABITS


def _meant(text: str) -> tuple[str, str]:
    """Return measure and cutoff of trec_eval's names, ``ndcg_cut_10`` or ``ndcg_cut.10``; "" of others."""
    found = re.fullmatch(r"([A-Za-z_]+?)[_.](\d+|\d\.\d+)", text, re.ASCII)
    meant = _folded().get(found[1].lower(), "") if found else ""
    if found is None or meant not in _library_names():
        return "", ""
    return meant, str(float(found[2]) if "." in found[2] else int(found[2]))


def _guess(name: str, cutoff: str) -> str:
    """Say what may have been meant by a slip of the finger."""
    stem = re.sub(r"_?[\d.]+$", "", name)
    cutoff = cutoff or name[len(stem) :].lstrip("_")
    folded = _folded()
    close = get_close_matches(stem.lower(), folded, 1, cutoff=0.7)
    meant = folded.get(stem.lower()) or (folded[close[0]] if close else "")
    if not meant:
        return ""
    return f' (did you mean "{meant}@{cutoff}"?)' if cutoff else f' (did you mean "{meant}"?)'
