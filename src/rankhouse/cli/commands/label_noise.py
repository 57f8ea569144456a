"""rankhouse label-noise: judgements of which a known share is wrong."""

from __future__ import annotations

from pathlib import Path

import click

from rankhouse.cli import console
from rankhouse.cli.console import CommandResult
from rankhouse.cli.options import COUNT, FINITE, OUTPUT_FILE, PATH, SEED, verb
from rankhouse.io.trec import read_qrels, read_run, write_qrels
from rankhouse.labels.label_noise import move_judgements


@verb(
    "label-noise",
    "rankhouse label-noise --qrels third.qrels --run bm25.run --share 0.2 --seed 1 --out third.noisy.qrels",
)
@click.option("--qrels", type=PATH, required=True, help="Judgements, taken for right.")
@click.option("--run", "run_path", type=PATH, required=True, help="Where the wrong documents come from.")
@click.option("--share", type=FINITE, required=True, help="Of the relevant judgements, 0 to 1.")
@click.option("--depth", type=COUNT, default=50, show_default=True, help="Of the run: so many a query.")
@click.option("--seed", type=SEED, default=0, show_default=True)
@click.option("--out", type=OUTPUT_FILE, required=True, help="The judgements to write.")
def command(qrels: Path, run_path: Path, share: float, depth: int, seed: int, out: Path) -> CommandResult:
    """Move a share of the relevant judgements to documents that are not, to see what an experiment bears.

    A drawn judgement leaves its document and stands at one of the run's first for the same query that nobody
    called relevant. A larger share holds what a smaller one does.
    """
    noisy = move_judgements(read_qrels(qrels), read_run(run_path), share, depth=depth, seed=seed)
    write_qrels(noisy.qrels, out)
    if noisy.missing:
        console.warn(
            f"{noisy.missing:,} judgements fewer than wanted were moved: the other queries have no candidate "
            "that is not relevant; give a deeper run"
        )
    counts = {"relevant": noisy.relevant, "wrong": noisy.wrong, "missing": noisy.missing}
    told = f"{noisy.wrong:,} of {noisy.relevant:,} relevant judgements are wrong now: {out}"
    return CommandResult({"out": str(out)} | counts, told)
