"""An index built in shards and merged: the same bytes as one build, from every reader, however it is cut."""

import gzip
import json
import random
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rankhouse as rh
from rankhouse.core.errors import BadData, DuplicateId
from rankhouse.io.corpora import Source, read_sources
from rankhouse.io.corpus_shards import CorpusShards
from rankhouse.io.duplicate_ids import Repeats
from rankhouse.io.files import Skips

SMALL = ["--segment-tokens", "400", "--workers", "1"]


def record(document):
    return json.dumps({"id": document.id, "title": document.title, "text": document.text, **document.extra})


def lines(documents):
    return "".join(record(document) + "\n" for document in documents)


def trec(documents):
    return "".join(f"<DOC>\n<DOCNO>{d.id}</DOCNO>\n<TEXT>\n{d.text}\n</TEXT>\n</DOC>\n" for d in documents)


@pytest.fixture
def corpus(world):
    """A folder of files of every kind; ids differ."""
    folder = Path("corpus")
    folder.mkdir()
    (folder / "a.jsonl").write_text("\ufeff" + lines(world[:13]) + "\n\n")
    (folder / "b.tsv").write_text("".join(f"b{d.id}\t{d.text}\n" for d in world[:8]).rstrip("\n"))
    (folder / "c.jsonl.gz").write_bytes(gzip.compress(lines(world[13:26]).encode()))
    (folder / "d.trec").write_text("<!-- a head -->\n" + trec(world[26:33]))
    (folder / "e.sgml.gz").write_bytes(gzip.compress(trec(world[33:]).encode()))
    (folder / "f.jsonl").write_text("")
    (folder / "g.jsonl").write_text(record(rh.Document("g1", "é" * 300 + " ships")) + "\r\n")
    return folder


@pytest.mark.quick("1", "2", "3", "7")
@pytest.mark.parametrize("n", [1, 2, 3, 7, 60])
def test_an_index_of_shards_is_the_index(done, corpus, contents, n):
    whole = json.loads(done("index", corpus, "--out", "whole.index", *SMALL, "--json").stdout)
    for number in range(n, 0, -1):
        done("index", corpus, "--shard", f"{number}/{n}", "--out", f"parts/{number}", *SMALL)
    merged = json.loads(done("merge", "parts", "--out", "merged.index", "--json").stdout)
    assert contents("merged.index") == contents("whole.index")
    for name in ("documents", "tokens", "without_text", "without_terms", "skipped", "repeated"):
        assert merged[name] == whole[name]
    found = [rh.Index.open(part / "index") for part in Path("parts").iterdir() if (part / "index").exists()]
    assert sum(map(len, found)) == whole["documents"]  # a part can be searched as it is
    assert all(len(part.search("ships")) for part in found if len(part) > 3)


def test_a_folder_that_lacks_a_shard_is_not_searched(done, run, corpus):
    for number in (1, 3):
        done("index", corpus, "--shard", f"{number}/3", "--out", f"parts/{number}", *SMALL)
    failed = run("search", "--index", "parts", "--query", "ships")
    assert failed.returncode == 1
    assert "missing: shard 2/3" in failed.stderr
    with pytest.raises(rh.RankhouseError, match="missing: shard 2/3"):
        rh.Index.open_parts("parts")
    done("search", "--index", "parts/1", "--index", "parts/3", "--query", "ships")  # named one by one
    done("index", corpus, "--shard", "2/3", "--out", "parts/2", *SMALL)
    done("search", "--index", "parts", "--query", "ships")


def test_shards_without_documents_are_nothing_to_search(done, run, tmp_path):
    Path("few.tsv").write_text("a\tships in the harbour\nb\tthe tide\n")
    for number in range(1, 6):
        done("index", "few.tsv", "--shard", f"{number}/5", "--out", f"parts/{number}", *SMALL)
    parts = [Path(f"parts/{number}") for number in range(1, 6)]
    assert sum((part / "index").exists() for part in parts) == 2
    named = [word for part in parts for word in ("--index", str(part))]
    assert "  a  " in done("search", *named, "--query", "ships").stdout
    assert rh.Index.open_parts(*parts).search("tide").doc_ids == ("b",)
    (parts[0] / "index" / "manifest.json").unlink()  # damaged, and not empty
    failed = run("search", *named, "--query", "ships")
    assert failed.returncode == 1
    assert "parts/1" in failed.stderr


@pytest.mark.slow
def test_chunks_of_many_documents_are_cut_as_in_one_build(done, tmp_path, contents):
    rng = random.Random(1)
    words = ["tide", "lock", "canal", "grain", "the", "of", "price"]
    texts = [" ".join(rng.choices(words, k=3)) for _ in range(9_000)]
    Path("many.tsv").write_text("".join(f"d{i}\t{text}\n" for i, text in enumerate(texts)))
    options = ["--segment-tokens", "9000", "--workers", "2"]
    done("index", "many.tsv", "--out", "whole.index", *options)
    for number in (1, 2, 3):
        done("index", "many.tsv", "--shard", f"{number}/3", "--out", f"parts/{number}", *options)
    done("merge", "parts", "--out", "merged.index")
    assert contents("merged.index") == contents("whole.index")
    assert len(list(Path("whole.index/segments").iterdir())) > 1


@settings(max_examples=60)
@given(data=st.data())
def test_stretches_of_any_files_are_the_whole_in_order(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("corpus")
    number = 0
    names = st.sampled_from(["jsonl", "tsv", "jsonl.gz", "tsv.zst", "trec", "trec.gz"])
    for name in data.draw(st.lists(names, min_size=1, max_size=4)):
        rows = []
        for size in data.draw(st.lists(st.integers(0, 40), max_size=8)):
            number += 1
            document = rh.Document(f"d{number}", "wörd " * size)
            plain = f"{document.id}\t{document.text}"
            row = {"jsonl": record(document), "tsv": plain, "trec": trec([document])}[name.split(".")[0]]
            rows.append(row + data.draw(st.sampled_from(["\n", "\r\n", "\n\n"])))
        raw = "".join(rows).encode()
        if data.draw(st.booleans()):
            raw = raw.rstrip(b"\r\n")
        path = folder / f"{number:03}-{len(list(folder.iterdir()))}.{name}"
        if name.endswith("gz"):
            raw = gzip.compress(raw)
        if name.endswith("zst"):
            from backports import zstd

            raw = zstd.compress(raw)
        path.write_bytes(raw)
    sources = [Source(str(path)) for path in sorted(folder.iterdir())]
    whole = list(read_sources(sources, Skips()))
    line = CorpusShards(sources)
    cuts = sorted(data.draw(st.lists(st.integers(0, line.total), max_size=5)))
    edges = [0, *cuts, line.total]
    parts = [list(CorpusShards(sources).read(a, b, Skips())) for a, b in pairwise(edges)]
    assert [document for part in parts for document in part] == whole


@pytest.mark.parametrize("name", ["bad.jsonl", "bad.jsonl.gz", "bad.trec"])
def test_faults_of_stretches_are_those_of_the_whole_with_their_lines(world, name):
    rows = [record(d) if name != "bad.trec" else trec([d]).strip("\n") for d in world]
    for place in (0, 11, 25, 39):
        rows.insert(place, '{"id": 3.5}' if name != "bad.trec" else "lost words")
    raw = ("\n".join(rows) + "\n").encode()
    Path(name).write_bytes(gzip.compress(raw) if name.endswith("gz") else raw)
    sources, whole = [Source(name)], Skips(9)
    documents = list(read_sources(sources, whole))
    total = CorpusShards(sources).total
    for n in (1, 2, 5, 50):
        seen, read = [], []
        for number in range(n):
            skips = Skips(9)
            read += CorpusShards(sources).read(number * total // n, (number + 1) * total // n, skips)
            seen += map(str, skips.seen)
        assert read == documents
        assert seen == list(map(str, whole.seen))
    with pytest.raises(BadData) as raised:
        list(CorpusShards(sources).read(total // 2, total, Skips()))
    assert str(raised.value) in map(str, whole.seen)


@pytest.fixture
def repeated(world):
    """A corpus whose first document comes again, first as it was and then with another text."""
    texts = [*world[:9], world[0], *world[9:20], rh.Document("d01", "another text")]
    Path("repeated.jsonl").write_text(lines(texts))
    return [Source("repeated.jsonl")]


@pytest.mark.slow
def test_ids_that_come_again_in_another_shard_are_seen_as_in_one_build(run, done, repeated, contents):
    def cut(*options, n=5):
        for number in range(1, n + 1):
            done("index", "repeated.jsonl", "--shard", f"{number}/{n}", "--out", f"parts/{number}", *SMALL,
                 "--overwrite", *options)  # fmt: skip
        return run("merge", "parts", "--out", "merged.index", "--overwrite", "--json")

    refused = cut()
    assert refused.returncode == 1
    assert 'the id "d00" is in the shard parts/1 and again in parts/' in refused.stderr
    assert not Path("merged.index").exists()
    refused = cut("--duplicates", "same")
    assert 'the id "d01" is in the shard parts/1 and again, with another text, in parts/5' in refused.stderr
    for options in (["--duplicates", "first"], ["--skip-bad", "2"]):
        merged = cut(*options)
        assert merged.returncode == 0, merged.stderr
        whole = done(
            "index", "repeated.jsonl", "--out", "whole.index", "--overwrite", "--json", *SMALL, *options
        )
        assert contents("merged.index") == contents("whole.index")
        ours, theirs = json.loads(merged.stdout), json.loads(whole.stdout)
        assert ours["repeated"] == theirs["repeated"]
        assert len(ours["skipped"]) == len(theirs["skipped"])
    assert cut("--skip-bad", "1").returncode == 1
    with pytest.raises(DuplicateId):
        list(CorpusShards(repeated).read(0, CorpusShards(repeated).total, Skips(), Repeats("same")))


def test_prefixes_make_ids_of_shards_differ(done, corpus, contents):
    Path("other.jsonl").write_text((corpus / "a.jsonl").read_text())
    options = [corpus / "a.jsonl", "more=other.jsonl", "--prefix-ids", *SMALL]
    done("index", *options, "--out", "whole.index")
    for number in range(1, 5):
        done("index", *options, "--shard", f"{number}/4", "--out", f"parts/{number}")
    done("merge", "parts", "--out", "merged.index")
    assert contents("merged.index") == contents("whole.index")


def test_a_merge_onto_an_index_names_the_command_that_adds_to_one(run, done, corpus):
    for number in (1, 2):
        done("index", corpus, "--shard", f"{number}/2", "--out", f"parts/{number}", *SMALL)
    done("merge", "parts", "--out", "merged.index")
    refused = run("merge", "parts", "--out", "merged.index")
    assert refused.returncode == 2
    assert "merged.index: is an index already; add to it with  rankhouse index --append" in refused.stderr


def test_corpora_that_changed_and_options_that_a_shard_cannot_have_are_refused(run, done, corpus):
    for number in (1, 2):
        done("index", corpus, "--shard", f"{number}/2", "--out", f"parts/{number}", *SMALL)
    with (corpus / "g.jsonl").open("a") as file:
        file.write('{"id": "late", "text": "later"}\n')
    again = ["index", corpus, "--shard", "2/2", "--out", "parts/2", *SMALL]
    refused = run(*again)
    assert refused.returncode == 2
    assert "holds a shard of another job" in refused.stderr
    assert "--overwrite" in refused.stderr
    done(*again, "--overwrite")
    refused = run("merge", "parts", "--out", "merged.index")
    assert refused.returncode == 1
    assert "is of another job than parts/" in refused.stderr
    refused = run(*again, "--append")
    assert refused.returncode == 2
    assert "merge them, then add to the whole" in refused.stderr
    Path("empty.jsonl").write_text("")
    done("index", "empty.jsonl", "--shard", "1/1", "--out", "nothing")
    refused = run("merge", "nothing", "--out", "merged.index")
    assert refused.returncode == 1
    assert "there are no documents to index" in refused.stderr
