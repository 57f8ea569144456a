"""A small world for shards: documents, queries, a first stage, tiny rankers; the program in this process."""

import hashlib
import os
import runpy
from pathlib import Path

import pytest

import rankhouse as rh

WORDS = ["ships", "harbour", "water", "pilots", "tide", "lock", "canal", "grain"]
WORDS += ["price", "night", "coast", "lamp", "rope", "song", "moon", "sea"]


def text(number, length):
    return " ".join(WORDS[(number * 7 + i * i * 3 + i) % len(WORDS)] for i in range(length))


@pytest.fixture
def contents():
    """From a file or folder to every byte of it, as hashes by name; locks are no content."""

    def read(path):
        path = Path(path)
        files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
        return {
            os.path.relpath(p, path): hashlib.sha256(p.read_bytes()).hexdigest()
            for p in files
            if not p.name.endswith(".lock")
        }

    return read


@pytest.fixture
def world(tmp_path, monkeypatch):
    """Forty documents of many lengths (two blank), nine queries, a first stage; gives the documents."""
    monkeypatch.chdir(tmp_path)
    documents = [rh.Document(f"d{i:02}", text(i, 3 + (i * 5) % 61)) for i in range(40)]
    documents[7] = rh.Document("d07", "", title="Only a title")
    documents[21] = rh.Document("d21", "")
    documents[30] = rh.Document("d30", text(3, 200), extra={"url": "http://x"})
    index = rh.Index.build(documents, "my.index", workers=1)
    queries = {f"q{i}": text(i + 90, 1 + i % 5) for i in range(9)}
    Path("queries.tsv").write_text("".join(f"{q}\t{words}\n" for q, words in queries.items()))
    run = index.retrieve(queries, k=15)
    rh.write_run(run, "first.run")
    rh.write_qrels({q: {run[q].doc_ids[0]: 1, run[q].doc_ids[3]: 1} for q in list(queries)[:6]}, "qrels.txt")
    return documents


@pytest.fixture
def knrm(world):
    """A bundle of a small KNRM, its weights as drawn."""
    torch = pytest.importorskip("torch")
    from rankhouse.models import bundle
    from rankhouse.models.knrm import KNRMDesign

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    design = KNRMDesign(width=8, min_count=1, words="whitespace")
    bundle.save(design.fresh([document.text for document in world], seed=1), Path("knrm"))
    yield "knrm"
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def cluster():
    """Two real nodes; skips where Ray cannot start."""
    pytest.importorskip("ray")
    try:
        world = runpy.run_path(str(Path(__file__).with_name("world.py")))["World"]()
    except RuntimeError as error:
        pytest.skip(f"Ray cannot start here: {error}")
    yield world
    world.stop()


@pytest.fixture
def done(run):
    """Call the program, which must succeed; gives what it said."""

    def call(*arguments):
        ended = run(*arguments)
        assert ended.returncode == 0, ended.stderr
        return ended

    return call
