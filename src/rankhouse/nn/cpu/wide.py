"""int8 on every processor with AVX2 or NEON: products by our own loops or oneDNN, the rest by ``_wide.c``.

A weight has one scale for each output and lies within -63..63, a row of activations one for itself; a row X
in -127..127 is multiplied as X + 128. Sums of two products then fit into the 16 bits in which oneDNN adds
where the processor lacks VNNI, and are exact everywhere (with weights up to 127 it cuts them off there,
silently). The loops add in one order, those of ``_infer.c`` (with AVX512_VNNI, or AMX) too: scores are equal
to the bit on all processors, and whatever instructions oneDNN may use (tests try SSE4.1, AVX and AVX2).
Shapes: n rows, t tokens of all rows together, k inputs, m outputs, d width of a head, w width.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rankhouse.nn import machine
from rankhouse.nn.cpu import infer, onednn_int8
from rankhouse.nn.machine import Activation, checked

with suppress(ImportError):  # not compiled on this machine: `machine` says so
    from rankhouse.nn.cpu import _wide
with suppress(ImportError):  # likewise
    from rankhouse.nn.cpu import _infer

_ACTIVATIONS: dict[Activation, int] = {"none": 0, "relu": 1, "gelu": 2, "gelu_tanh": 3, "silu": 4}
_STORED, _ADDED, _GATED = range(3)
_TILE = 512  # rows multiplied at once, so that their products stay near the processor
_STEP = 32  # rows are filled up to a multiple of it: oneDNN compiles again for each new number
_COLUMNS = 16  # of a panel of a product of few rows
_PANEL = 8  # columns of a panel of our own product of bytes


class ByteRows(NamedTuple):
    """Rows of activations as bytes."""

    values: Tensor  # (t and a few more, k) uint8, 128 for 0
    scales: Tensor  # (t,) float32, what a row's values are multiplied by

    @classmethod
    def empty(cls, count: int, width: int) -> ByteRows:
        """Return rows to be filled."""
        return cls(torch.empty(count + -count % _STEP, width, dtype=torch.uint8), torch.empty(count))


class QuantisedLinear:
    """act(x Wᵀ + b) in int8; may add its result to the residual.

    Args:
        weight: (m, k).
        bias: (m,), or None.
        activation: Activation of the result; not with ``add``.
        feeds: Whether the next product reads the result, which then is given as bytes.
        gated: Whether the second half of the result multiplies the first, behind its activation: (t, m / 2).
    """

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None,
        activation: Activation = "none",
        *,
        feeds: bool = False,
        gated: bool = False,
    ) -> None:
        self._out, self._in = weight.shape
        self._activation, self._feeds, self._gated = _ACTIVATIONS[activation], feeds, gated
        weight = weight.detach().float()
        self._bias = None if bias is None else bias.detach().float().contiguous()
        self._scale = (weight.abs().amax(1).clamp(min=1e-30) / onednn_int8.LARGEST).contiguous()
        whole = torch.round(weight / self._scale[:, None]).nan_to_num().to(torch.int8)
        self._own: PanelProduct | GroupedProduct | None = None
        if machine.INT8_LOOPS:
            self._own = PanelProduct(whole, gated=gated)
        elif machine.GROUPED:
            self._own = GroupedProduct(whole)
        self._weight = torch.empty(0) if self._own else onednn_int8.pack(whole)

    def __call__(self, rows: Tensor | ByteRows) -> Any:  # noqa: ANN401  # as `feeds` says
        """Apply to rows: (t, k) -> (t, m) float32, or bytes."""
        rows, into = _bytes(rows), _GATED if self._gated else _STORED
        count, width = len(rows.scales), self._out // (2 if self._gated else 1)
        if not self._feeds:
            return self._compute(rows, torch.empty(count, width), into)
        given = ByteRows.empty(count, width)
        self._compute(rows, given, into)
        return given

    def add(self, rows: Tensor | ByteRows, x: Tensor) -> Tensor:
        """Add the result to x (t, m) float32, in place; return x."""
        return self._compute(_bytes(rows), checked(x, torch.float32, self._out), _ADDED)

    def multiply(self, rows: Tensor | ByteRows, y: Tensor) -> Tensor:
        """Multiply y (t, m) float32 by the result, in place; return y."""
        product: Tensor = self(rows)
        return y.mul_(product)

    def feed(self, rows: Tensor | ByteRows, then: QuantisedLinear, x: Tensor) -> Tensor:
        """Add what the next layer makes of the result to x (t, its m) float32, in place; return x."""
        up, down = self._own, then._own
        if self._gated or not isinstance(up, PanelProduct) or not isinstance(down, PanelProduct):
            return then.add(self(rows), x)
        rows = _bytes(rows)
        values = checked(rows.values[: len(x)], torch.uint8, self._in, len(rows.scales))
        weights = *up.weights(self._scale, self._bias), *down.weights(then._scale, then._bias)
        sizes = len(values), self._in // 4, self._out, then._out
        given = infer.INT8, self._activation, values, rows.scales
        machine.call(_infer.feed, (*given, *weights, checked(x, torch.float32, then._out), *sizes))
        return x

    def attend(self, rows: Tensor | ByteRows, ends: Tensor, heads: int, bias: Tensor | None = None) -> Tensor:
        """Return what :func:`attend` makes of the result: (t, k) -> (t, m / 3) float32.

        The loops of ``_infer.c`` compute some rows' queries, keys and values at a time.
        """
        if not isinstance(self._own, PanelProduct):
            return attend(self(rows), ends, heads, bias)
        rows = _bytes(rows)
        count = len(rows.scales)
        if int(ends[-1]) != count:
            raise ValueError(f"rows end at {int(ends[-1])}, there are {count} tokens")
        out = torch.empty(count, self._out // 3)
        weight = *self._own.weights(self._scale, self._bias), self._in // 4
        sizes = checked(ends[None], torch.int64, len(ends)), len(ends) - 1, heads, self._out // 3 // heads
        given = infer.INT8, checked(rows.values[:count], torch.uint8, self._in), rows.scales
        layout, room = infer.bias_layout(bias, ends, heads), infer.portions(ends, heads, sizes[3], 4)
        machine.call(_infer.attend_to, (*given, *weight, *sizes, *layout, out, *room))
        return out

    def _compute(self, rows: ByteRows, out: Tensor | ByteRows, into: int) -> Tensor:
        """Put what is made of products into out."""
        count = len(rows.scales)
        checked(rows.values, torch.uint8, self._in)
        scales, how = (rows.scales, self._scale, self._bias), (self._activation, into)
        given = (out, None, None) if isinstance(out, Tensor) else (None, *out)
        if self._own:
            self._own(rows.values[:count], (*scales, *how, *given))
        else:
            self._by_onednn(rows, how, given)
        return out if isinstance(out, Tensor) else out.scales

    def _by_onednn(self, rows: ByteRows, how: tuple[int, int], given: tuple[Tensor | None, ...]) -> None:
        """Multiply some rows at a time."""
        count = len(rows.scales)
        for start in range(0, count, _TILE):
            some, stop = rows.values[start : start + _TILE], min(start + _TILE, count)
            products = onednn_int8.multiply(some, self._weight, self._out)
            scales = (rows.scales[start:stop], self._scale, self._bias)
            into = (None if part is None else part[start:stop] for part in given)
            machine.call(_wide.scale, (products, *scales, stop - start, self._out, *how, *into))


class PanelProduct:
    """The same sums as oneDNN's, and what follows them at once, with AVX512_VNNI or AMX: see ``_infer.c``.

    Args:
        weight: (m, k) int8 within -63..63; m and k are multiples of 16.
        gated: Whether its second half multiplies the first.
    """

    def __init__(self, weight: Tensor, *, gated: bool) -> None:
        self._columns, self._inputs = weight.shape
        self._columns //= 2 if gated else 1
        self._packed = [infer.packed(part, 4) for part in torch.split(weight, self._columns)]
        zeros = onednn_int8.ZERO * weight.sum(1, dtype=torch.int32)
        self._zeros = torch.split(zeros, self._columns)

    def weights(self, scale: Tensor, bias: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return the weight as the loops take it."""
        return self._packed[0], scale, self._zeros[0], bias

    def __call__(self, rows: Tensor, scaled: tuple[Any, ...]) -> None:
        """Multiply bytes, 128 for 0: (t, k) uint8.

        Args:
            scaled: As for :class:`GroupedProduct`.
        """
        row_scale, *of_columns, into, out, bytes_, scales = scaled
        if out is not None:
            self._put(rows, row_scale, of_columns, into=into, out=out)
            return
        for start in range(0, len(rows), _TILE):
            some = slice(start, min(start + _TILE, len(rows)))
            made = torch.empty(some.stop - start, self._columns)
            self._put(rows[some], row_scale[some], of_columns, into=into, out=made)
            machine.call(_infer.quantise, (made, *made.shape, bytes_[some], scales[some]))

    def _put(self, rows: Tensor, row_scale: Tensor, of_columns: list[Any], into: int, out: Tensor) -> None:
        column_scale, bias, activation = of_columns
        for half, weight in enumerate(self._packed):
            columns = slice(half * self._columns, (half + 1) * self._columns)
            arguments = infer.Arguments(
                kind=infer.INT8,
                activation=0 if half else activation,
                into=infer.MULTIPLIED if half else infer.STORED if into == _GATED else into,
                x=checked(rows, torch.uint8, self._inputs),
                scales=row_scale,
                weight=weight,
                weight_scale=column_scale[columns],
                zeros=self._zeros[half],
                bias=None if bias is None else bias[columns],
                out=checked(out, torch.float32, self._columns, len(rows)),
                rows=len(rows),
                steps=self._inputs // 4,
                columns=self._columns,
            )
            machine.call(_infer.product, arguments)


class GroupedProduct:
    """The same sums as oneDNN's, quicker on ARM, and on x86 without AVX-512: see ``_wide_loops.h``.

    Args:
        weight: (m, k) int8 within -63..63; m is a multiple of 8, k of 4.
    """

    def __init__(self, weight: Tensor) -> None:
        self._columns, self._inputs = weight.shape
        panels = self._columns // _PANEL
        starts = torch.empty(panels + 1, dtype=torch.int64)
        weight = checked(weight.contiguous(), torch.int8, self._inputs)
        sizes = (self._columns, self._inputs)
        dots = machine.DOTS
        machine.call(_wide.pack, (weight, *sizes, starts, None, None, dots))
        groups = int(starts[-1])
        at, packed = torch.empty(groups, 4, dtype=torch.int32), torch.zeros(groups, 128, dtype=torch.int8)
        machine.call(_wide.pack, (weight, *sizes, starts, at, packed, dots))
        zeros = onednn_int8.ZERO * weight.sum(1, dtype=torch.int32)
        self._packed = starts, at, zeros, packed, dots

    def __call__(self, rows: Tensor, scaled: tuple[Tensor | int | None, ...]) -> None:
        """Multiply bytes, 128 for 0: (t, k) uint8.

        Args:
            scaled: What to do with the products (t, m), as the loop ``multiply`` takes it.
        """
        rows = checked(rows, torch.uint8, self._inputs)
        machine.call(_wide.multiply, (rows, len(rows), self._inputs, self._columns, *self._packed, *scaled))


def _bytes(rows: Tensor | ByteRows) -> ByteRows:
    """Round rows of float32 (t, k), each with its own scale."""
    if isinstance(rows, ByteRows):
        return rows
    count, width = rows.shape
    checked(rows, torch.float32, width)
    made = ByteRows.empty(count, width)
    loop = _infer.quantise if machine.INT8_LOOPS else _wide.quantise
    machine.call(loop, (rows, count, width, made.values, made.scales))
    return made


class WideLinear:
    """act(x Wᵀ + b) in fp32 for few rows, equal to the bit on every processor.

    Args:
        halved: Whether the weight is rounded to bf16, half as much to hold and to read for few rows.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None, activation: Activation = "none", *, halved: bool = False
    ) -> None:
        self._out, self._in = weight.shape
        panels = -(-self._out // _COLUMNS)
        whole = torch.zeros(panels * _COLUMNS, self._in)
        whole[: self._out] = weight.detach()
        whole = whole.bfloat16() if halved else whole
        self._weight = whole.view(panels, _COLUMNS, self._in).transpose(1, 2).contiguous()
        self._bias = torch.zeros(panels * _COLUMNS)
        if bias is not None:
            self._bias[: self._out] = bias.detach()
        self._activation = _ACTIVATIONS[activation]

    def __call__(self, rows: Tensor) -> Tensor:
        """Apply to rows: (t, k) -> (t, m)."""
        rows = checked(rows.contiguous(), torch.float32, self._in)
        out = torch.empty(len(rows), len(self._bias))
        sizes = (len(rows), self._in, len(self._weight))
        how = (self._activation, int(self._weight.dtype is torch.bfloat16))
        loop = _infer.affine if machine.INT8_LOOPS else _wide.affine
        machine.call(loop, (rows, self._weight, self._bias, *sizes, *how, out))
        return out[:, : self._out].contiguous()

    def add(self, rows: Tensor, x: Tensor) -> Tensor:
        """Add the result to x (t, m) float32, in place; return x."""
        return x.add_(self(rows))

    def multiply(self, rows: Tensor, y: Tensor) -> Tensor:
        """Multiply y (t, m) by the result, in place; return y."""
        return y.mul_(self(rows))


class WideNorm:
    """Layer norm, or with no gain division by the root mean square, and the rows for the next product.

    Args:
        exact: Whether that product reads float32, else bytes.
    """

    def __init__(self, gain: Tensor | None, shift: Tensor | None, eps: float, *, exact: bool = False) -> None:
        self._gain = None if gain is None else gain.detach().float().contiguous()
        self._shift = None if shift is None else shift.detach().float().contiguous()
        self._eps, self._exact = eps, exact

    def __call__(self, x: Tensor) -> tuple[Tensor, ByteRows | Tensor]:
        """Normalise x (t, k) float32, in place if there is a gain; return it and its normed rows."""
        count, width = x.shape
        checked(x, torch.float32, width if self._gain is None else len(self._gain))
        arguments = (x, self._gain, self._shift, self._eps, count, width)
        if not self._exact:
            rows = ByteRows.empty(count, width)
            if machine.INT8_LOOPS:
                machine.call(_infer.norm, (infer.INT8, *arguments, *rows))
            else:
                machine.call(_wide.norm, (*arguments, *rows, None))
            return x, rows
        out = None if self._gain is not None else torch.empty_like(x)
        machine.call(_wide.norm, (*arguments, None, None, out))
        return x, x if out is None else out


def attend(qkv: Tensor, ends: Tensor, heads: int, bias: Tensor | None = None) -> Tensor:
    """Softmax attention of every row of tokens over itself, scores in base 2.

    Args:
        qkv: (t, 3 * heads * d) float32, queries, keys, values side by side.
        ends: (n + 1,) int64, where rows begin and end in t.
        bias: As :func:`rankhouse.nn.cpu.infer.attend` takes it.

    Returns:
        (t, heads * d) float32.
    """
    if machine.INT8_LOOPS:
        return infer.attend(qkv, ends, heads, bias)
    width = qkv.shape[1] // 3
    checked(qkv, torch.float32, 3 * width)
    if int(ends[-1]) != len(qkv):
        raise ValueError(f"rows end at {int(ends[-1])}, there are {len(qkv)} tokens")
    out = torch.empty(len(qkv), width)
    sizes = (len(ends) - 1, heads, width // heads)
    layout = infer.bias_layout(bias, ends, heads)
    machine.call(_wide.attend, (qkv, ends, *sizes, *layout, machine.DOTS, out))
    return out


def attend_once(queries: Tensor, x: Tensor, ends: Tensor) -> Tensor:
    """Let h queries a row (n, h, w) read their row of x (t, w), which ends at ``ends`` (n + 1,) int64.

    See ``attention.attend_once``.
    """
    return _read_once(queries, (x, x), ends, (x.shape[1], 0))


def attend_first(queries: Tensor, keys_values: Tensor, ends: Tensor, most: int | None) -> Tensor:
    """Let h queries a row (n, h, d) read keys and values of their row, (t, 2 * h * d), side by side.

    Args:
        most: Tokens of a row that are read, from its first; None: all.
    """
    _, heads, d = queries.shape
    sides = keys_values, keys_values[:, heads * d :]
    return _read_once(queries, sides, ends, (2 * heads * d, d), most=most)


def _read_once(
    queries: Tensor,
    sides: tuple[Tensor, Tensor],
    ends: Tensor,
    steps: tuple[int, int],
    most: int | None = None,
) -> Tensor:
    """Read keys and values that stand ``steps`` numbers apart: from token to token, from head to head."""
    rows, heads, width = queries.shape
    checked(sides[0], torch.float32, steps[0])
    checked(queries.view(rows * heads, width), torch.float32, width)
    if len(ends) != rows + 1 or int(ends[-1]) != len(sides[0]):
        raise ValueError(
            f"{rows} rows of queries, {len(ends) - 1} rows of {int(ends[-1])} in {len(sides[0])} tokens"
        )
    out = torch.empty_like(queries)
    sizes = (rows, heads, width, *steps, most or int(ends[-1]))
    machine.call(_wide.attend_once, (queries, *sides, ends, *sizes, out))
    return out
