"""rankhouse pretrain: a text collection becomes a T5 that monoT5 can begin from."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from rankhouse.cli import console
from rankhouse.cli.console import CommandResult
from rankhouse.cli.given import with_changes
from rankhouse.cli.options import COUNT, FINITE, FROM_ZERO, GROWING_FOLDER, PATH, SEED, SOURCE, idle, verb
from rankhouse.core import notation
from rankhouse.core.errors import WrongUse, needs

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from rankhouse.models.monot5 import MonoT5
    from rankhouse.training.pretrain import PretrainingOutcome
    from rankhouse.training.t5_pretraining import T5Shape

_SIZE = click.IntRange(1, 65_536)


@verb("pretrain", "rankhouse pretrain corpus.jsonl.gz --vocabulary spiece.model --steps 2000 --out my-t5")
@click.argument("sources", nargs=-1, type=SOURCE, required=True, metavar="CORPUS...")
@click.option("--vocabulary", type=PATH, help="T5's spiece.model, a tokenizer.json, or a folder with one.")
@click.option("--init", type=SOURCE, help="Go on with a T5: a checkpoint's folder or hub name.")
@click.option("--size", default="tiny", show_default=True, help="tiny, mini, small or base; see below.")
@click.option("--style", type=click.Choice(["1.0", "1.1"]), help="T5 1.0 or 1.1 (default).")
@click.option("--d-model", type=_SIZE, help="Width.")
@click.option("--layers", type=_SIZE, help="Of the encoder, and of the decoder.")
@click.option("--heads", type=_SIZE, help="Of attention.")
@click.option("--d-ff", type=_SIZE, help="Inner width of the feed-forward parts.")
@click.option("--steps", type=FROM_ZERO, default=1000, show_default=True)
@click.option("--batch", type=COUNT, default=32, show_default=True, help="Rows a step.")
@click.option("--length", type=click.IntRange(8), default=128, show_default=True, help="Tokens of an input.")
@click.option("--rate", type=FINITE, default=0.01, show_default=True, help="Learning rate.")
@click.option(
    "--set", "changes", multiple=True, metavar="NAME=VALUE", help="Any other setting: density=0.15 ..."
)
@click.option("--seed", type=SEED, default=0, show_default=True)
@click.option(
    "--out", type=GROWING_FOLDER, required=True, help="The folder to make; given again, goes on from there."
)
def command(
    sources: tuple[str, ...],
    vocabulary: Path | None,
    init: str | None,
    size: str,
    style: str | None,
    d_model: int | None,
    layers: int | None,
    heads: int | None,
    d_ff: int | None,
    steps: int,
    batch: int,
    length: int,
    rate: float,
    changes: tuple[str, ...],
    seed: int,
    out: Path,
) -> CommandResult:
    """Pre-train a T5 by span corruption; the folder made opens as monot5("DIR").

    Sizes (width, layers, heads, inner width): tiny 128, 2, 4, 256; mini 256, 4, 4, 512; small and base as
    in T5 1.1.
    """
    with needs("neural", "pre-training"):
        from rankhouse.training.pretrain import PretrainingSettings, pretrain
    if init is not None:
        idle("the sizes are those of --init", "size")
    shape = {"style": style, "d_model": d_model, "layers": layers, "heads": heads, "d_ff": d_ff}
    start = _start(vocabulary, init, size, {name: value for name, value in shape.items() if value})
    wanted = with_changes(changes, steps=steps, batch=batch, length=length, rate=rate, seed=seed)
    settings = PretrainingSettings().but(**wanted)
    with console.progress("reading, then pre-training", None) as show:
        outcome = pretrain(sources, start, settings, out, reading=show, progress=show)
    return CommandResult(outcome, lambda: _tell(outcome, out))


def _start(
    vocabulary: Path | None, init: str | None, size: str, changes: dict[str, object]
) -> MonoT5 | tuple[T5Shape, Tokenizer]:
    """Open a T5 to go on with, or say what a fresh one is like."""
    from rankhouse.models.monot5 import open_monot5
    from rankhouse.training.t5_pretraining import SIZES, read_tokenizer

    if (vocabulary is None) == (init is None):
        raise WrongUse("give either --vocabulary (T5's spiece.model) for a fresh T5, or --init DIR to go on")
    if init is not None:
        if changes:
            raise WrongUse(f"--init: the sizes are those of {init}; leave out {', '.join(changes)}")
        return open_monot5(init)
    assert vocabulary is not None
    chosen = notation.choose(size, SIZES, "size of a T5")
    if "d_model" in changes or "heads" in changes:
        changes = {"d_kv": 0} | changes
    return msgspec.structs.replace(chosen, **changes), read_tokenizer(vocabulary)


def _tell(outcome: PretrainingOutcome, out: Path) -> None:
    """Say what came out and what to type next."""
    console.say(
        f"{outcome.parameters:,} parameters, {outcome.tokens:,} tokens read "
        f"({outcome.tokens / outcome.collection_tokens:.2f} times the collection) in {outcome.seconds:.0f} s"
    )
    console.say(
        f"loss on held-out text {outcome.held_out_at_start:.3f} before, {outcome.held_out:.3f} now "
        f"(perplexity {math.exp(min(outcome.held_out, 700)):,.0f})"
    )
    console.say(f"fine-tune it with  rankhouse train --ranker 'monot5(\"{out}\")' ...")
