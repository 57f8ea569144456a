"""Search structures that can be asked for, by name and numbers.

* ``flat``: every row in memory, compared by FAISS; finds what exact search finds.
* ``sq8``: one byte a component, a quarter of the memory.
* ``hnsw(m=32, ef=128, effort=200)``: a graph of neighbours (Malkov and Yashunin 2018). Each row has ``m``
  links; ``effort`` rows are looked at in placing one, ``ef`` (at least k) in searching.
* ``ivf(lists=..., probe=32)``: rows in lists around learned centres, by default 4 times the square root of
  their number; a search looks into ``probe`` of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rankhouse.core.arguments import check_whole
from rankhouse.core.errors import WrongUse
from rankhouse.core.notation import write


@dataclass(frozen=True)
class Structure:
    """What to build, or what to open: a name and numbers; None is the default, or what it was built with.

    Attributes:
        name: Its name in STRUCTURES.
        build: Numbers that building fixes.
        search: Numbers that every search may choose.
    """

    name: str
    build: dict[str, int | None] = field(default_factory=dict)
    search: dict[str, int | None] = field(default_factory=dict)

    def __str__(self) -> str:
        numbers = {key: n for key, n in (self.build | self.search).items() if n is not None}
        return write(self.name, **numbers)


def _flat() -> Structure:
    return Structure("flat")


def _sq8() -> Structure:
    return Structure("sq8")


def _hnsw(m: int | None = None, ef: int | None = None, effort: int | None = None) -> Structure:
    return Structure("hnsw", _counts("hnsw", m=m, effort=effort), _counts("hnsw", ef=ef))


def _ivf(lists: int | None = None, probe: int | None = None) -> Structure:
    return Structure("ivf", _counts("ivf", lists=lists), _counts("ivf", probe=probe))


STRUCTURES: dict[str, Callable[..., Structure]] = {"flat": _flat, "sq8": _sq8, "hnsw": _hnsw, "ivf": _ivf}
"""The room's table, for :func:`rankhouse.core.notation.make`."""


def _counts(name: str, **numbers: int | None) -> dict[str, int | None]:
    check_whole(name, 1, **{key: number for key, number in numbers.items() if number is not None})
    if numbers.get("m") == 1:
        raise WrongUse(f"{name}: m=1, but a graph needs at least 2 links a row")
    return numbers


def filled_in(asked: Structure, n: int) -> Structure:
    """Return a structure over n vectors with a number wherever none was asked for.

    Args:
        asked: What was asked for.
        n: How many vectors.

    Raises:
        WrongUse: More lists than vectors.
    """
    lists = max(1, min(round(4 * n**0.5), n // 39 or 1))  # FAISS wants 39 rows a centre
    usual = {"m": 32, "effort": 200, "ef": 128, "lists": lists, "probe": 32}
    build, search = (
        {key: usual[key] if number is None else number for key, number in numbers.items()}
        for numbers in (asked.build, asked.search)
    )
    if build.get("lists", 1) > n:
        raise WrongUse(f"ivf: lists={build['lists']}, but there are only {n:,} vectors; ask for fewer lists")
    return Structure(asked.name, dict(build), dict(search))
