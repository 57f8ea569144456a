"""duoT5: a sequence-to-sequence model says whether the first of two passages is the more relevant one.

Paper: Pradeep, Nogueira, Lin, "The Expando-Mono-Duo Design Pattern for Text Ranking with Pretrained
Sequence-to-Sequence Models", 2021, sec. 3.4. Input: ``Query: q Document0: a Document1: b Relevant:``. The
preference for a before b is P("true") in the softmax over the two target words' logits at the first decoder
step. It is a ranker of lists, not of pairs: :mod:`rankhouse.ranking.pairwise` makes scores of preferences.
Deviation: where the two passages do not fit, each keeps half of the room, and what it does not need goes to
the other (pygaggle cuts the finished prompt, so that only the second passage and "Relevant:" suffer).
Shapes: k passages of a query, n comparisons of two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rankhouse.core.errors import BadModel, WrongUse
from rankhouse.core.nouns import FloatArray, Passage, Query
from rankhouse.models.bundle import fingerprint
from rankhouse.models.monot5 import MAX_LENGTH, MonoT5, open_monot5
from rankhouse.models.pair_encoding import fit
from rankhouse.models.ranker import Engine
from rankhouse.models.text_ids import Ids, TextIds
from rankhouse.nn.layers.ragged import Packed, Ragged
from rankhouse.nn.machine import Compute

PROMPT = ("Query:", "Document0:", "Document1:", "Relevant:")

_PROBES = ("", "word", " edges ", "a  b", "x\u200d", "Grain prices, 3.14 (rose) again!", "東京タワー", "</s>")


class TextComparison(NamedTuple):
    """A question, and two texts of which the first may be the better answer."""

    query: str
    first: str
    second: str


class ComparisonReader:
    """Puts comparisons together piece by piece, as :class:`~rankhouse.models.pair_encoding.PairReader` does.

    Raises:
        WrongUse: The prompt alone is longer.
    """

    def __init__(self, texts: TextIds, end: int, max_length: int) -> None:
        self._texts, self._end, self._max_length = texts, end, max_length
        query, first, second, last = texts.whole(PROMPT)
        self._around = tuple(np.array(part, np.int32) for part in (query, first, second, [*last, end]))
        self._room = max_length - sum(map(len, self._around))
        if self._room < 3:
            raise WrongUse(
                f"max_length={max_length}: {max_length - self._room} tokens are the prompt's own; give at "
                f"least {max_length - self._room + 3}, so that a token of the query and of each passage fits"
            )
        probes = [TextComparison(*_PROBES[i : i + 3]) for i in range(len(_PROBES) - 2)]
        whole = texts.whole([_prompt(probe) for probe in probes])
        pieces = (self._fitted(self._texts(probe)) for probe in probes)
        self._joins = all(
            [*own, end] == np.concatenate(parts).tolist()
            for own, (parts, _) in zip(whole, pieces, strict=True)
        )

    def __call__(self, comparisons: Sequence[TextComparison]) -> Packed:
        """Encode n comparisons."""
        texts = {text for comparison in comparisons for text in comparison}
        known = dict(zip(texts, self._texts(texts), strict=True))
        rows, lost, query_lost = [], [], []
        for comparison in comparisons:
            parts, missing = self._fitted([known[text] for text in comparison])
            row = np.concatenate(parts)
            if not self._joins and not any(missing):
                own = self._texts.whole([_prompt(comparison)])[0]
                row = np.array([*own, self._end], np.int32) if len(own) < self._max_length else row
            rows.append(row)
            lost.append(sum(missing))
            query_lost.append(missing[0])
        cut, query_cut = torch.tensor([lost, query_lost], dtype=torch.int64)
        return Packed(Ragged.of(rows), cut, None, query_cut)

    def _fitted(self, ids: Sequence[Ids]) -> tuple[list[Any], list[int]]:
        """Return the pieces of a row, and how many tokens of each text did not fit."""
        totals = [one.total for one in ids]
        sizes = fit_comparison(totals[0], totals[1], totals[2], room=self._room)
        texts = [one.kept[:size] for one, size in zip(ids, sizes, strict=True)]
        row = [part for pair in zip(self._around, texts, strict=False) for part in pair]
        return [*row, self._around[-1]], [total - kept for total, kept in zip(totals, sizes, strict=True)]


def _prompt(comparison: TextComparison) -> str:
    query, first, second = comparison
    return f"{PROMPT[0]} {query} {PROMPT[1]} {first} {PROMPT[2]} {second} {PROMPT[3]}"


def fit_comparison(query: int, first: int, second: int, room: int) -> tuple[int, int, int]:
    """Return how many tokens of query and passages are kept.

    Query and passages share the room as a pair does; each passage has half of theirs, and what one does not
    need is the other's.
    """
    query, both = fit(query, first + second, room)
    first = min(first, max(both // 2, both - second))
    return query, first, both - first


class DuoT5Ranker:
    """A duoT5 at work.

    Attributes:
        report: Comparisons seen so far, and how many of them were shortened.
    """

    family = "duot5"

    def __init__(self, model: MonoT5, compute: Compute, budget: int = 0) -> None:
        self.model, self.compute = model, compute
        self.max_length = int(model.policy["max_length"])
        self._read = ComparisonReader(model.pair_reader.texts, model.policy["end"], self.max_length)
        self._engine = Engine(compute, budget)
        self.report = self._engine.report

    @cached_property
    def fingerprint(self) -> str:
        """Name of everything that changes a preference."""
        return f"{fingerprint(self.model)}-{self.compute.precision}"

    @cached_property
    def _scorer(self) -> Callable[[Packed], Tensor]:
        return self.model.scorer(self.compute)

    def preferences(self, query: Query, passages: Sequence[Passage]) -> FloatArray:
        """Compare every two of k passages in both orders: k * (k - 1) comparisons.

        Returns:
            (k, k) probabilities that the row's passage is more relevant than the column's; 0 on the diagonal.

        Raises:
            BadModel: One is not a number.
        """
        rows, columns = np.nonzero(~np.eye(len(passages), dtype=bool))
        texts = [passage.text for passage in passages]
        asked = [TextComparison(query.text, texts[i], texts[j]) for i, j in zip(rows, columns, strict=True)]
        with self.compute.active():
            scorer = self._scorer
        logs = np.empty(len(asked), np.float32)
        self._engine.run(asked, self._read, scorer, logs)
        if (bad := np.flatnonzero(np.isnan(logs))).size:
            i, j = rows[bad[0]], columns[bad[0]]
            raise BadModel(
                f'comparing documents "{passages[i].doc_id}" and "{passages[j].doc_id}" for query '
                f'"{query.id}" gives no number: the weights are damaged or overflow; try precision="fp32", '
                "then another copy of the checkpoint"
            )
        preferences = np.zeros((len(passages), len(passages)), np.float32)
        preferences[rows, columns] = np.exp(logs)
        return preferences


def open_duot5(
    path: str,
    targets: tuple[str, str] | None = None,
    max_length: int = MAX_LENGTH,
    tokenizer: str | None = None,
    allow_pickle: bool = False,
) -> MonoT5:
    """Open a published checkpoint: ``duot5("castorini/duot5-base-msmarco")``.

    Args:
        path: A folder or hub name.
        targets: Words for "the first is more relevant" and "it is not"; None: true and false.
        max_length: Most tokens of the whole input.
        tokenizer: Folder of another tokenizer than the checkpoint's own.
        allow_pickle: Whether weights may be read from pytorch_model.bin.

    Raises:
        BadModel: Not a T5 or mT5 checkpoint, or damaged, or without tokenizer.
        WrongUse: A target word that is not a single token.
    """
    words = targets or ("true", "false")
    return open_monot5(path, words, max_length, tokenizer=tokenizer, allow_pickle=allow_pickle)
