"""What the doctor asks of vectors and kept passages beside an index."""

from __future__ import annotations

from rankhouse.core.errors import MissingExtra, RankhouseError
from rankhouse.index.append_state import MANIFEST
from rankhouse.index.dense.check import measured_recall, structures
from rankhouse.index.dense.vectors import Vectors
from rankhouse.index.index import Index
from rankhouse.index.precomputed.read import open_all


def check_vectors(index: Index, facts: dict[str, str], faults: list[str]) -> None:
    """Check every folder of vectors, and measure its structures."""
    for manifest in sorted((index.path / "vectors").glob(f"*/{MANIFEST}")):
        name = manifest.parent.name
        try:
            vectors = Vectors.open(manifest.parent)
            vectors.verify()
            state = vectors.state
            facts[f"vectors {name}"] = (
                f"{len(vectors):,} of {vectors.dimension} numbers ({state.dtype}, {state.similarity}, split "
                f"{state.policy})"
            )
            vectors.require(documents=len(index), collection=index.fingerprint)
            for structure in structures(vectors):
                facts[f"vectors {name}, {structure}"] = _recall(vectors, structure)
        except RankhouseError as error:
            faults.append(str(error))


def _recall(vectors: Vectors, structure: str) -> str:
    try:
        share = measured_recall(vectors, structure)
    except MissingExtra as missing:
        return f"not measured: {missing}"
    return f"recall@10 {share:.4f} of exact search, asked for stored vectors"


def check_kept(index: Index, facts: dict[str, str], faults: list[str]) -> None:
    """Check every folder of kept passages; see :func:`check_vectors`."""
    try:
        there = open_all(index.path)
    except RankhouseError as error:
        faults.append(str(error))
        return
    for stored in there:
        state = stored.state
        try:
            stored.verify()
            covered = stored.covered(index.manifest)
        except RankhouseError as error:
            faults.append(str(error))
            continue
        facts[f"kept {state.kind}, {state.dtype}, split {state.split}, of {state.maker[:8]}"] = (
            f"{state.passages:,} passages of {covered:,} of {len(index):,} documents, {stored.nbytes:,} bytes"
        )
