"""Rankers for Python: opened from a folder, a checkpoint or their notation, on the device at hand."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rankhouse.core.arguments import checked
from rankhouse.io.files import as_path
from rankhouse.systems.rankers import ComputeOptions
from rankhouse.systems.rankers import open_ranker as _open

if TYPE_CHECKING:
    from rankhouse.models.ranker import NeuralRanker


@checked
def open_ranker(
    spec: str | os.PathLike[str], *, precision: str = "auto", device: str = "auto", threads: int = 0
) -> NeuralRanker:
    """Open a ranker: a bundle, the folder of a training, or a published checkpoint by its family.

    >>> import rankhouse as rh
    >>> index = rh.Index.build([{"id": "a", "text": "ships sail"}, {"id": "b", "text": "ships sink"}], "i")
    >>> queries, qrels = {"q": "sail"}, {"q": {"a": 1, "b": 0}}
    >>> _ = rh.train("knrm(width=8, min_count=1)", index, out="trained", queries=queries, qrels=qrels)
    >>> ranker = rh.open_ranker("trained")
    >>> len(ranker.rank("sail", ["ships sail", "ships sink"], k=1).doc_ids)
    1

    Args:
        spec: A folder, or the notation ``monot5("castorini/monot5-base-msmarco")``, ``crossencoder("DIR")``,
            ``biencoder("DIR")``; "default" is all-MiniLM where its package is installed, else a published
            cross-encoder.
        precision: "auto", "fp32", "bf16" or "int8".
        device: "auto", "cpu" or "cuda".
        threads: Processor threads; 0 for all.

    Raises:
        MissingExtra: torch is not installed.
        MissingInput: There is no such folder.
        BadModel: The folder or checkpoint cannot be used.
        WrongUse: An unknown family or argument.
    """
    return _open(str(as_path(spec, "the ranker")), ComputeOptions(precision, device, threads))
