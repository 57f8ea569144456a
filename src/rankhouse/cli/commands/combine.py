"""rankhouse combine, fuse: files of different queries, or several rankings of the same, become one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from rankhouse.cli import console
from rankhouse.cli.options import idle, read_numbers, verb
from rankhouse.core import notation
from rankhouse.core.arguments import Option
from rankhouse.core.errors import BadData, WrongUse
from rankhouse.core.progress import counted
from rankhouse.core.qrels import judgements
from rankhouse.core.run import Run
from rankhouse.io.corpora import read_queries, write_queries
from rankhouse.io.trec import read_qrels, read_run, write_qrels, write_run
from rankhouse.page.tables import CommandResult
from rankhouse.ranking.fuse import FUSIONS
from rankhouse.training.tuning import Tuning, fusion_method

T = TypeVar("T")


@verb("combine", "rankhouse combine fold1.run fold2.run fold3.run --out all.run")
def command(
    *,
    runs: Annotated[tuple[Path, ...], Option(positional=True)],
    kind: Annotated[Literal["run", "queries", "qrels"], Option("Kind of the files.")] = "run",
    tag: Annotated[str, Option("Name of a run, in its last column.")] = "rankhouse",
    out: Annotated[Path, Option("The file to write, of the same kind.", "output")],
) -> CommandResult:
    """Join RUNS of different queries, such as those of folds or years; also queries or judgements.

    A query in two of them is refused.
    To join rankings of the same queries, use  rankhouse fuse.
    """
    if kind != "run":
        idle("only runs have a tag", "tag")
    if kind == "queries":
        queries: dict[str, Any] = _joined((path, {q.id: q for q in read_queries(path)}) for path in runs)
        write_queries(queries.values(), out)
        rows = len(queries)
    elif kind == "qrels":
        qrels = _joined((path, read_qrels(path)) for path in runs)
        write_qrels(qrels, out)
        queries, rows = dict(qrels), judgements(qrels)
    else:
        rankings = _joined((path, read_run(path)) for path in runs)
        whole = Run.from_rankings(rankings)
        write_run(whole, out, tag)
        queries, rows = dict(rankings), whole.rows
    facts = {kind: str(out), "queries": len(queries), "rows": rows}
    return CommandResult(
        facts, f"{counted(len(queries), 'query', 'queries')}, {counted(rows, 'row')} written to {out}"
    )


def _joined(parts: Iterable[tuple[Path, Mapping[str, T]]]) -> dict[str, T]:
    """Put what files hold by query together."""
    joined: dict[str, T] = {}
    origin: dict[str, Path] = {}
    for path, by_query in parts:
        for query_id, one in by_query.items():
            if query_id in joined:
                raise BadData(
                    f'query "{query_id}" is also in {origin[query_id]}; folds share no query '
                    "(to join rankings of the same queries, use  rankhouse fuse)",
                    path,
                )
            joined[query_id], origin[query_id] = one, path
    return joined


@verb(
    "fuse",
    "rankhouse fuse valid/neural.run valid/ql.run --tune valid.qrels --measure AP "
    "--apply test/neural.run --apply test/ql.run --out test/fused.run",
)
def fuse_command(
    *,
    runs: Annotated[tuple[Path, ...], Option(positional=True)],
    weights: Annotated[str | None, Option("One per run, with commas: 0.7,0.3; equal by default.")] = None,
    qrels: Annotated[
        Path | None, Option("Tune weights, choice or depth on these judgements.", flag="--tune")
    ] = None,
    measure: Annotated[str, Option("The measure that --tune maximizes.")] = "AP",
    apply: Annotated[
        tuple[Path, ...],
        Option(
            "Join these instead, as tuned on RUNS; give it once for each of RUNS, in their order.",
            metavar="RUN",
        ),
    ] = (),
    step: Annotated[float, Option("Steps of the weights that --tune tries.")] = 0.05,
    refine: Annotated[bool, Option("Then try steps a tenth as large around the best.")] = False,
    depths: Annotated[
        str | None, Option("Depths that --method depth tries, with commas: 0,10,50,100.")
    ] = None,
    method: Annotated[
        str,
        Option(
            'linear, linear("raw"), linear("z-score"), rrf, rrf(k=60), combsum, combmnz; mean (of raw '
            "scores); best (one of them, needs --tune); greedy (the mean of those runs that help, needs "
            "--tune); sentences (birch: RUNS are the first stage and the scores of the best, second best ... "
            "sentence, needs --tune); depth, depth(40) (RUNS are the first stage and its re-ranking: how "
            "deep to re-rank)."
        ),
    ] = "linear",
    k: Annotated[
        int | None, Option("Keep this many documents per query; all by default.", least=1, flag="-k")
    ] = None,
    tag: Annotated[str, Option("Name of the run, in its last column.")] = "fused",
    out: Annotated[Path, Option("The run file to write.", "output")],
) -> CommandResult:
    """Join RUNS into one: a weighted sum of scores, the mean of some of them, a re-ranking cut at a depth.

    Tune on queries other than those you report: --apply joins other runs as tuned.
    """
    if weights is not None and qrels is not None:
        raise WrongUse("give either --weights or --tune QRELS")
    if apply and len(apply) != len(runs):
        raise WrongUse(
            f"--apply was given {len(apply)} times for {len(runs)} runs; give it once for each, in order"
        )
    name = notation.parse(method).name
    _refuse_idle(name, tunes=qrels is not None)
    settle = fusion_method(method, None if weights is None else read_numbers("--weights", weights))
    tuning = None
    if qrels is not None:
        tried = () if depths is None else _depths(depths)
        tuning = Tuning(read_qrels(qrels), measure, step, refine=refine, depths=tried)
    read = [read_run(path) for path in runs]
    with console.progress(f"settling {name}" if tuning else "joining", None):
        joined = settle([str(path) for path in runs], read, tuning)
    fused = joined.join([read_run(path) for path in apply] if apply else read)
    write_run(fused if k is None else fused.top(k), out, tag)
    settled = f"{joined.sentence} (on {qrels})\n" if joined.sentence else ""
    message = (
        f"{settled}{counted(len(fused), 'query', 'queries')}, {counted(fused.rows, 'row')} written to {out}"
    )
    return CommandResult({"run": str(out)} | joined.facts, message)


def _refuse_idle(name: str, *, tunes: bool) -> None:
    if not tunes:
        idle("it is for --tune", "measure", "step", "refine", "depths")
    if name not in FUSIONS:
        idle(f"{name} tries no grid of weights", "step", "refine")
    if name != "depth":
        idle("it is for --method depth", "depths")


def _depths(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise WrongUse(f"--depths {text}: write whole numbers from 0 with commas between them, like 0,10,50")
    return tuple(map(int, parts))
