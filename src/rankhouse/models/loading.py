"""Rankers opened from where they lie: a bundle, or a published checkpoint by its family."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rankhouse.core.errors import BadModel, WrongUse
from rankhouse.core.scores import check_scale
from rankhouse.models import bundle
from rankhouse.models.contract import Model, fingerprint
from rankhouse.models.families import FAMILIES, PUBLISHED, open_model
from rankhouse.models.ranker import NeuralRanker
from rankhouse.nn.compute import Compute


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
    scale = bundle.read_manifest(folder).calibration
    try:
        return scale and check_scale(scale)
    except WrongUse as error:
        raise BadModel(f'"{folder}": the calibration in {bundle.MANIFEST} cannot be read: {error}') from error


def load(folder: Path | str) -> Model[Any]:
    """Open a bundle.

    Raises:
        MissingInput: No such folder.
        BadModel: Not a bundle, of a newer version, incomplete, or changed since it was written.
    """
    folder = Path(folder)
    _refuse_checkpoint(folder)
    manifest = bundle.read_manifest(folder)
    if manifest.family not in FAMILIES:
        raise BadModel(
            f'"{folder}" is a ranker of the family "{manifest.family}", which this version does not know '
            f"({', '.join(sorted(FAMILIES))}); a newer version of rankhouse may"
        )
    weights, assets = bundle.read_files(folder, manifest)
    try:
        model: Any = FAMILIES[manifest.family].rebuild(manifest.policy, assets)
        model.load_state_dict(weights)
    except Exception as error:  # damaged files raise whatever their readers do, tokenizers a bare Exception
        reason = f"{type(error).__name__}: {error}".splitlines()[-1].strip()
        raise BadModel(
            f'"{folder}": weights, assets and the policy in {bundle.MANIFEST} do not fit together '
            f"({reason}); save or fetch it again"
        ) from error
    if (content := fingerprint(model)) != manifest.fingerprint:
        raise BadModel(
            f'"{folder}" is not what was saved: its content hashes to {content}, its {bundle.MANIFEST} says '
            f"{manifest.fingerprint}; a file was changed or damaged. Save or fetch it again"
        )
    model.eval()
    return model  # type: ignore[no-any-return]


def _refuse_checkpoint(folder: Path) -> None:
    """Refuse a published checkpoint: which family it is of, its files do not say."""
    published = any((folder / name).is_file() for name in ("config.json", "modules.json"))
    if published and not (folder / bundle.MANIFEST).is_file():
        families = " or ".join(f'{family}("{folder}")' for family in PUBLISHED)
        raise BadModel(
            f'"{folder}" is no ranker saved by rankhouse: it holds no {bundle.MANIFEST}. It looks like a '
            f"published checkpoint: say its family, {families}"
        )
