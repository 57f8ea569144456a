"""Recompute reference vectors with this project's own code: ``python tests/reference/check.py FILE...``.

Every ``check_*.py`` beside this file has a table KINDS of name pattern -> check, which gives the largest
absolute and the largest relative error. One line is printed a file: its kind, both errors, and whether the
one that the tolerance speaks of is within it. Exit code 1 if any is not, 2 if a file is of no known kind.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
LIMITS = {
    "check_kernels": ("relative", 2e-5),
    "check_first_stage": ("absolute", 2e-6),
}
"""Measured quantity and tolerance, for modules that do not say it themselves (as LIMIT)."""


class Kind(NamedTuple):
    """How files of one name pattern are checked."""

    pattern: str
    check: Callable[[Path], tuple[float, float]]
    counts: str
    limit: float


class Verdict(NamedTuple):
    """Result for one file."""

    kind: str
    absolute: float
    relative: float
    passed: bool


def load_module(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module


def kinds() -> list[Kind]:
    """Collect the tables of every module beside this one."""
    found = []
    for path in sorted(HERE.glob("check_*.py")):
        module = load_module(path)
        counts, limit = getattr(module, "LIMIT", LIMITS.get(path.stem, ("relative", 2e-5)))
        found += [Kind(pattern, check, counts, limit) for pattern, check in module.KINDS.items()]
    return found


def judge(path: Path, known: list[Kind]) -> Verdict | None:
    """Check one file; None if it is of no known kind."""
    kind = next((kind for kind in known if fnmatch(path.name, kind.pattern)), None)
    if kind is None:
        return None
    absolute, relative = kind.check(path)
    counting = relative if kind.counts == "relative" else absolute
    return Verdict(f"{kind.check.__name__} ({kind.pattern})", absolute, relative, counting <= kind.limit)


def main(names: list[str]) -> int:
    if not names:
        print(__doc__)
        return 2
    known, worst = kinds(), 0
    for name in names:
        try:
            verdict = judge(Path(name), known)
        except Exception as error:  # noqa: BLE001  # one bad file must not hide the others' results
            print(f"FAIL  {type(error).__name__}: {error}  {name}")
            worst = max(worst, 1)
            continue
        if verdict is None:
            print(f"{name}: of no known kind ({', '.join(kind.pattern for kind in known)})", file=sys.stderr)
            worst = 2
            continue
        word, errors = "pass" if verdict.passed else "FAIL", f"{verdict.absolute:.2e} {verdict.relative:.2e}"
        print(f"{word}  {verdict.kind:40} largest absolute and relative error: {errors}  {name}")
        worst = max(worst, 0 if verdict.passed else 1)
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
