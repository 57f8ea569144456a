"""The doctor's checks of score caches, of vectors and kept passages beside an index, and of rankers."""

from __future__ import annotations

from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from rankhouse.core.errors import MissingExtra, RankhouseError, name_few
from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.index.append_state import MANIFEST
from rankhouse.index.dense.check import measured_recall, structures
from rankhouse.index.dense.vectors import Vectors
from rankhouse.index.impacts.impacts import Impacts, PackedImpacts
from rankhouse.index.index import Index
from rankhouse.index.precomputed.read import open_all
from rankhouse.io.corpora import read_documents
from rankhouse.io.decoding import UNREADABLE, read_own
from rankhouse.page.charts import shortened
from rankhouse.ranking.cache import cache_file
from rankhouse.ranking.score_file import ScoreFile
from rankhouse.recipes.execute import MANIFEST as RECIPE
from rankhouse.recipes.execute import Manifest, altered
from rankhouse.serve.judging.log import read_entries
from rankhouse.systems.rankers import ComputeOptions, open_ranker

_MAGIC = b"SQLite format 3\0"
SAMPLE = 200
QUERIES = ("what is this about", "a longer question, with many words, that leaves less room for the passage")
PASSAGES = (
    "A short passage.",
    "",
    "One sentence stands here, and another follows it. " * 8,
    "Numbers 1 2 3 and a word-with-hyphens. " * 40,
)
CLOSE = 1e-5


def is_cache(path: Path) -> bool:
    """Whether a path names a score cache, sound or not: an SQLite file, or a folder that holds one."""
    file = cache_file(path)
    if file.is_file() and file.name == cache_file(file.parent / "any").name:
        return True
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(len(_MAGIC)) == _MAGIC


def check_cache(path: Path, facts: dict[str, str]) -> None:
    """Compare every score with its checksum.

    Raises BadData where something is damaged, or the file is another program's; OutputFailed where another
    process holds it locked.
    """
    with closing(ScoreFile(cache_file(path), timeout=30.0, upgrade=False)) as file:
        rankers, scores = file.verify()
        facts |= {
            "rankers": f"{rankers:,}",
            "scores": f"{scores:,}",
            "every score as kept": "yes"
            if file.version > 1
            else "not known: version 1 had no checksums, the next ranking adds them",
        }


def is_recipe_output(folder: Path) -> bool:
    """Whether a folder is what ``rankhouse run`` wrote; a ranker has a file of the same name."""
    try:
        keys = msgspec.json.decode((folder / RECIPE).read_bytes(), type=dict[str, msgspec.Raw]).keys()
    except (OSError, *UNREADABLE):
        return False
    return {"recipe", "steps", "absent"} <= keys


def check_recipe_output(folder: Path, facts: dict[str, str], faults: list[str]) -> None:
    """Compare the files of every step with the hashes that were kept when it ended."""
    manifest = read_own(folder / RECIPE, Manifest, "rankhouse run writes it again")
    facts |= {
        "recipe": manifest.file,
        "steps done": f"{len(manifest.steps):,}",
        "steps without data": name_few(manifest.absent) if manifest.absent else "none",
        "made by": f"rankhouse {manifest.versions.get('rankhouse', '?')}",
    }
    faults += [f"{fault}; rankhouse run does the step again" for fault in altered(manifest, folder)]


def check_judgement_log(path: Path, facts: dict[str, str]) -> None:
    """Read a log of judgements; BadData names the line that is none of such a log."""
    entries = list(read_entries(path.read_bytes(), path))
    facts |= {
        "entries": f"{len(entries):,}",
        "judges": f"{len({entry.judge for entry in entries}):,}",
        "queries": f"{len({entry.query_id for entry in entries}):,}",
        "taken back": f"{sum(entry.undoes > 0 for entry in entries):,}",
    }


def check_encoded(index: Index, facts: dict[str, str], faults: list[str]) -> None:
    """Check every folder of vectors and of impacts, and measure structures of vectors."""
    for kept, check in (("vectors", _vectors), ("impacts", _impacts)):
        for manifest in sorted(index.path.glob(f"{kept}/*/{MANIFEST}")):
            name = f"{kept} {manifest.parent.name}"
            try:
                opened, facts[name] = check(manifest.parent)
                opened.require_all(index)
                if isinstance(opened, Vectors):
                    facts |= {f"{name}, {one}": _recall(opened, one) for one in structures(opened)}
            except RankhouseError as error:
                faults.append(str(error))


def _vectors(folder: Path) -> tuple[Vectors, str]:
    vectors = Vectors.open(folder)
    vectors.verify()
    state = vectors.state
    size = f"{len(vectors):,} of {vectors.dimension} numbers"
    return vectors, f"{size} ({state.dtype}, {state.similarity}, split {state.policy})"


def _recall(vectors: Vectors, structure: str) -> str:
    try:
        share = measured_recall(vectors, structure)
    except MissingExtra as missing:
        return f"not measured: {missing}"
    return f"recall@10 {share:.4f} of exact search, asked for stored vectors"


def _impacts(folder: Path) -> tuple[Impacts, str]:
    impacts = Impacts.open(folder)
    impacts.verify()
    PackedImpacts(impacts).verify()
    state = impacts.state
    return impacts, f"{state.entries:,} of {state.vocabulary:,} words (float32, split {state.policy})"


def check_kept(index: Index, facts: dict[str, str], faults: list[str]) -> None:
    """Check every folder of kept passages."""
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


def check_ranker(spec: str, corpus: Path | None, facts: dict[str, str], faults: list[str]) -> None:
    """Open a ranker and try it, also on the first 200 documents of a corpus; fill in facts and faults."""
    ranker: Any = open_ranker(spec, ComputeOptions("fp32", "cpu"))
    policy = ranker.model.policy
    facts["family"] = ranker.model.family
    facts["most tokens"] = f"{ranker.max_length}"
    facts["scale of its scores"] = shortened(str(ranker.scale), 120)
    if "targets" in policy:
        facts["target words"] = " and ".join(repr(word) for word in policy["targets"])
    facts["weights"] = f"{sum(t.numel() for t in ranker.model.state_dict().values()):,} numbers"
    facts["fingerprint"] = ranker.fingerprint
    pairs = [Pair(Query(q, q), Passage(str(i), 0, p)) for q in QUERIES for i, p in enumerate(PASSAGES)]
    together = ranker.score(pairs)
    alone = np.array([ranker.score([pair])[0] for pair in pairs])
    apart = float(np.abs(together - alone).max())
    facts["alone and in company"] = f"at most {apart:.1e} apart in fp32"
    if apart > CLOSE:
        faults.append(
            f"scores differ by {apart:.1e} between a pair alone and in a batch; {CLOSE:.0e} is allowed"
        )
    if np.ptp(together) == 0:
        faults.append("all trial pairs have the same score; the weights may never have been trained")
    if corpus is not None:
        facts["truncation"] = _truncation(ranker, corpus)


def _truncation(ranker: Any, corpus: Path) -> str:  # noqa: ANN401 - opened behind an optional package
    before = ranker.report.truncated, ranker.report.tokens_lost
    sample = list(islice(read_documents([corpus]), SAMPLE))
    query = Query("q", QUERIES[0])
    ranker.score([Pair(query, Passage(document.id, 0, document.full_text)) for document in sample])
    cut, lost = ranker.report.truncated - before[0], ranker.report.tokens_lost - before[1]
    return f"{cut} of the first {len(sample)} documents do not fit whole ({lost:,} tokens); see --split"
