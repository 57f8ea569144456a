"""A training's state in one file, replaced in one stroke: weights, optimiser, random states, place.

safetensors for tensors and JSON for the rest, so that nothing in a checkpoint can run as code.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from rankhouse.core.errors import BadData, BadModel, MissingInput, OutputFailed
from rankhouse.io.checksums import file_sum
from rankhouse.io.decoding import UNREADABLE, read_own
from rankhouse.io.outputs import replacing
from rankhouse.models.bundle import distinct

S = TypeVar("S", bound=msgspec.Struct)

_SAID, _SUM = "rankhouse", "crc32"


def save_tensors(path: Path, tensors: Mapping[str, Tensor], notes: Mapping[str, Any]) -> None:
    """Write tensors and a JSON note into one file; whole, or what stood there before stays (OutputFailed).

    Tensors that share memory are written once.
    """
    stored, aliases = distinct(tensors)
    sums = {name: _checksum(tensor) for name, tensor in stored.items()}
    note = msgspec.json.encode({"said": notes, "aliases": aliases, "sums": sums}).decode()
    with saving(path), replacing(path) as temporary:
        save_file(stored, temporary, {_SAID: note, _SUM: str(zlib.crc32(note.encode()))})


def _checksum(tensor: Tensor) -> int:
    """Return the CRC-32 of a tensor's type, shape and bytes."""
    kind = f"{tensor.dtype} {tuple(tensor.shape)}".encode()
    return zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy(), zlib.crc32(kind))


@contextmanager
def saving(path: Path) -> Iterator[None]:
    """Turn a failure to write a training's files into an error that says what to do."""
    try:
        yield
    except (SafetensorError, OSError) as error:
        raise OutputFailed(
            f"{path}: cannot be written ({error}); what was kept before is still there: free some space "
            "and start the same training again, it goes on from its last checkpoint"
        ) from error


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what :func:`save_tensors` wrote.

    Raises MissingInput: no such file; BadModel: it is damaged or of another kind.
    """
    if not path.is_file():
        raise MissingInput(f"{path}: there is no such checkpoint")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
        note = msgspec.json.decode(metadata[_SAID])
        if _SUM in metadata:  # not in those of older versions
            if metadata[_SUM] != str(zlib.crc32(metadata[_SAID].encode())):
                raise ValueError("its note was changed after it was written")
            if note["sums"] != {name: _checksum(tensor) for name, tensor in tensors.items()}:
                raise ValueError("a tensor was changed after it was written")
        tensors |= {name: tensors[same] for name, same in note["aliases"].items()}
        return tensors, note["said"]
    except (SafetensorError, KeyError, TypeError, ValueError, *UNREADABLE, OSError) as error:
        raise BadModel(
            f"{path}: no sound checkpoint of a training ({error}); remove it to start again"
        ) from error


def read_outcome(path: Path, kind: type[S]) -> S | None:
    """Return what came out of a finished training; None where it is of an earlier version.

    Raises BadData: it, or a file whose checksum it holds, was changed or is gone.
    """
    try:
        return read_own(path, kind, f"train again into another folder, or remove {path.parent} first")
    except BadData as error:
        if not isinstance(error.__cause__, msgspec.ValidationError):
            raise
        return None


# --- optimisers -----------------------------------------------------------------------------------------


def optimiser_state(optimiser: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Take an optimiser's state apart: tensors by "parameter.name", and everything else."""
    tensors: dict[str, Tensor] = {}
    other: dict[str, dict[str, Any]] = {}
    for number, values in optimiser.state_dict()["state"].items():
        for name, value in values.items():
            if isinstance(value, Tensor):
                tensors[f"{number}.{name}"] = value
            else:
                other.setdefault(str(number), {})[name] = value
    return tensors, other


def restore_optimiser(
    optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor], other: Mapping[str, Mapping[str, Any]]
) -> None:
    """Put an optimiser's state back together; groups stay as they are."""
    state: dict[int, dict[str, Any]] = {int(number): dict(values) for number, values in other.items()}
    for key, tensor in tensors.items():
        number, name = key.split(".", 1)
        state.setdefault(int(number), {})[name] = tensor
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": state, "param_groups": groups})


# --- random states --------------------------------------------------------------------------------------


def random_states() -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Take down the random states of python, numpy and torch."""
    version, python, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state()  # noqa: NPY002 - the global state, which a model may use
    tensors = {
        "cpu": torch.get_rng_state(),
        "numpy": torch.from_numpy(np.array(keys, np.uint32).view(np.int32)),
    }
    if torch.cuda.is_available():
        tensors |= {f"cuda.{i}": state for i, state in enumerate(torch.cuda.get_rng_state_all())}
    return tensors, {
        "python": [version, list(python), gauss],
        "numpy": [str(kind), int(position), int(has_gauss), float(cached)],
    }


def restore_random_states(tensors: Mapping[str, Tensor], other: Mapping[str, Any]) -> None:
    """Put the random states of python, numpy and torch back."""
    version, python, gauss = other["python"]
    random.setstate((version, tuple(python), gauss))
    kind, position, has_gauss, cached = other["numpy"]
    keys = tensors["numpy"].numpy().view(np.uint32)
    np.random.set_state((kind, keys, position, has_gauss, cached))  # noqa: NPY002 - the global state
    torch.set_rng_state(tensors["cpu"])
    cuda = [state for name, state in sorted(tensors.items()) if name.startswith("cuda.")]
    if cuda and torch.cuda.device_count() == len(cuda):
        torch.cuda.set_rng_state_all(cuda)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed python, numpy and torch; afterwards their states are what they were."""
    before = random_states()
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - the global state, which a model may use
    torch.manual_seed(seed)
    try:
        yield
    finally:
        restore_random_states(*before)


# --- where a training stands ----------------------------------------------------------------------------


class Checkpoint(msgspec.Struct, Generic[S], omit_defaults=True):
    """State of a training, and of its optimiser's and its random states all that is no tensor."""

    standing: S
    optimiser: dict[str, Any]
    random: dict[str, Any] = {}
    # files of the training's folder -> their bytes and CRC-32 then; they may have grown since
    beside: dict[str, tuple[int, int]] = {}


def save_state(
    path: Path,
    standing: msgspec.Struct,
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    random: tuple[dict[str, Tensor], dict[str, Any]] = ({}, {}),
    beside: Mapping[str, tuple[int, int]] = MappingProxyType({}),
) -> None:
    """Write a checkpoint; :func:`load_state` and :func:`restore` read it.

    Args:
        beside: Of :func:`sums_of`.

    Raises OutputFailed: it cannot be written; the one before is still there.
    """
    state, other = optimiser_state(optimiser)
    groups = {"model": model.state_dict(), "optimiser": state, "random": random[0]}
    tensors = {f"{group}.{name}": tensor for group, own in groups.items() for name, tensor in own.items()}
    save_tensors(path, tensors, msgspec.to_builtins(Checkpoint(standing, other, random[1], dict(beside))))


def sums_of(folder: Path, names: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Return the bytes and the CRC-32 of those files that a folder holds."""
    return {name: file_sum(folder / name)[:2] for name in names if (folder / name).is_file()}


def load_state(path: Path, kind: type[Checkpoint[S]]) -> tuple[Checkpoint[S], dict[str, Tensor]]:
    """Read a checkpoint and its tensors; BadModel if a file is damaged, or of another version."""
    tensors, notes = load_tensors(path)
    try:
        point = msgspec.convert(notes, kind)
    except msgspec.ValidationError as error:
        raise BadModel(f"{path}: not a checkpoint of this version ({error}); remove it") from error
    for name, (size, crc) in point.beside.items():
        file = path.parent / name
        if not file.is_file() or file_sum(file, size)[:2] != (size, crc):
            state = "was changed after it was written" if file.exists() else "is gone"
            raise BadModel(
                f"{file}: {state}, so the training cannot go on as it was; remove {path} to begin it again"
            )
    return point, tensors


def restore(
    point: Checkpoint[S], tensors: Mapping[str, Tensor], model: nn.Module, optimiser: torch.optim.Optimizer
) -> None:
    """Put weights, optimiser and random states back."""

    def under(prefix: str) -> dict[str, Tensor]:
        return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}

    model.load_state_dict(under("model."))
    restore_optimiser(optimiser, under("optimiser."), point.optimiser)
    if point.random:
        restore_random_states(under("random."), point.random)
