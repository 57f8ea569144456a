"""Documents deleted and replaced in place; indexes of earlier versions."""

import gc
import os
import shutil
import zipfile
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rankhouse.core.errors import BadIndex, DuplicateId, WrongUse
from rankhouse.core.nouns import Document, Query
from rankhouse.index.index import Index
from rankhouse.index.lexical import growing, manifest, segment, store
from rankhouse.index.lexical.build import BuildOptions, append, build, delete
from rankhouse.index.lexical.manifest import IndexManifest
from rankhouse.index.lexical.merge import merge, upgrade
from rankhouse.index.lexical.search import LexicalOptions, retrieve
from rankhouse.index.lexical.store import zstd
from rankhouse.io.checksums import file_sum

WORDS = ("ship", "ships", "lock", "harbour", "pilot", "steers", "Straße", "the", "canal")
QUERIES = [Query("1", "ships lock"), Query("2", "the pilot steers"), Query("3", "canal canal Straße harbour")]
MODELS = ("bm25", "ql", "jm", 'bm25(lengths="exact")', "bm25f")
OPTIONS = BuildOptions(workers=1, fields=True)
decompress = zstd.decompress

texts = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)


def made(doc_id, body):
    """Make a document whose title is the first part of its words."""
    words = body.split()
    return Document(doc_id, " ".join(words[len(words) // 3 :]), " ".join(words[: len(words) // 3]))


def files_of(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def runs_of(path):
    """Everything that rankings show of an index."""
    index = Index.open(path)
    return [
        (query, ranking.doc_ids, ranking.scores.tobytes())
        for model in MODELS
        for feedback in ("", "rm3")
        for k in (2, 50)
        for query, ranking in retrieve(index, QUERIES, LexicalOptions(model, feedback, k)).items()
    ]


def facts_of(path):
    index = Index.open(path)
    lengths = [n for segment in index.segments for n in segment.lengths.tolist()]
    terms = {term: index.counts(term) for segment in index.segments for term in segment.names()}
    return list(index.documents.stream()), index.collection, lengths, terms, index.distinct_terms()


@pytest.mark.slow
@settings(max_examples=7, deadline=None)
@given(
    bodies=st.lists(texts, min_size=2, max_size=30),
    gone=st.lists(st.sets(st.integers(0, 29), max_size=12), min_size=1, max_size=3),
    fresh=st.dictionaries(st.integers(0, 40), texts, min_size=1, max_size=12),
)
def test_a_changed_index_is_one_built_anew(tmp_path_factory, bodies, gone, fresh):
    gc.collect()  # indexes of examples before have their files open until then
    folder = tmp_path_factory.mktemp("changed")
    held = {f"d{i * 7 % 31:02}": made(f"d{i * 7 % 31:02}", body) for i, body in enumerate(bodies)}
    documents = list(held.values())
    build(documents[: len(documents) // 2], folder / "index", OPTIONS)
    append(documents[len(documents) // 2 :], folder / "index", OPTIONS)
    for numbers in gone:
        names = [name for name in (f"d{i:02}" for i in numbers) if name in held][: len(held) - 1]
        assert delete(names, folder / "index") == len(held) - len(names)
        held = {name: document for name, document in held.items() if name not in names}
    new = [made(f"d{i:02}", body) for i, body in fresh.items()]
    append(new, folder / "index", OPTIONS, update=True)
    for document in new:
        held.pop(document.id, None)
        held[document.id] = document
    build(held.values(), folder / "anew", OPTIONS)
    assert facts_of(folder / "index") == facts_of(folder / "anew")
    assert runs_of(folder / "index") == runs_of(folder / "anew")
    index = Index.open(folder / "index")
    index.verify()
    for document in held.values():
        assert index.documents[document.id] == document
        assert index.documents.fetch([document.id]) == [document]
    assert all(f"d{i:02}" not in index.documents for i in range(31) if f"d{i:02}" not in held)


@pytest.fixture
def index(tmp_path):
    documents = [Document(f"d{i}", f"ship number {i} in the harbour", f"lock {i % 3}") for i in range(40)]
    build(documents[:20], tmp_path / "index", OPTIONS)
    append(documents[20:], tmp_path / "index", OPTIONS)
    return tmp_path / "index"


@pytest.mark.parametrize("is_checked", [True, False])
def test_documents_are_found_together_as_one_by_one(index, monkeypatch, is_checked):
    delete(["d3", "d7", "d25"], index)
    append([Document("d5", "another text"), Document("d50", "new")], index, OPTIONS, update=True)
    monkeypatch.setattr(segment.Segment, "ids_are_checked", is_checked)
    documents = Index.open(index).documents
    names = [*reversed(list(documents)), "d50", "d5"]
    assert [document.id for document in documents.fetch(names)] == names
    assert documents.fetch(names) == [documents[name] for name in names]
    for missing in ("d3", "d25", "d", "d500", "\ud800"):
        with pytest.raises(KeyError):
            documents.fetch(["d1", missing])


def test_texts_that_were_read_are_kept_until_they_are_many(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "BLOCK_BYTES", 1)  # a block a document
    build([Document(f"d{i}", "x" * 60) for i in range(4)], tmp_path / "index", OPTIONS)
    documents, unpacked = Index.open(tmp_path / "index").documents, []
    monkeypatch.setattr(store.zstd, "decompress", lambda block: unpacked.append(block) or decompress(block))
    monkeypatch.setattr(store, "_KEPT_BYTES", 100)
    for names, blocks in (["d0", "d1"], 2), (["d1", "d0"], 2), (["d2"], 3), (["d2", "d0"], 4), (["d0"], 4):
        documents.fetch(names)
        assert len(unpacked) == blocks


def test_who_has_the_index_open_keeps_what_is_deleted(index):
    before = Index.open(index)
    delete(["d1", "d39"], index)
    delete(["d2"], index)
    assert before.documents["d1"].text == "ship number 1 in the harbour"
    [(_, ranking)] = retrieve(before, QUERIES[:1], LexicalOptions(k=50)).items()
    assert len(ranking.doc_ids) == 40
    assert len(Index.open(index)) == 37


def test_what_cannot_be_changed_leaves_the_index_as_it_was(index):
    before = files_of(index)
    for ids, said in [
        (["d1", "none"], '"none": the index .* has no such document'),
        (None, "no document would"),
    ]:
        with pytest.raises(WrongUse, match=said):
            delete([f"d{i}" for i in range(40)] if ids is None else ids, index)
    twice = [Document("d1", "one"), Document("d1", "two")]
    with pytest.raises(DuplicateId, match='the id "d1" came twice; nothing was changed'):
        append(twice, index, OPTIONS, update=True)
    assert files_of(index) == before
    assert Index.open(index).documents["d1"].text == "ship number 1 in the harbour"


def test_files_of_earlier_changes_go_with_the_next(index):
    delete(["d1"], index)
    delete(["d2"], index)
    names = [p.name for p in index.rglob("dead-*")]
    assert sorted(names) == ["dead-000001.npy", "dead-000002.npy"]  # one for who opened the index before
    append([Document("d40", "a pilot")], index, OPTIONS)
    assert [p.name for p in index.rglob("dead-*")] == ["dead-000002.npy"]
    Index.open(index).verify()


def test_what_a_killed_change_left_goes_with_the_next_though_it_be_refused(index):
    left = index / ".manifest.json.killed.part"
    for refused in (
        lambda: delete(["nobody"], index),
        lambda: append([Document("d1", "known")], index, OPTIONS),
    ):
        left.mkdir()
        (left / "manifest.json").write_text("{}")
        with pytest.raises((WrongUse, DuplicateId)):
            refused()
        assert not left.exists()


def test_damage_in_the_marks_is_found(index):
    delete(["d1"], index)
    [path] = index.rglob("dead-*")
    raw = bytearray(path.read_bytes())
    raw[-4] ^= 1
    path.write_bytes(raw)
    with pytest.raises(BadIndex, match="does not have the content"):
        Index.open(index)


def test_what_all_documents_of_a_segment_are_deleted_goes(index):
    first = [f"d{i}" for i in range(20)]
    delete(first[:5], index)
    delete(first[5:], index)
    append([Document(first[0], "a pilot again")], index, OPTIONS)
    opened = Index.open(index)
    assert len(opened) == 21
    assert opened.documents[first[0]].text == "a pilot again"


class TakesAll:
    def takes(self, document, index):
        return True

    def check(self):
        pass


def test_a_merge_leaves_the_deleted_out(index, tmp_path):
    delete(["d1", "d25"], index)
    kept = list(Index.open(index).documents.stream())
    merge([Index.open(index)], tmp_path / "merged", OPTIONS, rule=TakesAll())
    build(kept, tmp_path / "anew", OPTIONS)
    assert facts_of(tmp_path / "merged") == facts_of(tmp_path / "anew")
    assert runs_of(tmp_path / "merged") == runs_of(tmp_path / "anew")


# --- merged away ----------------------------------------------------------------------------------------


def built(folder, documents):
    build(documents, folder, OPTIONS)
    return folder


def test_an_append_writes_segments_with_many_deletions_again(index, tmp_path):
    """What is left is what a build makes of these documents; other segments stay."""
    held = list(Index.open(index).documents.stream())
    delete([f"d{i}" for i in range(0, 20, 4)] + ["d21"], index)
    left = [d for d in held[:20] if int(d.id[1:]) % 4]
    append([Document("d40", "a pilot")], index, OPTIONS)
    first, second, third = Index.open(index).manifest.segments
    assert (first.folder, second.folder, third.folder) == ("000002", "000001", "000003")
    assert [name for name in second.files if name.startswith("dead-")]
    alone = Index.open(built(tmp_path / "alone", left)).manifest.segments[0]
    assert first.files == alone.files
    everything = [*left, *(d for d in held[20:] if d.id != "d21"), Document("d40", "a pilot")]
    assert facts_of(index) == facts_of(built(tmp_path / "anew", everything))
    assert runs_of(index) == runs_of(tmp_path / "anew")
    Index.open(index).verify()


def test_documents_replaced_by_the_append_that_merges_are_marked_in_the_new_segment(index, tmp_path):
    held = list(Index.open(index).documents.stream())
    delete([f"d{i}" for i in range(10)], index)
    new = [Document(f"d{i}", f"a pilot of {i}") for i in (3, 12, 19, 30)]
    append(new, index, OPTIONS, update=True)
    names = {d.id for d in new} | {f"d{i}" for i in range(10)}
    build([*(d for d in held if d.id not in names), *new], tmp_path / "anew", OPTIONS)
    assert facts_of(index) == facts_of(tmp_path / "anew")
    assert runs_of(index) == runs_of(tmp_path / "anew")
    assert Index.open(index).manifest.segments[0].documents == 8


def test_what_covered_the_documents_before_a_merge_still_does(index):
    """Vectors and the like name the fingerprint of their index; a merge changes it, not the documents."""
    delete([f"d{i}" for i in range(10)], index)
    covered = Index.open(index).fingerprint
    append([Document("d40", "a pilot")], index, OPTIONS)
    delete(["d40"], index)
    assert not Index.open(index).manifest.began_as(covered)
    append([Document("d40", "a pilot")], index, OPTIONS)
    delete([f"d{i}" for i in range(20, 30)], index)
    covered = Index.open(index).fingerprint
    append([Document("d41", "a lock")], index, OPTIONS)
    append([Document("d42", "a lock")], index, OPTIONS)
    assert Index.open(index).manifest.began_as(covered)
    append([Document("d11", "a lock")], index, OPTIONS, update=True)
    assert not Index.open(index).manifest.began_as(covered)


def test_a_failed_append_leaves_nothing_of_a_merge(index):
    delete([f"d{i}" for i in range(10)], index)
    before = files_of(index)
    with pytest.raises(DuplicateId):
        append([Document("new", "a lock"), Document("d30", "known")], index, OPTIONS)
    assert files_of(index) == before


@pytest.mark.kill
@pytest.mark.parametrize(
    ("owner", "name"), [(growing, "write_counted"), (growing, "sums_of"), (IndexManifest, "save")]
)
def test_a_killed_merge_leaves_the_index_as_it_was_and_goes_with_the_next(index, tmp_path, owner, name):
    delete([f"d{i}" for i in range(10)], index)
    before, held = facts_of(index), list(Index.open(index).documents.stream())
    if (child := os.fork()) == 0:
        setattr(owner, name, lambda *_, **__: os._exit(9))
        append([Document("d40", "a pilot")], index, OPTIONS)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert facts_of(index) == before
    append([Document("d40", "a pilot")], index, OPTIONS)
    assert facts_of(index) == facts_of(built(tmp_path / "anew", [*held, Document("d40", "a pilot")]))
    delete(["d40"], index)  # what readers of the manifest before needed goes with the change after
    assert sorted(p.name for p in (index / "segments").iterdir()) == ["000001", "000002", "000003"]


def test_damage_in_a_segment_to_be_merged_does_not_stop_an_append(tmp_path):
    rng, index = np.random.default_rng(0), tmp_path / "index"
    bodies = ["".join(map(chr, rng.integers(0x4E00, 0x9000, 3_000).tolist())) for _ in range(40)]
    build([Document(f"d{i}", body) for i, body in enumerate(bodies)], index, OPTIONS)
    delete([f"d{i}" for i in range(10)], index)
    path = index / "segments" / "000000" / "store.bin"
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    append([Document("d40", "a pilot")], index, OPTIONS)
    opened = Index.open(index)
    assert [entry.folder for entry in opened.manifest.segments] == ["000000", "000002"]
    assert sorted(p.name for p in (index / "segments").iterdir()) == ["000000", "000002"]
    with pytest.raises(BadIndex, match=r"000000.store.bin"):
        list(opened.documents.stream())


# --- earlier versions -----------------------------------------------------------------------------------

# An index of six documents in two segments, as rankhouse wrote it before postings were packed.
DOCUMENTS = [
    Document("d9", "The pilots steer ships, and ships steer pilots.", "Pilots"),
    Document("d2", "A lock lifts the ships."),
    Document("é", "Straße, naïve café, ships.", "Ünïcode"),
    Document("d4", ""),
    Document("a1", "Ships ships ships.", "One word"),
    Document("a2", "the and of"),
]


@pytest.fixture
def older(tmp_path):
    with zipfile.ZipFile(Path(__file__).with_name("index_of_version_2.zip")) as archive:
        archive.extractall(tmp_path / "older")
    return tmp_path / "older"


def test_an_index_of_an_earlier_version_becomes_what_is_built_today(older, tmp_path):
    with pytest.raises(BadIndex, match=r"version 2 .* version 3: .*rankhouse index --upgrade --out .*older"):
        Index.open(older)
    assert upgrade(older) == 6
    build(DOCUMENTS[:4], tmp_path / "new", BuildOptions(workers=1))
    append(DOCUMENTS[4:], tmp_path / "new", BuildOptions(workers=1))
    assert Index.open(older).fingerprint == Index.open(tmp_path / "new").fingerprint
    assert list(Index.open(older).documents.stream()) == DOCUMENTS
    assert len(list((older / "segments").iterdir())) == 2
    assert upgrade(older) == 0


def test_given_again_it_removes_what_a_killed_upgrade_left(older):
    before = older.with_name("before")
    shutil.copytree(older, before)
    upgrade(older)
    whole = files_of(older)
    shutil.copytree(before / "segments" / "000000", older / "segments" / "000000")
    assert upgrade(older) == 0
    assert files_of(older) == whole


def test_texts_of_the_first_version_get_checksums(older, tmp_path):
    """That version had no checksums, of blocks of files nor of blocks of texts."""
    held, entries = manifest.load(older, older=True), []
    for entry in held.segments:
        folder = older / "segments" / entry.folder
        plain = zstd.compress(zstd.decompress((folder / "store.bin").read_bytes()))
        assert not plain[4] & 4
        (folder / "store.bin").write_bytes(plain)
        np.save(folder / "block_starts.npy", np.array([0, len(plain)]))
        sums = {path.name: file_sum(path)._replace(blocks=b"") for path in folder.iterdir()}
        entries.append(replace(entry, files=sums))
    replace(held, version=1, segments=tuple(entries)).save(older)
    assert upgrade(older) == 6
    assert list(Index.open(older).documents.stream()) == DOCUMENTS
    build(DOCUMENTS[:4], tmp_path / "new", BuildOptions(workers=1))
    append(DOCUMENTS[4:], tmp_path / "new", BuildOptions(workers=1))
    assert Index.open(older).fingerprint == Index.open(tmp_path / "new").fingerprint


def test_a_damaged_one_is_refused_and_stays(older):
    path = older / "segments" / "000001" / "forward_terms.npy"
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    before = files_of(older)
    for _ in range(2):  # what the first has written is removed by the second
        with pytest.raises(BadIndex, match="forward_terms.npy: does not"):
            upgrade(older)
    assert files_of(older) == before


@pytest.fixture
def two(tmp_path):
    """An index, and one that is put in its place, files first or whole."""
    build([Document(f"d{i}", "ships steer" * i) for i in range(9)], tmp_path / "index", OPTIONS)
    build([Document(f"e{i}", "locks lift") for i in range(8)], tmp_path / "other", OPTIONS)
    return tmp_path / "index", tmp_path / "other"


def before_each(monkeypatch, module, change):
    """Call ``change`` whenever files were compared that are mapped next."""
    compare = module.check_files

    def compared(folder, *rest, **more):
        compare(folder, *rest, **more)
        change(folder)

    monkeypatch.setattr(module, "check_files", compared)


def put(one, there):
    shutil.rmtree(there)
    shutil.copytree(one, there)


def test_an_index_whose_files_change_while_it_is_opened_is_no_mixture(two, monkeypatch):
    """Files were compared first and mapped afterwards: in between another process put other ones there."""
    before_each(monkeypatch, segment, lambda folder: put(two[1] / "segments" / folder.name, folder))
    with pytest.raises(BadIndex, match="is damaged, build the index again"):
        Index.open(two[0])


def test_an_index_replaced_while_it_is_opened_is_the_new_one(two, monkeypatch):
    """It was called damaged, and was to be built again."""
    before_each(monkeypatch, segment, lambda _: put(two[1], two[0]))
    assert sorted(Index.open(two[0]).documents) == [f"e{i}" for i in range(8)]


def test_an_index_that_never_rests_is_refused_in_the_end(two, monkeypatch):
    rounds = count()

    def again(folder):
        options = BuildOptions(workers=1, overwrite=True)
        build([Document(f"f{next(rounds)}", "tides")], folder.parents[1], options)

    before_each(monkeypatch, segment, again)
    with pytest.raises(BadIndex, match="is damaged"):
        Index.open(two[0])
    assert next(rounds) == 10


def test_an_index_replaced_while_it_is_verified_is_not_called_damaged(two):
    opened = Index.open(two[0])
    put(two[1], two[0])
    with pytest.raises(BadIndex, match="was changed while its files were read; check it again"):
        opened.verify()
