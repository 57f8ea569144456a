"""What can be said of an index that was built, for people and machines; whole or from slices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rankhouse.index.lexical.build import BuildReport


def index_warnings(report: BuildReport) -> list[str]:
    """Return what the user should know of documents that no search finds."""
    said = []
    if report.without_text:
        first = ", ".join(report.blank)
        said.append(f"{report.without_text:,} documents have no text; no search finds them (first: {first})")
    if report.without_terms:
        first = ", ".join(report.wordless)
        said.append(
            f"{report.without_terms:,} documents hold nothing but stop words and punctuation; "
            f"no search finds them (first: {first})"
        )
    return said


def skip_warnings(skipped: Sequence[str], most: int = 3) -> list[str]:
    """Return which faulty records were passed over, the first few by name."""
    if not skipped:
        return []
    rest = " ..." if len(skipped) > most else ""
    return [f"{len(skipped):,} faulty records were passed over: {'; '.join(skipped[:most])}{rest}"]


def index_facts(report: BuildReport, skipped: Sequence[str], out: Path, seconds: float) -> dict[str, Any]:
    """Return a build as plain values."""
    return {
        "index": str(out),
        "documents": report.documents,
        "tokens": report.tokens,
        "without_text": report.without_text,
        "without_terms": report.without_terms,
        "skipped": list(skipped),
        "seconds": round(seconds, 3),
    }
