"""Where and how exactly numbers are computed: device, precision, threads. Chosen once, then only read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

import torch

from rankhouse.core.errors import WrongUse
from rankhouse.nn.cpu import machine

Precision = Literal["fp32", "bf16", "int8"]
Activation = Literal["none", "relu", "gelu", "gelu_tanh", "silu"]

PRECISIONS = ("auto", "bf16", "fp32", "int8")


class Compute(NamedTuple):
    """Settings of one scoring engine; make one with :func:`choose`.

    ``threads`` is the number of processor threads while scoring (0: whatever the process already uses);
    ``steady`` makes products of fp32 by loops that add in one order on every processor: beside int8.
    """

    precision: Precision = "fp32"
    device: torch.device = torch.device("cpu")
    threads: int = 0
    steady: bool = False

    @property
    def dtype(self) -> torch.dtype:
        """The number type of activations; with int8, of those that are not products' inputs."""
        is_wide = self.precision == "int8" and machine.WIDE_LOOPS
        return torch.float32 if self.precision == "fp32" or is_wide else torch.bfloat16

    @property
    def unquantised(self) -> Compute:
        """The same without int8: for what gains nothing by it."""
        if self.precision != "int8":
            return self
        return self.fp32 if machine.WIDE_LOOPS else self._replace(precision="bf16")

    @property
    def fp32(self) -> Compute:
        """The same in fp32: for what must not be rounded."""
        is_wide = self.precision == "int8" and machine.WIDE_LOOPS
        return self._replace(precision="fp32", steady=self.steady or is_wide)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Compute without gradients and on the chosen number of threads; the old number is put back."""
        before = torch.get_num_threads()
        if self.threads and self.threads != before:
            torch.set_num_threads(self.threads)
        try:
            with torch.inference_mode():
                yield
        finally:
            if torch.get_num_threads() != before:
                torch.set_num_threads(before)


def choose(precision: str = "auto", device: str = "auto", threads: int | None = None) -> Compute:
    """Settle what "auto" means on this machine.

    Args:
        precision: "fp32", "bf16", "int8", or "auto": bf16 where the processor multiplies bf16 matrices in
            hardware. int8 is never chosen by itself: it moves scores more than the others.
        device: "cpu", "cuda", "cuda:1" ..., or "auto": CUDA where there is one.
        threads: Processor threads while scoring; None leaves the process as it is.

    Raises:
        WrongUse: An unknown word, CUDA asked for and absent, int8 where it cannot be had, no thread.
    """
    if threads is not None and threads < 1:
        raise WrongUse(f"threads={threads}: scoring needs 1 thread or more (leave it out for the default)")
    where = _device(device)
    if precision not in PRECISIONS:
        raise WrongUse(f'precision="{precision}" is not known; choose from: {", ".join(PRECISIONS)}')
    if precision == "auto":
        precision = "bf16" if where.type == "cuda" or machine.has_bf16() else "fp32"
    if precision == "int8":
        machine.require_int8_loops(where)
    chosen: Precision = "bf16" if precision == "bf16" else "int8" if precision == "int8" else "fp32"
    return Compute(chosen, where, threads or 0)


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise WrongUse(
            f'device="{name}" is not known; choose "auto", "cpu", "cuda" or "cuda:0", "cuda:1" ...'
        ) from None
    if device.type not in {"cpu", "cuda"}:
        raise WrongUse(f'device="{name}" is not supported; choose "auto", "cpu" or "cuda"')
    if device.type == "cuda" and not torch.cuda.is_available():
        raise WrongUse(
            f'device="{name}" was asked for, but this PyTorch sees no CUDA device; '
            'use device="cpu" or "auto", or install a CUDA build of PyTorch and check  nvidia-smi'
        )
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise WrongUse(
            f'device="{name}": this machine has {torch.cuda.device_count()} CUDA device(s), from 0'
        )
    return device
