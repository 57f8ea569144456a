"""A recipe as a frozen structure: what its TOML says, defaults filled in, nothing carried out yet."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something from outside.

    Attributes:
        path: A file or folder or its URL, ``ir_datasets:NAME`` or ``hub:OWNER/NAME``.
        get: Where to get it, for those who lack it.
    """

    path: str
    get: str = ""


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One call of a command.

    Attributes:
        command: Its name.
        options: Long option name or argument name -> value.
        out: Name of the output, where the command does not make it plain.
    """

    command: str
    options: dict[str, Any] = {}
    out: str = ""


class Expect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Numbers that a table should show.

    Attributes:
        rows: Row -> column -> number.
        within: The difference that still counts as reproduced.
        source: Where the numbers are from.
        when: Loop variable -> value, for a table made once a value.
        smallest: Holds for the smallest size, and only there.
    """

    rows: dict[str, dict[str, float]]
    within: float = 0.0
    source: str = ""
    when: dict[str, str | int | float] = {}
    smallest: bool = False


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Systems and measures, or steps and the numbers they say.

    Attributes:
        name: Heading.
        rows: Row -> reference to a run, or to a step or JSON file.
        measures: In ir_measures' notation; rows are runs then.
        qrels: Reference to the judgements.
        numbers: Column -> place of the number in the JSON.
        baseline: The row the others are tested against.
        test: A test of :mod:`rankhouse.evaluation.significance`: "t", "randomization".
        correction: "none", "bonferroni", "holm".
        equal: Columns of numbers that every row should share, for a fair comparison; a warning says where
            they differ.
        note: A sentence shown below.
        expect: Numbers to compare with.
    """

    name: str
    rows: dict[str, str]
    measures: str = ""
    qrels: str = ""
    numbers: dict[str, str] = {}
    baseline: str = ""
    test: str = "t"
    correction: str = "none"
    equal: tuple[str, ...] = ()
    note: str = ""
    expect: tuple[Expect, ...] = ()


class Figure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A curve over a loop variable, or a field for each pair of values of two.

    Attributes:
        name: Heading.
        kind: "curve" or "matrix".
        rows: Line -> reference, as in a table; a matrix has one.
        x: The loop variable along the bottom.
        y: The one along the side, of a matrix.
        value: A measure of runs.
        number: Instead: place of a number in the JSON.
        qrels: Reference to the judgements, for a measure.
        log: Logarithmic x.
        note: A sentence shown below.
    """

    name: str
    kind: Literal["curve", "matrix"]
    rows: dict[str, str]
    x: str
    y: str = ""
    value: str = ""
    number: str = ""
    qrels: str = ""
    log: bool = False
    note: str = ""


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole experiment.

    Attributes:
        title: Heading of the result.
        about: What is done and why.
        source: The paper and table it reproduces.
        time: How long it takes, and on what.
        data: Name -> what comes from outside.
        loop: Variable -> its values: numbers, texts, or tables with a "name".
        steps: Name -> call of a command.
        table: What to show.
        figure: What to draw.
    """

    title: str
    about: str = ""
    source: str = ""
    time: str = ""
    data: dict[str, Source] = {}
    loop: dict[str, tuple[Any, ...]] = {}
    steps: dict[str, Step] = {}
    table: tuple[Table, ...] = ()
    figure: tuple[Figure, ...] = ()
