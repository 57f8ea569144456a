"""One optimiser step: parts of a batch, gradients, clipping, update; on one process or several.

Batches are encoded ahead of the computing by one thread.

Shapes: g groups of s pairs each, n = g * s.
"""

from __future__ import annotations

import atexit
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent import futures
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import Any, NamedTuple, cast

import torch
import torch.distributed as dist
import torch.distributed.nn
from accelerate import Accelerator, DistributedDataParallelKwargs, InitProcessGroupKwargs
from accelerate.utils import broadcast_object_list
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from rankhouse.core import notation
from rankhouse.core.errors import WrongUse
from rankhouse.models.contract import Batch, Model
from rankhouse.nn.machine import choose
from rankhouse.training import optimizer as optimise
from rankhouse.training.batches import BatchTask
from rankhouse.training.distillation import SoftLoss, comparable, soft_loss
from rankhouse.training.settings import Settings
from rankhouse.training.teacher_batches import AnyBatches

# Its functions have the group of all processes as a default. Imported after that group began (torch.optim
# does so, on its own), they would hold it for good, and destroying it would not end its threads.


class BatchPart(NamedTuple):
    """A part of a batch, encoded: n pairs, labels (g, s), share of the loss, targets of a soft loss."""

    batch: Batch
    labels: Tensor
    share: float
    targets: Tensor | None = None


class StepResult(NamedTuple):
    """Result of a step: mean loss, norm of all gradients before clipping, and trouble, if any."""

    loss: float
    norm: float
    trouble: str


class _FloatAttention(TorchFunctionMode):
    """Computes attention in fp32 within autocast on a processor.

    There the gradient of torch's attention takes seven times as long in bf16 as in fp32 for 80 tokens, half
    as long again for 512, and was over a third of a cross-encoder's training step.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,  # noqa: ANN401
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        named = dict(kwargs or {})
        if func is not F.scaled_dot_product_attention:
            return func(*args, **named)
        with torch.autocast("cpu", enabled=False):
            return func(*map(_float, args), **{name: _float(given) for name, given in named.items()})


def _float(given: Any) -> Any:  # noqa: ANN401
    return given.float() if isinstance(given, Tensor) and given.is_floating_point() else given


class _LossModule(nn.Module):
    """Makes the loss the forward pass, since that is where processes meet to share gradients."""

    def __init__(self, model: nn.Module, soft: SoftLoss | None) -> None:
        super().__init__()
        self.model, self._soft = model, soft

    def forward(self, batch: Batch | None, labels: Tensor, targets: Tensor | None = None) -> Tensor:
        if batch is None:  # nothing of this batch fell to this process, but the others wait for its gradients
            zeros = [parameter.sum() * 0 for parameter in self.model.parameters()]
            return torch.stack(zeros).sum()
        if self._soft is not None and targets is not None:
            scores = comparable(cast(Model[Any], self.model), batch)
            return self._soft(scores.view(targets.shape), targets)
        loss: Tensor = self.model.loss(batch, labels)  # type: ignore[operator]  # a Model has one
        return loss


class Stepper:
    """Takes steps for a model, which must be a ``torch.nn.Module``, by the schedule ``rates``.

    Raises WrongUse: a device that is not there, or names in ``rates`` that the model does not have.
    """

    def __init__(self, model: Model[Any], settings: Settings) -> None:
        if not isinstance(model, nn.Module):
            raise WrongUse(f"a {type(model).__name__} cannot be trained: it is no torch.nn.Module")
        self.settings, self._model = settings, model
        self._accelerator = _accelerator(settings.device)
        if (share := settings.dropout) is not None:
            for module in model.modules():
                if isinstance(module, nn.Dropout):
                    module.p = share
                for name in ("dropout", "attention_dropout"):  # attention of transformers has it as a number
                    if isinstance(getattr(module, name, None), float):
                        setattr(module, name, share)
        soft = soft_loss(settings.loss) if settings.loss else None
        taught = _LossModule(model.to(self._accelerator.device), soft)
        groups = optimise.parameter_groups(model, settings.rate, settings.rates, settings.layer_decay)
        self._learning = [parameter for group in groups for parameter in group["params"]]
        self.optimiser = notation.make(settings.optimizer, optimise.OPTIMISERS, "optimiser")(groups)
        self.rates = notation.make(settings.schedule, optimise.SCHEDULES, "schedule")
        self._taught: nn.Module = self._accelerator.prepare(taught)

    @property
    def device(self) -> torch.device:
        """Device of the model, in the words of its weights: "cpu" is not "cpu:0", and moving would copy."""
        device: torch.device = self._learning[0].device
        return device

    @property
    def rank(self) -> int:
        """Number of this process; 0 is the one that validates and writes."""
        return int(self._accelerator.process_index)

    def agree(self, value: object) -> Any:  # noqa: ANN401 - whatever process 0 has
        """Return what process 0 gave, on every process."""
        if self._accelerator.num_processes > 1:
            return broadcast_object_list([value])[0]
        return value

    def encode(self, tasks: Sequence[BatchTask]) -> list[BatchPart | None]:
        """Read and encode this process's share of a batch; safe in a thread.

        There are as many parts as on every other process; None stands for one whose texts were all blank.
        """
        return [part for task in tasks for part in self._encoded(task)]

    def _encoded(self, task: BatchTask) -> Iterator[BatchPart | None]:
        processes, total = self._accelerator.num_processes, len(task.groups.query)
        parts = max(1, min(self.settings.accumulate, total // processes))
        for number in range(parts):
            place = number * processes + self.rank
            edges = [total * at // (parts * processes) for at in (place, place + 1)]
            texts = task.read(task.groups.take(slice(*edges)))
            if not texts.pairs:
                yield None
                continue
            labels = torch.from_numpy(texts.labels)
            share = task.weight * processes * len(labels) / total  # processes average their gradients
            targets = None if texts.targets is None else torch.from_numpy(texts.targets)
            yield BatchPart(self._model.encode(texts.pairs), labels, share, targets)

    def step(self, parts: list[BatchPart | None], moment: optimise.Moment) -> StepResult:
        """Take a step; where loss or gradients are not finite, the weights stay as they are."""
        self._taught.train()
        self.optimiser.zero_grad()
        total = torch.zeros((), device=self.device)
        for number, part in enumerate(parts):
            last = number == len(parts) - 1
            with nullcontext() if last else self._accelerator.no_sync(self._taught), self._autocast():
                loss = self._loss(part)
            self._accelerator.backward(loss)
            total += loss.detach().float()
        if self._accelerator.num_processes > 1:
            total = self._accelerator.reduce(total, "mean")
        loss_value, factor = float(total), self.rates(moment)
        norm, trouble = optimise.take_step(
            self.optimiser, self._learning, loss_value, factor, clip=self.settings.clip
        )
        return StepResult(loss_value, norm, trouble)

    def _loss(self, part: BatchPart | None) -> Tensor:
        if part is None:
            empty: Tensor = self._taught(None, torch.empty(0))
            return empty
        targets = None if part.targets is None else part.targets.to(self.device)
        loss: Tensor = self._taught(part.batch.to(self.device), part.labels.to(self.device), targets)
        return loss * part.share

    @contextmanager
    def _autocast(self) -> Iterator[None]:
        bf16 = self.settings.precision == "bf16"
        attention = _FloatAttention() if bf16 and self.device.type == "cpu" else nullcontext()
        with attention, torch.autocast(self.device.type, torch.bfloat16, enabled=bf16):
            yield


def _accelerator(device: str) -> Accelerator:
    where = choose("fp32", device).device  # checks that it is there, and says what to do if not
    first = not dist.is_initialized()
    try:
        accelerator = Accelerator(
            cpu=where.type == "cpu",
            mixed_precision="no",  # autocast is ours: accelerate settles it once for a whole process
            kwargs_handlers=[
                DistributedDataParallelKwargs(find_unused_parameters=True),
                InitProcessGroupKwargs(timeout=timedelta(hours=12)),  # others wait while the first validates
            ],
        )
    except ValueError as error:
        raise WrongUse(
            f'device="{device}": something in this process already computes elsewhere ({error}); '
            "train in a process of its own"
        ) from error
    if first and dist.is_initialized():  # the group is accelerate's, for all trainings of this process
        atexit.register(end_group)
    return accelerator


def end_group() -> None:
    """End the group of processes: its threads must not meet the end of the interpreter, which aborts then."""
    if dist.is_initialized():
        dist.destroy_process_group()


EncodedBatch = tuple[int, list[BatchTask], list[BatchPart | None]]
"""A batch's number in its epoch, what is read for it, and its parts."""

_AHEAD = 2


class Prefetch:
    """Reads and encodes the batches of a training while earlier ones are computed."""

    def __init__(self, batches: AnyBatches, stepper: Stepper) -> None:
        self._batches, self._stepper = batches, stepper
        self._waiting: deque[tuple[int, list[BatchTask], futures.Future[list[BatchPart | None]]]] = deque()

    def batches(self, epoch: int, first: int) -> Generator[EncodedBatch, None, None]:
        """Stream the encoded batches of an epoch; close it to cancel what was not yet begun."""
        with futures.ThreadPoolExecutor(1, thread_name_prefix="batches") as pool:
            try:
                for number, tasks in enumerate(self._batches.plan(epoch)):
                    if number < first:
                        continue
                    work = pool.submit(self._stepper.encode, tasks)
                    self._waiting.append((number, tasks, work))
                    if len(self._waiting) > _AHEAD:
                        yield self._next()
                while self._waiting:
                    yield self._next()
            finally:
                for _, _, work in self._waiting:
                    work.cancel()
                self._waiting.clear()

    def _next(self) -> EncodedBatch:
        number, tasks, work = self._waiting.popleft()
        return number, tasks, work.result()

    def wait(self) -> None:
        """Wait until nothing is read or encoded."""
        futures.wait([work for _, _, work in self._waiting])
