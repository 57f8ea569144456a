"""rankhouse label-stats, threshold, label-noise: labels counted, chosen by a threshold, and made wrong."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

from rankhouse.cli import console
from rankhouse.cli.options import idle, read_numbers, verb
from rankhouse.core.arguments import Option
from rankhouse.core.qrels import RelevantFrom, from_grade
from rankhouse.io.outputs import write_json
from rankhouse.io.pairs import read_pairs
from rankhouse.io.trec import read_qrels, read_run, write_qrels
from rankhouse.labels import thresholds
from rankhouse.labels.label_noise import move_judgements
from rankhouse.page.tables import CommandResult, Table


@verb("label-stats", "rankhouse label-stats human.pairs.jsonl.gz both.pairs.jsonl.gz --truth qrels.txt")
def stats_command(
    *,
    files: Annotated[tuple[Path, ...], Option(positional=True)],
    truth: Annotated[
        Path | None, Option("Judgements of the queries that were annotated: how many pairs are right?")
    ] = None,
    relevant_from: RelevantFrom = 1,
) -> CommandResult:
    """Count the pairs and queries of FILES, as rankhouse label writes them; with --truth, the right ones."""
    if truth is None:
        idle("it is a grade of --truth", "relevant_from")
    known = from_grade(read_qrels(truth), relevant_from) if truth else None
    summaries = {str(path): thresholds.summarise_pairs(read_pairs(path), known) for path in files}
    records = {
        name: one._asdict() | {"precision": one.precision, "recall": one.recall}
        for name, one in summaries.items()
    }
    columns = ("file", "pairs", "relevant", "queries", "with a relevant", "precision", "recall")
    table = Table(columns, tuple(_stats_row(name, one) for name, one in summaries.items()))
    facts = next(iter(records.values())) if len(records) == 1 else records
    return CommandResult(facts, tables=[table])


def _stats_row(name: str, one: thresholds.PairsSummary) -> tuple[str, ...]:
    counts = (one.pairs, one.relevant, one.queries, one.queries_relevant)
    shares = ("–" if share is None else f"{share:.4f}" for share in (one.precision, one.recall))
    return (name, *(f"{count:,}" for count in counts), *shares)


@verb(
    "label-noise",
    "rankhouse label-noise --qrels third.qrels --run bm25.run --share 0.2 --seed 1 --out third.noisy.qrels",
)
def noise_command(
    *,
    qrels: Annotated[Path, Option("Judgements, assumed to be right.")],
    run: Annotated[Path, Option("The source of the wrong documents.")],
    share: Annotated[float, Option("Of the relevant judgements, 0 to 1.")],
    depth: Annotated[int, Option("Documents of the run to choose from, per query.", least=1)] = 50,
    seed: Annotated[int, Option("Of the draw.", least=0, most=2**32 - 1)] = 0,
    out: Annotated[Path, Option("The judgements to write.", "output")],
) -> CommandResult:
    """Move a share of the relevant judgements to documents that are not, to test an experiment.

    A drawn judgement moves from its document to one of the run's first for the same query that nobody judged
    relevant. A larger share includes what a smaller one moves.
    """
    noisy = move_judgements(read_qrels(qrels), read_run(run), share, depth=depth, seed=seed)
    write_qrels(noisy.qrels, out)
    if noisy.missing:
        console.warn(
            f"{noisy.missing:,} fewer judgements than wanted were moved: the other queries have no candidate "
            "that is not relevant; give a deeper run"
        )
    counts = {"relevant": noisy.relevant, "wrong": noisy.wrong, "missing": noisy.missing}
    message = f"{noisy.wrong:,} of {noisy.relevant:,} relevant judgements are wrong now: {out}"
    return CommandResult({"out": str(out)} | counts, message)


@verb(
    "threshold",
    "rankhouse threshold held.pairs.jsonl.gz --truth held.qrels --also 0.5,0.9 --out threshold.json",
)
def threshold_command(
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
    pairs = thresholds.scored_pairs((pair for path in files for pair in read_pairs(path)), judged)
    chosen = thresholds.choose_threshold(pairs, choose)
    others = [
        thresholds.kept_at(pairs, value) for value in (read_numbers("--also", also) if also.strip() else ())
    ]
    record = _record(chosen) | {"scale": pairs.scale, "chosen_by": choose, "pairs": len(pairs.values)}
    write_json(out, record)
    columns = ("threshold", "accepted", "right", "of all right", "precision", "F1")
    rows = tuple(_threshold_row(one, chosen=one is chosen) for one in (chosen, *others))
    message = (
        f"threshold {chosen.threshold:.4g}, chosen by {choose}, keeps {chosen.right:,} of {chosen.of:,} "
        f'right pairs ({chosen.recall:.0%}); use it with  taught("DIR", threshold="{out}")'
    )
    facts = {"out": str(out)} | record | {"also": [_record(one) for one in others]}
    return CommandResult(facts, message, [Table(columns, rows)])


def _record(one: thresholds.Threshold) -> dict[str, object]:
    return one._asdict() | {"precision": one.precision, "recall": one.recall, "f1": one.f1}


def _threshold_row(one: thresholds.Threshold, *, chosen: bool) -> tuple[str, ...]:
    precision = "–" if math.isnan(one.precision) else f"{one.precision:.4f}"
    name = f"{one.threshold:.4f}{' chosen' if chosen else ''}"
    return (name, f"{one.accepted:,}", f"{one.right:,}", f"{one.recall:.4f}", precision, f"{one.f1:.4f}")
