"""rankhouse fuse: several runs become one."""

from __future__ import annotations

from pathlib import Path

import click

from rankhouse.app import console
from rankhouse.app.options import PATH, as_json
from rankhouse.core import notation
from rankhouse.core.errors import WrongUse
from rankhouse.core.trec import read_qrels, read_run, write_run
from rankhouse.evaluate.measures import scorer
from rankhouse.rank.fuse import FUSIONS, Tuned, tune


@click.command(
    "fuse",
    epilog="Example:  rankhouse fuse neural.run ql.run --tune valid.qrels --measure AP --out fused.run",
)
@click.argument("runs", nargs=-1, required=True, type=PATH)
@click.option("--weights", help="One a run, with commas: 0.7,0.3. Equal if not given.")
@click.option("--tune", "qrels", type=PATH, help="Find the weights that are best on these judgements.")
@click.option("--measure", default="AP", show_default=True, help="What --tune makes large.")
@click.option("--step", default=0.05, show_default=True, help="Steps of the weights that --tune tries.")
@click.option("--refine", is_flag=True, help="Then try steps a tenth as large around the best.")
@click.option(
    "--method",
    default="linear",
    show_default=True,
    help='linear, linear("raw"), linear("z-score"), rrf, rrf(k=60), combsum, combmnz.',
)
@click.option("-k", type=click.IntRange(1), help="Keep this many documents a query; all if not given.")
@click.option("--tag", default="fused", show_default=True, help="Name of the run, in its last column.")
@click.option("--out", type=PATH, required=True, help="The run file to write.")
@as_json
def command(
    runs: tuple[Path, ...],
    weights: str | None,
    qrels: Path | None,
    measure: str,
    step: float,
    refine: bool,
    method: str,
    k: int | None,
    tag: str,
    out: Path,
    as_json: bool,
) -> None:
    """Join RUNS into one: a weighted sum of scores, or of reciprocal ranks."""
    if weights is not None and qrels is not None:
        raise WrongUse("give either --weights or --tune QRELS")
    fusion = notation.make(method, FUSIONS, "method of fusion")
    read = [read_run(path) for path in runs]
    tuned: Tuned | None = None
    chosen = None if weights is None else _weights(weights)
    if qrels is not None:
        tuned = tune(read, scorer(read_qrels(qrels), measure), fusion, step=step, refine=refine)
        chosen = tuned.weights
    fused = fusion(read, chosen)
    write_run(fused if k is None else fused.top(k), out, tag)
    said = dict(zip(map(str, runs), chosen, strict=True)) if chosen else {}
    if as_json:
        best = {"measure": measure, "value": tuned.score, "tried": len(tuned.tried)} if tuned else None
        console.emit_json({"run": str(out), "weights": said, "tuned": best})
        return
    if tuned is not None:
        shown = ", ".join(f"{name} {weight:g}" for name, weight in said.items())
        console.say(f"best of {len(tuned.tried)} weightings: {shown}; {measure} {tuned.score:.4f} on {qrels}")
    console.say(f"{len(fused):,} queries, {fused.rows:,} rows written to {out}")


def _weights(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise WrongUse(f"--weights {text}: write numbers with commas between them, like 0.7,0.3") from None
