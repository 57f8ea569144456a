"""The example of docs/extending.md: built into a wheel, installed, and used by the command line."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from host_material import QRELS, QUERIES, TEXTS

import rankhouse as rh

pytestmark = [pytest.mark.slow, pytest.mark.outside]

HERE = Path(__file__).parent
EXAMPLE, PAGE = HERE / "example_extension", HERE.parents[1] / "docs" / "extending.md"
BIBTEX = """
@inproceedings{xiong2017,
  title = {End-to-End Neural Ad-hoc Ranking with Kernel Pooling},
  abstract = {Kernels pool the cosines of words.},
  year = {2017}
}

@article{robertson2009,
  title = {The Probabilistic Relevance Framework},
  abstract = {BM25 and beyond.}
}
"""


def called(*arguments, folder, **environment):
    return subprocess.run(
        [sys.executable, *map(str, arguments)], cwd=folder, capture_output=True, text=True, check=False,
        env=os.environ | environment,
    )  # fmt: skip


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Build the example into a wheel and install that; gives the folder it is installed in."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("installed")
    for path in EXAMPLE.rglob("*"):
        if path.suffix in (".py", ".toml"):
            copy = source / path.relative_to(EXAMPLE)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    pip = ("-m", "pip", "--disable-pip-version-check", "--no-input")
    built = called(*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", target, source, folder=target)
    assert built.returncode == 0, built.stderr
    [wheel] = target.glob("notes_extension-1.0-*.whl")
    placed = called(*pip, "install", "--no-deps", "--no-index", "--target", target, wheel, folder=target)
    assert placed.returncode == 0, placed.stderr
    return target


@pytest.fixture
def rankhouse(installed, tmp_path):
    """Call a program of its own, which finds what is installed, in tmp_path."""
    path = os.pathsep.join(
        filter(None, [str(installed), str(Path(rh.__file__).parents[1]), os.environ.get("PYTHONPATH")])
    )

    def call(*arguments, program=("-m", "rankhouse"), code=0):
        done = called(*program, *arguments, folder=tmp_path, PYTHONPATH=path, COLUMNS="110")
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    return call


@pytest.fixture
def notes(tmp_path, rankhouse):
    (tmp_path / "notes.jsonl").write_text(
        "\n".join(json.dumps({"id": i, "text": t}) for i, t in TEXTS.items())
    )
    (tmp_path / "queries.tsv").write_text("".join(f"{i}\t{text}\n" for i, text in QUERIES.items()))
    rh.write_qrels({q: {**dict.fromkeys(TEXTS, 0), **g} for q, g in QRELS.items()}, tmp_path / "qrels.txt")
    rankhouse("index", "notes.jsonl", "--out", "notes.index")
    return ("--index", "notes.index", "--queries", "queries.tsv")


def test_a_family_is_trained_and_reranks(notes, rankhouse, tmp_path):
    rankhouse("search", *notes, "--system", "bm25", "--out", "first.run")
    ranker = "word_weights(words='whitespace', min_count=1)"
    rankhouse(
        "train", *notes, "--qrels", "qrels.txt", "--run", "first.run", "--ranker", ranker, "--out", "trained"
    )
    rankhouse("rerank", *notes, "--run", "first.run", "--ranker", "trained", "--out", "second.run")
    assert rh.read_run(tmp_path / "second.run").keys() == set(QUERIES)
    assert re.search(r" word_weights-[0-9a-f]{8}$", (tmp_path / "second.run").read_text(), re.MULTILINE)
    rankhouse("search", *notes, "--system", 'bm25 >> "trained"', "--out", "third.run")
    assert rh.read_run(tmp_path / "third.run") == rh.read_run(tmp_path / "second.run")
    said = rankhouse(
        "explain", "--index", "notes.index", "--ranker", "trained", "--query", "ships", "--doc", "d2"
    )
    assert "ships" in said
    with pytest.raises(rh.RankhouseError, match='a ranker of the family "word_weights"'):
        rh.open_ranker(tmp_path / "trained")  # here, where the package is not installed


def test_a_store_is_filled_and_searched(notes, rankhouse, tmp_path):
    rankhouse("push", "--index", "notes.index", "--to", "jsonfile(where='notes.json')")
    pull = ("pull", "--from", "jsonfile(where='notes.json')", "--queries", "queries.tsv", "--model", "text")
    rankhouse(*pull, "--out", "pulled.run", "--documents", "pulled.jsonl")
    run = rh.read_run(tmp_path / "pulled.run")
    assert run["q1"].to_dict() == {"d5": 2.0, "d4": 2.0, "d2": 2.0, "d1": 2.0, "d7": 1.0, "d3": 1.0}
    assert {one.id: one.text for one in rh.read_documents(tmp_path / "pulled.jsonl")}.items() <= TEXTS.items()
    said = rankhouse("pull", "--from", "jsonfil(where='x')", *pull[3:], "--out", "x.run", code=2)
    assert 'did you mean "jsonfile"?' in said


def test_a_measure_is_measured(notes, rankhouse):
    rankhouse("search", *notes, "--system", "bm25", "--out", "first.run")
    said = rankhouse("evaluate", "first.run", "--qrels", "qrels.txt", "--measures", "FirstHit AP FirstHit@1")
    assert re.search(r"FirstHit .* FirstHit@1", said)
    assert 'did you mean "FirstHit"' in rankhouse(
        "evaluate", "first.run", "--qrels", "qrels.txt", "--measures", "FirstHitt", code=2
    )


def test_a_file_is_read_whole_and_in_shards(rankhouse, tmp_path):
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "papers.bib").write_text(BIBTEX)
    (tmp_path / "bad.bib").write_text("nothing")
    rankhouse("index", "papers/papers.bib", "--out", "papers.index")
    rankhouse("index", "papers", "--out", "folder.index")
    for part in (1, 2):
        rankhouse("index", "papers", "--out", f"part{part}.index", "--shard", f"{part}/2")
    found = rh.Index.open(tmp_path / "papers.index")
    assert found.documents["xiong2017"].extra == {"year": "2017"}
    assert found.search("kernels", k=1).doc_ids == ("xiong2017",)
    assert rh.Index.open(tmp_path / "folder.index").search("beyond").doc_ids == ("robertson2009",)
    parts = rh.Index.open_parts(tmp_path / "part1.index", tmp_path / "part2.index")
    assert parts.search("kernels", k=1).doc_ids == ("xiong2017",)
    assert "bad.bib: holds no entry" in rankhouse("index", "bad.bib", "--out", "bad.index", code=1)
    assert ".bib (each also with" in rankhouse("index", sys.executable, "--out", "no.index", code=2)


def test_a_host_is_imported_by_its_name(notes, rankhouse):
    code = (
        "from rankhouse.hosts import plain; "
        "print([one['id'] for one in plain.retriever('bm25', 'notes.index', k=2)('who steers ships?')])"
    )
    assert rankhouse(code, program=("-c",)).startswith("['d2'")
    said = rankhouse("from rankhouse.hosts import absent", program=("-c",), code=1)
    assert "cannot import name 'absent'" in said


def test_a_faulty_extension_is_named(rankhouse, tmp_path, notes):
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[rankhouse.stores]\nbroken = no_such_module:Store\njsonfile = another:Store\n"
        "[rankhouse.families]\nword = json:__name__\n"
    )
    said = rankhouse("push", "--index", "notes.index", "--to", "broken(where='x')", code=1)
    assert 'two installed packages bring "jsonfile" for rankhouse.stores' in said
    (info / "entry_points.txt").write_text(
        "[rankhouse.stores]\nbroken = no_such_module:Store\n[rankhouse.families]\nword = json:__name__\n"
    )
    said = rankhouse("push", "--index", "notes.index", "--to", "broken(where='x')", code=1)
    assert '"broken" of broken, an extension for rankhouse.stores, cannot be loaded' in said
    said = rankhouse("train", *notes, "--qrels", "qrels.txt", "--ranker", "word()", "--out", "t", code=1)
    assert '"word", an extension for rankhouse.families, is a str' in said


def test_the_page_shows_the_files_of_the_example():
    files = "\n".join(
        path.read_text("utf-8") for path in sorted(EXAMPLE.rglob("*")) if path.suffix in (".py", ".toml")
    )
    blocks = re.findall(r"^```(?:py|toml)\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 6
    for block in blocks:
        for piece in block.split("\n\n\n"):
            assert piece.strip("\n") in files, piece
