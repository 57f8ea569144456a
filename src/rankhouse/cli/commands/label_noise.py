"""rankhouse label-noise: judgements of which a known share is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from rankhouse.cli import console
from rankhouse.cli.options import verb
from rankhouse.core.arguments import Option
from rankhouse.io.trec import read_qrels, read_run, write_qrels
from rankhouse.labels.label_noise import move_judgements
from rankhouse.page.tables import CommandResult


@verb(
    "label-noise",
    "rankhouse label-noise --qrels third.qrels --run bm25.run --share 0.2 --seed 1 --out third.noisy.qrels",
)
def command(
    *,
    qrels: Annotated[Path, Option("Judgements, assumed to be right.")],
    run: Annotated[Path, Option("Where the wrong documents come from.")],
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
    told = f"{noisy.wrong:,} of {noisy.relevant:,} relevant judgements are wrong now: {out}"
    return CommandResult({"out": str(out)} | counts, told)
