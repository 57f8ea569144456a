"""rankhouse fuse: several runs become one."""

from __future__ import annotations

from pathlib import Path

import click

from rankhouse.cli import console
from rankhouse.cli.console import CommandResult
from rankhouse.cli.given import read_numbers
from rankhouse.cli.options import COUNT, FINITE, OUTPUT_FILE, PATH, idle, verb
from rankhouse.core import notation
from rankhouse.core.errors import WrongUse
from rankhouse.io.trec import read_qrels, read_run, write_run
from rankhouse.ranking.fuse import FUSIONS
from rankhouse.training.tuning import Tuning, fusion_method


@verb(
    "fuse",
    "rankhouse fuse valid/neural.run valid/ql.run --tune valid.qrels --measure AP "
    "--apply test/neural.run --apply test/ql.run --out test/fused.run",
)
@click.argument("runs", nargs=-1, required=True, type=PATH)
@click.option("--weights", help="One a run, with commas: 0.7,0.3. Equal if not given.")
@click.option("--tune", "qrels", type=PATH, help="Settle weights, choice or depth by these judgements.")
@click.option("--measure", default="AP", show_default=True, help="What --tune makes large.")
@click.option(
    "--apply",
    "others",
    multiple=True,
    type=PATH,
    metavar="RUN",
    help="Join these instead, as settled on RUNS; give it once for each of RUNS, in their order.",
)
@click.option(
    "--step", type=FINITE, default=0.05, show_default=True, help="Steps of the weights that --tune tries."
)
@click.option("--refine", is_flag=True, help="Then try steps a tenth as large around the best.")
@click.option("--depths", help="Depths that --method depth tries, with commas: 0,10,50,100.")
@click.option(
    "--method",
    default="linear",
    show_default=True,
    help='linear, linear("raw"), linear("z-score"), rrf, rrf(k=60), combsum, combmnz; mean (of raw scores); '
    "best (one of them, needs --tune); greedy (the mean of those runs that help, needs --tune); sentences "
    "(birch: RUNS are the first stage and the scores of the best, second best ... sentence, needs --tune); "
    "depth, depth(40) (RUNS are the first stage and its re-ranking: how deep to re-rank).",
)
@click.option("-k", type=COUNT, help="Keep this many documents a query; all if not given.")
@click.option("--tag", default="fused", show_default=True, help="Name of the run, in its last column.")
@click.option("--out", type=OUTPUT_FILE, required=True, help="The run file to write.")
def command(
    runs: tuple[Path, ...],
    weights: str | None,
    qrels: Path | None,
    measure: str,
    others: tuple[Path, ...],
    step: float,
    refine: bool,
    depths: str | None,
    method: str,
    k: int | None,
    tag: str,
    out: Path,
) -> CommandResult:
    """Join RUNS into one: a weighted sum of scores, the mean of some of them, a re-ranking cut at a depth.

    Tune on other queries than those you report: --apply takes what was settled to other runs.
    """
    if weights is not None and qrels is not None:
        raise WrongUse("give either --weights or --tune QRELS")
    if others and len(others) != len(runs):
        raise WrongUse(
            f"--apply was given {len(others)} times for {len(runs)} runs; give it once for each, in order"
        )
    name = notation.parse(method).name
    if qrels is None:
        idle("it says how --tune settles things", "measure", "step", "refine", "depths")
    if name not in FUSIONS:
        idle(f"{name} tries no grid of weights", "step", "refine")
    if name != "depth":
        idle("it is for --method depth", "depths")
    settle = fusion_method(method, None if weights is None else read_numbers("--weights", weights))
    tuning = None
    if qrels is not None:
        tried = () if depths is None else _depths(depths)
        tuning = Tuning(read_qrels(qrels), measure, step, refine=refine, depths=tried)
    read = [read_run(path) for path in runs]
    with console.progress(f"settling {name}" if tuning else "joining", None):
        joined = settle([str(path) for path in runs], read, tuning)
    fused = joined.join([read_run(path) for path in others] if others else read)
    write_run(fused if k is None else fused.top(k), out, tag)
    settled = f"{joined.sentence} (on {qrels})\n" if joined.sentence else ""
    told = f"{settled}{len(fused):,} queries, {fused.rows:,} rows written to {out}"
    return CommandResult({"run": str(out)} | joined.facts, told)


def _depths(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise WrongUse(f"--depths {text}: write whole numbers from 0 with commas between them, like 0,10,50")
    return tuple(map(int, parts))
