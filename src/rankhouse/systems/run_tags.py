"""Tags of runs: the last column, which names the system that made the run."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rankhouse.io.files import as_text, numbered_lines

if TYPE_CHECKING:
    from rankhouse.models.duot5 import DuoT5Ranker
    from rankhouse.models.ranker import NeuralRanker

USUAL = "rankhouse"
"""The tag of a run whose maker says nothing else."""

_RERANKED = re.compile(r"[a-z][a-z0-9_]*-([0-9a-f]{8})").fullmatch


def read_tag(path: Path) -> str:
    """Return the tag of a run's first line; the usual one where there is no line."""
    with suppress(StopIteration):
        lines = (as_text(raw, path, n).split() for n, raw in numbered_lines(path) if raw.strip())
        return next(columns[5] for columns in lines if len(columns) > 5)
    return USUAL


def ranker_tag(ranker: NeuralRanker | DuoT5Ranker) -> str:
    """Return the tag of a run that a ranker ordered: its family and eight digits of its fingerprint."""
    return f"{ranker.family}-{ranker.fingerprint[:8]}"


def tagged_fingerprint(tag: str) -> str:
    """Return the eight digits of the ranker that a tag names; "" where it names none."""
    found = _RERANKED(tag)
    return found[1] if found else ""
