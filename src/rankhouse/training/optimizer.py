"""Optimisers by name, which parameters learn how fast, and how the learning rate changes.

A schedule is a pure function of where training stands and keeps nothing, so a resumed training has the same
rates as an unbroken one: what a plateau needs to know, all validations so far, is part of the moment.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from rankhouse.core.errors import WrongUse

Groups = list[dict[str, Any]]
"""Parameter groups as torch.optim takes them: {"params": [...], "lr": rate, "start": rate, ...}."""

_LAYER = re.compile(r"(?:^|\.)(?:layers?|blocks?|h)\.(\d+)(?:\.|$)")
_EMBEDDING = re.compile(r"(?:^|\.)(?:embeddings?|shared|embed_tokens|wte|wpe)(?:\.|$)")

MakeOptimiser = Callable[[Groups], torch.optim.Optimizer]


def _adam(betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8) -> MakeOptimiser:
    """Adam (Kingma and Ba 2015), without weight decay."""
    _check("adam", betas=betas, eps=eps)
    return lambda groups: torch.optim.Adam(groups, betas=betas, eps=eps, fused=_fusible(groups))


def _adamw(
    weight_decay: float = 0.01, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
) -> MakeOptimiser:
    """AdamW (Loshchilov and Hutter 2019); biases and norms do not decay, as in BERT's own training."""
    _check("adamw", betas=betas, eps=eps, weight_decay=weight_decay)

    def make(groups: Groups) -> torch.optim.Optimizer:
        return torch.optim.AdamW(
            _split_by_decay(groups, weight_decay), betas=betas, eps=eps, fused=_fusible(groups)
        )

    return make


def _sgd(momentum: float = 0.0, weight_decay: float = 0.0) -> MakeOptimiser:
    """Stochastic gradient descent; weight decay, where asked for, on every parameter."""
    _check("sgd", momentum=momentum, weight_decay=weight_decay)
    return lambda groups: torch.optim.SGD(
        groups, momentum=momentum, weight_decay=weight_decay, fused=_fusible(groups)
    )


def _adafactor(weight_decay: float = 0.0) -> MakeOptimiser:
    """Adafactor (Shazeer and Stern 2018) with the rate times each parameter's scale, as T5 was trained."""
    _check("adafactor", weight_decay=weight_decay)
    return lambda groups: torch.optim.Adafactor(groups, weight_decay=weight_decay)


def _check(name: str, betas: tuple[float, ...] = (), **numbers: float) -> None:
    if not all(0 <= beta < 1 for beta in betas):
        raise WrongUse(f"{name}(betas={tuple(betas)}): both must be 0 or more and below 1")
    for key, number in numbers.items():
        if number < 0:
            raise WrongUse(f"{name}({key}={number}): {key} must be 0 or more")


OPTIMISERS: dict[str, Callable[..., MakeOptimiser]] = {
    "adam": _adam,
    "adamw": _adamw,
    "sgd": _sgd,
    "adafactor": _adafactor,
}
"""Name -> what makes the maker of the optimiser; see ``core.notation``."""


def parameter_groups(
    model: nn.Module, rate: float, rates: Mapping[str, float], layer_decay: float = 1.0
) -> Groups:
    """Sort the parameters that learn into groups of one learning rate.

    Args:
        rate: For all that ``rates`` does not name.
        rates: Beginning of a parameter's name, whole parts of it ("encoder" or "encoder.layers.0"), to its
            rate; the longest that fits counts. Rate 0 freezes.
        layer_decay: Factor of a rate from each layer to the one below it (Howard, Ruder 2018);
            the top layer's is multiplied once already, the embeddings' once more than the lowest layer's.

    Raises:
        WrongUse: A name that no parameter has, or a decay where there are no numbered layers.
    """
    depths = _depths([name for name, _ in model.named_parameters()]) if layer_decay < 1 else {}
    by_rate: dict[float, list[nn.Parameter]] = {}
    used: set[str] = set()
    for name, parameter in model.named_parameters():
        fitting = [start for start in rates if name == start or name.startswith(f"{start}.")]
        used.update(fitting)
        own = rates[max(fitting, key=len)] if fitting else rate
        own *= layer_decay ** depths.get(name, 0)
        if own == 0:
            parameter.requires_grad_(False)
        if parameter.requires_grad:
            by_rate.setdefault(own, []).append(parameter)
    if unknown := rates.keys() - used:
        parts = sorted({name.split(".")[0] for name, _ in model.named_parameters()})
        raise WrongUse(
            f"rates name {', '.join(sorted(unknown))}, which this model does not have; "
            f"its parts are: {', '.join(parts)}"
        )
    if not by_rate:
        raise WrongUse("every parameter is frozen (rate 0), so there is nothing to train")
    return [{"params": chosen, "lr": own, "start": own} for own, chosen in by_rate.items()]


def _depths(names: Sequence[str]) -> dict[str, int]:
    """Count for every parameter of a layer, or of embeddings, the layers from the top down to its own."""
    layers = {
        name: (name[: found.start(1)], int(found[1])) for name in names if (found := _LAYER.search(name))
    }
    if not layers:
        raise WrongUse(
            "layer_decay: this model has no layers one above the other; leave it out, or give rates"
        )
    counts: dict[str, int] = {}
    for stack, number in layers.values():
        counts[stack] = max(counts.get(stack, 0), number + 1)
    depths = {name: counts[stack] - number for name, (stack, number) in layers.items()}
    below = max(counts.values()) + 1
    return {name: below for name in names if _EMBEDDING.search(name)} | depths


def take_step(
    optimiser: torch.optim.Optimizer,
    learning: Sequence[nn.Parameter],
    loss: float,
    factor: float,
    clip: float,
) -> tuple[float, str]:
    """Clip the gradients to a norm (0: not), and take a step at each group's first rate times a factor.

    Returns:
        The norm of all gradients before clipping, and what is wrong with it or the loss: then the weights
        stay as they are.
    """
    gradients = [p.grad for p in learning if p.grad is not None]
    norm = float(torch.nn.utils.get_total_norm(gradients)) if gradients else 0.0
    for name, value in (("the loss", loss), ("the norm of the gradients", norm)):
        if not math.isfinite(value):
            return norm, f"{name} is {value}"
    if 0 < clip < norm:
        torch.nn.utils.clip_grads_with_norm_(learning, clip, torch.tensor(norm))
    for group in optimiser.param_groups:
        group["lr"] = group["start"] * factor
    optimiser.step()
    return norm, ""


def _split_by_decay(groups: Groups, weight_decay: float) -> Groups:
    return [
        group | {"params": chosen, "weight_decay": weight_decay if decays else 0.0}
        for group in groups
        for decays in (True, False)
        if (chosen := [p for p in group["params"] if (p.ndim > 1) == decays])
    ]


def _fusible(groups: Groups) -> bool:
    """One pass over the weights a step instead of several, where the device has it."""
    return all(
        p.device.type in {"cpu", "cuda"} and p.is_floating_point() for g in groups for p in g["params"]
    )


class Moment(NamedTuple):
    """State of a training just before a step.

    Attributes:
        step: Steps taken so far.
        steps: Steps that all epochs will have.
        epoch: Epochs finished so far.
        validations: Values of all validations so far, higher is better.
    """

    step: int
    steps: int
    epoch: int
    validations: Sequence[float] = ()


Schedule = Callable[[Moment], float]
"""From a moment to the factor, 0 to 1, by which every group's learning rate is multiplied."""


def _warm(moment: Moment, steps: int) -> float:
    return min(1.0, (moment.step + 1) / steps) if steps else 1.0


def _in_steps(warmup: float) -> Callable[[int], int]:
    """Return what makes a number of steps of a share of all steps, which is below 1, or of a number."""
    if warmup < 0 or (warmup >= 1 and warmup != int(warmup)):
        raise WrongUse(f"warmup={warmup}: give a share of all steps (0 to 1) or a whole number of steps")
    return lambda steps: round(warmup * steps) if warmup < 1 else int(warmup)


def constant(warmup: float = 0.0) -> Schedule:
    """``constant(warmup=0)``: the same rate all the time, after rising to it.

    Args:
        warmup: Share of all steps (below 1) or number of steps.
    """
    rising = _in_steps(warmup)
    return lambda moment: _warm(moment, rising(moment.steps))


def linear_decay(warmup: float = 0.1) -> Schedule:
    """``linear(warmup=0.1)``: up to the rate in equal steps, then down towards 0 at the end.

    No step has rate 0: the first is 1/warmup, the last 1/(steps - warmup).

    Args:
        warmup: Share of all steps (below 1) or number of steps.
    """
    in_steps = _in_steps(warmup)

    def factor(moment: Moment) -> float:
        rising = min(in_steps(moment.steps), moment.steps)
        if moment.step < rising:
            return _warm(moment, rising)
        return max(0.0, (moment.steps - moment.step) / max(1, moment.steps - rising))

    return factor


def step_decay(every: int, factor: float) -> Schedule:
    """``step(every=5, factor=0.75)``: times ``factor`` after every so many epochs."""
    if every < 1 or not 0 < factor <= 1:
        raise WrongUse(
            f"step(every={every}, factor={factor}): every counts epochs from 1, "
            "the factor is above 0 and at most 1"
        )
    return lambda moment: float(factor ** (moment.epoch // every))


def plateau(factor: float = 0.5, patience: int = 10, gain: float = 0.0) -> Schedule:
    """``plateau(factor=0.5, patience=10)``: times ``factor`` when validation has not risen for a while.

    As torch's ReduceLROnPlateau in mode "max": the rate falls at the validation after ``patience`` ones
    that brought nothing, and the count starts again.

    Args:
        patience: Validations without a gain that are let pass.
        gain: A validation counts as better when it is higher by more than this.
    """
    if not 0 < factor < 1 or patience < 0 or gain < 0:
        raise WrongUse(
            f"plateau(factor={factor}, patience={patience}, gain={gain}): the factor is "
            "between 0 and 1, patience and gain are 0 or more"
        )

    def fallen(moment: Moment) -> float:
        best, waited, falls = float("-inf"), 0, 0
        for value in moment.validations:
            if value > best + gain:
                best, waited = value, 0
            else:
                waited += 1
            if waited > patience:
                falls, waited = falls + 1, 0
        return float(factor**falls)

    return fallen


SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "constant": constant,
    "linear": linear_decay,
    "step": step_decay,
    "plateau": plateau,
}
"""Name -> what makes the schedule; see ``core.notation``."""
