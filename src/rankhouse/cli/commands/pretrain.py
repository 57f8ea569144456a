"""rankhouse pretrain: a text collection becomes a T5 that monoT5 can begin from."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from rankhouse.cli import console
from rankhouse.cli.options import idle, verb, with_changes
from rankhouse.core import notation
from rankhouse.core.arguments import Option
from rankhouse.core.errors import WrongUse, needs
from rankhouse.page.tables import CommandResult

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from rankhouse.models.monot5 import MonoT5
    from rankhouse.training.pretrain import PretrainingOutcome
    from rankhouse.training.t5_pretraining import T5Shape


@verb("pretrain", "rankhouse pretrain corpus.jsonl.gz --vocabulary spiece.model --steps 2000 --out my-t5")
def command(
    *,
    sources: Annotated[tuple[str, ...], Option(kind="source", positional=True, metavar="CORPUS...")],
    vocabulary: Annotated[
        Path | None, Option("T5's spiece.model, a tokenizer.json, or a folder with one.")
    ] = None,
    init: Annotated[
        str | None, Option("Continue from a T5: a checkpoint's folder or hub name.", "source")
    ] = None,
    size: Annotated[str, Option("tiny, mini, small or base, as above.")] = "tiny",
    style: Annotated[str | None, Option("T5 1.0 or 1.1 (default).", choices=("1.0", "1.1"))] = None,
    d_model: Annotated[int | None, Option("Width.", least=1, most=65_536)] = None,
    layers: Annotated[
        int | None, Option("Layers of the encoder, and as many of the decoder.", least=1, most=65_536)
    ] = None,
    heads: Annotated[int | None, Option("Attention heads.", least=1, most=65_536)] = None,
    d_ff: Annotated[
        int | None, Option("Inner width of the feed-forward parts.", least=1, most=65_536)
    ] = None,
    steps: Annotated[int, Option("Training steps.", least=0)] = 1000,
    batch: Annotated[int, Option("Rows per step.", least=1)] = 32,
    length: Annotated[int, Option("Tokens per input.", least=8, most=65_536)] = 128,
    rate: Annotated[float, Option("Learning rate.")] = 0.01,
    changes: Annotated[
        tuple[str, ...], Option("Any other setting: density=0.15 ...", flag="--set", metavar="NAME=VALUE")
    ] = (),
    seed: Annotated[int, Option("Of all random draws.", least=0, most=2**32 - 1)] = 0,
    out: Annotated[Path, Option("The folder to make; given again, the work resumes.", "growing")],
) -> CommandResult:
    """Pre-train a T5 by span corruption; the folder it makes opens as monot5("DIR").

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
