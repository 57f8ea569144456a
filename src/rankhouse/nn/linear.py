"""A linear layer whose weights are laid out once for the processor at hand.

oneDNN multiplies by weights that it has put into its own order beforehand, near the processor's limit in bf16
and, on processors where MKL is slow, more than twice as fast in fp32; the activation rides along. Where
PyTorch was built without oneDNN, and on CUDA, the plain layer is used. Training uses the same product by
:func:`affine`; its weights change too often to be laid out.
"""

from __future__ import annotations

from typing import Any, Protocol, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from rankhouse.nn.compute import Activation, Compute, cpu_has_amx
from rankhouse.nn.quick import QuickLinear, fits

_ONEDNN = torch.ops.mkldnn
_ONEDNN_NAMES = {
    "none": ("none", ""),
    "relu": ("relu", ""),
    "gelu": ("gelu", "none"),
    "gelu_tanh": ("gelu", "tanh"),
}


class Linear:
    """act(x Wᵀ + b), without gradients.

    Args:
        weight: (out, in).
        bias: (out,), or None.
        compute: Device and precision.
        activation: What is applied to the result; "gelu" is the exact one (erf).
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None, compute: Compute, activation: Activation = "none"
    ) -> None:
        self._activation = activation
        weight = weight.detach().to(compute.device, compute.dtype).contiguous()
        self._bias = None if bias is None else bias.detach().to(compute.device, compute.dtype).contiguous()
        self._packed = compute.device.type == "cpu" and _has_onednn()
        self._weight = _ONEDNN._reorder_linear_weight(weight) if self._packed else weight  # noqa: SLF001  # PyTorch's name for it

    def __call__(self, rows: Tensor) -> Tensor:
        """Apply to rows: (t, in) -> (t, out)."""
        if not self._packed:
            return _activate(F.linear(rows, self._weight, self._bias), self._activation)
        name, variant = _ONEDNN_NAMES[self._activation]
        y: Tensor = _ONEDNN._linear_pointwise(rows, self._weight, self._bias, name, [], variant)  # noqa: SLF001  # likewise
        return y

    def add(self, rows: Tensor, x: Tensor) -> Tensor:
        """Add the result to x (t, out) float32, in place; gives x."""
        return x.add_(self(rows))

    def multiply(self, rows: Tensor, y: Tensor) -> Tensor:
        """Multiply y (t, out) by the result, in place; gives y."""
        return y.mul_(self(rows))


class Product(Protocol):
    """A linear layer of either kind; ``rows`` (t, in) are what the norm before it gave."""

    def __call__(self, rows: Any) -> Tensor:  # noqa: ANN401  # Tensor or Int8Rows, as its kind wants them
        """Apply to rows: (t, in) -> (t, out)."""
        ...

    def add(self, rows: Any, x: Tensor) -> Tensor:  # noqa: ANN401  # likewise
        """Add the result to x (t, out) float32, in place; gives x."""
        ...

    def multiply(self, rows: Any, y: Tensor) -> Tensor:  # noqa: ANN401  # likewise
        """Multiply y (t, out) by the result, in place; gives y."""
        ...


def linear(weight: Tensor, bias: Tensor | None, compute: Compute, activation: Activation = "none") -> Product:
    """Make the quickest layer there is. oneDNN's bf16 product uses AMX, which the compiled loops do not."""
    left_to_onednn = compute.precision == "bf16" and cpu_has_amx()
    if fits(compute, *weight.shape) and not left_to_onednn:
        return QuickLinear(weight, bias, compute, activation)
    return Linear(weight, bias, compute, activation)


def affine(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Give x Wᵀ + b with gradients: (..., in), (out, in), (out,) -> (..., out).

    Without gradients, in other number types and off the processor, PyTorch's own layer computes it.
    """
    if not torch.is_grad_enabled() or not multiplies(x, weight):
        return F.linear(x, weight, bias)
    flat = cast(Tensor, _Affine.apply(x.reshape(-1, x.shape[-1]), weight, bias))  # type: ignore[no-untyped-call]  # torch's
    return flat.view(*x.shape[:-1], len(weight))


def multiplies(*factors: Tensor) -> bool:
    """Tell whether :func:`multiply` serves these: float32 on the processor, and oneDNN is there."""
    return (
        _has_onednn()
        and not torch.is_autocast_enabled("cpu")
        and all(x.dtype is torch.float32 and x.device.type == "cpu" and x.numel() for x in factors)
    )


def multiply(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: Activation = "none"
) -> Tensor:
    """Give act(x Wᵀ + b) by oneDNN, without gradients: (t, in), (out, in) -> (t, out).

    Args:
        x: (t, in).
        weight: (out, in); it and x may be transposed views.
        bias: (out,), or None.
        activation: As in :class:`Linear`.
    """
    name, variant = _ONEDNN_NAMES[activation]
    y: Tensor = _ONEDNN._linear_pointwise(x, weight, bias, name, [], variant)  # noqa: SLF001  # PyTorch's name for it
    return y


def to_weight(gradient: Tensor, x: Tensor) -> Tensor:
    """Turn the gradient of a product (t, out) into that of its weight: (out, in), for x (t, in)."""
    if gradient.shape[1] > x.shape[1]:  # the narrower of the two is the cheaper one to turn
        return multiply(x.T, gradient.T).T.contiguous()
    return multiply(gradient.T, x.T)


class _Affine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # noqa: ANN401 - torch's context
        ctx.save_for_backward(x, weight)
        return multiply(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # noqa: ANN401
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        return (
            multiply(gradient, weight.T) if needs_x else None,
            to_weight(gradient, x) if needs_weight else None,
            gradient.sum(0) if needs_bias else None,
        )


def _activate(x: Tensor, activation: Activation) -> Tensor:
    if activation == "relu":
        return x.relu_()
    if activation == "none":
        return x
    return F.gelu(x, approximate="tanh" if activation == "gelu_tanh" else "none")


def _has_onednn() -> bool:
    return bool(torch._C._has_mkldnn) and hasattr(_ONEDNN, "_linear_pointwise")  # noqa: SLF001  # untyped elsewhere
