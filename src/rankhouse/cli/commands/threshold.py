"""rankhouse threshold: how much of its candidates a teacher should accept, chosen on judged pairs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

from rankhouse.cli.options import read_numbers, verb
from rankhouse.core.arguments import Option
from rankhouse.core.qrels import RelevantFrom, from_grade
from rankhouse.io.outputs import write_json
from rankhouse.io.pairs import read_pairs
from rankhouse.io.trec import read_qrels
from rankhouse.labels.thresholds import Threshold, choose_threshold, kept_at, scored_pairs
from rankhouse.page.tables import CommandResult, Table


@verb(
    "threshold",
    "rankhouse threshold held.pairs.jsonl.gz --truth held.qrels --also 0.5,0.9 --out threshold.json",
)
def command(
    *,
    files: Annotated[tuple[Path, ...], Option(positional=True)],
    truth: Annotated[Path, Option("Judgements of the documents of these pairs.")],
    choose: Annotated[str, Option("f1, precision(0.9) or recall(0.9).")] = "f1",
    also: Annotated[str, Option("Thresholds to show beside it, with commas.")] = "0.5",
    relevant_from: RelevantFrom = 1,
    out: Annotated[Path, Option("The file to write (JSON).", "output")],
) -> CommandResult:
    """Choose a teacher's threshold on FILES, which rankhouse label --scores wrote, and say what it keeps.

    A rule takes the file in place of a number:  taught("DIR", threshold="threshold.json").
    """
    judged = from_grade(read_qrels(truth), relevant_from)
    pairs = scored_pairs((pair for path in files for pair in read_pairs(path)), judged)
    chosen = choose_threshold(pairs, choose)
    others = [kept_at(pairs, value) for value in (read_numbers("--also", also) if also.strip() else ())]
    record = _record(chosen) | {"scale": pairs.scale, "chosen_by": choose, "pairs": len(pairs.values)}
    write_json(out, record)
    columns = ("threshold", "accepted", "right", "of all right", "precision", "F1")
    rows = tuple(_row(one, chosen=one is chosen) for one in (chosen, *others))
    told = (
        f"threshold {chosen.threshold:.4g}, chosen by {choose}, keeps {chosen.right:,} of {chosen.of:,} "
        f'right pairs ({chosen.recall:.0%}); use it with  taught("DIR", threshold="{out}")'
    )
    facts = {"out": str(out)} | record | {"also": [_record(one) for one in others]}
    return CommandResult(facts, told, [Table(columns, rows)])


def _record(one: Threshold) -> dict[str, object]:
    precision = None if math.isnan(one.precision) else one.precision
    return one._asdict() | {"precision": precision, "recall": one.recall, "f1": one.f1}


def _row(one: Threshold, *, chosen: bool) -> tuple[str, ...]:
    precision = "–" if math.isnan(one.precision) else f"{one.precision:.4f}"
    name = f"{one.threshold:.4f}{' chosen' if chosen else ''}"
    return (name, f"{one.accepted:,}", f"{one.right:,}", f"{one.recall:.4f}", precision, f"{one.f1:.4f}")
