"""Building: whole or absent, bounded, the same in parallel, refused when damaged."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from rankhouse.core.errors import (
    BadData,
    BadIndex,
    DuplicateId,
    MissingInput,
    OutputFailed,
    RankhouseError,
    RankhouseWarning,
    WrongUse,
)
from rankhouse.core.nouns import Document, Query
from rankhouse.index.index import Index
from rankhouse.index.lexical import build as building
from rankhouse.index.lexical import growing
from rankhouse.index.lexical.analysis import Analysts
from rankhouse.index.lexical.build import BuildOptions, append, build
from rankhouse.index.lexical.search import retrieve

ALONE = BuildOptions(workers=1)


def files_of(index: Path) -> dict[str, bytes]:
    return {str(p.relative_to(index)): p.read_bytes() for p in sorted(index.rglob("*")) if p.is_file()}


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
    """Read a few documents at a time, so that small collections have many chunks and segments."""
    monkeypatch.setattr(building, "CHUNK_DOCUMENTS", 16)


def test_documents_come_back_as_they_went_in(tmp_path, documents):
    report = build(documents, tmp_path / "index", BuildOptions(segment_tokens=2000, workers=1))
    index = Index.open(tmp_path / "index")
    assert len(index.segments) > 2
    assert list(index.documents.stream()) == documents
    assert list(index.documents) == [d.id for d in documents]
    for document in documents:
        assert index.documents[document.id] == document
    assert index.documents.fetch([documents[9].id, documents[2].id]) == [documents[9], documents[2]]
    assert documents[5].id in index.documents
    assert "none" not in index.documents
    assert 5 not in index.documents
    with pytest.raises(KeyError):
        index.documents["none"]
    assert report.documents == len(index) == len(index.documents) == 300
    assert report.tokens == index.collection.tokens
    assert report.without_text + report.without_terms > 0
    assert len(report.blank) == min(5, report.without_text)
    assert len(report.wordless) == min(5, report.without_terms)
    assert "300 documents, english" in repr(index)


def test_workers_give_the_same_index_as_one_process(tmp_path, documents):
    build(documents, tmp_path / "one", BuildOptions(segment_tokens=3000, workers=1))
    build(documents, tmp_path / "two", BuildOptions(segment_tokens=3000, workers=2))
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")
    assert Index.open(tmp_path / "one").fingerprint == Index.open(tmp_path / "two").fingerprint


def test_an_error_in_a_worker_reaches_the_caller():
    with Analysts("english", 2) as analysts:
        with pytest.raises(AttributeError):
            analysts.submit([3]).result()
        assert analysts.submit(["still alive"]).result().terms == ["still", "aliv"]


def test_a_worker_that_died_is_explained():
    with Analysts("english", 2) as analysts:
        for process in analysts._all:
            process.kill()
            process.wait()
        with pytest.raises(RankhouseError, match=r"ended unexpectedly \(exit code -9\)"):
            analysts.submit(["text"]).result()


def test_analyzers_differ_and_unknown_ones_are_refused(tmp_path):
    texts = [Document("a", "The #Ships sailed http://t.co/Z")]
    found = {}
    for name in ("english", "tweet", "whitespace"):
        build(texts, tmp_path / name, BuildOptions(name, workers=1))
        found[name] = sorted(Index.open(tmp_path / name).segments[0].terms)
    assert found["whitespace"] == ["#Ships", "The", "http://t.co/Z", "sailed"]
    assert found["tweet"] == ["#ships", "http://t.co/Z", "sail", "the"]
    assert "ship" in found["english"]
    with pytest.raises(WrongUse, match="not a known analyzer"):
        build(texts, tmp_path / "x", BuildOptions("klingon"))


def test_appending_continues_and_keeps_the_analyzer(tmp_path, documents):
    build(documents[:100], tmp_path / "index", BuildOptions("whitespace", workers=1))
    before = Index.open(tmp_path / "index").fingerprint
    append(documents[100:], tmp_path / "index", ALONE)
    index = Index.open(tmp_path / "index")
    assert list(index.documents.stream()) == documents
    assert index.analyzer.name == "whitespace"
    assert index.fingerprint != before


def test_a_known_id_is_refused_and_nothing_is_added(tmp_path, documents):
    build(documents[:10], tmp_path / "index", ALONE)
    before = files_of(tmp_path / "index")
    with pytest.raises(DuplicateId, match="is in the index already; nothing was added"):
        append([Document("fresh", "x"), documents[3]], tmp_path / "index", ALONE)
    with pytest.raises(BadData, match="no documents"):
        append([], tmp_path / "index", ALONE)
    assert files_of(tmp_path / "index") == before


@pytest.mark.slow
def test_odd_texts_are_indexed_and_counted(tmp_path):
    odd = [
        Document("empty", ""),
        Document("blank", " \n\t"),
        Document("stops", "the of and"),
        Document("title", "", "Only a title"),
        Document("long", "word " * 2_000_000 + "needle"),
        Document("one-word", "x" * 300_000),
        Document("nul", "a\x00b \ud7ff \U0001f600"),
    ]
    report = build(odd, tmp_path / "index", ALONE)
    assert (report.without_text, report.without_terms) == (2, 1)
    index = Index.open(tmp_path / "index")
    assert list(index.documents.stream()) == odd
    assert index.collection.with_text == 5
    assert retrieve(index, [Query("q", "needle")])["q"].doc_ids == ("long",)
    assert set(retrieve(index, [Query("q", "title word")])["q"].doc_ids) == {"title", "long"}


def test_an_empty_corpus_is_refused(tmp_path):
    with pytest.raises(BadData, match="there are no documents to index"):
        build([], tmp_path / "index", ALONE)
    assert not list(tmp_path.iterdir())


def test_an_occupied_place_is_refused_or_replaced_on_demand(tmp_path, documents):
    place = tmp_path / "index"
    place.mkdir()
    (place / "thesis.tex").write_text("years of work")
    for options in (ALONE, BuildOptions(workers=1, overwrite=True)):
        with pytest.raises(WrongUse, match="exists and is no index"):
            build(documents, place, options)
    (place / "thesis.tex").unlink()
    build(documents[:5], place, ALONE)
    with pytest.raises(WrongUse, match="--append, or replace it with --overwrite"):
        build(documents, place, ALONE)
    build(documents, place, BuildOptions(workers=1, overwrite=True))
    assert len(Index.open(place)) == 300
    assert [p.name for p in tmp_path.iterdir()] == ["index"]


def test_a_failing_reader_leaves_nothing_behind(tmp_path, documents):
    def broken():
        yield from documents[:50]
        raise BadData("broken record", "corpus.jsonl", 51)

    with pytest.raises(BadData, match="line 51"):
        build(broken(), tmp_path / "index", ALONE)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_explained_and_leaves_nothing(tmp_path, documents, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(growing, "write_arrays", full)
    with pytest.raises(OutputFailed, match="disk is full"):
        build(documents, tmp_path / "index", ALONE)
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_explained(tmp_path, documents):
    (tmp_path / "file").touch()
    with pytest.raises(OutputFailed, match="cannot be written"):
        build(documents, tmp_path / "file" / "index", ALONE)


KILLED = """
import sys, time
from rankhouse.core.nouns import Document
from rankhouse.index.lexical.build import BuildOptions, append, build
def slow():
    for i in range(10**6):
        if i == 150: print("reading", flush=True)
        if i >= 150: time.sleep(0.01)
        yield Document(f"late{i}", "some words here")
{verb}(slow(), sys.argv[1], BuildOptions(segment_tokens=100, workers=2))
"""


@pytest.mark.kill
@pytest.mark.parametrize("verb", ["build", "append"])
def test_a_killed_build_leaves_no_half_index_and_can_be_started_again(tmp_path, documents, verb, monkeypatch):
    place = tmp_path / "index"
    if verb == "append":
        build(documents[:20], place, ALONE)
    code = KILLED.replace(
        "{verb}", f"import rankhouse.index.lexical.build as b; b.CHUNK_DOCUMENTS = 10; {verb}"
    )
    process = subprocess.Popen([sys.executable, "-c", code, place], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"reading\n"
    time.sleep(0.3)
    if verb == "build":
        with pytest.raises(WrongUse, match="another process is writing it"):
            build(documents, place, ALONE)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    if verb == "build":
        assert not place.exists()
        build(documents, place, ALONE)
        assert list(Index.open(place).documents.stream()) == documents
    else:
        assert list(Index.open(place).documents.stream()) == documents[:20]
        append(documents[20:], place, ALONE)
        assert list(Index.open(place).documents.stream()) == documents
        assert len(list((place / "segments").iterdir())) == len(Index.open(place).segments)
    assert [p.name for p in tmp_path.iterdir()] == ["index"]


KILLED_AFTER_ITS_END = """
import os, signal, sys
import rankhouse.io.scratch as scratch
from rankhouse.core.nouns import Document
from rankhouse.index.lexical.build import BuildOptions, build
tree = scratch.shutil.rmtree
def last(path, **options):
    if path.name.startswith(".index."): os.kill(os.getpid(), signal.SIGKILL)
    tree(path, **options)
scratch.shutil.rmtree = last
build([Document("d", "some words")], sys.argv[1], BuildOptions(workers=1))
"""


def test_a_build_killed_after_its_end_is_tidied_up_by_the_next_even_if_that_is_refused(tmp_path):
    place = tmp_path / "index"
    ended = subprocess.run([sys.executable, "-c", KILLED_AFTER_ITS_END, place], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert len(os.listdir(tmp_path)) == 3  # the index, the scratch folder, the lock
    with pytest.raises(WrongUse, match="is an index already"):
        build([Document("d", "some words")], place, ALONE)
    assert [p.name for p in tmp_path.iterdir()] == ["index"]


APPENDER = """
import sys
from rankhouse.core.errors import RankhouseError
from rankhouse.core.nouns import Document
from rankhouse.index.lexical.build import BuildOptions, append
try:
    append([Document(f"new{i}", "some words") for i in range(300)], sys.argv[1], BuildOptions(workers=1))
except RankhouseError as error:
    sys.exit(str(error))
"""


def test_of_two_processes_that_append_at_once_one_adds_its_documents(tmp_path, documents):
    build(documents[:20], tmp_path / "index", ALONE)
    command = [sys.executable, "-c", APPENDER, tmp_path / "index"]
    both = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate()[1] for process in both]
    assert sorted(process.returncode for process in both) == [0, 1]
    assert "another process is writing it" in "".join(said) or "is in the index already" in "".join(said)
    assert len(Index.open(tmp_path / "index").documents) == 320


@pytest.fixture
def sound(tmp_path, documents):
    build(documents[:60], tmp_path / "index", ALONE)
    return tmp_path / "index"


def segment_file(index: Path, name: str) -> Path:
    return index / "segments" / "000000" / name


def test_missing_and_foreign_folders_are_refused(tmp_path):
    with pytest.raises(MissingInput, match=r"no such index; make it with  rankhouse index"):
        Index.open(tmp_path / "none")
    with pytest.raises(BadIndex, match=r"is no rankhouse index \(it has no manifest.json\)"):
        Index.open(tmp_path)
    with pytest.raises(BadIndex, match="no rankhouse index"):
        append([Document("a", "x")], tmp_path, ALONE)


@pytest.mark.parametrize(
    "name", ["lists.bin", "forward.bin", "terms.bin", "store.bin", "id_order.npy", "codes.npy"]
)
def test_damage_is_found_when_opening(sound, name):
    path = segment_file(sound, name)
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 0xFF
    path.write_bytes(bytes(raw))
    with pytest.raises(BadIndex, match=f"{name}: does not have the content it was written with"):
        Index.open(sound)
    path.write_bytes(bytes(raw[:-3]))
    with pytest.raises(BadIndex, match=f"{name}: has .* bytes where the manifest says"):
        Index.open(sound)
    path.unlink()
    with pytest.raises(BadIndex, match=f"{name}: is missing"):
        Index.open(sound)


def test_damage_in_a_large_file_is_found_by_verify(sound, monkeypatch):
    from rankhouse.index.lexical import manifest

    monkeypatch.setattr(manifest, "CHECKED_AT_OPEN", 0)
    Index.open(sound).verify()
    path = segment_file(sound, "lists.bin")
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 0xFF
    path.write_bytes(bytes(raw))
    with pytest.raises(BadIndex, match="does not have the content"):
        Index.open(sound).verify()


def test_a_changed_manifest_and_another_version_are_refused(sound):
    path = sound / "manifest.json"
    text = path.read_text()
    path.write_text(text.replace('"english"', '"whitespace"'))
    with pytest.raises(BadIndex, match="was changed after it was written"):
        Index.open(sound)
    path.write_text(text[:-20])
    with pytest.raises(BadIndex, match="cannot be read"):
        Index.open(sound)
    from zlib import crc32

    inner = json.dumps({"format": "rankhouse-index", "version": 99, "made_by": "rankhouse 9.9"})
    path.write_text(f'{{"crc32": {crc32(inner.encode())}, "manifest": {inner}}}')
    with pytest.raises(
        BadIndex, match=r'version 99 by rankhouse 9\.9; this program reads "rankhouse-index" version 3'
    ):
        Index.open(sound)


@pytest.mark.slow
def test_memory_is_bounded_by_the_segment(tmp_path):
    """Four times the documents, in segments of one size: the peak may not grow with them."""
    code = """
import resource, sys
from rankhouse.core.nouns import Document
from rankhouse.index.lexical.build import BuildOptions, build
many = (
    Document(str(i), " ".join(f"w{(i * 7919 + j * j) % 50000}" for j in range(60)))
    for i in range(int(sys.argv[2]))
)
build(many, sys.argv[1], BuildOptions("whitespace", segment_tokens=200_000, workers=1))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
    peaks = []
    for count in (5_000, 20_000):
        command = [sys.executable, "-c", code, str(tmp_path / str(count)), str(count)]
        peaks.append(int(subprocess.run(command, capture_output=True, check=True, text=True).stdout))
    assert peaks[1] < peaks[0] * 1.15


def test_opening_does_not_read_the_arrays(tmp_path, documents):
    build(documents, tmp_path / "index", ALONE)
    index = Index.open(tmp_path / "index")
    assert isinstance(index.segments[0]._lists.unchecked.base, np.memmap)
    shutil.rmtree(tmp_path / "index")
    assert os.listdir(tmp_path) == []


def test_a_thousand_workers_are_no_more_than_the_processors():
    with (
        pytest.warns(RankhouseWarning, match=r"workers=999: this machine has \d+ processors, so \d+"),
        Analysts("english", 999) as analysts,
    ):
        assert analysts.workers == max(2, os.cpu_count())


def test_an_index_is_opened_without_pythons_parser(tmp_path, monkeypatch):
    """It fails now and then where several threads parse, and one of them could not open its index."""
    build([Document("a", "ships")], tmp_path / "i", ALONE)
    with monkeypatch.context() as patched:
        patched.setattr("ast.literal_eval", None)
        documents = len(Index.open(tmp_path / "i"))
    assert documents == 1
