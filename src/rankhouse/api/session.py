"""A session's rankers, opened on the device at hand, and its progress: a bar, or reports."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rankhouse.core import progress as core
from rankhouse.core.arguments import checked
from rankhouse.core.progress import OnProgress, OnStep
from rankhouse.io.files import as_path
from rankhouse.page.bars import Bars
from rankhouse.systems.rankers import ComputeOptions
from rankhouse.systems.rankers import open_ranker as _open

if TYPE_CHECKING:
    from rankhouse.models.ranker import NeuralRanker

core.use(Bars(), instead=False)


@checked
def progress(on: bool) -> None:
    """Show how far long work is, or do not; ``RANKHOUSE_PROGRESS=0`` in the environment does the same.

    In a notebook and on a terminal it is a bar, elsewhere a line on standard error every half minute.

    >>> import rankhouse as rh
    >>> rh.progress(False)  # from here on nothing is shown
    >>> rh.progress(True)

    Args:
        on: Whether it is shown. A call with ``on_progress=`` shows nothing by itself.
    """
    core.switch(on)


@contextmanager
def working(
    label: str, total: int | None, unit: str, on_progress: OnProgress | None, on_step: OnStep | None = None
) -> Iterator[core.Progress]:
    """Show how far a block's work is, or report it to a program."""
    with core.heard_by(on_progress, on_step), core.shown(label, total, unit) as show:
        yield show


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
