"""FAISS structures over vectors: they propose, the vectors decide."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest

from rankhouse.core.errors import BadIndex, MissingExtra, WrongUse
from rankhouse.core.notation import make
from rankhouse.core.nouns import Document, Passage, Query
from rankhouse.core.run import Run
from rankhouse.index.dense.exact import ExactSearcher, search
from rankhouse.index.dense.faiss import STRUCTURES, FaissSearcher, build, recall
from rankhouse.index.dense.vectors import EncodeOptions, Vectors, encode

faiss = pytest.importorskip("faiss", reason="the dense extra is not installed")

N, DIMENSION = 3000, 24


class Table:
    """Encodes "17" or "17 4" as row 17 of a table of clustered random vectors; queries lie near by."""

    fingerprint = "table"

    def __init__(self, similarity="cosine"):
        self.similarity = similarity
        rng = np.random.default_rng(0)
        centres = rng.normal(size=(40, DIMENSION))
        self.table = (centres[rng.integers(0, 40, N)] + 0.6 * rng.normal(size=(N, DIMENSION))).astype("f4")
        self.near = (self.table + 0.1 * rng.normal(size=(N, DIMENSION))).astype("f4")

    def encode_passages(self, texts):
        return self.table[[int(text.split()[0]) for text in texts]]

    def encode_queries(self, texts):
        return self.near[[int(text) for text in texts]]


def collection(n=N):
    return [Document(f"d{i:04}", str(i)) for i in range(n)]


QUERIES = [Query(str(n), str(n)) for n in range(0, N, 60)]


@pytest.fixture(scope="module", params=["dot", "cosine", "l2"])
def encoder(request):
    return Table(request.param)


@pytest.fixture(scope="module")
def vectors(encoder, tmp_path_factory):
    folder = tmp_path_factory.mktemp(encoder.similarity)
    return encode(encoder, collection(), folder / "v", EncodeOptions(N, "index"))


@pytest.mark.parametrize(
    ("notation", "at_least"),
    [("flat", 1.0), ("sq8", 0.99), ("hnsw(m=16)", 0.9), ("ivf(lists=40, probe=8)", 0.9)],
)
def test_structures_find_most_of_what_exact_search_finds(vectors, encoder, notation, at_least):
    exact = search(ExactSearcher(vectors), encoder, QUERIES, 20)
    built = build(vectors, notation)
    opened = FaissSearcher.open(Vectors.open(vectors.folder), built.structure.name)
    run = search(opened, encoder, QUERIES, 20)
    assert run == search(built, encoder, QUERIES, 20)
    assert recall(exact, run, 20) >= at_least
    for query_id in run:
        right = exact[query_id].to_dict()
        for doc_id, score in run[query_id].to_dict().items():
            assert right.get(doc_id, score) == score  # to the bit


def test_flat_is_exact_to_the_bit(vectors, encoder):
    searcher = build(vectors, "flat")
    for k in (1, 10, 5000):
        assert search(searcher, encoder, QUERIES, k) == search(ExactSearcher(vectors), encoder, QUERIES, k)


@pytest.fixture
def small(tmp_path):
    documents = collection(400)
    return encode(Table(), documents, tmp_path / "v", EncodeOptions(400, "index"))


def test_passages_pool_to_k_documents(tmp_path):
    # Document i has 30 passages close to row i, so that 10 rows would all be of one document.
    documents = [Document(f"d{i}", str(i)) for i in range(40)]
    rng = np.random.default_rng(1)
    steps = 0.01 * rng.normal(size=(30, DIMENSION)).astype("f4")

    class Close(Table):
        def encode_passages(self, texts):
            rows = [tuple(map(int, text.split())) for text in texts]
            return np.array([self.table[document] + steps[number] for document, number in rows])

    def split(document):
        return [Passage(document.id, n, f"{document.text} {n}") for n in range(30)]

    encoder = Close()
    vectors = encode(encoder, documents, tmp_path, EncodeOptions(40, "index", split=split, policy="30 each"))
    queries = [Query(str(n), str(n)) for n in range(40)]
    exact = search(ExactSearcher(vectors), encoder, queries, 10)
    assert all(len(exact[q].doc_ids) == 10 for q in exact)
    assert search(build(vectors, "flat"), encoder, queries, 10) == exact
    assert recall(exact, search(build(vectors, "hnsw(m=8)"), encoder, queries, 10), 10) > 0.8
    assert search(build(vectors, "flat"), encoder, queries, 100) == search(
        ExactSearcher(vectors), encoder, queries, 100
    )


def test_numbers_of_searching_are_free_those_of_building_are_not(small):
    built = build(small, "hnsw(m=8, effort=50)")
    assert str(built.structure) == "hnsw(m=8, effort=50, ef=128)"
    assert str(FaissSearcher.open(small, "hnsw").structure) == "hnsw(m=8, effort=50, ef=128)"
    assert str(FaissSearcher.open(small, "hnsw(ef=9)").structure) == "hnsw(m=8, effort=50, ef=9)"
    with pytest.raises(BadIndex, match='built with m=8, m=16 is asked for; .*--vectors "hnsw\\(m=16\\)"'):
        FaissSearcher.open(small, "hnsw(m=16)")


def test_more_probes_find_more(small):
    build(small, "ivf(lists=20, probe=1)")
    queries = [Query(str(n), str(n)) for n in range(0, 400, 10)]
    exact = search(ExactSearcher(small), Table(), queries, 20)
    found = [
        recall(exact, search(FaissSearcher.open(small, f"ivf(probe={n})"), Table(), queries, 20), 20)
        for n in (1, 5, 20)
    ]
    assert found[0] < found[1] <= found[2] == 1.0


def test_lists_default_to_the_size_of_the_collection(small):
    assert build(small, "ivf").structure.build == {"lists": 10}


@pytest.mark.parametrize("notation", ["sq8", "hnsw", "ivf(lists=10)"])
def test_the_same_vectors_give_the_same_structure(small, notation):
    folder = small.folder / "structures" / notation.split("(")[0]
    build(small, notation)
    first = (folder / "index.faiss").read_bytes()
    build(small, notation)
    assert (folder / "index.faiss").read_bytes() == first


def test_progress_counts_rows(small):
    told = []
    build(small, "flat", progress=lambda *now: told.append(now))
    assert told == [(400, 400)]


def test_a_structure_of_older_vectors_is_refused(small):
    build(small, "flat")
    documents = collection(450)
    grown = encode(Table(), documents, small.folder, EncodeOptions(450, "index of 450"))
    with pytest.raises(BadIndex, match='from other vectors than there are now; .*--vectors "flat"'):
        FaissSearcher.open(grown, "flat")
    build(grown, "flat")
    assert len(FaissSearcher.open(grown, "flat").best(Table().near[:1], 450)[0].ids) == 450


def test_a_structure_never_built_is_said_so_with_those_that_were(small):
    with pytest.raises(WrongUse, match='has no structure hnsw, none is built; .*--vectors "hnsw"'):
        FaissSearcher.open(small, "hnsw")
    build(small, "flat")
    build(small, "sq8")
    with pytest.raises(WrongUse, match="built are: flat, sq8"):
        FaissSearcher.open(small, "hnsw")


@pytest.mark.parametrize(
    ("notation", "said"),
    [
        ("lsh", "choose from: flat, hnsw, ivf, sq8"),
        ("hnsw(m=0)", "m=0, but it must be a whole number"),
        ("hnsw(m=1)", "at least 2 links"),
        ("hnsw(ef=1.5)", "ef=1.5"),
        ("ivf(lists=True)", "lists=True"),
        ("flat(m=3)", "accepted: flat()"),
    ],
)
def test_what_is_no_structure_is_refused(notation, said):
    with pytest.raises(WrongUse) as error:
        make(notation, STRUCTURES, "vector structure")
    assert said in str(error.value)


def test_more_lists_than_vectors_are_refused(small):
    with pytest.raises(WrongUse, match="lists=401, but there are only 400 vectors"):
        build(small, "ivf(lists=401)")


@pytest.mark.filterwarnings("ignore::rankhouse.core.errors.RankhouseWarning")
def test_nothing_can_be_built_from_nothing(tmp_path):
    empty = encode(Table(), [Document("a", "")], tmp_path, EncodeOptions(1, "index"))
    with pytest.raises(WrongUse, match="encode documents first"):
        build(empty, "flat")


@pytest.mark.parametrize("fault", ["flip", "cut", "sheet", "gone"])
def test_a_damaged_structure_never_reaches_faiss(small, fault):
    build(small, "hnsw(m=8)")
    folder = small.folder / "structures" / "hnsw"
    file = folder / "index.faiss"
    data = bytearray(file.read_bytes())
    if fault == "flip":
        data[len(data) // 2] ^= 255
        file.write_bytes(data)
    elif fault == "cut":
        file.write_bytes(data[:-5])
    elif fault == "gone":
        file.unlink()
    else:
        (folder / "sheet.json").write_bytes(b"{")
    with pytest.raises(BadIndex, match="was changed after it was written|cannot be read"):
        FaissSearcher.open(small, "hnsw")


def test_a_full_disk_leaves_the_old_structure(small):
    build(small, "flat")
    before = (small.folder / "structures" / "flat" / "index.faiss").read_bytes()
    code = textwrap.dedent(f"""
        import resource
        from pathlib import Path
        from rankhouse.core.errors import OutputFailed
        from rankhouse.index.dense.vectors import Vectors
        from rankhouse.index.dense.faiss import build
        vectors = Vectors.open({str(small.folder)!r})
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
        try:
            build(vectors, "flat")
        except OutputFailed as error:
            print("OutputFailed", error)
    """)
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.startswith(f"OutputFailed {small.folder}"), out.stderr
    assert [p.name for p in (small.folder / "structures").iterdir()] == ["flat"]
    assert (small.folder / "structures" / "flat" / "index.faiss").read_bytes() == before


def test_recall_is_the_share_of_the_exact_best():
    exact = Run.from_rankings({"1": {"a": 3, "b": 2, "c": 1}, "2": {"d": 1}, "3": {}})
    other = Run.from_rankings({"1": {"b": 9, "x": 8, "a": 7}})
    assert recall(exact, other, 2) == (0.5 + 0) / 2
    assert recall(exact, other, 3) == pytest.approx((2 / 3 + 0) / 2)
    assert recall(exact, exact, 10) == 1
    with pytest.raises(WrongUse, match="k=0"):
        recall(exact, other, 0)
    with pytest.raises(WrongUse, match="this one is empty"):
        recall(Run.of([]), other, 1)


def test_without_faiss_the_extra_is_named(small, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingExtra, match=r'pip install "rankhouse\[dense\]"'):
        build(small, "flat")
