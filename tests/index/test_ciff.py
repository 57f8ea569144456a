"""CIFF: rankings survive the way out and in; files of the reference package; damaged files."""

import gzip
import json
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankhouse.core.errors import BadData, DuplicateId, MissingInput
from rankhouse.core.nouns import Document, Query
from rankhouse.index.index import Index
from rankhouse.index.lexical.build import BuildOptions, append, build, delete
from rankhouse.index.lexical.ciff import build_from_ciff, write_index
from rankhouse.index.lexical.search import LexicalOptions, retrieve
from rankhouse.index.lexical.store import NoTexts
from rankhouse.io.ciff import CiffHeader, Lists, reading_ciff, write_ciff

OPTIONS = BuildOptions(workers=1)
MODELS = ("bm25", 'bm25(lengths="exact")', "ql", 'ql(form="indri")', "jm", "impact")
# Written by ciff-toolkit 0.2.2 with protobuf 4.25: three lists, three documents.
REFERENCE = bytes.fromhex(
    "270801100318032003280330cf01390000000000405140420f627920636966662d746f6f6c6b6974170a07686172626f757210021802"
    "22021001220408021001120a046c6f636b100118c8012205080110c8011a0a0473686970100318052202100222040801100122040801"
    "1002061202643118030908011202643218c901080802120264301803"
)


def runs_of(index, queries):
    return [
        (query, ranking.doc_ids, ranking.scores.tobytes())
        for model in MODELS
        for feedback in ("", "rm3")
        for k in (3, 300)
        for query, ranking in retrieve(index, queries, LexicalOptions(model, feedback, k, 1)).items()
    ]


@pytest.mark.parametrize("name", ["out.ciff", "out.ciff.gz", "out.ciff.zst"])
def test_rankings_survive_export_and_import(tmp_path, documents, queries, name):
    build(documents[:200], tmp_path / "index", OPTIONS)
    append(documents[200:], tmp_path / "index", OPTIONS)
    delete([documents[3].id, documents[250].id], tmp_path / "index")
    before = Index.open(tmp_path / "index")
    write_index(before, tmp_path / name)
    report = build_from_ciff(tmp_path / name, tmp_path / "again", BuildOptions(segment_tokens=3_000))
    after = Index.open(tmp_path / "again")
    after.verify()
    assert len(after.segments) > 2
    assert (report.documents, report.tokens) == (298, before.collection.tokens)
    assert after.collection._replace(with_text=0) == before.collection._replace(with_text=0)
    assert runs_of(after, queries) == runs_of(before, queries)
    write_index(after, tmp_path / f"again-{name}")
    assert (tmp_path / f"again-{name}").read_bytes() == (tmp_path / name).read_bytes()


def test_a_file_of_the_reference_package(tmp_path):
    (tmp_path / "made.ciff").write_bytes(REFERENCE)
    build_from_ciff(tmp_path / "made.ciff", tmp_path / "index", OPTIONS)
    index = Index.open(tmp_path / "index")
    assert list(index.documents) == ["d1", "d2", "d0"]
    assert index.segments[0].lengths.tolist() == [3, 201, 3]
    assert index.segments[0].terms_of_all(np.arange(3)) == [
        [("ship", 2), ("harbour", 1)], [("ship", 1), ("lock", 200)], [("ship", 2), ("harbour", 1)],
    ]  # fmt: skip
    [(_, ranking)] = retrieve(index, [Query("q", "ships in harbours")], LexicalOptions("impact")).items()
    assert (ranking.doc_ids, [round(s, 3) for s in ranking.scores.tolist()]) == (
        ("d0", "d1", "d2"),
        [3, 3, 1],
    )
    with reading_ciff(tmp_path / "made.ciff") as reader:
        assert reader.header == CiffHeader(3, 3, 3, 3, 207, 69.0, "by ciff-toolkit")


def test_what_needs_texts_is_refused(tmp_path):
    (tmp_path / "made.ciff").write_bytes(REFERENCE)
    build_from_ciff(tmp_path / "made.ciff", tmp_path / "index", OPTIONS)
    index = Index.open(tmp_path / "index")
    for ask in (lambda: index.documents["d1"], lambda: list(index.documents.stream())):
        with pytest.raises(NoTexts, match="was made from a CIFF file, which holds terms and no texts"):
            ask()
    append([Document("d9", "a ship and a ship")], tmp_path / "index", OPTIONS)
    delete(["d2"], tmp_path / "index")
    changed = Index.open(tmp_path / "index")
    assert changed.documents["d9"].text == "a ship and a ship"
    assert changed.collection == (3, 3, 3, 8, 0, 0)
    [(_, ranking)] = retrieve(changed, [Query("q", "ships")]).items()
    assert set(ranking.doc_ids) == {"d9", "d0", "d1"}


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_any_lists_come_back_as_they_were_written(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("ciff") / "any.ciff"
    total = data.draw(st.sampled_from([1, 3, 200, 20_000, 3_000_000]))
    count = st.integers(1, data.draw(st.sampled_from([1, 130, 2**31 - 1])))
    held = data.draw(st.lists(st.dictionaries(st.integers(0, total - 1), count, max_size=20), min_size=1))
    rows = [row for one in held for row in sorted(one)]
    counts = [one[row] for one in held for row in sorted(one)]
    starts = np.cumsum([0, *map(len, held)])
    lists = Lists(
        [f"tërm{i}" for i in range(len(held))], starts, np.array(rows, np.int64), np.array(counts, np.int64)
    )
    write_ciff(
        path, CiffHeader(len(held), total, len(held), total, 1, mean_length=0.5, description=""), [lists], []
    )
    with reading_ciff(path) as reader:
        [read] = reader.lists()
    assert read.terms == lists.terms
    assert [one.tolist() for one in read[1:]] == [one.tolist() for one in lists[1:]]


def changed(old, new):
    assert REFERENCE.count(bytes.fromhex(old)) == 1
    return REFERENCE.replace(bytes.fromhex(old), bytes.fromhex(new))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (REFERENCE[:-1], "document record 3 of 3: the file ends in it, after 7 of 8 bytes"),
        (REFERENCE[:60], r"postings list 1 of 3: the file ends in it, after 19 of 23 bytes"),
        (b"", "the header: the file ends before it"),
        (b"id\ttext of another kind of file, long enough to be read\n" * 9, "the header: it is no "),
        (REFERENCE + b"\0", "goes on after the last of its 3 documents"),
        (changed("2708011003", "2708021003"), "has version 2; version 1 of CIFF is read"),
        (changed("18032003280330", "18032003280430"), "holds 3 of its collection's 4 documents"),
        (changed("220408011001220408011002", "220408011001220408001002"), '"ship": a document .* twice'),
        (changed("220408011001220408011002", "220408011001220408031002"), '"ship": a docid is beyond'),
        (changed("100118c8012205080110c801", "100118c801220508ffff0310"), r'"lock": '),
        (changed("10021802", "10031802"), '"harbour": it holds 2 postings, its document frequency is 3'),
        (changed("10021802", "10021803"), '"harbour": its collection frequency is not the sum of its tfs'),
        (changed("220408021001", "220408021000"), '"harbour": a tf is 0'),
        (changed("220408021001", "220410021001"), '"harbour": a posting is no docid and tf'),
        (changed("0a0473686970", "0a046c6f636b"), 'two of its postings lists are of "lock"'),
        (changed("0a0473686970", "0a04ff686970"), "postings list 3 of 3: its field 1 is not UTF-8"),
        (changed("080802120264301803", "080801120264301803"), "record 3 of 3: its docid is 1; they"),
        (changed("12026430", "12022030"), 'the id " 0" is empty or has white space'),
        (changed("12026430", "12026431"), 'the id "d1" is given to two documents'),
        (gzip.compress(REFERENCE)[:-9], "the compressed data is damaged or ends too early"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_named_with_the_place(tmp_path, content, said):
    (tmp_path / "bad.ciff").write_bytes(content)
    with pytest.raises((BadData, DuplicateId), match=said) as caught:
        build_from_ciff(tmp_path / "bad.ciff", tmp_path / "index", OPTIONS)
    assert str(caught.value).startswith(str(tmp_path / "bad.ciff"))
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == ["bad.ciff"]


def test_flipped_bytes_are_an_error_or_another_index(tmp_path):
    rng = random.Random(1)
    for number in range(150):
        raw = bytearray(REFERENCE)
        raw[rng.randrange(len(raw))] = rng.randrange(256)
        (tmp_path / "bad.ciff").write_bytes(raw)
        try:
            build_from_ciff(tmp_path / "bad.ciff", tmp_path / f"index{number}", OPTIONS)
        except BadData:
            continue
        Index.open(tmp_path / f"index{number}").verify()


def test_the_command_line(run, tmp_path):
    (tmp_path / "made.ciff").write_bytes(REFERENCE)
    silent = run("index", "--ciff", "made.ciff", "--out", "my.index")
    assert silent.returncode == 2
    assert "the file does not say how its terms were made" in silent.stderr
    assert run("index", "--ciff", "made.ciff", "--analyzer", "english", "--out", "my.index").returncode == 0
    found = run("search", "my.index", "the ships", "--json")
    assert [hit["id"] for hit in json.loads(found.stdout)] == ["d0", "d1", "d2"]
    assert run("export", "--index", "my.index", "--out", "out.ciff.gz").returncode == 0
    assert run("index", "--ciff", "out.ciff.gz", "--analyzer", "english", "--out", "again").returncode == 0
    for more in (["c.tsv"], ["--append"], ["--workers", 2], ["--field", "title"], ["--shard", "1/2"]):
        done = run("index", "--ciff", "made.ciff", "--analyzer", "english", "--out", "other", *more)
        assert (done.returncode, "--ciff reads no" in done.stderr or "change nothing" in done.stderr) == (
            2,
            True,
        )


def test_a_missing_file(tmp_path):
    with pytest.raises(MissingInput, match="there is no such file"):
        build_from_ciff(tmp_path / "none.ciff", tmp_path / "index", OPTIONS)
