"""How the word-level families read text: the design's part, and pairs as word numbers.

Shapes: n pairs, q query tokens, p passage tokens, d width.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

import torch

from rankhouse.core.arguments import check_least
from rankhouse.core.errors import BadModel, WrongUse
from rankhouse.core.nouns import Pair
from rankhouse.nn.layers.ragged import Ragged, TwoSided
from rankhouse.text.vocabulary import Vocabulary
from rankhouse.text.words import splitter

VOCABULARY_FILE = "vocabulary.json"
_START_ONLY = ("vectors", "min_count")
_LARGEST = 1_000_000  # of any size that a design names
_CROSSED = 4  # pairs a distinct text, from which on it pays to look for equal ones


@dataclass(frozen=True)
class Reading:
    """How a word-level family reads text and where its word vectors start; families add their own sizes.

    Attributes:
        vectors: Source of start vectors (see ``text.vectors.start_table``); "" draws them all.
        words: Notation of the word splitter.
        min_count: Rarer words become the one unknown word.
        query_length: Query tokens kept.
        passage_length: Passage tokens kept.
        width: d, where ``vectors`` is "".
    """

    vectors: str = ""
    words: str = "blingfire"
    min_count: int = 5
    query_length: int = 30
    passage_length: int = 200
    width: int = 300

    def __post_init__(self) -> None:
        """Refuse sizes below 1, sizes that no machine holds, and unknown word splitters."""
        check_least(self, 1, "min_count", "query_length", "passage_length", "width")
        for name, size in asdict(self).items():
            if isinstance(size, int) and size > _LARGEST:
                raise WrongUse(f"{name}={size}: must be at most {_LARGEST:,}")
        splitter(self.words)


D = TypeVar("D", bound=Reading)


def policy_of(family: str, design: Reading, width: int) -> Mapping[str, Any]:
    """Return everything besides weights and vocabulary that changes a score, as JSON values."""
    held = {name: value for name, value in asdict(design).items() if name not in _START_ONLY}
    jsonable = {name: list(value) if isinstance(value, tuple) else value for name, value in held.items()}
    return jsonable | {
        "family": family,
        "width": width,
        "max_length": design.query_length + design.passage_length,
    }


def design_from(design: type[D], policy: Mapping[str, Any]) -> D:
    """Make a design again from its policy.

    Raises:
        BadModel: The policy lacks a setting or has one that this version does not know.
    """
    accepted = {f.name for f in fields(design)}
    given = {name: value for name, value in policy.items() if name not in {"family", "max_length"}}
    if not given.keys() <= accepted or not accepted <= given.keys() | set(_START_ONLY):
        raise BadModel(
            f"the model's policy has {sorted(given)}, this version needs "
            f"{sorted(accepted - set(_START_ONLY))}; use the version that wrote the model, or train it again"
        )
    as_fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in given.items()
    }
    try:
        return design(**as_fields)
    except (TypeError, WrongUse) as error:
        raise BadModel(f"the model's policy cannot be used ({error}); train the model again") from error


class WordReader:
    """Reads pairs as word numbers; safe in a thread, as nothing in it changes."""

    def __init__(self, reading: Reading, vocabulary: Vocabulary) -> None:
        self.reading, self.vocabulary = reading, vocabulary
        self.split = splitter(reading.words)

    def words(self, pair: Pair) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the words of both sides that the model sees, as it sees them."""
        query, passage = self.split(pair.query.text), self.split(pair.passage.text)
        return tuple(query[: self.reading.query_length]), tuple(passage[: self.reading.passage_length])

    def characters_read(self, text: str) -> int | None:
        """Return how many characters of a passage, from its beginning, are read; None: all of them.

        The beginning ends between two words, and reads as the whole does.
        """
        words, limit = self.split(text), self.reading.passage_length
        if len(words) <= limit:
            return None
        ends = [match.end() for match in re.finditer(r"\S+", text)]
        at = bisect_left(ends, limit, key=lambda end: len(self.split(text[:end])))
        while at < len(ends) and self.split(text[: ends[at]])[:limit] != words[:limit]:
            at += 1  # what follows a word may change how it is split
        return ends[at] if at + 1 < len(ends) else None

    def ids(self, words: Sequence[str]) -> list[int]:
        """Return each word's number."""
        return self.vocabulary.ids(words)

    def encode(self, pairs: Sequence[Pair]) -> TwoSided:
        """Turn n pairs into word numbers, each side cut to its length; the cut is counted in ``lost``."""
        texts: dict[str, list[int]] = {}
        query_rows, passage_rows, lost = [], [], []
        for query, passage in pairs:
            for text in (query.text, passage.text):
                if text not in texts:
                    texts[text] = self.ids(self.split(text))
            query_ids, passage_ids = texts[query.text], texts[passage.text]
            query_rows.append(query_ids[: self.reading.query_length])
            passage_rows.append(passage_ids[: self.reading.passage_length])
            lost.append(len(query_ids) + len(passage_ids) - len(query_rows[-1]) - len(passage_rows[-1]))
        # In training on crossed pairs, each passage stands beside every query of the batch.
        crossed = len(texts) <= len(pairs) // _CROSSED
        return TwoSided(
            Ragged.of(query_rows), Ragged.of(passage_rows), torch.tensor(lost, dtype=torch.int64), crossed
        )

    def rows(self, texts: Sequence[str], limit: int) -> Ragged:
        """Turn texts into word numbers, at most ``limit`` each."""
        return Ragged.of([self.ids(self.split(text))[:limit] for text in texts])

    def assets(self) -> dict[str, bytes]:
        """Return the vocabulary's file."""
        return {VOCABULARY_FILE: self.vocabulary.to_json()}

    @classmethod
    def rebuild(cls, reading: Reading, assets: Mapping[str, bytes]) -> WordReader:
        """Make a reader from its design and files.

        Raises:
            BadModel: The vocabulary's file is missing.
        """
        if VOCABULARY_FILE not in assets:
            raise BadModel(
                f"the model has no {VOCABULARY_FILE} (it has {sorted(assets)}); copy it whole again"
            )
        return cls(reading, Vocabulary.from_json(assets[VOCABULARY_FILE], VOCABULARY_FILE))
