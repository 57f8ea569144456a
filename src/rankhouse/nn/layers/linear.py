"""A linear layer whose weights are laid out once for the processor at hand, and the norms before it in fp32.

oneDNN multiplies by weights that it has put into its own order beforehand, near the processor's limit in bf16
and, on processors where MKL is slow, more than twice as fast in fp32; the activation rides along. Where
PyTorch was built without oneDNN, and on CUDA, the plain layer is used. Training uses the same product by
:func:`affine`; its weights change too often to be laid out.

A row's result has the same bits whatever rows stand beside it. oneDNN's float32 product sums each number in
one order, except for a single row or a single column, which it computes otherwise: these are doubled. On ARM
it takes several rows at once and sums what is left over otherwise: there, zeros fill up to whole groups. Its
bf16 product on AMX picks the order by the number of rows where inputs are many: there, rows go in tiles.
Where it has no bf16 product (AVX2), numbers rounded to bf16 are multiplied in float32 and the result is
rounded to bf16: the precision that was asked for, no faster than float32.
MKL, behind PyTorch's own products, keeps no such order, so no product of a score may be one of those.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from rankhouse.nn import machine
from rankhouse.nn.cpu import wide
from rankhouse.nn.cpu.infer import TILE, FusedNorm, PackedLinear
from rankhouse.nn.machine import Activation, Compute, multiplies

_ONEDNN = torch.ops.mkldnn
_TILE = 256  # rows multiplied at once where their number would decide the order of additions
_STEP = 32  # rows are filled up to a multiple of it
_GROUP, _COLUMNS = 24, 16  # multiples of the rows and columns that oneDNN's kernels for ARM take at once
_IS_X86 = platform.machine() in {"x86_64", "AMD64"}
_SHORT = 384  # inputs, a multiple of 32, up to which oneDNN's bf16 product has one order for any rows
_ONEDNN_NAMES = {
    "none": ("none", ""),
    "relu": ("relu", ""),
    "gelu": ("gelu", "none"),
    "gelu_tanh": ("gelu", "tanh"),
    "silu": ("swish", ""),
}


class Linear:
    """act(x Wᵀ + b), without gradients; "gelu" is the exact one (erf)."""

    def __init__(
        self, weight: Tensor, bias: Tensor | None, compute: Compute, activation: Activation = "none"
    ) -> None:
        self._activation = activation
        weight = weight.detach().to(compute.device, compute.dtype).contiguous()
        self._bias = None if bias is None else bias.detach().to(compute.device, compute.dtype).contiguous()
        self._packed = compute.device.type == "cpu" and machine.has_onednn()
        inside, is_bf16 = weight.shape[1], compute.dtype is torch.bfloat16
        self._widened = self._packed and is_bf16 and not machine.multiplies_bf16()
        if self._widened:
            weight, self._bias = weight.float(), None if self._bias is None else self._bias.float()
        self._tiled = is_bf16 and not self._widened and (inside > _SHORT or inside % 32 != 0)
        self._single = self._packed and len(weight) == 1
        if self._single:
            weight = weight.repeat(2, 1)
            self._bias = None if self._bias is None else self._bias.repeat(2)
        self._weight = _ONEDNN._reorder_linear_weight(weight) if self._packed else weight  # noqa: SLF001  # PyTorch's name for it

    def __call__(self, rows: Tensor) -> Tensor:
        """Apply to rows: (t, in) -> (t, out)."""
        if not self._packed:
            return _activate(F.linear(rows, self._weight, self._bias), self._activation)
        y = torch.cat([*self._in_tiles(rows)]) if self._tiled else self._multiply(_whole(rows))[: len(rows)]
        return y[:, :1] if self._single else y

    def _multiply(self, rows: Tensor) -> Tensor:
        name, variant = _ONEDNN_NAMES[self._activation]
        wide = rows.float() if self._widened else rows
        y: Tensor = _ONEDNN._linear_pointwise(wide, self._weight, self._bias, name, [], variant)  # noqa: SLF001  # likewise
        return y.to(rows.dtype)

    def _in_tiles(self, rows: Tensor) -> Iterator[Tensor]:
        for tile in torch.split(rows, _TILE):
            missing = _TILE - len(tile)
            yield self._multiply(F.pad(tile, (0, 0, 0, missing)) if missing else tile)[: len(tile)]

    def add(self, rows: Tensor, x: Tensor) -> Tensor:
        """Add the result to x (t, out) float32, in place; return x."""
        if not (self._packed and self._tiled):
            return x.add_(self(rows))
        for part, tile in zip(torch.split(x, _TILE), self._in_tiles(rows), strict=True):
            part.add_(tile[:, : x.shape[1]])
        return x

    def multiply(self, rows: Tensor, y: Tensor) -> Tensor:
        """Multiply y (t, out) by the result, in place; return y."""
        return y.mul_(self(rows))


Rows = Tensor | wide.ByteRows
"""Input of a product: (t, k) in the type of the computation."""
Affine = tuple[Tensor, Tensor | None]
"""A weight (out, in) and a bias (out,) or None."""


class Product(Protocol):
    """A linear layer of either kind; ``rows`` (t, in) are what the norm before it gave."""

    def __call__(self, rows: Any) -> Tensor:  # noqa: ANN401  # Tensor or ByteRows, as its kind wants them
        """Apply to rows: (t, in) -> (t, out)."""
        ...

    def add(self, rows: Any, x: Tensor) -> Tensor:  # noqa: ANN401  # likewise
        """Add the result to x (t, out) float32, in place; return x."""
        ...

    def multiply(self, rows: Any, y: Tensor) -> Tensor:  # noqa: ANN401  # likewise
        """Multiply y (t, out) by the result, in place; return y."""
        ...


def linear(
    weight: Tensor,
    bias: Tensor | None,
    compute: Compute,
    activation: Activation = "none",
    few: bool = False,
    feeds: bool = False,
) -> Product:
    """Make the quickest layer. Where the compiled loops cannot use AMX, oneDNN's bf16 product may.

    Args:
        feeds: Whether a product reads the result, and nothing else does.
    """
    if machine.fits_wide(compute, weight.shape[1]) and compute.steady:
        return wide.WideLinear(weight, bias, activation, halved=compute.halved)
    if machine.fits_wide(compute, *weight.shape):
        return wide.QuantisedLinear(weight, bias, activation, feeds=feeds)
    in_tiles = machine.TILES and weight.shape[1] % TILE == 0
    left_to_onednn = compute.precision == "bf16" and machine.has_amx() and not in_tiles and not few
    if machine.fits_infer(compute, *weight.shape) and not left_to_onednn:
        return PackedLinear(weight, bias, activation)
    return Linear(weight, bias, compute, activation)


def feed(rows: Any, up: Product | Gated, down: Product, x: Tensor) -> Tensor:  # noqa: ANN401  # as products take them
    """Add down(up(rows)) to x (t, out) float32, in place; return x."""
    if isinstance(up, PackedLinear) and isinstance(down, PackedLinear):
        return up.feed(rows, down, x)
    if isinstance(up, wide.QuantisedLinear) and isinstance(down, wide.QuantisedLinear):
        return up.feed(rows, down, x)
    return down.add(up(rows), x)


class Gated:
    """act(x Uᵀ + b) * (x Gᵀ + c), for the product that reads it."""

    def __init__(
        self, up: Affine, gate: Affine, compute: Compute, activation: Activation, few: bool = False
    ) -> None:
        self._both: Product | None = None
        if machine.fits_wide(compute, *up[0].shape) and not compute.steady:
            bias = None if up[1] is None or gate[1] is None else torch.cat([up[1], gate[1]])
            weight = torch.cat([up[0], gate[0]])
            self._both = wide.QuantisedLinear(weight, bias, activation, feeds=True, gated=True)
        else:
            self._up = linear(*up, compute, activation, few=few)
            self._gate = linear(*gate, compute, few=few)

    def __call__(self, rows: Any) -> Any:  # noqa: ANN401  # as products take them
        """Apply to rows: (t, in) -> (t, out)."""
        return self._gate.multiply(rows, self._up(rows)) if self._both is None else self._both(rows)


class PerHead:
    """One product a head, without gradients."""

    def __init__(self, weight: Tensor, compute: Compute) -> None:
        self._on_cpu = compute.device.type == "cpu"
        self._weight = weight.detach().to(compute.device, compute.dtype).transpose(1, 2).contiguous()
        heads = weight.detach().float() if self._on_cpu else ()
        self._products = [linear(each, None, compute, few=True) for each in heads]

    def __call__(self, x: Tensor) -> Tensor:
        """Apply to (n, h, in) -> (n, h, out)."""
        if not self._on_cpu:
            return torch.bmm(x.transpose(0, 1), self._weight).transpose(0, 1).contiguous()
        return torch.stack([p(x[:, i].contiguous()) for i, p in enumerate(self._products)], 1)


class _PackedLayer(nn.Module):
    """A linear layer of another library's module; ``weight`` only tells its number type."""

    def __init__(self, layer: nn.Linear, compute: Compute) -> None:
        super().__init__()
        steady = compute.steady and machine.fits_wide(compute, layer.in_features)
        make = linear if steady else Linear
        self._product, self._out = make(layer.weight, layer.bias, compute), layer.out_features
        self.weight = layer.weight.detach().new_empty(0)

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) -> (..., out)."""
        flat: Tensor = self._product(x.reshape(-1, x.shape[-1]))
        return flat.view(*x.shape[:-1], self._out)


class _SteadyTanh(nn.Module):
    """tanh rounded from float64: in float32, MKL's last bit differs between processors."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply to each number."""
        return torch.tanh(x.double()).to(x.dtype)


def packed_linears(module: nn.Module, compute: Compute) -> nn.Module:
    """Return a module without gradients whose linear layers are :class:`Linear`; it is changed."""
    if isinstance(module, nn.Linear):
        return _PackedLayer(module, compute)
    if isinstance(module, nn.Tanh) and compute.steady:
        return _SteadyTanh()
    for name, child in module.named_children():
        setattr(module, name, packed_linears(child, compute))
    return module


def two_hidden_layers(inputs: int, hidden: int) -> nn.Sequential:
    """Make the network (..., inputs) -> (..., 1) of PACRR, with gradients."""
    wide, narrow = nn.Linear(inputs, hidden), nn.Linear(hidden, hidden)
    return nn.Sequential(wide, nn.ReLU(), narrow, nn.ReLU(), nn.Linear(hidden, 1))


def affine(x: Tensor, weight: Tensor) -> Tensor:
    """Return x Wᵀ with gradients: (..., in), (out, in) -> (..., out).

    In other number types and off the processor, PyTorch's own layer computes it.
    """
    if not multiplies(x, weight):
        return F.linear(x, weight)
    if not torch.is_grad_enabled():
        return multiply(x.reshape(-1, x.shape[-1]), weight).view(*x.shape[:-1], len(weight))
    flat = cast(Tensor, _Affine.apply(x.reshape(-1, x.shape[-1]), weight))  # type: ignore[no-untyped-call]  # torch's
    return flat.view(*x.shape[:-1], len(weight))


def multiply(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: Activation = "none"
) -> Tensor:
    """Return act(x Wᵀ + b) by oneDNN, without gradients: (t, in), (out, in), (out,) -> (t, out).

    Each number depends on its own row of x and of the weight only, to the bit; both may be transposed views.
    """
    name, variant = _ONEDNN_NAMES[activation]
    t, out = len(x), len(weight)
    weight = _whole(weight, _COLUMNS)
    bias = None if bias is None else F.pad(bias, (0, len(weight) - out))
    y: Tensor = _ONEDNN._linear_pointwise(_whole(x), weight, bias, name, [], variant)  # noqa: SLF001  # PyTorch's name for it
    return y[:t, :out].contiguous()


def products(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x Wᵀ + b without gradients wherever it is: by :func:`multiply` where that serves.

    Rows of zeros fill x up to a number that comes again: oneDNN compiles again for each new one.
    """
    if not multiplies(x, weight):
        return F.linear(x, weight, bias)
    return multiply(F.pad(x, (0, 0, 0, missing(len(x)))), weight, bias)[: len(x)]


def missing(rows: int) -> int:
    """Return how many rows of zeros fill this many up to a number that comes again."""
    return -rows % (_STEP if rows <= 8 * _STEP else 2 * _STEP)


def through(layer: nn.Linear, x: Tensor) -> Tensor:
    """Apply a module's layer: (..., in) -> (..., out); without gradients by :func:`products`."""
    if torch.is_grad_enabled():
        return cast(Tensor, layer(x))
    flat = products(x.reshape(-1, x.shape[-1]), layer.weight, layer.bias)
    return flat.view(*x.shape[:-1], layer.out_features)


def query_sums(x: Tensor) -> Tensor:
    """Sum the second dimension, in order where there are no gradients: (n, q, ...) -> (n, ...).

    Zeros at its end then change no bit.
    """
    if torch.is_grad_enabled():
        return x.sum(1)
    total = x.new_zeros(len(x), *x.shape[2:])
    for column in x.unbind(1):
        total += column
    return total


def row_sums(x: Tensor) -> Tensor:
    """Sum the last dimension, without gradients so that zeros at its end change no bit: (..., p) -> (...).

    PyTorch's own sum adds in an order that depends on p.
    """
    if torch.is_grad_enabled() or not multiplies(x):
        return x.sum(-1)
    flat = x.reshape(-1, x.shape[-1])
    filled = F.pad(flat, (0, -flat.shape[1] % 16, 0, missing(len(flat))))
    return multiply(filled, x.new_ones(2, filled.shape[1]))[: len(flat), 0].reshape(x.shape[:-1])


def _two(rows: Tensor) -> Tensor:
    """Double a single row: oneDNN sums that in another order than rows among others."""
    return rows.repeat(2, 1) if len(rows) == 1 else rows


def _whole(rows: Tensor, group: int = _GROUP) -> Tensor:
    """Fill up to whole groups of rows on ARM, where those left over are summed in another order."""
    missing = 0 if _IS_X86 else -len(rows) % group
    return F.pad(rows, (0, 0, 0, missing)) if missing else _two(rows)


def to_weight(gradient: Tensor, x: Tensor) -> Tensor:
    """Turn the gradient of a product (t, out) into that of its weight: (out, in), for x (t, in)."""
    if gradient.shape[1] > x.shape[1]:  # the narrower of the two is the cheaper one to turn
        return multiply(x.T, gradient.T).T.contiguous()
    return multiply(gradient.T, x.T)


class _Affine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:  # noqa: ANN401 - torch's context
        ctx.save_for_backward(x, weight)
        return multiply(x, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:  # noqa: ANN401
        x, weight = ctx.saved_tensors
        needs_x, needs_weight = ctx.needs_input_grad
        return (
            multiply(gradient, weight.T) if needs_x else None,
            to_weight(gradient, x) if needs_weight else None,
        )


def _activate(x: Tensor, activation: Activation) -> Tensor:
    if activation == "relu":
        return x.relu_()
    if activation == "silu":
        return F.silu(x, inplace=True)
    if activation == "none":
        return x
    return F.gelu(x, approximate="tanh" if activation == "gelu_tanh" else "none")


class Norm(Protocol):
    """Normalises rows."""

    def __call__(self, x: Tensor) -> tuple[Tensor, Any]:
        """Return x (t, w) float32, itself normalised by a layer norm, and the rows the next product reads.

        x may be changed in place.
        """
        ...


class PlainNorm:
    """The same in PyTorch; without a gain, x is left as it is."""

    def __init__(self, gain: Tensor | None, shift: Tensor | None, eps: float, compute: Compute) -> None:
        device = compute.device
        self._gain = None if gain is None else gain.detach().float().to(device)
        self._shift = None if shift is None else shift.detach().float().to(device)
        self._eps, self._dtype = eps, compute.dtype

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return x (t, w) float32 and its rows (t, w) in the precision of the computation."""
        if self._gain is None:
            return x, root_mean_square(x, self._eps).to(self._dtype)
        x = F.layer_norm(x, self._gain.shape, self._gain, self._shift, eps=self._eps)
        return x, x.to(self._dtype)


def layer_norm(gain: Tensor, shift: Tensor, eps: float, compute: Compute) -> Norm:
    """Make a layer norm: gain and shift (w,)."""
    if machine.fits_wide(compute, len(gain)):
        return wide.WideNorm(gain, shift, eps, exact=compute.steady)
    fused = machine.fits_infer(compute, len(gain))
    return FusedNorm(gain, shift, eps) if fused else PlainNorm(gain, shift, eps, compute)


def root_mean_square_norm(width: int, eps: float, compute: Compute) -> Norm:
    """Make T5's norm, whose gain belongs to the product behind it."""
    if machine.fits_wide(compute, width):
        return wide.WideNorm(None, None, eps, exact=compute.steady)
    fused = machine.fits_infer(compute, width)
    return FusedNorm(None, None, eps) if fused else PlainNorm(None, None, eps, compute)


def root_mean_square(x: Tensor, eps: float) -> Tensor:
    """Divide rows (t, w) float32 by their root mean square."""
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x * torch.rsqrt(norm.square_().div_(x.shape[-1]).add_(eps))
