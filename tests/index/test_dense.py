"""Vectors of an index: encoded once, gone on with after a kill, searched exactly."""

import signal
import subprocess
import sys
import textwrap
import time
import tracemalloc
import warnings
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankhouse.core.errors import (
    BadIndex,
    BadModel,
    DuplicateId,
    MissingInput,
    OutputFailed,
    RankhouseWarning,
    WrongUse,
)
from rankhouse.core.nouns import Document, Passage, Query
from rankhouse.core.run import Run
from rankhouse.index import append_log as growing
from rankhouse.index.dense.exact import ExactSearcher, search
from rankhouse.index.dense.vectors import VECTORS, EncodeOptions, Vectors, encode, vectors_folder
from rankhouse.index.index import Index
from rankhouse.index.lexical.build import BuildOptions, build
from rankhouse.io.outputs import only_writer
from rankhouse.text.split import Words


class HashedWords:
    """A small real encoder: every word has a random vector of its own, a text is their sum."""

    def __init__(self, dimension=16, similarity="cosine", fingerprint="hashed-1"):
        self.dimension, self.similarity, self.fingerprint = dimension, similarity, fingerprint
        self.passages = []

    def encode_passages(self, texts):
        self.passages += texts
        return self._encode(texts)

    def encode_queries(self, texts):
        return self._encode(texts)

    def _encode(self, texts):
        out = np.zeros((len(texts), self.dimension), np.float32)
        for row, text in enumerate(texts):
            for word in text.split():
                seed = int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "big")
                out[row] += np.random.default_rng(seed).normal(size=self.dimension).astype(np.float32)
        return out


def by_words(n):
    def split(document):
        words = document.full_text.split()
        return [
            Passage(document.id, i, " ".join(words[s : s + n])) for i, s in enumerate(range(0, len(words), n))
        ]

    return split


WORDS = ["red", "fox", "snow", "dog", "cat", "bird", "sea", "tree", "stone", "river", "wind", "sun", "moon"]


def collection(n, seed=0, words=8):
    rng = np.random.default_rng(seed)
    return [
        Document(f"d{i:04}", " ".join(rng.choice(WORDS, rng.integers(1, words + 1)).tolist()))
        for i in range(n)
    ]


def job(documents, **options):
    return EncodeOptions(len(documents), f"index of {len(documents)}", **options)


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.suffix == ".bin"}


DOCUMENTS = collection(50)
QUERIES = [Query("1", "red fox"), Query("2", "river stone moon"), Query("3", "wind")]


@pytest.fixture
def encoded(tmp_path):
    return encode(HashedWords(), DOCUMENTS, tmp_path / "v", job(DOCUMENTS))


# --- encoding ---


def test_vectors_are_what_the_encoder_gave_at_length_1(encoded):
    raw = HashedWords()._encode([d.text for d in DOCUMENTS])
    expected = raw / np.linalg.norm(raw.astype(np.float64), axis=1, keepdims=True)
    np.testing.assert_allclose(encoded.rows, expected, atol=1e-7)
    assert [encoded.ids[i] for i in range(50)] == [d.id for d in DOCUMENTS]
    assert encoded.owners.tolist() == list(range(50))
    assert len(encoded) == 50
    assert encoded.dimension == 16
    assert not encoded.passages
    encoded.verify()


def test_vectors_of_version_1_open_and_are_added_to(tmp_path):
    folder = tmp_path / "old"
    state = encode(HashedWords(), DOCUMENTS[:30], folder, job(DOCUMENTS[:30])).state
    # As version 1 wrote it: no envelope, no checksums of blocks.
    plain = msgspec.structs.replace(state, version=1, blocks={})
    (folder / "manifest.json").write_bytes(msgspec.json.encode(plain))
    assert len(Vectors.open(folder)) == 30
    grown = encode(HashedWords(), DOCUMENTS, folder, job(DOCUMENTS))
    fresh = encode(HashedWords(), DOCUMENTS, tmp_path / "new", job(DOCUMENTS))
    assert (grown.state.version, grown.state.blocks) == (2, fresh.state.blocks)
    assert np.array_equal(grown.rows, fresh.rows)


@pytest.mark.parametrize("similarity", ["dot", "l2"])
def test_other_similarities_keep_the_length(tmp_path, similarity):
    vectors = encode(HashedWords(similarity=similarity), DOCUMENTS, tmp_path, job(DOCUMENTS))
    assert np.array_equal(vectors.rows, HashedWords()._encode([d.text for d in DOCUMENTS]))


def test_half_precision_takes_half_the_space(tmp_path):
    vectors = encode(HashedWords(), DOCUMENTS, tmp_path, job(DOCUMENTS, dtype="float16"))
    assert vectors.rows.dtype == np.float16
    assert (tmp_path / "vectors.bin").stat().st_size == 50 * 16 * 2
    raw = HashedWords()._encode([d.text for d in DOCUMENTS])
    np.testing.assert_allclose(vectors.rows, raw / np.linalg.norm(raw, axis=1, keepdims=True), atol=1e-3)


def test_passages_have_a_row_each_and_their_documents_number(tmp_path):
    split = job(DOCUMENTS, split=by_words(3), policy="words of 3")
    vectors = encode(HashedWords(), DOCUMENTS, tmp_path, split)
    counts = [len(by_words(3)(d)) for d in DOCUMENTS]
    assert vectors.owners.tolist() == np.repeat(np.arange(50), counts).tolist()
    assert vectors.passages
    encoder = HashedWords()
    encode(encoder, DOCUMENTS, tmp_path / "again", split)
    assert encoder.passages == list(dict.fromkeys(p.text for d in DOCUMENTS for p in by_words(3)(d)))


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_the_size_of_chunks_changes_nothing(tmp_path, encoded, chunk):
    vectors = encode(HashedWords(), DOCUMENTS, tmp_path / "w", job(DOCUMENTS, chunk=chunk))
    assert contents(vectors.folder) == contents(encoded.folder)
    assert vectors.fingerprint == encoded.fingerprint


def test_documents_without_text_have_no_row_and_are_reported(tmp_path):
    documents = [Document("a", "red"), Document("b", " "), Document("c", "", "fox"), Document("d", "")]
    with pytest.warns(RankhouseWarning, match="2 of 4 documents have no text"):
        vectors = encode(HashedWords(), documents, tmp_path, job(documents))
    assert vectors.owners.tolist() == [0, 2]
    assert search(ExactSearcher(vectors), HashedWords(), [Query("1", "fox")])["1"].doc_ids[0] == "c"


def test_a_collection_without_any_text_can_be_searched_in_vain(tmp_path):
    documents = [Document("a", ""), Document("b", "")]
    with pytest.warns(RankhouseWarning, match="2 of 2"):
        vectors = encode(HashedWords(), documents, tmp_path, job(documents))
    assert search(ExactSearcher(vectors), HashedWords(), QUERIES)["1"].doc_ids == ()


def test_progress_counts_all_documents(tmp_path):
    told = []
    encode(HashedWords(), DOCUMENTS, tmp_path, job(DOCUMENTS, chunk=8), lambda *now: told.append(now))
    assert told[:2] == [(0, 50), (8, 50)]
    assert told[-1] == (50, 50)


def test_progress_counts_parts_of_a_long_document_and_their_text(tmp_path):
    documents = [
        Document("a", "red fox"),
        Document("b", "fox " * 40),
        Document("c", "red"),
        Document("d", ""),
    ]
    build(documents, tmp_path / "index", BuildOptions("whitespace"))
    index, told, texts = Index.open(tmp_path / "index"), [], []
    tell = index.by_text(lambda *now: texts.append(now))

    def progress(done, total):
        told.append(done)
        tell(done, total)

    with pytest.warns(RankhouseWarning, match="no text"):
        encode(HashedWords(), documents, tmp_path / "v", job(documents, split=Words(5), chunk=2), progress)
    assert told == [0, 1 + 1 / 4, 1 + 3 / 4, 2, 4]
    assert texts == [(0, 47), (3 + 41 // 4, 47), (3 + 41 * 3 // 4, 47), (3 + 41, 47), (47, 47)]


def test_what_is_done_is_not_done_again(tmp_path, encoded):
    encoder = HashedWords()
    again = encode(encoder, iter(()), encoded.folder, job(DOCUMENTS))
    assert encoder.passages == []
    assert again.fingerprint == encoded.fingerprint


def test_added_documents_are_all_that_is_encoded(tmp_path, encoded):
    more = collection(80)
    assert more[:50] == DOCUMENTS
    encoder = HashedWords()
    grown = encode(encoder, more, encoded.folder, job(more))
    assert encoder.passages == [d.text for d in more[50:]]
    whole = encode(HashedWords(), more, tmp_path / "whole", job(more))
    assert contents(grown.folder) == contents(whole.folder)
    assert grown.fingerprint == whole.fingerprint != encoded.fingerprint
    grown.verify()


def test_vectors_open_before_documents_were_added_still_work(encoded):
    before = search(ExactSearcher(encoded), HashedWords(), QUERIES)
    more = collection(80)
    encode(HashedWords(), more, encoded.folder, job(more))
    assert search(ExactSearcher(encoded), HashedWords(), QUERIES) == before


def test_vectors_that_do_not_cover_the_index_are_refused(encoded):
    assert encoded.require(documents=50, collection="index of 50") is encoded
    with pytest.raises(BadIndex, match="of 50 documents, the index now has 80.*rankhouse encode"):
        encoded.require(documents=80, collection="index of 80")
    with pytest.raises(BadIndex, match="or others"):
        encoded.require(documents=50, collection="another index of 50")


def test_changed_documents_are_noticed(encoded):
    changed = [*DOCUMENTS[:20], Document("d0020", "other words"), *DOCUMENTS[21:], Document("new", "fox")]
    with pytest.raises(BadIndex, match="first 50 documents are not those.*--overwrite"):
        encode(HashedWords(), changed, encoded.folder, job(changed))
    vectors = encode(HashedWords(), changed, encoded.folder, job(changed, overwrite=True))
    assert len(vectors) == 51


def test_a_changed_order_is_noticed(encoded):
    documents = [DOCUMENTS[1], DOCUMENTS[0], *DOCUMENTS[2:], Document("new", "fox")]
    with pytest.raises(BadIndex, match="their order"):
        encode(HashedWords(), documents, encoded.folder, job(documents))


def test_another_count_than_announced_is_refused_and_can_be_mended(tmp_path):
    with pytest.raises(BadIndex, match="30 documents came, 50 were announced"):
        encode(HashedWords(), DOCUMENTS[:30], tmp_path / "v", job(DOCUMENTS))
    assert len(encode(HashedWords(), DOCUMENTS, tmp_path / "v", job(DOCUMENTS))) == 50


def test_fewer_documents_than_before_are_refused(encoded):
    with pytest.raises(BadIndex, match="20 documents came, 20 were announced and 50 were encoded before"):
        encode(HashedWords(), DOCUMENTS[:20], encoded.folder, job(DOCUMENTS[:20]))


@pytest.mark.parametrize(
    ("encoder", "options", "what"),
    [
        (HashedWords(fingerprint="hashed-2"), {}, 'encoder "hashed-1", now "hashed-2"'),
        (HashedWords(similarity="dot"), {}, 'similarity "cosine", now "dot"'),
        (HashedWords(), {"dtype": "float16"}, 'dtype "float32", now "float16"'),
        (HashedWords(), {"policy": "prompt 2"}, 'policy "whole", now "whole prompt 2"'),
    ],
)
def test_vectors_of_different_making_are_never_mixed(encoded, encoder, options, what):
    more = collection(60)
    with pytest.raises(WrongUse, match=what):
        encode(encoder, more, encoded.folder, job(more, **options))
    assert len(encode(encoder, more, encoded.folder, job(more, overwrite=True, **options))) == 60


def test_a_split_without_a_name_must_be_named(tmp_path):
    with pytest.raises(WrongUse, match="name it in policy"):
        encode(HashedWords(), DOCUMENTS, tmp_path, job(DOCUMENTS, split=by_words(3)))


def test_unknown_formats_are_refused_with_the_known(tmp_path):
    with pytest.raises(WrongUse, match="choose from: float16, float32"):
        encode(HashedWords(), DOCUMENTS, tmp_path, job(DOCUMENTS, dtype="int8"))
    with pytest.raises(WrongUse, match="choose from: cosine, dot, l2"):
        encode(HashedWords(similarity="angle"), DOCUMENTS, tmp_path, job(DOCUMENTS))


@pytest.mark.parametrize("name", ["", "..", "a/b", "/etc", ".hidden"])
def test_names_that_lead_out_of_the_index_are_refused(name):
    with pytest.raises(WrongUse, match="cannot name vectors"):
        vectors_folder("index", name)


def test_vectors_lie_inside_the_index(tmp_path):
    assert vectors_folder(tmp_path, "minilm") == tmp_path / "vectors" / "minilm"


class Faulty(HashedWords):
    def __init__(self, fault):
        super().__init__(similarity="dot")
        self.fault = fault

    def encode_passages(self, texts):
        return self.fault(self._encode(texts))


def nan_in_third(vectors):
    vectors[2, 1] = np.nan
    return vectors


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (nan_in_third, 'document "d0002" is not finite'),
        (lambda v: v[:-1], r"shape \(49, 16\) for 50 passages; \(50, 16\) is needed"),
        (lambda v: v[0], r"shape \(16,\) for 50 passages; \(50, d\)"),
        (lambda v: v * 1e39, "is not finite"),
    ],
)
def test_what_is_no_vector_is_refused_by_name(tmp_path, fault, said):
    with warnings.catch_warnings(), pytest.raises(BadModel, match=said):
        warnings.simplefilter("ignore", RuntimeWarning)  # the fault itself overflows
        encode(Faulty(fault), DOCUMENTS, tmp_path, job(DOCUMENTS))


def test_another_dimension_half_way_is_refused(tmp_path):
    shapes = iter([16, 16, 12])
    with pytest.raises(BadModel, match=r"\(10, 12\) for 10 passages; \(10, 16\) is needed"):
        encode(Faulty(lambda v: v[:, : next(shapes)]), DOCUMENTS, tmp_path, job(DOCUMENTS, chunk=10))


def test_what_float16_cannot_hold_is_refused(tmp_path):
    with pytest.raises(BadModel, match=r'document "d0000" holds .*, more than float16 can; use float32'):
        encode(Faulty(lambda v: v * 1e6), DOCUMENTS, tmp_path, job(DOCUMENTS, dtype="float16"))


# --- kills, full disks, two at once ---

CHILD = """
    import sys, time
    sys.path.insert(0, {tests!r})
    from pathlib import Path
    from rankhouse.index.dense import vectors as dense
    from rankhouse.index import append_log as growing
    import test_dense as here

    growing.JOURNAL_SECONDS = 0.0
    documents = here.collection(int(sys.argv[2]))
    class Slow(here.HashedWords):
        def encode_passages(self, texts):
            time.sleep(float(sys.argv[3]))
            return super().encode_passages(texts)
    {before}
    print("ready", flush=True)
    encoder = Slow()
    dense.encode(encoder, documents, Path(sys.argv[1]), here.job(documents, chunk=16))
    print(len(encoder.passages))
"""


def child(folder, n, pause, before=""):
    code = textwrap.dedent(CHILD).format(tests=str(Path(__file__).parent), before=before)
    return subprocess.Popen(
        [sys.executable, "-c", code, str(folder), str(n), str(pause)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def done_in(folder):
    try:
        return VECTORS.load(folder / "progress.json").documents
    except BadIndex:
        return 0


@pytest.mark.kill
def test_a_killed_encoding_goes_on_where_it_was(tmp_path):
    documents, folder = collection(400), tmp_path / "v"
    killed = child(folder, 400, 0.2)
    assert killed.stdout.readline() == "ready\n"
    until = time.monotonic() + 120
    while done_in(folder) < 100 and time.monotonic() < until:
        time.sleep(0.005)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    done = done_in(folder)
    assert 100 <= done < 400
    with pytest.raises(BadIndex, match=f"stopped after {done} documents; .* goes on from there"):
        Vectors.open(folder)
    with (folder / "vectors.bin").open("ab") as stream:
        stream.write(b"torn")  # what a kill in the middle of a write leaves
    told, encoder = [], HashedWords()
    vectors = encode(encoder, documents, folder, job(documents, chunk=16), lambda *now: told.append(now))
    assert encoder.passages == list(dict.fromkeys(d.text for d in documents[done:]))
    assert told[0] == (done, 400)
    vectors.verify()
    whole = encode(HashedWords(), documents, tmp_path / "whole", job(documents))
    assert contents(folder) == contents(whole.folder)
    assert vectors.fingerprint == whole.fingerprint
    assert not (folder / "progress.json").exists()


@pytest.mark.kill
def test_a_kill_while_adding_leaves_the_old_vectors_searchable(tmp_path, encoded):
    before = search(ExactSearcher(encoded), HashedWords(), QUERIES)
    killed = child(encoded.folder, 400, 0.3)
    assert killed.stdout.readline() == "ready\n"
    until = time.monotonic() + 120
    while done_in(encoded.folder) < 100 and time.monotonic() < until:
        time.sleep(0.005)
    killed.kill()
    killed.communicate()
    opened = Vectors.open(encoded.folder)
    assert search(ExactSearcher(opened), HashedWords(), QUERIES) == before
    opened.verify()
    with pytest.raises(BadIndex, match="the index now has 400"):
        opened.require(documents=400, collection="index of 400")
    grown = collection(400)
    encode(HashedWords(), grown, encoded.folder, job(grown)).verify()


def test_another_encoder_does_not_go_on_with_a_killed_encoding(tmp_path, monkeypatch):
    monkeypatch.setattr(growing, "JOURNAL_SECONDS", 0.0)

    def stops(documents):
        yield from documents[:30]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encode(HashedWords(), stops(DOCUMENTS), tmp_path, job(DOCUMENTS, chunk=8))
    with pytest.raises(WrongUse, match='encoder "hashed-1", now "hashed-2"'):
        encode(HashedWords(fingerprint="hashed-2"), DOCUMENTS, tmp_path, job(DOCUMENTS))
    changed = [Document("d0000", "other"), *DOCUMENTS[1:]]
    with pytest.raises(BadIndex, match="are not those that were encoded"):
        encode(HashedWords(), changed, tmp_path, job(changed))
    assert len(encode(HashedWords(), DOCUMENTS, tmp_path, job(DOCUMENTS))) == 50


def test_a_full_disk_loses_nothing(tmp_path):
    folder = tmp_path / "v"
    # A limit on the size of files refuses writes as a full disk does, in the real system call.
    full = child(
        folder,
        400,
        0.0,
        before="import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (16000, 16000))",
    )
    out, err = full.communicate(timeout=300)
    assert out == "ready\n"
    assert "OutputFailed" in err
    assert "the disk is full; free some space. What was encoded so far is kept" in err
    done = done_in(folder)
    assert 100 < done < 400
    documents, encoder = collection(400), HashedWords()
    encode(encoder, documents, folder, job(documents)).verify()
    assert encoder.passages == list(dict.fromkeys(d.text for d in documents[done:]))


def test_two_encodings_of_the_same_vectors_are_refused(tmp_path):
    folder = tmp_path / "v"
    with only_writer(folder), ThreadPoolExecutor(1) as threads:
        second = threads.submit(encode, HashedWords(), DOCUMENTS, folder, job(DOCUMENTS))
        with pytest.raises(WrongUse, match="another process is writing it"):
            second.result()
    encode(HashedWords(), DOCUMENTS, folder, job(DOCUMENTS))


def test_a_folder_that_cannot_be_made_is_said_so(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputFailed, match="cannot be written"):
        encode(HashedWords(), DOCUMENTS, tmp_path / "file" / "v", job(DOCUMENTS))


# --- damage ---


def test_vectors_that_are_not_there_are_named_with_those_that_are(tmp_path, encoded):
    with pytest.raises(MissingInput, match="no such vectors; there are: v; make them with  rankhouse encode"):
        Vectors.open(tmp_path / "w")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadIndex, match="holds no vectors"):
        Vectors.open(tmp_path / "empty")


@pytest.mark.parametrize("name", ["vectors.bin", "owners.bin", "ids.bin", "ids_at.bin"])
def test_a_cut_off_file_is_noticed_on_opening(encoded, name):
    path = encoded.folder / name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(BadIndex, match=rf"{name}: has .* bytes, .* are needed"):
        Vectors.open(encoded.folder)
    more = collection(60)
    with pytest.raises(BadIndex, match=rf"{name}: has .* bytes, .* are needed"):
        encode(HashedWords(), more, encoded.folder, job(more))


@pytest.mark.parametrize("name", ["vectors.bin", "owners.bin", "ids.bin", "ids_at.bin"])
def test_a_changed_byte_is_noticed_by_verify(encoded, name):
    path = encoded.folder / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(BadIndex, match=f"{name}: was changed"):
        encoded.verify()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "cannot be read"),
        (b'{"encoder": "x"}', "cannot be read"),
        (b'{"encoder":"x","policy":"","similarity":"angle","dtype":"float32"}', "not a known similarity"),
        (b'{"encoder":"x","policy":"","similarity":"dot","dtype":"float32","version":7}', "version 7"),
    ],
)
def test_a_damaged_manifest_is_said_so(encoded, content, said):
    (encoded.folder / "manifest.json").write_bytes(content)
    with pytest.raises(BadIndex, match=said):
        Vectors.open(encoded.folder)


# --- exact search ---


def brute_force(vectors, encoder, query, k):
    """Straight from the definition, in float64."""
    rows = np.asarray(vectors.rows, np.float64)
    point = encoder.encode_queries([query.text])[0].astype(np.float64)
    if encoder.similarity == "cosine":
        point /= np.linalg.norm(point)
    scores = -((rows - point) ** 2).sum(1) if encoder.similarity == "l2" else rows @ point
    best = {}
    for owner, score in zip(vectors.owners.tolist(), scores, strict=True):
        best[vectors.ids[owner]] = max(best.get(vectors.ids[owner], -np.inf), score)
    return sorted(best.items(), key=lambda item: -item[1])[:k]


@pytest.mark.parametrize("similarity", ["dot", "cosine", "l2"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("words", [None, 2])
@pytest.mark.parametrize("k", [1, 7, 500])
def test_exact_search_is_brute_force(tmp_path, similarity, dtype, words, k):
    documents = collection(200, seed=3)
    encoder = HashedWords(similarity=similarity)
    split = {} if words is None else {"split": by_words(words), "policy": f"words of {words}"}
    vectors = encode(encoder, documents, tmp_path, job(documents, dtype=dtype, **split))
    run = search(ExactSearcher(vectors, block_bytes=64 * 30), encoder, QUERIES, k)
    for query in QUERIES:
        expected = brute_force(vectors, encoder, query, 200)
        got = run[query.id]
        assert len(got.doc_ids) == min(k, 200)
        # Many of these short texts are equal, so ids are compared by what they score.
        wide = dict(expected)
        np.testing.assert_allclose(got.scores, [s for _, s in expected[:k]], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose([wide[d] for d in got.doc_ids], got.scores, rtol=1e-5, atol=1e-5)


def test_scores_do_not_depend_on_what_is_searched_along(tmp_path):
    rng = np.random.default_rng(5)
    documents = [Document(f"d{i}", f"w{i}") for i in range(3000)]

    class Gaussian(HashedWords):
        def _encode(self, texts):
            return rng_table[[int(t[1:]) for t in texts]]

    rng_table = rng.normal(size=(3000, 96)).astype(np.float32)
    vectors = encode(Gaussian(similarity="dot"), documents, tmp_path, job(documents))
    queries = [Query(str(n), f"w{n}") for n in range(0, 3000, 40)]
    encoder = Gaussian(similarity="dot")
    together = search(ExactSearcher(vectors), encoder, queries, 50)
    for block in (96 * 4 * 7, 96 * 4 * 1000):
        assert search(ExactSearcher(vectors, block_bytes=block), encoder, queries, 50) == together
    for query in queries[::10]:
        alone = search(ExactSearcher(vectors), encoder, [query], 50)
        assert alone == together.restrict([query.id])
        assert search(ExactSearcher(vectors), encoder, [query], 10) == alone.top(10)


@given(
    st.lists(
        st.sampled_from(["red", "fox", "red fox", "sea", "fox red", "sea red sea"]), min_size=1, max_size=40
    ),
    st.integers(1, 12),
    st.integers(1, 5),
)
@settings(max_examples=60, deadline=None)
def test_ties_at_the_cut_are_broken_as_in_every_run(tmp_path_factory, texts, k, rows_in_block):
    documents = [Document(f"{n * 7 % 41:02}", text) for n, text in enumerate(texts)]
    encoder = HashedWords(4)
    vectors = encode(encoder, documents, tmp_path_factory.mktemp("ties"), job(documents))
    queries = [Query("1", "red"), Query("2", "sea")]
    everything = search(ExactSearcher(vectors), encoder, queries, 1000)
    assert search(
        ExactSearcher(vectors, block_bytes=16 * rows_in_block), encoder, queries, k
    ) == everything.top(k)


class Table(HashedWords):
    """Encodes "17" or "17 anything" as row 17 of a table."""

    def __init__(self, table, similarity):
        super().__init__(table.shape[1], similarity)
        self.table = table

    def _encode(self, texts):
        return self.table[[int(text.split()[0]) for text in texts]]


@pytest.mark.parametrize("similarity", ["dot", "cosine", "l2"])
def test_documents_nearly_equal_are_told_apart(tmp_path, similarity):
    # Differences far below what a float32 product of 96 terms can be trusted with, far above float64's.
    rng = np.random.default_rng(2)
    base = rng.normal(size=96)
    table = (base + 3e-7 * rng.normal(size=(600, 96))).astype("f4")
    table[0] = -base if similarity == "l2" else base
    documents = [Document(f"d{n:03}", f"{n}") for n in range(1, 600)]
    encoder = Table(table, similarity)
    vectors = encode(encoder, documents, tmp_path, job(documents))
    got = search(ExactSearcher(vectors, block_bytes=96 * 4 * 50), encoder, [Query("1", "0")], 20)["1"]
    point = table[0].astype("f8")
    if similarity == "cosine":
        point = (point / np.linalg.norm(point)).astype("f4").astype("f8")
    rows = np.asarray(vectors.rows, "f8")
    scores = -((rows - point) ** 2).sum(1) if similarity == "l2" else (rows * point).sum(1)
    whole = Run.from_columns(["1"], [[d.id for d in documents]], [scores.astype("f4")])
    assert got.doc_ids == whole.top(20)["1"].doc_ids
    assert np.array_equal(got.scores, whole.top(20)["1"].scores)


def test_a_document_with_many_near_passages_does_not_crowd_out_others(tmp_path):
    rng = np.random.default_rng(4)
    point = rng.normal(size=16)
    # Document n has 40 passages, each nearer to the point than any of document n + 1.
    table = np.array([point * (10 - n) + 0.01 * rng.normal(size=16) for n in range(9)], "f4")
    documents = [Document(f"d{n}", f"{n}") for n in range(9)]

    def split(document):
        return [Passage(document.id, i, f"{document.text} {i}") for i in range(40)]

    encoder = Table(table, "dot")
    vectors = encode(encoder, documents, tmp_path, job(documents, split=split, policy="40 each"))
    for block in (16 * 4 * 25, 1 << 20):
        run = search(ExactSearcher(vectors, block_bytes=block), encoder, [Query("1", "0")], 5)
        assert run["1"].doc_ids == ("d0", "d1", "d2", "d3", "d4")


@pytest.mark.slow
@pytest.mark.parametrize("similarity", ["cosine", "l2"])
def test_a_mass_of_equal_vectors_is_searched_in_bounded_memory(tmp_path, similarity):
    n = 60_000
    documents = (Document(f"{i:05}", f"{i % 2}") for i in range(n))
    encoder = Table(np.array([[1, 0, 0, 1], [1, 1, 0, 0]], "f4"), similarity)
    vectors = encode(encoder, documents, tmp_path, EncodeOptions(n, "index", chunk=8192))
    searcher = ExactSearcher(vectors, block_bytes=16 * 64)
    tracemalloc.start()
    run = search(searcher, encoder, [Query("1", "0")], 5)
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert run["1"].doc_ids == ("59998", "59996", "59994", "59992", "59990")
    assert used < 1_000_000


def test_every_document_is_found_when_there_are_fewer_than_k(encoded):
    run = search(ExactSearcher(encoded), HashedWords(), QUERIES, 1000)
    assert set(run["1"].doc_ids) == {d.id for d in DOCUMENTS}


def test_a_query_without_text_gets_an_empty_ranking(encoded):
    run = search(ExactSearcher(encoded), HashedWords(), [Query("0", " "), *QUERIES])
    assert list(run) == ["0", "1", "2", "3"]
    assert run["0"].doc_ids == ()
    assert isinstance(run, Run)


def test_search_refuses_what_cannot_be(encoded):
    exact = ExactSearcher(encoded)
    with pytest.raises(WrongUse, match="k=0"):
        search(exact, HashedWords(), QUERIES, 0)
    with pytest.raises(DuplicateId, match='query "1" is given twice'):
        search(exact, HashedWords(), [*QUERIES, QUERIES[0]])
    with pytest.raises(BadIndex, match="was encoded by hashed-1, the queries would be by hashed-2"):
        search(exact, HashedWords(fingerprint="hashed-2"), QUERIES)
    with pytest.raises(BadModel, match=r"shape \(3, 8\) for 3 queries; \(3, 16\)"):
        search(exact, HashedWords(8), QUERIES)

    class Broken(HashedWords):
        def encode_queries(self, texts):
            return nan_in_third(self._encode(texts))

    with pytest.raises(BadModel, match='query "3" is not finite'):
        search(exact, Broken(), QUERIES)


def test_progress_of_a_search_counts_queries(encoded):
    told = []
    queries = [Query(str(n), "red fox") for n in range(130)]
    search(ExactSearcher(encoded), HashedWords(), queries, 3, lambda *now: told.append(now))
    assert told == [(64, 130), (128, 130), (130, 130)]


def test_dense_never_enters_torch_or_faiss():
    code = (
        "import sys, rankhouse.index.dense.exact, rankhouse.index.dense.vectors, rankhouse.index.dense.faiss;"
        "print([m for m in ('torch', 'faiss') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_many_queries_are_encoded_together(tmp_path):
    class Counting:
        fingerprint, similarity, dimension = "counting", "dot", 2
        calls = 0

        def encode_passages(self, texts):
            return np.ones((len(texts), 2), np.float32)

        def encode_queries(self, texts):
            self.calls += 1
            return np.ones((len(texts), 2), np.float32)

    encoder = Counting()
    documents = [Document("a", "x"), Document("b", "y")]
    made = encode(encoder, documents, tmp_path / "v", EncodeOptions(2, "c"))
    run = search(ExactSearcher(made), encoder, [Query(f"q{i}", "x") for i in range(1000)], 10**9)
    assert encoder.calls == 1
    assert run.rows == 2000


def test_equal_passages_are_encoded_once(tmp_path):
    texts = ["Licence terms", "one", "Licence terms", "two", "Licence terms", "one"] * 3
    documents = [Document(f"d{number}", text) for number, text in enumerate(texts)]
    for chunk in (1, 4, 512):
        encoder = HashedWords()
        vectors = encode(encoder, documents, tmp_path / f"{chunk}", job(documents, chunk=chunk))
        assert sorted(encoder.passages) == ["Licence terms", "one", "two"]
        alone = HashedWords().encode_passages(texts)
        alone /= np.linalg.norm(alone, axis=1, keepdims=True)
        np.testing.assert_allclose(vectors.rows, alone, atol=1e-6)
