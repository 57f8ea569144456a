"""The manifest: everything needed to say how a result came to be, and to get it again."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from pathlib import Path

import msgspec

from rankhouse.io.outputs import write_json
from rankhouse.recipes.execute.execute import Record, State
from rankhouse.recipes.read.plan import RecipePlan
from rankhouse.recipes.read.schema import Recipe

FILE = "manifest.json"
_PACKAGES = (
    "rankhouse", "numpy", "scipy", "msgspec", "ir_measures", "torch", "transformers", "tokenizers",
    "faiss-cpu", "ir_datasets",
)  # fmt: skip


class Datum(msgspec.Struct, frozen=True):
    """A data entry, or a file in one, as it was used: by the hash of its content or by its public name."""

    path: str
    identity: str
    absent: str = ""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What ``manifest.json`` holds."""

    recipe: Recipe  # as it was resolved, changes laid over it
    file: str  # where it was read from
    smallest: bool
    versions: dict[str, str]  # of packages and Python
    machine: dict[str, str | int]
    data: dict[str, Datum]  # entry -> what was used
    steps: list[Record]  # what was done, in order; absent steps are left out
    absent: list[str]  # steps that could not run


def write_manifest(plan: RecipePlan, states: list[State], out: Path) -> None:
    """Gather what is known of a run, and write ``manifest.json``."""
    used = plan.sources.used
    manifest = Manifest(
        recipe=plan.file.recipe,
        file=str(plan.file.lines.path),
        smallest=plan.file.smallest,
        versions=_versions(),
        machine=_machine(),
        data={source.name: Datum(source.word, source.identity, source.absent) for source in used},
        steps=[state.record for state in states if state.record is not None],
        absent=[state.task.title for state in states if state.record is None],
    )
    write_json(out / FILE, manifest)


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _machine() -> dict[str, str | int]:
    seen: dict[str, str | int] = {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count() or 0,
    }
    torch = sys.modules.get("torch")  # only if a step needed it
    if torch is not None and torch.cuda.is_available():
        seen["gpu"] = str(torch.cuda.get_device_name())
    return seen


def _processor() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
