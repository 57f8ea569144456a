"""Answer queries on standard input, a line each: search-benchmark-game's second executable.

    python benchmarks/arena/do_query.py INDEX [--engine tantivy] < queries

A line is COMMAND, a tab, and the query. TOP_10 (any number) finds the best by BM25 and answers 1, as the
game's other engines do; COUNT and TOP_10_COUNT answer how many documents match. A query is words, of which
one has to match, or words that all begin with + and all have to. rankhouse answers UNSUPPORTED to everything
else: phrases, words that are excluded, patterns, ranges, sorting by a field.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

Answer = Callable[[int, bool, str], int | None]
"""(hits, 0 for none, whether matches are counted, query) -> the number to print; None: not supported."""
UNSUPPORTED = "UNSUPPORTED"
_COMMAND = re.compile(r"(?:UNOPTIMIZED_)?(COUNT)|TOP_(\d+)(_COUNT)?")


class Words(NamedTuple):
    """A query: its words, and whether all have to match."""

    words: list[str]
    all_of: bool


def read_query(text: str) -> Words | None:
    """Read a query; None where it is of a kind that is not supported."""
    words = text.split()
    all_of = text.startswith("+")
    if all_of:
        words = [word[1:] if word[0] == "+" else "" for word in words]
    return Words(words, all_of) if all(map(str.isalnum, words)) else None


def rankhouse(path: Path) -> Answer:
    """Open our index."""
    from matching import Matcher

    matcher = Matcher(path)

    def answer(k: int, counts: bool, text: str) -> int | None:
        if (query := read_query(text)) is None:
            return None
        return matcher.answer(query, k, counted=counts)

    return answer


def tantivy(path: Path) -> Answer:
    """Open tantivy's index."""
    import tantivy as engine
    from build_index import schema

    index = engine.Index(schema(), path=str(path))
    index.reload()
    searcher = index.searcher()

    def answer(k: int, counts: bool, text: str) -> int | None:
        try:
            query = index.parse_query(text, ["text"])
        except ValueError:
            return None
        found = searcher.search(query, k or 1, counts)
        return found.count if counts else 1

    return answer


def answers(lines: Iterable[str], engine: Answer) -> Iterable[str]:
    """Yield the answer to each line."""
    for line in lines:
        command, _, query = line.rstrip("\n").partition("\t")
        asked = read_command(command)
        found = None if asked is None else engine(*asked, query.strip())
        yield UNSUPPORTED if found is None else str(found)


@lru_cache(maxsize=64)
def read_command(text: str) -> tuple[int, bool] | None:
    """Return how many hits a command asks for, whether matches are counted; None: unsupported."""
    match = _COMMAND.fullmatch(text)
    return None if match is None else (int(match[2] or 0), bool(match[1] or match[3]))


def main() -> None:
    """Read the arguments, answer line by line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("index", type=Path)
    parser.add_argument("--engine", choices=("rankhouse", "tantivy"), default="rankhouse")
    options = parser.parse_args()
    engine = {"rankhouse": rankhouse, "tantivy": tantivy}[options.engine](options.index)
    for answer in answers(iter(sys.stdin.readline, ""), engine):
        print(answer, flush=True)


if __name__ == "__main__":
    main()
