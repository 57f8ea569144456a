"""Rankers as folders: everything that scoring needs, and nothing that runs code when it is read.

A bundle holds ``manifest.json`` (family, policy, versions, fingerprint), ``weights.safetensors`` and the
family's assets (tokenizer.json, vocabulary ...). What is not a bundle is a published checkpoint, opened by
its family: ``monot5("DIR")``.
"""

from __future__ import annotations

import errno
import platform
import zlib
from collections.abc import Mapping
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from rankhouse.core.errors import BadModel, MissingInput, WrongUse, did_you_mean
from rankhouse.core.scores import check_scale
from rankhouse.io.decoding import UNREADABLE
from rankhouse.io.outputs import others, replacing_folder
from rankhouse.io.scratch import recover
from rankhouse.models.checkpoint_kinds import notation_of
from rankhouse.models.contract import Model
from rankhouse.models.families import FAMILIES, is_unfinished, open_model, reading
from rankhouse.nn.machine import Compute

if TYPE_CHECKING:
    from rankhouse.models.ranker import NeuralRanker

MANIFEST, WEIGHTS = "manifest.json", "weights.safetensors"
RANKER = "ranker"
"""The best model of a training or an adaptation, within its folder."""
FORMAT = 2
"""Version of the format that is read; a bundle without calibration is still written in format 1."""

_KIND = "rankhouse ranker"
_VERSIONS = ("rankhouse", "torch", "transformers", "tokenizers", "safetensors")


class BundleManifest(msgspec.Struct, frozen=True, kw_only=True):
    """Manifest of a bundle.

    Attributes:
        kind: Always "rankhouse ranker".
        format: Of this file: 1, or 2 with a calibration, which older versions must not overlook.
        family: Name in the table of families.
        policy: Everything besides weights and assets that changes a score.
        assets: Names of the family's files.
        shared: Weights that are one tensor under two names: the name left out -> the name stored.
        fingerprint: Hash of family, policy, assets and weights.
        versions: Of the packages it was written with.
        use: How documents are meant to be passed to it: {"split": "sentences(10, 5)", "pool": "max"} ...
        sums: CRC-32 of each of the family's files; empty where an older version wrote it.
        crc32: CRC-32 of everything else in the manifest; None where an older version wrote it.
        calibration: The fitted scale of its scores, in notation; in the file only where there is one.
    """

    kind: str = _KIND
    format: int = 1
    family: str
    policy: dict[str, Any]
    assets: list[str]
    shared: dict[str, str]
    fingerprint: str
    versions: dict[str, str]
    use: dict[str, str] = {}
    sums: dict[str, int] = {}
    crc32: int | None = None
    calibration: str | None = None


def save(
    model: Model[Any],
    folder: Path | str,
    use: Mapping[str, str] | None = None,
    calibration: str | None = None,
) -> Path:
    """Write a model as a bundle, whole or not at all; a bundle of that name is replaced.

    Args:
        model: The model; its weights are written in the precision they have.
        folder: Where to.
        use: How documents are meant to be passed to it, for the manifest.
        calibration: The fitted scale of its scores, in notation.

    Raises:
        WrongUse: Something else stands there already.
        OutputFailed: It could not be written; what stood there still does.
    """
    folder = Path(folder)
    weights, shared = distinct(model.state_dict())
    assets = dict(model.assets())
    manifest = BundleManifest(
        format=1 if calibration is None else FORMAT,
        family=model.family,
        policy=dict(model.policy),
        assets=sorted(assets),
        shared=shared,
        fingerprint=fingerprint(model),
        versions=_versions(),
        use=dict(use or {}),
        sums={name: zlib.crc32(content) for name, content in assets.items()},
        calibration=calibration,
    )
    fields: dict[str, Any] = msgspec.to_builtins(manifest)
    if calibration is None:
        del fields["calibration"]
    fields["crc32"] = _checksum(fields)
    with replacing_folder(folder, _foreign) as part:
        part.mkdir()
        try:
            save_file(weights, part / WEIGHTS)
        except SafetensorError as error:  # its own word for a refusal of the system
            number = errno.ENOSPC if "No space" in str(error) or "os error 28" in str(error) else errno.EIO
            raise OSError(number, str(error)) from error
        for name, content in assets.items():
            (part / name).write_bytes(content)
        text = msgspec.json.format(msgspec.json.encode(fields), indent=2)
        (part / MANIFEST).write_bytes(text + b"\n")
    return folder


def _foreign(folder: Path) -> list[str]:
    """Name what is in a folder besides a bundle; a readable manifest names its assets."""
    try:
        own = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=BundleManifest).assets
    except (OSError, *UNREADABLE):
        own = []
    return others(folder, own, (MANIFEST, WEIGHTS))


def read_manifest(folder: Path | str) -> BundleManifest:
    """Read what a bundle says of itself, without its weights.

    Raises:
        MissingInput: No such folder.
        BadModel: Not a bundle, or of a newer version.
    """
    folder = Path(folder)
    recover(folder)
    if not folder.is_dir():
        raise MissingInput(
            f'"{folder}" is no folder{did_you_mean(str(folder), ["default"])}; give the folder of a ranker, '
            'a notation such as crossencoder("DIR"), or default;  rankhouse models  lists checkpoints'
        )
    if (folder / "segments").is_dir():
        raise BadModel(f'"{folder}" is an index, not a ranker; give the folder that train made')
    if not (folder / MANIFEST).is_file():
        if is_unfinished(folder):
            raise BadModel(f'"{folder}" is an unfinished training; give its command again to resume it')
        raise BadModel(f'"{folder}" is no ranker saved by rankhouse: it holds no {MANIFEST}')
    try:
        fields = msgspec.json.decode((folder / MANIFEST).read_bytes())
        manifest = msgspec.convert(fields, BundleManifest)
    except (*UNREADABLE, OSError) as error:
        raise BadModel(f'"{folder / MANIFEST}" cannot be read ({error}); save or fetch it again') from None
    if manifest.kind != _KIND:
        raise BadModel(f'"{folder}" is a {manifest.kind}, not a ranker')
    if manifest.format > FORMAT:
        writer = manifest.versions.get("rankhouse", "of a newer version")
        raise BadModel(
            f'"{folder}" was written by rankhouse {writer} in format {manifest.format}; this version reads '
            f"up to {FORMAT}: update rankhouse"
        )
    # without a checksum it is an older manifest, unless the very key of the checksum was changed
    renamed = manifest.crc32 is None and not set(fields) <= set(BundleManifest.__struct_fields__)
    if renamed or (manifest.crc32 is not None and manifest.crc32 != _checksum(fields)):
        raise BadModel(f'"{folder / MANIFEST}" was changed after it was written; save or fetch it again')
    return manifest


def _checksum(fields: Mapping[str, object]) -> int:
    """Return the CRC-32 of a manifest's fields, those that only a newer version knows among them."""
    return zlib.crc32(msgspec.json.encode({**fields, "crc32": None}))


def distinct(state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return each tensor once, and alias -> name of those that are shared; safetensors would refuse them."""
    weights: dict[str, Tensor] = {}
    shared: dict[str, str] = {}
    seen: dict[tuple[int, torch.Size, tuple[int, ...]], str] = {}
    for name, tensor in state.items():
        key = (tensor.data_ptr(), tensor.shape, tensor.stride())
        if tensor.numel() and key in seen:
            shared[name] = seen[key]
        else:
            seen[key] = name
            whole = tensor.detach().cpu().contiguous()
            # A view into a larger tensor would take its owner along.
            weights[name] = whole.clone() if whole.untyped_storage().nbytes() > whole.nbytes else whole
    return weights, shared


def read_files(folder: Path, manifest: BundleManifest) -> tuple[dict[str, Tensor], dict[str, bytes]]:
    """Read weights and assets, by name.

    Raises:
        BadModel: Something is missing or damaged, or a name leads out of the folder.
    """
    for name in manifest.assets:
        if Path(name).name != name:
            raise BadModel(f'"{folder / MANIFEST}" names the asset "{name}", which is no plain file name')
    try:
        assets = {name: (folder / name).read_bytes() for name in manifest.assets}
        for name in manifest.sums.keys() & assets.keys():
            if zlib.crc32(assets[name]) != manifest.sums[name]:
                raise BadModel(f'"{folder / name}" was changed after it was written; save or fetch it again')
        weights: dict[str, Tensor] = load_file(folder / WEIGHTS)
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise BadModel(f'"{folder}" is incomplete or damaged: {error}; save or fetch it again') from error
    weights |= {name: weights[stored] for name, stored in manifest.shared.items() if stored in weights}
    return weights, assets


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in _VERSIONS:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def open_ranker(spec: str, compute: Compute, budget: int = 0) -> NeuralRanker:
    """Open a ranker, ready to score.

    Raises:
        WrongUse: Neither a folder nor a notation.
        BadModel: The folder or checkpoint cannot be used.
    """
    is_folder = Path(spec).is_dir() or not spec.rstrip().endswith(")")
    model = load(spec) if is_folder else open_model(spec)
    calibration = _calibration(Path(spec)) if is_folder else None
    return FAMILIES[model.family].ranker(model, compute, budget, calibration)


def _calibration(folder: Path) -> str | None:
    """Return the fitted scale of a bundle's scores; None where it has none."""
    if _is_published(folder):
        return None
    scale = read_manifest(folder).calibration
    try:
        return scale and check_scale(scale)
    except WrongUse as error:
        raise BadModel(f'"{folder}": the calibration in {MANIFEST} cannot be read: {error}') from error


def best_of(folder: Path | str) -> Path:
    """Return the bundle within the folder of a training or an adaptation; any other folder as it is."""
    trained = Path(folder) / RANKER
    return trained if (trained / MANIFEST).exists() else Path(folder)


def load(folder: Path | str) -> Model[Any]:
    """Open a bundle, or a published checkpoint by the family that its files say.

    Raises:
        MissingInput: No such folder.
        BadModel: Neither, of a newer version, incomplete, or changed since it was written; a checkpoint that
            no family computes.
    """
    folder = Path(folder)
    if _is_published(folder):
        with reading(folder):
            return open_model(notation_of(folder))
    manifest = read_manifest(folder)
    if manifest.family not in FAMILIES:
        raise BadModel(
            f'"{folder}" is a ranker of the family "{manifest.family}", which this version does not know '
            f"({', '.join(sorted(FAMILIES))}); a newer version of rankhouse may"
        )
    weights, assets = read_files(folder, manifest)
    try:
        model: Any = FAMILIES[manifest.family].rebuild(manifest.policy, assets)
        model.load_state_dict(weights)
    except Exception as error:  # damaged files raise whatever their readers do, tokenizers a bare Exception
        reason = f"{type(error).__name__}: {error}".splitlines()[-1].strip()
        raise BadModel(
            f'"{folder}": weights, assets and the policy in {MANIFEST} do not fit together '
            f"({reason}); save or fetch it again"
        ) from error
    if (content := fingerprint(model)) != manifest.fingerprint:
        raise BadModel(
            f'"{folder}" is not what was saved: its content hashes to {content}, its {MANIFEST} says '
            f"{manifest.fingerprint}; a file was changed or damaged. Save or fetch it again"
        )
    model.eval()
    return model  # type: ignore[no-any-return]


def _is_published(folder: Path) -> bool:
    """Return whether a folder is a checkpoint that others wrote."""
    published = any(
        (folder / name).is_file() for name in ("config.json", "modules.json", "adapter_config.json")
    )
    return published and not (folder / MANIFEST).is_file()


def fingerprint(model: Model[Any]) -> str:
    """Hash family, policy, vocabulary and weights to 32 hexadecimal digits."""
    digest = sha256(f"{model.family}\n".encode())
    digest.update(msgspec.json.encode(model.policy, order="deterministic"))
    for name, content in sorted(model.assets().items()):
        digest.update(f"\n{name} {len(content)}\n".encode() + content)
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().contiguous().cpu().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:32]
