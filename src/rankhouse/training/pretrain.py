"""Pre-training of a T5 by span corruption on a text collection, so that monoT5 has something to begin from.

Raffel et al., JMLR 2020: an encoder-decoder reads a text with spans cut out and says what they were
(``training/pretraining_data.py``). A pre-training owns a folder: ``log.jsonl``, ``settings.json`` and, when
done, ``outcome.json`` and the checkpoint itself; until then also ``checkpoint.safetensors`` and
``tokens.bin``. Started again with the same collection, vocabulary and settings it resumes; on one thread it
ends with the same bits as if it had never been stopped.
Deviations: dropout is off (as for T5 1.1), and by default the rate falls to 0 at the end of the run, which is
far shorter than theirs; short documents are joined end to end with an end token between them.
Shapes: n rows, t tokens of a row, i tokens of an input, o tokens of a target.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec
import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from rankhouse.core import notation
from rankhouse.core.arguments import check_least
from rankhouse.core.errors import BadModel, WrongUse
from rankhouse.core.progress import Progress, ignore
from rankhouse.core.sampling import generator
from rankhouse.io.checksums import file_sum, write_checked
from rankhouse.io.outputs import check_own_folder, only_writer
from rankhouse.io.scratch import tidy
from rankhouse.models.bundle import fingerprint
from rankhouse.models.monot5 import MonoT5
from rankhouse.nn.machine import choose
from rankhouse.training import checkpoint, pretraining_data
from rankhouse.training import optimizer as optimise
from rankhouse.training.folder import CHECKPOINT, LOG, OUTCOME, SETTINGS
from rankhouse.training.log import TrainingLog
from rankhouse.training.optimizer import SCHEDULES, Moment
from rankhouse.training.settings import StepSettings
from rankhouse.training.t5_pretraining import CHECKPOINT_FILES, T5Shape, begin, specials, write_checkpoint

TOKENS = "tokens.bin"
_KEPT = (LOG, SETTINGS, *CHECKPOINT_FILES)


class PretrainingOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a pre-training; also in ``outcome.json``.

    Attributes:
        collection_tokens: Tokens of the collection, the held-out ones too.
        tokens: Tokens read, all steps together; above ``collection_tokens`` they were read again.
        loss: Of the last line of the log, in nats a token said; 0 without steps.
        held_out: Loss on rows that were never learned from.
        seconds: How long it took, over all resumptions.
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
    """State of a pre-training, besides its tensors."""

    name: str
    step: int = 0
    losses: list[float] = []
    last: float = 0.0
    held_out_at_start: float = 0.0
    seconds: float = 0.0
    tokens: tuple[int, int] | None = None  # bytes and CRC-32 of the file of tokens


def finished(out: Path, name: str) -> PretrainingOutcome | None:
    """Return what came out of a finished pre-training, and clear away what is left of its work."""
    if not (out / OUTCOME).exists():
        return None
    outcome = checkpoint.read_outcome(out / OUTCOME, PretrainingOutcome)
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


def find(out: Path, name: str) -> tuple[checkpoint.Checkpoint[PretrainingState], dict[str, Tensor]]:
    """Return where a folder's pre-training stands, and its tensors: none for a fresh start."""
    path = out / CHECKPOINT
    if not path.exists():
        (out / TOKENS).unlink(missing_ok=True)  # of whatever collection
        return checkpoint.Checkpoint(PretrainingState(name), {}), {}
    point, tensors = checkpoint.load_state(path, checkpoint.Checkpoint[PretrainingState])
    if point.standing.name != name:
        raise WrongUse(
            f"{out}: holds another pre-training, at step {point.standing.step:,}: collection, vocabulary or "
            "settings differ; give the same ones to go on with it, choose another folder, or remove this one"
        )
    return point, tensors


_HELD_OUT, _TRAINING = 0, 1  # what a corruption is drawn for


class PretrainingSettings(StepSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a pre-training.

    Attributes:
        steps: Optimiser steps; 0: the first weights are written as they are, to compare with.
        batch: Rows a step.
        length: Most tokens of an input.
        density: Share of tokens cut out.
        span: Tokens of a span on average.
        precision: "auto", "fp32", or "bf16" for the computing (weights stay in fp32).
        checkpoint_every: Steps between checkpoints, at which the held-out loss is measured too.
    """

    _ORDER: ClassVar[str] = (
        "steps batch accumulate length density span optimizer rate schedule clip precision device seed "
        "log_every checkpoint_every"
    )

    steps: int = 1000
    length: int = 128
    density: float = 0.15
    span: float = 3.0
    optimizer: str = "adafactor"
    rate: float = 0.01
    schedule: str = "linear(warmup=0.1)"
    clip: float = 1.0
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    checkpoint_every: int = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, 1, "checkpoint_every")
        self._check_parts()
        self.corruption.tokens  # noqa: B018 - says what is wrong with its numbers

    @property
    def corruption(self) -> pretraining_data.Corruption:
        """Spans to cut out of a row."""
        return pretraining_data.Corruption(self.length, self.density, self.span)


def pretrain(
    sources: Sequence[Path | str],
    start: MonoT5 | tuple[T5Shape, Tokenizer],
    settings: PretrainingSettings,
    out: Path | str,
    *,
    reading: Progress | None = None,
    progress: Progress | None = None,
) -> PretrainingOutcome:
    """Pre-train a T5 on a collection and write it as a checkpoint, which ``monot5("OUT")`` opens.

    Args:
        sources: As ``io.corpora.read_documents`` takes them.
        start: A T5 to continue with, or sizes and vocabulary of a fresh one.
        out: The folder; if it holds this pre-training already, it resumes.

    Raises:
        BadData: A malformed document, or too little text.
        BadModel: A vocabulary without sentinels, or a loss that is no number.
        WrongUse: The folder holds another pre-training.
        OutputFailed: A file cannot be written.
    """
    out = Path(out)
    with only_writer(out):
        check_own_folder(out, (TOKENS, SETTINGS, OUTCOME, LOG))
        tidy(out)
        with checkpoint.seeded(settings.seed):
            model = begin(*start) if isinstance(start, tuple) else start
        text = msgspec.json.encode(settings.to_dict()).decode()
        name = sha256(
            f"{fingerprint(model)} {pretraining_data.collection_name(sources)} {text}".encode()
        ).hexdigest()[:32]
        if (done := finished(out, name)) is not None:
            return done
        point, tensors = find(out, name)
        tokenizer = Tokenizer.from_str(model.assets()["tokenizer.json"].decode())
        marks = specials(tokenizer)
        if settings.corruption.spans > len(marks.sentinels):
            raise WrongUse(
                f"length={settings.length}: {settings.corruption.spans} spans are cut out of a row, and the "
                f"vocabulary has {len(marks.sentinels)} sentinels; give a smaller length or density"
            )
        if not (out / TOKENS).exists():
            pretraining_data.write_tokens(
                sources, tokenizer, marks.end, out / TOKENS, progress=reading or ignore
            )
        tokens = file_sum(out / TOKENS)[:2]
        if point.standing.tokens not in (None, tokens):
            raise BadModel(
                f"{out / TOKENS}: was changed after it was written; remove it, and it is made again from the "
                "collection"
            )
        point.standing.tokens = tokens
        stream = pretraining_data.Stream.open(
            out / TOKENS, tokenizer, settings.corruption.tokens, settings.seed
        )
        settings.write(out / SETTINGS)
        work = _Work(model, stream, marks, settings, out=out, state=point.standing)
        if tensors:
            checkpoint.restore(point, tensors, work.network, work.optimiser)
        return work.run(progress or ignore)


@dataclass
class _Work:
    """One pre-training at work."""

    model: MonoT5
    stream: pretraining_data.Stream
    specials: pretraining_data.Specials
    settings: PretrainingSettings
    out: Path
    state: PretrainingState
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        settings = self.settings
        compute = choose(settings.precision, settings.device)
        self.device, self.bf16 = compute.device, compute.precision == "bf16"
        self.network: Any = self.model.network.to(self.device).eval()  # dropout off
        groups = optimise.parameter_groups(self.network, settings.rate, {})
        self.learning: list[nn.Parameter] = [p for group in groups for p in group["params"]]
        self.optimiser = notation.make(settings.optimizer, optimise.OPTIMISERS, "optimiser")(groups)
        self.rates = notation.make(settings.schedule, SCHEDULES, "schedule")
        self.seconds_before = self.state.seconds
        self.log_file = TrainingLog(self.out / LOG)

    @property
    def seconds(self) -> float:
        """The training, earlier runs of it included."""
        return self.seconds_before + time.monotonic() - self.began

    def run(self, tell: Progress) -> PretrainingOutcome:
        """Go on from where it stands to the end."""
        state, settings = self.state, self.settings
        self.log_file.forget_after(state.step or -1)
        tell(state.step, settings.steps)
        if not state.step:
            state.held_out_at_start = self.measure()
        for step in range(state.step, settings.steps):
            loss, norm = self.step(step)
            state.step = step + 1
            state.losses.append(loss)
            if len(state.losses) >= settings.log_every or state.step == settings.steps:
                state.last, state.losses = sum(state.losses) / len(state.losses), []
                rate = settings.rate * self.rates(Moment(step, settings.steps, 0))
                self.write_line(loss=state.last, rate=rate, norm=norm)
            if state.step % settings.checkpoint_every == 0 and state.step < settings.steps:
                self.measure()
                state.seconds, beside = self.seconds, checkpoint.sums_of(self.out, (LOG, SETTINGS))
                checkpoint.save_state(
                    self.out / CHECKPOINT, state, self.network, self.optimiser, beside=beside
                )
            tell(state.step, settings.steps)
        return self.finish()

    def step(self, number: int) -> tuple[float, float]:
        """Take a step; gives loss and norm of the gradients."""
        settings = self.settings
        rows = self.stream.batch(number, settings.batch)
        batch = settings.corruption.apply(rows, self.specials, self.rng(_TRAINING, number))
        self.optimiser.zero_grad()
        total = 0.0
        for part in range(settings.accumulate):
            edges = [settings.batch * at // settings.accumulate for at in (part, part + 1)]
            some = pretraining_data.SpanBatch(*(side[slice(*edges)] for side in batch))
            loss = self.loss(some) * (len(some.inputs) / settings.batch)
            loss.backward()  # type: ignore[no-untyped-call]  # torch has no types here
            total += float(loss.detach())
        factor = self.rates(Moment(number, settings.steps, 0))
        norm, trouble = optimise.take_step(self.optimiser, self.learning, total, factor, clip=settings.clip)
        if trouble:
            raise BadModel(
                f"at step {number + 1:,} {trouble}; start again with a lower rate, a longer warm-up or "
                f"precision fp32 in another folder"
            )
        return total, norm

    def loss(self, batch: pretraining_data.SpanBatch) -> Tensor:
        """Mean cross-entropy of saying every token of the targets (n, o)."""
        inputs, targets = (torch.from_numpy(side).to(self.device) for side in batch)
        start = torch.full_like(targets[:, :1], self.model.policy["start"])
        before = torch.cat([start, targets[:, :-1]], 1)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            encoded = self.network.encoder(input_ids=inputs).last_hidden_state
            states = self.network.decoder(
                input_ids=before, encoder_hidden_states=encoded, use_cache=False
            ).last_hidden_state
            if self.model.policy["scaled"]:
                states = states * states.shape[-1] ** -0.5
            logits = self.network.lm_head(states)
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())

    def rng(self, purpose: int, number: int) -> np.random.Generator:
        """Return what a corruption is drawn with; the same whenever asked."""
        return generator(self.settings.seed, purpose, number)

    def measure(self) -> float:
        """Return the loss on the held-out rows, and log it."""
        rows, size = self.stream.held_out(), max(1, self.settings.batch // self.settings.accumulate)
        held_out = self.settings.corruption.apply(rows, self.specials, self.rng(_HELD_OUT, 0))
        total = 0.0
        with torch.no_grad():
            for first in range(0, len(rows), size):
                some = pretraining_data.SpanBatch(*(side[first : first + size] for side in held_out))
                total += float(self.loss(some)) * len(some.inputs)
        value = total / len(rows)
        self.write_line(held_out=value)
        return value

    def write_line(self, **numbers: float) -> None:
        """Log where the training stands."""
        self.log_file.write(step=self.state.step, **numbers, seconds=round(self.seconds, 3))

    def finish(self) -> PretrainingOutcome:
        """Write the checkpoint that others read, and say what came out."""
        state, settings = self.state, self.settings
        outcome = PretrainingOutcome(
            parameters=sum(parameter.numel() for parameter in self.network.parameters()),
            collection_tokens=len(self.stream.ids),
            steps=state.step,
            tokens=state.step * settings.batch * self.stream.tokens,
            loss=state.last,
            held_out=self.measure(),
            held_out_at_start=state.held_out_at_start,
            seconds=self.seconds,
            pretraining=state.name,
        )
        write_checkpoint(self.model, self.out)
        write_checked(self.out / OUTCOME, outcome, [self.out / name for name in _KEPT])
        clear(self.out)
        return outcome
