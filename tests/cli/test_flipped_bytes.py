"""A byte that a disk changed gives an error of ours or changes nothing, in every file that is kept.

Bits, bytes, runs, zeroed sectors, swapped bytes and cut ends, at random places of every file: each folder is
asked for all that it holds, which must be what it was, or be refused as damaged. The doctor never fails on it
and finds what is refused.
"""

import hashlib
import random
import shutil
import warnings

import numpy as np
import pytest

from rankhouse.cli.commands.doctor import examine
from rankhouse.core.errors import BadData, BadIndex, BadModel
from rankhouse.core.nouns import Document, Pair, Passage, Query
from rankhouse.index.index import Index
from rankhouse.index.lexical.build import BuildOptions, build
from rankhouse.index.lexical.search import LexicalOptions, retrieve
from rankhouse.io.checksums import BLOCK

TRIALS = 120
MODELS = (("bm25", ""), ("ql", "rm3"), ('bm25(lengths="exact")', ""))
QUERIES = [Query(str(i), f"w{i} w{i + 7} w{3 * i}") for i in range(1, 11)]


def collection(size=2_600):
    words = np.random.default_rng(7).zipf(1.3, (size, 60)) % 12_000
    return [
        Document(f"doc-{i * 7919 % size:05d}", " ".join(f"w{word}" for word in row), f"Title {i}", {"n": i})
        for i, row in enumerate(words.tolist())
    ]


def make_index(folder):
    build(collection(), folder, BuildOptions("whitespace", workers=1))


def ask_index(folder):
    index = Index.open(folder)
    runs = [retrieve(index, QUERIES, LexicalOptions(model, back, 50, 1)) for model, back in MODELS]
    texts = [(d.id, d.title, d.text, d.extra) for d in index.documents.stream()]
    return [list(map(told, runs)), texts, index.documents.fetch(["doc-00007"]), index.distinct_terms()]


def told(run):
    return [(q, list(run[q].doc_ids), run[q].scores.tobytes()) for q in run]


class Hashed:
    """An encoder of texts by their hashes."""

    fingerprint, similarity = "hashed", "dot"

    def encode_passages(self, texts):
        seeds = [int.from_bytes(hashlib.blake2b(t.encode(), digest_size=8).digest()) for t in texts]
        return np.array([np.random.default_rng(s).standard_normal(32, np.float32) for s in seeds])

    encode_queries = encode_passages


def make_vectors(folder):
    from rankhouse.index.dense import faiss as dense_faiss
    from rankhouse.index.dense.vectors import EncodeOptions, encode

    documents = collection()
    vectors = encode(Hashed(), documents, folder, EncodeOptions(len(documents), "all"))
    for structure in ("flat", "sq8", "hnsw(m=8)", "ivf(lists=20)"):
        dense_faiss.build(vectors, structure)


def ask_vectors(folder):
    from rankhouse.index.dense.exact import ExactSearcher, search
    from rankhouse.index.dense.faiss import FaissSearcher
    from rankhouse.index.dense.vectors import Vectors

    vectors = Vectors.open(folder)
    searchers = [
        ExactSearcher(vectors),
        *(FaissSearcher.open(vectors, s) for s in ("flat", "sq8", "hnsw", "ivf")),
    ]
    return [told(search(s, Hashed(), QUERIES, 30)) for s in searchers]


class Rows:
    """Makes rows of passages: as TK its vectors, or as a tokenizer its ids."""

    def __init__(self, kind, dtype, width):
        self.kind, self.dtype, self.width, self.fingerprint = kind, dtype, width, kind

    def precompute(self, texts):
        from rankhouse.core.nouns import PassageRows

        lengths = np.array([len(text.split()) for text in texts], np.int64)
        rng, rows = np.random.default_rng(len(texts)), int(lengths.sum())
        values = rng.integers(0, 127, (rows, self.width)).astype(self.dtype)
        scales = rng.random(rows if self.dtype == "int8" else 0).astype(np.float32)
        return PassageRows(values, scales, np.concatenate([[0], np.cumsum(lengths)]), lengths % 3)


def make_kept(folder):
    from rankhouse.index.precomputed.write import PrecomputeOptions, precompute

    documents = collection()
    for rows in (Rows("vectors", "int8", 8), Rows("tokens", "uint16", 1)):
        precompute(rows, documents, folder, PrecomputeOptions(len(documents), "all"))


def ask_kept(folder):
    from rankhouse.index.precomputed.read import PrecomputedPassages

    found = []
    for part in sorted(path for path in folder.iterdir() if path.is_dir()):
        kept = PrecomputedPassages.open(part)
        passages = [p for number in range(kept.state.documents) for p in kept.passages_of(number)]
        places = [kept.place(p) for p in passages]
        rows = kept.gather(np.array(passages, np.int64))
        found += [passages, places, kept.lost.tolist(), *(array.tobytes() for array in rows)]
        found += [kept.state.split, kept.state.pool, kept.state.maker, kept.state.collection]
    return found


class Ranks:
    fingerprint, scale = "ranks", "score"

    def score(self, pairs):
        return np.array([len(pair.passage.text) + hash(pair.query.id) % 7 for pair in pairs], np.float32)


PAIRS = [Pair(Query("q", "q"), Passage("d", 0, f"passage {i} {'x' * (i % 50)}")) for i in range(2_000)]


def ask_cache(folder):
    from rankhouse.ranking.cache import CachedRanker

    with CachedRanker(Ranks(), folder) as ranker:
        return ranker.score(PAIRS).tobytes()


def make_bundle(folder):
    pytest.importorskip("torch")
    from rankhouse.models import bundle
    from rankhouse.models.tk import TKDesign

    design = TKDesign(min_count=1, width=16, heads=4, attention_width=8, feed_forward=24)
    bundle.save(design.fresh([d.text for d in collection(50)]), folder, {"split": "words(5)", "pool": "sum"})


def ask_bundle(folder):
    from rankhouse.models import bundle

    manifest = bundle.read_manifest(folder)
    weights = {name: tensor.numpy().tobytes() for name, tensor in bundle.load(folder).state_dict().items()}
    return weights, manifest.use, manifest.policy, manifest.fingerprint


def make_checkpoint(folder):
    torch = pytest.importorskip("torch")
    from rankhouse.training.checkpoint import save_tensors

    folder.mkdir()
    shared = torch.arange(2_000.0).reshape(40, 50)
    more = {"half": torch.ones(9, 9).bfloat16(), "one": torch.tensor(3.5)}
    save_tensors(folder / "c.safetensors", {"a": shared, "b": shared, **more}, {"step": 1234, "best": 0.5})


def ask_checkpoint(folder):
    from rankhouse.training.checkpoint import load_tensors

    tensors, note = load_tensors(folder / "c.safetensors")
    return {name: (t.dtype, t.shape, t.tolist()) for name, t in tensors.items()}, note


CHUNK = ([3, 2, -1, 4], np.arange(9, dtype=np.uint8), np.linspace(0, 1, 9, dtype=np.float32))


def ask_journal(folder):
    from rankhouse.labels.journal import LabelJournal
    from rankhouse.labels.votes import Votes

    journal = LabelJournal(folder, {"run": "a", "rules": "b"})
    while journal.rows < 160:
        journal.commit(CHUNK[0], Votes(*CHUNK[1:]))
    columns = journal.columns()
    return [column.tolist() for column in (columns.rows, *columns.votes)]


KEPT = {
    "index": (make_index, ask_index, True),
    "vectors": (make_vectors, ask_vectors, False),
    "passages": (make_kept, ask_kept, False),
    "cache": (ask_cache, ask_cache, True),
    "bundle": (make_bundle, ask_bundle, True),
    "checkpoint": (make_checkpoint, ask_checkpoint, False),
    "journal": (ask_journal, ask_journal, False),
}


def spoil(data, rng):
    """Change a file's bytes in one of the ways of disks, cables and copies."""
    raw, at = bytearray(data), rng.randrange(len(data))
    match rng.choice(["bit", "byte", "run", "zeros", "swap", "cut"]):
        case "bit":
            raw[at] ^= 1 << rng.randrange(8)
        case "byte":
            raw[at] = (raw[at] + rng.randrange(1, 256)) % 256
        case "run":
            raw[at : at + 8] = rng.randbytes(len(raw[at : at + 8]))
        case "zeros":
            start = at // 512 * 512
            raw[start : start + 512] = bytes(len(raw[start : start + 512]))
        case "swap":
            other = rng.randrange(len(raw))
            raw[at], raw[other] = raw[other], raw[at]
        case "cut":
            del raw[at:]
    return bytes(raw)


@pytest.mark.quick("checkpoint")
@pytest.mark.parametrize("kind", KEPT)
def test_a_changed_byte_is_refused_or_changes_nothing(kind, tmp_path):
    if kind == "vectors":
        pytest.importorskip("faiss")
    make, ask, examined = KEPT[kind]
    sound, spoilt = tmp_path / "sound", tmp_path / "spoilt"
    make(sound)
    wanted = ask(sound)
    files = [p for p in sorted(sound.rglob("*")) if p.is_file() and p.name != "lock" and p.stat().st_size]
    if kind in ("index", "vectors", "passages"):
        assert max(path.stat().st_size for path in files) > 3 * BLOCK
    rng, refused = random.Random(kind), 0
    for trial in range(max(TRIALS, 2 * len(files))):
        path = files[trial % len(files)]
        if (raw := spoil(path.read_bytes(), rng)) == path.read_bytes():
            continue
        shutil.rmtree(spoilt, ignore_errors=True)
        shutil.copytree(sound, spoilt)
        (spoilt / path.relative_to(sound)).write_bytes(raw)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a journal says that it starts afresh
            is_ill = examined and bool(examine(str(spoilt)).faults)
            try:
                answer, fault = ask(spoilt), ""
            except (BadIndex, BadModel, BadData) as error:
                answer, fault = wanted, str(error)
        assert answer == wanted, path.name
        assert not fault or str(spoilt) in fault
        assert not fault or is_ill or not examined
        refused += bool(fault)
    # A journal makes good what was spoilt; in a cache, what no page uses may be spoilt.
    assert (refused == 0) if kind == "journal" else (refused > TRIALS // 3)
