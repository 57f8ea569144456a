"""Which changes break callers of the public names since a release:  python .ci/api.py [REF].

griffe compares the sources of REF, the newest tag by default, with those here. What counts is what
``import rankhouse as rh`` offers, its classes with their methods; modules below it may change. Exits with 1
if something breaks: deprecate it first, as CONTRIBUTING.md says, or name it in ``ALLOWED``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import griffe

ROOT = Path(__file__).parents[1]
ALLOWED: dict[str, str] = {}
"""What may break: path -> the release that deprecated it, and the one that drops it."""


def breaks(old: griffe.Module, new: griffe.Module) -> list[str]:
    """Describe each change that breaks a caller of the public names."""
    own = {name: one for name, one in old.members.items() if isinstance(one, griffe.Alias)}
    offered = {name: one for name, one in own.items() if one.target_path.startswith("rankhouse.")}
    found = []
    for name, before in offered.items():
        after = new.members.get(name)
        if not isinstance(after, griffe.Alias):
            found.append(f"rankhouse.{name}: it is gone")
            continue
        for one in griffe.find_breaking_changes(_holding(before), _holding(after)):
            values = f"{one.old_value} -> {one.new_value}".replace("\n", " ")
            found.append(f"rankhouse.{name}: {one.obj.name}: {one.kind.value}: {values:.100}")
    return [line for line in found if line.partition(": ")[0] not in ALLOWED]


def _holding(alias: griffe.Alias) -> griffe.Module:
    """Return a module with one function or class, since griffe compares what modules have."""
    holder = griffe.Module("rankhouse")
    holder.members[alias.name] = alias.final_target
    return holder


def main() -> None:
    """Compare with a release, if there was one."""
    tag = subprocess.run(
        ["git", "describe", "--tags", "--abbrev=0"],  # noqa: S607 - as it is found
        cwd=ROOT, check=False, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    ref = sys.argv[1] if len(sys.argv) > 1 else tag
    if not ref:
        print("nothing was released yet, so nothing can break")
        return
    old = griffe.load_git("rankhouse", ref=ref, repo=ROOT, search_paths=["src"], resolve_aliases=True)
    new = griffe.load("rankhouse", search_paths=[ROOT / "src"], resolve_aliases=True)
    found = breaks(old, new)
    print("\n".join(found) or f"nothing breaks callers of {ref}")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
