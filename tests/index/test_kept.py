"""Kept passages of an index: made once, gone on with after a kill, read by number."""

import shutil
import tracemalloc
import warnings
import zipfile
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from rankhouse.core.errors import BadIndex, BadModel, MissingInput, RankhouseWarning, WrongUse
from rankhouse.core.nouns import Document, Passage, PassageRows
from rankhouse.index import append_log as growing
from rankhouse.index.dense.vectors import VECTORS, EncodeOptions, Vectors, encode
from rankhouse.index.index import Index
from rankhouse.index.lexical.build import BuildOptions, append, build, delete
from rankhouse.index.lexical.manifest import load
from rankhouse.index.lexical.merge import upgrade
from rankhouse.index.precomputed.read import (
    FORMATS,
    PASSAGES,
    PrecomputedPassages,
    PrecomputedState,
    find,
    open_all,
)
from rankhouse.index.precomputed.write import PrecomputeOptions, precompute
from rankhouse.text.split import Windows

WORDS = ["red", "fox", "snow", "dog", "cat", "bird", "sea", "tree", "stone", "river", "wind", "sun", "moon"]
LIMIT = 6


class WordRows:
    """A small real maker: a row for each of a passage's first six words, drawn from the word."""

    def __init__(self, dtype="float32", kind="vectors", fingerprint="words-1", dimension=4):
        self.dtype, self.kind, self.fingerprint, self.dimension = dtype, kind, fingerprint, dimension
        self.seen = []

    def precompute(self, texts):
        self.seen += texts
        words = [text.split() for text in texts]
        flat = [word for own in words for word in own[:LIMIT]]
        rows = np.array([self.row(word) for word in flat], np.float64).reshape(-1, self.dimension)
        scales = np.abs(rows).max(axis=1).astype(np.float32) if self.dtype == "int8" else np.empty(0, "f4")
        lengths = np.array([min(len(own), LIMIT) for own in words], np.int64)
        lost = np.array([max(0, len(own) - LIMIT) for own in words], np.int64)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        return PassageRows(rows.astype(self.dtype), scales, offsets, lost)

    def row(self, word):
        raw = blake2b(word.encode(), digest_size=self.dimension).digest()
        return [byte % 100 for byte in raw]


def collection(n, seed=0):
    rng = np.random.default_rng(seed)
    made = [Document(f"d{i:04}", " ".join(rng.choice(WORDS, rng.integers(1, 12)).tolist())) for i in range(n)]
    return [Document(d.id, " ") if i % 11 == 4 else d for i, d in enumerate(made)]


def job(documents, **options):
    return PrecomputeOptions(len(documents), f"index of {len(documents)}", **options)


def contents(kept):
    return {p.name: p.read_bytes() for p in kept.folder.iterdir() if p.suffix == ".bin"}


def numbers(*values):
    return np.array(values, np.int64)


DOCUMENTS = collection(60)


@pytest.mark.parametrize("dtype", FORMATS)
def test_rows_come_back_as_they_were_made(tmp_path, dtype):
    maker = WordRows(dtype, "tokens" if "uint" in dtype else "vectors")
    kept = precompute(maker, DOCUMENTS, tmp_path, job(DOCUMENTS, chunk=7))
    assert kept.state.without_text == 6
    assert len(kept) == 54
    for number, document in enumerate(DOCUMENTS):
        own = kept.passages_of(number)
        assert len(own) == bool(document.text.strip())
        for passage in own:
            expected = maker.precompute([document.text])
            rows = kept.gather(numbers(passage))
            assert np.array_equal(rows.values, expected.values)
            assert rows.values.dtype == dtype
            assert np.array_equal(rows.scales, expected.scales)
            assert rows.offsets.tolist() == [0, len(expected.values)]
            assert kept.lost[passage] == expected.lost[0]
            assert kept.place(passage) == 0
    kept.verify()


def test_several_passages_are_gathered_in_the_order_asked_for(tmp_path):
    maker = WordRows()
    kept = precompute(maker, DOCUMENTS, tmp_path, job(DOCUMENTS))
    texts = [d.text for d in DOCUMENTS if d.text.strip()]
    rows = kept.gather(numbers(9, 2, 2, 30))
    expected = maker.precompute([texts[i] for i in (9, 2, 2, 30)])
    assert np.array_equal(rows.values, expected.values)
    assert np.array_equal(np.diff(rows.offsets), expected.lengths)
    short = kept.gather(numbers(9, 2), most=2)
    assert np.array_equal(np.diff(short.offsets), np.minimum(expected.lengths[:2], 2))
    assert np.array_equal(short.values[:2], expected.values[:2])
    assert len(kept.gather(numbers()).values) == 0


def test_passages_of_long_documents_keep_their_places(tmp_path):
    documents = [Document("a", "red fox snow dog cat bird"), Document("b", ""), Document("c", "sea tree")]

    def bare(document):
        words = document.text.split()
        cut = [" ".join(words[i : i + 2]) for i in range(0, len(words), 2)]
        return [Passage(document.id, i, " " if i == 1 else text) for i, text in enumerate(cut)]

    class InTwos:
        def __call__(self, document):
            return bare(document)

        def __str__(self):
            return "in twos"

    with pytest.raises(WrongUse, match="does not say what it does"):
        precompute(WordRows(), documents, tmp_path, job(documents, split=bare))
    split = InTwos()
    kept = precompute(WordRows(), documents, tmp_path, job(documents, split=split))
    assert [kept.place(p) for p in kept.passages_of(0)] == [0, 2]  # the blank one has no rows
    assert [kept.place(p) for p in kept.passages_of(2)] == [0]
    assert list(kept.passages_of(1)) == []


def test_what_was_cut_off_or_dropped_is_counted(tmp_path):
    documents = [Document("a", "w " * 20), Document("b", "w " * 3)]
    kept = precompute(WordRows(), documents, tmp_path, job(documents))
    assert (kept.state.cut, kept.state.lost) == (1, 14)
    cut = precompute(WordRows(), documents, tmp_path, job(documents, split=Windows(5, 5, limit=2)))
    assert (cut.state.cut, cut.state.dropped_words) == (0, 10)


def test_interrupted_keeping_goes_on_where_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(growing, "JOURNAL_SECONDS", 0.0)

    def stops(documents):
        yield from documents[:40]
        raise KeyboardInterrupt

    asked = job(DOCUMENTS, chunk=8)
    with pytest.raises(KeyboardInterrupt):
        precompute(WordRows("int8"), stops(DOCUMENTS), tmp_path, asked)
    [folder] = tmp_path.iterdir()
    with pytest.raises(BadIndex, match="goes on from there"):
        PrecomputedPassages.open(folder)
    with (folder / "rows.bin").open("ab") as stream:
        stream.write(b"torn")  # what a kill in the middle of a write leaves
    told, maker = [], WordRows("int8")
    kept = precompute(maker, DOCUMENTS, tmp_path, asked, lambda *now: told.append(now))
    assert 0 < len(maker.seen) < 30
    assert told[0][0] > 20
    whole = precompute(WordRows("int8"), DOCUMENTS, tmp_path / "whole", asked)
    assert contents(kept) == contents(whole)
    assert kept.state == whole.state


def test_only_what_was_added_is_made(tmp_path):
    precompute(WordRows(), DOCUMENTS, tmp_path, job(DOCUMENTS))
    grown, maker = collection(90), WordRows()
    assert grown[:60] == DOCUMENTS
    kept = precompute(maker, grown, tmp_path, job(grown))
    assert maker.seen == [d.text for d in grown[60:] if d.text.strip()]
    assert contents(kept) == contents(precompute(WordRows(), grown, tmp_path / "whole", job(grown)))
    again = WordRows()
    precompute(again, grown, tmp_path, job(grown))
    assert again.seen == []


def test_changed_documents_are_refused_and_replaced_when_told(tmp_path):
    precompute(WordRows(), DOCUMENTS, tmp_path, job(DOCUMENTS))
    changed = [Document("d0000", "other words"), *DOCUMENTS[1:], Document("new", "moon")]
    with pytest.raises(BadIndex, match="are not those that were encoded"):
        precompute(WordRows(), changed, tmp_path, job(changed))
    kept = precompute(WordRows(), changed, tmp_path, job(changed, overwrite=True))
    assert np.array_equal(kept.gather(numbers(0)).values, WordRows().precompute(["other words"]).values)


def test_it_covers_an_index_and_what_was_added_later_stands_behind(tmp_path):
    build(DOCUMENTS, tmp_path / "i", BuildOptions(workers=1))
    index = Index.open(tmp_path / "i")
    folder = index.path / PASSAGES
    kept = precompute(
        WordRows(), index.documents.stream(), folder, PrecomputeOptions(len(index), index.fingerprint)
    )
    assert kept.covered(index.manifest) == 60
    append([Document("later", "sun moon")], index.path, BuildOptions(workers=1))
    grown = Index.open(index.path)
    assert kept.covered(grown.manifest) == 60
    build([*DOCUMENTS[:59], Document("d0059", "another")], tmp_path / "j", BuildOptions(workers=1))
    with pytest.raises(BadIndex, match="made from other documents"):
        kept.covered(Index.open(tmp_path / "j").manifest)
    assert [k.folder for k in open_all(index.path)] == [kept.folder]


def test_what_serves_a_ranker_is_found_by_kind_maker_and_split(tmp_path):
    for dtype in ("int8", "float16"):
        precompute(WordRows(dtype), DOCUMENTS, tmp_path / "kept", job(DOCUMENTS))
    precompute(WordRows(), DOCUMENTS, tmp_path / "kept", job(DOCUMENTS, split=Windows(4, 2)))
    precompute(
        WordRows(fingerprint="words-2"), DOCUMENTS, tmp_path / "kept", job(DOCUMENTS, split=Windows(4, 2))
    )
    precompute(
        WordRows(fingerprint="words-2"), DOCUMENTS, tmp_path / "kept", job(DOCUMENTS, split=Windows(6, 3))
    )
    there = open_all(tmp_path)
    assert len(there) == 5
    assert find(there, "vectors", "words-1").state.dtype == "float16"  # the more exact, unsplit documents
    assert find(there, "vectors", "words-1", str(Windows(4, 2))).state.dtype == "float32"
    assert find(there, "vectors", "words-1", "sentences(10, 5)") is None
    assert find(there, "tokens", "words-1") is None
    assert find(there, "vectors", "words-3") is None
    with pytest.raises(WrongUse, match=r"windows\(4, 2.* and by windows\(6, 3.*; say which"):
        find(there, "vectors", "words-2")


def test_damaged_and_missing_folders_are_explained(tmp_path):
    with pytest.raises(MissingInput, match="nothing is kept there"):
        PrecomputedPassages.open(tmp_path / "none")
    kept = precompute(WordRows(), DOCUMENTS, tmp_path, job(DOCUMENTS))
    changed = (kept.folder / "lost.bin").read_bytes()
    (kept.folder / "lost.bin").write_bytes(b"\xff" + changed[1:])
    with pytest.raises(BadIndex, match=r"lost\.bin: was changed"):
        PrecomputedPassages.open(kept.folder).verify()
    (kept.folder / "rows.bin").write_bytes(b"")
    with pytest.raises(BadIndex, match=r"rows\.bin: has 0 bytes"):
        PrecomputedPassages.open(kept.folder)
    (kept.folder / "manifest.json").write_text("{")
    with pytest.raises(BadIndex, match="cannot be read"):
        PrecomputedPassages.open(kept.folder)
    old = PrecomputedState(kind="vectors", maker="m", split="whole", dtype="int8", version=99)
    growing.save_state(old, kept.folder / "manifest.json")
    with pytest.raises(BadIndex, match="version 99"):
        PrecomputedPassages.open(kept.folder)


def test_rows_that_are_no_numbers_or_do_not_fit_are_refused(tmp_path):
    class NotFinite(WordRows):
        def precompute(self, texts):
            made = super().precompute(texts)
            made.values[-1, 0] = np.inf
            return made

    class TooFew(WordRows):
        def precompute(self, texts):
            return super().precompute(texts)._replace(lost=np.zeros(1, np.int64))

    documents = [Document("a", "red fox"), Document("b", ""), Document("c", "sea tree")]
    with pytest.raises(BadModel, match='document "c" is not finite'):
        precompute(NotFinite(), documents, tmp_path / "a", job(documents))
    with pytest.raises(BadModel, match="do not fit together"):
        precompute(TooFew(), documents, tmp_path / "b", job(documents))


@pytest.mark.slow
def test_memory_depends_on_the_chunk_and_not_on_the_collection(tmp_path):
    def stream(n):
        for i in range(n):
            yield Document(f"{i}", " ".join(WORDS[(i + j) % 13] for j in range(6)))

    peaks = []
    for n in (400, 4_000):
        tracemalloc.start()
        precompute(WordRows(dimension=64), stream(n), tmp_path / str(n), PrecomputeOptions(n, "c", chunk=32))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0] + 200_000


class WordVectors:
    """A small real encoder: the mean of its words' rows."""

    fingerprint, similarity, dimension, maker = "mean-1", "dot", 4, WordRows()

    def encode_passages(self, texts):
        return np.array(
            [np.mean([self.maker.row(word) for word in text.split()], axis=0) for text in texts], "f4"
        )

    encode_queries = encode_passages


@pytest.mark.parametrize("added", [0, 2])
def test_what_was_made_before_an_upgrade_is_that_of_the_index(tmp_path, added):
    """It holds the fingerprint that the index had then, and documents stand where they stood."""
    folder = tmp_path / "older"
    with zipfile.ZipFile(Path(__file__).with_name("index_of_version_2.zip")) as archive:
        archive.extractall(folder)
    was = load(folder, older=True)
    upgraded = tmp_path / "upgraded"
    shutil.copytree(folder, upgraded)
    upgrade(upgraded)
    documents = list(Index.open(upgraded).documents.stream())
    if added:  # when these were made, the index had only its first segment
        was = replace(was, segments=was.segments[:1])
    count = sum(entry.documents for entry in was.segments)
    assert count == len(documents) - added
    precompute(WordRows(), documents[:count], folder / PASSAGES, PrecomputeOptions(count, was.fingerprint))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RankhouseWarning)  # one has no text
        encode(
            WordVectors(),
            documents[:count],
            folder / "vectors" / "own",
            EncodeOptions(count, was.fingerprint),
        )
        half = [folder / "half" / n for n in "12"]
        for place, part in zip(half, (documents[:3], documents[3:]), strict=True):
            encode(WordVectors(), part, place, EncodeOptions(len(part), was.fingerprint))
    assert upgrade(folder) == len(documents)
    index, vectors = Index.open(folder), Vectors.open(folder / "vectors" / "own")
    assert index.fingerprint not in ("", was.fingerprint)
    [kept] = open_all(folder)
    assert kept.covered(index.manifest) == count
    if added:
        with pytest.raises(BadIndex, match="of 4 documents, the index now has 6"):
            vectors.require_all(index)
    else:
        assert vectors.require_all(index) is vectors
        growing.merge_logs(half, tmp_path / "merged", VECTORS, index)
        merged = Vectors.open(tmp_path / "merged")
        assert contents(merged) == contents(vectors)
        assert merged.state.collection == index.fingerprint
    append([Document("later", "ships")], folder, BuildOptions(workers=1))
    index = Index.open(folder)
    assert kept.covered(index.manifest) == count
    with pytest.raises(BadIndex, match="the index now has 7"):
        vectors.require_all(index)
    delete(["d9"], folder)
    with pytest.raises(BadIndex, match="made from other documents"):
        kept.covered(Index.open(folder).manifest)
