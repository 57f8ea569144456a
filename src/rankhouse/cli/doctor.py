"""What a file or folder is, and checks of caches, of what lies beside an index, and of rankers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from rankhouse.core.errors import BadData, MissingExtra, RankhouseError, WrongUse, name_few
from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.index.append_state import MANIFEST
from rankhouse.index.dense.check import measured_recall, structures
from rankhouse.index.dense.vectors import Vectors
from rankhouse.index.impacts.impacts import Impacts, PackedImpacts
from rankhouse.index.index import Index
from rankhouse.index.lexical.manifest import FILE as INDEX
from rankhouse.index.precomputed.read import open_all
from rankhouse.io.ciff import reading_ciff
from rankhouse.io.corpora import CORPUS_KINDS, read_documents
from rankhouse.io.decoding import UNREADABLE, each_record, read_own
from rankhouse.io.files import Skips, as_text, kind_of, looks_like, numbered_lines, read_whole
from rankhouse.io.readers.columnar import PAIR_KEYS, QUERY_ID_KEYS, QUERY_KEYS, each_row, is_columnar
from rankhouse.io.readers.tables import ASKED_KEYS, PASSAGE_KEYS, RELEVANT_KEYS, named_columns, pair_columns
from rankhouse.io.trec import is_record
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
    if not path.is_file() or is_columnar(path):
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


def recognise(path: Path) -> str:
    """Return what a file or folder is, a key of the checks below; WrongUse where it is none of these."""
    if is_cache(path):
        return "score cache"
    if path.is_dir():
        return _kind_of_folder(path)
    if is_columnar(path):
        rows = each_row(path, lambda row, *_: row, Skips())
        return _kind_of_columns(next((row for _, row in rows), ()), path.parts[-2:])
    if _is_ciff(path):
        return "ciff"
    match looks_like(path):
        case "{":
            return _kind_of_records(path)
        case "<":
            head = b"".join(raw for _, raw in _first_lines(path, 50)).lower()
            return "queries" if b"<top" in head else "corpus"
        case "":
            raise WrongUse(f"{path}: is empty")
    return _kind_of_line(path)


def _kind_of_line(path: Path) -> str:
    """Return what a file of one record a line is, by the columns of the first."""
    line, raw = next(_first_lines(path, 1))
    text = as_text(raw, path, line)
    columns = text.split()
    found = named_columns(raw, *PAIR_KEYS) or named_columns(raw, QUERY_ID_KEYS, QUERY_KEYS)
    if names := pair_columns(raw):
        found = ("", names)
    if found or (kind_of(path) == ".csv" and len(columns) not in (4, 6)):
        return _kind_of_columns(found[1] if found else (), [path.name])
    if text.count("\t") == 1:
        return "corpus" if kind_of(path) in CORPUS_KINDS and "quer" not in path.name else "queries"
    if len(columns) == 6 or (len(columns) == 3 and columns[-1].isdecimal()):
        return "run" if len(columns) == 3 or text.count("\t") != 2 else "pairs"
    if text.count("\t") == 2:
        return "pairs"
    if len(columns) == 4:
        return "qrels"
    raise WrongUse(
        f"{path}: is no run (6 columns), qrels (4 columns), TSV (a tab), JSON lines or TREC markup; its "
        f'first line is "{text[:60]}"'
    )


def _kind_of_folder(path: Path) -> str:
    if is_recipe_output(path):
        return "recipe output"
    return "index" if (path / INDEX).exists() else "corpus"


def _kind_of_records(path: Path) -> str:
    """Return what a file of JSON lines is."""
    first = next(raw for _, raw in each_record(numbered_lines(path), path, lambda raw, *_: raw, Skips()))
    if all(f'"{key}"'.encode() in first for key in ("query_id", "doc_id", "text", "label")):
        return "pairs"
    if all(f'"{key}"'.encode() in first for key in ("judge", "doc_id", "grade")):
        return "judgement log"
    if not is_record(first):
        return _kind_of_nested(path)
    try:
        return _kind_of_columns(msgspec.json.decode(first, type=dict[str, Any]), [path.name])
    except UNREADABLE:
        return "corpus"


def _kind_of_nested(path: Path) -> str:
    """Return what one JSON object of queries is: judgements where all of its numbers are whole."""
    try:
        msgspec.json.decode(read_whole(path), type=dict[str, dict[str, int]])
    except UNREADABLE:
        return "run"
    return "qrels"


def _kind_of_columns(columns: Collection[str], names: Iterable[str]) -> str:
    """Return what records with these columns are, in a file or folder of such a name."""
    columns = {name.lower() for name in columns}
    if _are_pairs(columns):
        return "pairs"
    if all(not keys.isdisjoint(columns) for keys in map(set, PAIR_KEYS)):
        is_run = "corpus-id" not in columns and not {"score", "rank"}.isdisjoint(columns)
        return "run" if is_run else "qrels"
    is_query = not columns.isdisjoint({"query", *PAIR_KEYS[0]})
    return "queries" if is_query or any("quer" in name or "topic" in name for name in names) else "corpus"


def _are_pairs(columns: Iterable[str]) -> bool:
    """Return whether records with these columns are labelled pairs, and not queries with their answers."""
    names = {name.lower() for name in columns}
    if names.isdisjoint(ASKED_KEYS):
        return False
    has_ids = not all(map(names.isdisjoint, PAIR_KEYS)) or "id" in names
    is_said = bool({"label", "score"} & names) or not has_ids
    return (is_said and not names.isdisjoint(PASSAGE_KEYS)) or bool(
        names & {*RELEVANT_KEYS, "positive_passages"}
    )


def _is_ciff(path: Path) -> bool:
    """Whether a file is an index for other engines, by its name or by its header."""
    try:
        with reading_ciff(path):
            return True
    except BadData:
        return kind_of(path) == ".ciff"


def _first_lines(path: Path, most: int) -> Iterator[tuple[int, bytes]]:
    """Stream the first lines that are not empty."""
    return islice(((line, raw) for line, raw in numbered_lines(path) if raw.strip()), most)


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
