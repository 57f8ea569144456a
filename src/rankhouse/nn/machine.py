"""Device, precision and threads of a computation, exactly; and what this processor can.

``_infer.c`` (scoring in bf16 and int8) needs AVX512_VNNI, for bf16 AVX512_BF16 too, and uses AMX on Linux
where the processor has it; ``_wide.c`` (int8, with the same bits) needs AVX2 or NEON; ``_train.c`` (light
rankers) chooses among AVX-512, AVX2 and NEON. They are built where a compiler is found. Without them PyTorch
computes the same, but for int8. RANKHOUSE_CPU=avx512 does without AMX, RANKHOUSE_CPU=avx512_vnni without
AVX512_BF16 too, RANKHOUSE_CPU=avx2_vnni without AVX-512, RANKHOUSE_CPU=avx2 without AVX-VNNI (on ARM, dot
products), RANKHOUSE_CPU=plain without any of the loops: for comparisons.
"""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from rankhouse.core.errors import WrongUse
from rankhouse.nn.cpu import onednn_int8

Precision = Literal["fp32", "bf16", "int8"]
Activation = Literal["none", "relu", "gelu", "gelu_tanh", "silu"]

PRECISIONS = ("auto", "bf16", "fp32", "int8")


class Compute(NamedTuple):
    """Settings of one scoring engine; make one with :func:`choose`.

    ``threads`` is the number of processor threads while scoring (0: whatever the process already uses);
    ``steady`` makes products of fp32 by loops that add in one order on every processor: beside int8;
    with ``halved``, their weights are rounded to bf16.
    """

    precision: Precision = "fp32"
    device: torch.device = torch.device("cpu")
    threads: int = 0
    steady: bool = False
    halved: bool = False

    @property
    def dtype(self) -> torch.dtype:
        """The number type of activations; with int8, of those that are not products' inputs."""
        return torch.bfloat16 if self.precision == "bf16" else torch.float32

    @property
    def unquantised(self) -> Compute:
        """The same without int8: for what gains nothing by it."""
        return self.fp32 if self.precision == "int8" else self

    @property
    def fp32(self) -> Compute:
        """The same in fp32: for what must not be rounded."""
        return self._replace(precision="fp32", steady=self.steady or self.precision == "int8")

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

    Raises WrongUse: an unknown word, CUDA asked for and absent, int8 where it cannot be had, no thread.
    """
    if threads is not None and threads < 1:
        raise WrongUse(f"threads={threads}: scoring needs 1 thread or more (leave it out for the default)")
    where = _device(device)
    if precision not in PRECISIONS:
        raise WrongUse(f'precision="{precision}" is not known; choose from: {", ".join(PRECISIONS)}')
    if precision == "auto":
        precision = "bf16" if where.type == "cuda" or has_bf16() else "fp32"
    if precision == "int8":
        require_int8_loops(where)
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


_FORCED = {"avx512": "AVX512_CORE_BF16", "avx512_vnni": "AVX512_CORE_VNNI"}  # what oneDNN then may use
_FORCED |= {"avx2_vnni": "AVX2_VNNI", "avx2": "AVX2", "plain": "AVX2"}
FORCED: str = os.environ.get("RANKHOUSE_CPU", "")
"""The most that may be used: "avx512", "avx512_vnni", "avx2_vnni", "avx2", "plain"; "": all there is."""
_WITH_AVX512 = FORCED in {"", "avx512", "avx512_vnni"}
if FORCED and FORCED not in _FORCED:
    raise WrongUse(
        f'RANKHOUSE_CPU="{FORCED}" is not known; choose from: {", ".join(sorted(_FORCED))}, or leave it unset'
    )
if FORCED:  # oneDNN reads this when it is first used
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", _FORCED[FORCED])
_LIMIT = os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper()
_AVX2 = {"SSE41", "AVX", "AVX2", "AVX2_VNNI"}  # limits below AVX-512

try:
    from rankhouse.nn.cpu import _infer
except ImportError:  # not compiled on this machine
    INFER_LOOPS = INT8_LOOPS = TILES = False
else:
    INFER_LOOPS, INT8_LOOPS = (has and _WITH_AVX512 for has in _infer.supported())
    INFER_LOOPS = INFER_LOOPS and FORCED != "avx512_vnni"
    TILES = INFER_LOOPS and _infer.use_tiles(not FORCED)
try:
    from rankhouse.nn.cpu import _train
except ImportError:
    TRAIN_SET = ""
else:
    TRAIN_SET = "" if FORCED == "plain" else _train.choose(_WITH_AVX512)
TRAIN_LOOPS = bool(TRAIN_SET)
try:
    from rankhouse.nn.cpu import _wide
except ImportError:
    WIDE_LOOPS = GROUPED = DOTS = False
else:
    WIDE_LOOPS = FORCED != "plain" and _wide.supported()
    GROUPED = WIDE_LOOPS and not INT8_LOOPS and (_LIMIT in _AVX2 or _wide.needed())
    DOTS = WIDE_LOOPS and FORCED != "avx2" and _wide.dots()

NO_INT8 = 'precision="int8" cannot be had here: {}; use "auto", "bf16" or "fp32"'

# oneDNN and PyTorch each keep what they compiled for the last 1,024 shapes. Here a shape is a number of
# tokens, which is hardly met again but by the other layers of its batch: that would be 700 MB, and no faster.
for _capacity in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
    os.environ.setdefault(_capacity, "64")

_FAST_BF16 = ("avx512_bf16", "amx_bf16")


def has_bf16() -> bool:
    """Return whether this processor has instructions for products of bf16 numbers (AVX512_BF16 or AMX)."""
    return FORCED in {"", "avx512"} and any(flag in _flags() for flag in _FAST_BF16)


def has_amx() -> bool:
    """Return whether this processor has AMX, which oneDNN uses for products of bf16 numbers."""
    return not FORCED and "amx_bf16" in _flags()


def has_avx512() -> bool:
    """Return whether PyTorch and its oneDNN compute with AVX-512 here."""
    is_limited = _LIMIT == "AVX" or _LIMIT.startswith(("SSE", "AVX2"))
    return not is_limited and torch.backends.cpu.get_cpu_capability() == "AVX512"


def has_onednn() -> bool:
    """Return whether PyTorch was built with oneDNN and its product with an activation."""
    return bool(torch._C._has_mkldnn) and hasattr(torch.ops.mkldnn, "_linear_pointwise")  # noqa: SLF001  # untyped elsewhere


def multiplies_bf16() -> bool:
    """Return whether oneDNN multiplies numbers of bf16 on this processor; it says no on AVX2."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())  # noqa: SLF001  # PyTorch's name for it


def has_int8() -> bool:
    """Return whether int8 is computed on this processor, and rightly where oneDNN multiplies."""
    return WIDE_LOOPS and (INT8_LOOPS or GROUPED or (has_onednn() and onednn_int8.is_exact()))


def in_use() -> dict[str, str]:
    """Say what computes each precision on this processor, and why: for the doctor."""
    why = f" (RANKHOUSE_CPU={FORCED})" * bool(FORCED)
    torch_alone = f"PyTorch{why}" if FORCED == "plain" else "PyTorch"
    no_loops = torch_alone + ": no AVX-512, AVX2 or NEON, or not compiled" * (FORCED != "plain")
    bf16 = "AVX512_BF16 and " * INFER_LOOPS
    infer = f"compiled loops with {bf16}AVX512_VNNI" + " and AMX" * TILES + why
    beside = "" if GROUPED else "oneDNN and "
    if not WIDE_LOOPS:
        int8 = "not at all: no AVX2 or NEON, or not compiled"
    else:
        wide = "AVX2" if platform.machine() in {"x86_64", "AMD64"} else "NEON"
        wide += " and dot products" * DOTS
        int8 = infer if INT8_LOOPS else f"{beside}compiled loops with {wide}{why}"
        int8 += "; scores have the same bits on every processor with AVX2 or NEON"
    if WIDE_LOOPS and not has_int8():
        int8 = "not at all: oneDNN's products of whole numbers are wrong here, or absent"
    is_quick = has_onednn() and multiplies_bf16()
    slow = "" if is_quick else ", no faster than fp32: the processor multiplies no bf16"
    return {
        "fp32": "oneDNN" if has_onednn() else torch_alone,
        "bf16": infer if INFER_LOOPS else torch_alone + slow,
        "int8": int8,
        "training": f"compiled loops with {TRAIN_SET}{why}" if TRAIN_LOOPS else no_loops,
    }


def multiplies(*factors: Tensor) -> bool:
    """Return whether oneDNN's product serves these: float32 on the processor, outside autocast, not empty."""
    return (
        has_onednn()
        and not torch.is_autocast_enabled("cpu")
        and all(x.dtype is torch.float32 and x.device.type == "cpu" and x.numel() for x in factors)
    )


REGISTER = 16
"""Numbers that the compiled loops compute at once; widths are multiples of it."""


def fits_infer(compute: Compute, *widths: int) -> bool:
    """Return whether the loops of ``_infer.c`` serve this computation on rows of these widths."""
    return (
        INFER_LOOPS
        and compute.device.type == "cpu"
        and compute.precision == "bf16"
        and all(width % REGISTER == 0 for width in widths)
    )


def fits_wide(compute: Compute, *widths: int) -> bool:
    """Return whether int8's loops serve this computation on rows of these widths."""
    return (
        compute.device.type == "cpu"
        and (compute.precision == "int8" or compute.steady)
        and has_int8()
        and all(width % REGISTER == 0 for width in widths)
    )


def require_int8(compute: Compute, what: str, widths: Sequence[int] = ()) -> None:
    """Refuse int8 where it cannot be had, so that nothing else is computed in its name.

    Args:
        widths: Of its rows; none for a model that the compiled loops do not serve at all.

    Raises WrongUse: says what is missing.
    """
    served = widths and fits_wide(compute, *widths)
    if compute.precision != "int8" or served:
        return
    require_int8_loops(compute.device)
    reason = f"widths must be multiples of {REGISTER}; {what} has {', '.join(map(str, widths))}"
    if not widths:
        kinds = "encoders like BERT, ModernBERT and MPNet, T5 with its decoder, and other decoders"
        reason = f"it serves {kinds}, not this {what}"
    raise WrongUse(NO_INT8.format(reason))


def require_int8_loops(device: torch.device) -> None:
    """Refuse (WrongUse) int8 on a machine that lacks it, and say what is missing."""
    if device.type != "cpu":
        raise WrongUse(NO_INT8.format("it is made for processors, not for CUDA"))
    if not has_int8():
        reason = "it needs a processor with AVX2 or NEON, and this package compiled"
        raise WrongUse(NO_INT8.format(reason))


def call(loop: Callable[..., None], arguments: tuple[Tensor | float | None, ...]) -> None:
    """Call a loop of ``_infer.c`` or ``_train.c`` with the addresses of contiguous tensors, 0 for None."""
    loop(*(0 if x is None else x.data_ptr() if isinstance(x, Tensor) else x for x in arguments))


@contextmanager
def workers(threads: int) -> Iterator[Callable[..., Future[None]]]:
    """Return what takes work: threads that compute alone, or this very thread if one is enough."""
    if threads < 2:
        yield _at_once
        return
    before = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, "score", torch.set_num_threads, (1,)) as pool:
            yield pool.submit
    finally:
        torch.set_num_threads(before)


def _at_once(work: Callable[..., None], *args: object) -> Future[None]:
    work(*args)
    done: Future[None] = Future()
    done.set_result(None)
    return done


_work = threading.local()
_MOST_WORK = 2**24


def work(size: int) -> Tensor:
    """Return memory for loops of this thread, the same at each call: (``size`` or more,) uint8.

    The system would map new memory at each call, and fill it with zeros. Up to 16 MB are kept,
    and freed with the thread.
    """
    kept: Tensor | None = getattr(_work, "kept", None)
    if kept is None or len(kept) < size:
        kept = torch.empty(size, dtype=torch.uint8)
        if size <= _MOST_WORK:
            _work.kept = kept
    return kept


def checked(x: Tensor, dtype: torch.dtype, width: int, rows: int | None = None) -> Tensor:
    """Refuse another type, shape or order than the compiled loops read: they see addresses only."""
    right_shape = x.dim() == 2 and x.shape[1] == width and rows in {None, len(x)}
    if x.dtype is not dtype or not right_shape or not x.is_contiguous() or x.is_cuda:
        count = "" if rows is None else f"{rows} "
        raise ValueError(f"{count}rows of {width} {dtype} were expected, {tuple(x.shape)} {x.dtype} came")
    return x


def _cores() -> int:
    """Return how many cores this program may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _children_seconds() -> float:
    """Return the processor seconds of child processes that live, and of their children; 0 without /proc."""
    parents, ticks = dict[int, int](), dict[int, int]()
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # ended meanwhile
            fields = file.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            pid = int(file.parent.name)
            parents[pid], ticks[pid] = int(fields[1]), sum(map(int, fields[11:15]))
    family = {os.getpid()}
    while children := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= children
    family.remove(os.getpid())
    return sum(ticks[pid] for pid in family) / os.sysconf("SC_CLK_TCK") if family else 0.0


class ProcessorTime(NamedTuple):
    """Seconds of the clock, and of the processor: of all programs on this machine, of this one."""

    clock: float
    everyone: float
    own: float

    @classmethod
    def now(cls) -> ProcessorTime:
        """Read them; where the system counts for no one else (it is not Linux), all are this program's."""
        own = sum(os.times()[:4]) + _children_seconds()
        try:
            line = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0]
        except OSError:
            everyone = own
        else:
            user, nice, system, _idle, _waiting, *interrupts = map(int, line.split()[1:8])
            everyone = (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")
        return cls(time.monotonic(), everyone, own)

    def share_of_others(self, since: ProcessorTime) -> float:
        """Return what share of the processor, 0 to 1, other programs had since an earlier reading."""
        had = (self.everyone - since.everyone) - (self.own - since.own)
        there = (self.clock - since.clock) * _cores()
        return min(1.0, max(0.0, had / there)) if there > 0 else 0.0


@cache
def _flags() -> frozenset[str]:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return frozenset()
    return frozenset(text.split())
