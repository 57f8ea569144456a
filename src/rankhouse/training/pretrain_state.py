"""Where a pre-training stands, what came out of it, and how both are found again in its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from torch import Tensor

from rankhouse.core.errors import BadModel, WrongUse
from rankhouse.training.checkpoint import load_tensors
from rankhouse.training.folder import CHECKPOINT, OUTCOME

TOKENS = "tokens.bin"


class PretrainingOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came out; also in ``outcome.json``.

    Attributes:
        parameters: Numbers in the model.
        collection_tokens: Tokens of the collection, the held-out ones too.
        steps: Steps taken.
        tokens: Tokens read, all steps together; above ``collection_tokens`` they were read again.
        loss: Of the last line of the log, in nats a token said; 0 without steps.
        held_out: Loss on rows that were never learned from.
        held_out_at_start: The same before the first step.
        seconds: How long it took, all sittings together.
        pretraining: Name of all that the pre-training started from.
    """

    parameters: int
    collection_tokens: int
    steps: int
    tokens: int
    loss: float
    held_out: float
    held_out_at_start: float
    seconds: float
    pretraining: str = ""


class PretrainingState(msgspec.Struct):
    """Where a pre-training stands, besides its tensors."""

    name: str
    step: int = 0
    losses: list[float] = []
    last: float = 0.0
    held_out_at_start: float = 0.0
    seconds: float = 0.0


def finished(out: Path, name: str) -> PretrainingOutcome | None:
    """Return what came out of a finished pre-training, and clear away what is left of its work."""
    if not (out / OUTCOME).exists():
        return None
    try:
        outcome = msgspec.json.decode((out / OUTCOME).read_bytes(), type=PretrainingOutcome)
    except msgspec.DecodeError:  # of an earlier version, or changed by hand
        outcome = None
    if outcome is None or outcome.pretraining != name:
        raise WrongUse(
            f"{out}: holds another pre-training, which is finished; collection, vocabulary or settings "
            f'differ: use it as  monot5("{out}"), or choose another folder'
        )
    clear(out)
    return outcome


def clear(out: Path) -> None:
    """Remove what only a pre-training at work needs."""
    for name in (CHECKPOINT, TOKENS):
        (out / name).unlink(missing_ok=True)


def find(out: Path, name: str) -> tuple[PretrainingState, dict[str, Tensor], dict[str, Any]]:
    """Return where a folder's pre-training stands."""
    path = out / CHECKPOINT
    if not path.exists():
        (out / TOKENS).unlink(missing_ok=True)  # of whatever collection
        return PretrainingState(name), {}, {}
    tensors, notes = load_tensors(path)
    try:
        state = msgspec.convert(notes["standing"], PretrainingState)
        optimiser = notes["optimiser"]
    except (msgspec.ValidationError, KeyError) as error:
        raise BadModel(f"{path}: not a checkpoint of this version ({error}); remove it") from error
    if state.name != name:
        raise WrongUse(
            f"{out}: holds another pre-training, at step {state.step:,}: collection, vocabulary or "
            "settings differ; give the same ones to go on with it, choose another folder, or remove this one"
        )
    return state, tensors, optimiser
