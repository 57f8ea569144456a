"""Impacts of an index: written once, gone on with after a kill, searched exactly whatever the parts."""

import numpy as np
import pytest
import scipy.sparse

from rankhouse.core.errors import BadIndex, BadModel, MissingInput, RankhouseWarning, WrongUse
from rankhouse.core.nouns import Document, Query
from rankhouse.index import append_log as growing
from rankhouse.index.dense.vectors import EncodeOptions
from rankhouse.index.impacts import impacts as lists
from rankhouse.index.impacts.ciff import query_terms, write_impacts
from rankhouse.index.impacts.encode import encode_impacts
from rankhouse.index.impacts.impacts import Impacts, PackedImpacts, impacts_folder
from rankhouse.index.impacts.search import ImpactSearcher, impact_addends, search_impacts, weigh_queries
from rankhouse.index.index import Index
from rankhouse.index.lexical import kernel, scorer
from rankhouse.index.lexical.build import BuildOptions
from rankhouse.index.lexical.ciff import build_from_ciff
from rankhouse.index.lexical.search import LexicalOptions, retrieve
from rankhouse.text.split import Words

pytestmark = pytest.mark.filterwarnings("ignore:.*have no text:rankhouse.core.errors.RankhouseWarning")
V = 300


class Weights:
    """A small sparse encoder: words are numbers, and weigh more the oftener they occur, in few steps."""

    fingerprint, vocabulary = "weights-1", V

    def __init__(self, table=False):
        self.table, self.passages = table, []

    def word(self, number):
        return str(number)

    def query_files(self):
        return {"table.bin": b"1234"} if self.table else {}

    def query_weights(self, texts):
        return self._weights(texts, 0.3)

    def passage_weights(self, texts):
        self.passages += texts
        return self._weights(texts, 0.7)

    def _weights(self, texts, unit):
        out = np.zeros((len(texts), V), np.float32)
        for row, text in enumerate(texts):
            for word in text.split():
                out[row, int(word)] += unit
        return scipy.sparse.csr_array(np.log1p(out))


def texts(n, seed=0, most=40):
    rng = np.random.default_rng(seed)
    words = np.minimum(rng.exponential(40, (n, most)).astype(int), V - 1)
    sizes = rng.integers(0 if n > 20 else 1, most, n)
    return [" ".join(map(str, row[:size])) for row, size in zip(words, sizes, strict=True)]


def documents(n, seed=0):
    rng = np.random.default_rng(seed)
    names = rng.permutation(n)
    return [Document(f"d{names[i]:05}", text) for i, text in enumerate(texts(n, seed))]


def encoded(some, folder, encoder=None, **options):
    job = EncodeOptions(len(some), f"collection of {len(some)}", **options)
    return encode_impacts(encoder or Weights(), some, folder, job)


def exact(some, queries, k):
    """Dense dot products by numpy; ties by document id."""
    model = Weights()
    every = model.passage_weights([one.text for one in some]).toarray().astype(np.float64)
    asked = model.query_weights([query.text for query in queries]).toarray().astype(np.float64)
    ids = np.array([one.id for one in some])
    found = []
    for row in asked:
        scores = (every * row).sum(1).astype(np.float32)
        order = [i for i in np.lexsort((ids, -scores)) if scores[i] > 0][:k]
        found.append((ids[order].tolist(), scores[order]))
    return found


def as_found(searcher, encoder, queries, k):
    """Ids and scores before those of ties are lowered."""
    hits = searcher.best(weigh_queries(encoder, queries), k)
    return [(searcher.impacts.ids.take(one.rows), one.scores) for one in hits]


@pytest.mark.parametrize("entries", [1 << 26, 5_000])
@pytest.mark.parametrize("pruning", [0, 1, 2])
def test_rankings_are_the_dense_dot_product(entries, pruning, tmp_path, monkeypatch):
    monkeypatch.setattr(lists, "MOST_ENTRIES", entries)
    monkeypatch.setattr(scorer, "PRUNING", pruning)
    some, queries = documents(1_500), [Query(f"q{i}", text) for i, text in enumerate(texts(25, 7, 12))]
    searcher = ImpactSearcher(PackedImpacts(encoded(some, tmp_path / "i")))
    assert (len(searcher.packed.parts) > 3) == (entries == 5_000)
    for k in (10, 1_000):
        for (ids, scores), (wanted, wanted_scores) in zip(
            as_found(searcher, Weights(), queries, k), exact(some, queries, k), strict=True
        ):
            np.testing.assert_allclose(scores, wanted_scores, rtol=1e-6)
            assert ids == wanted


@pytest.mark.slow
def test_the_first_thousand_of_many_queries_are_the_dense_dot_product(tmp_path, monkeypatch):
    monkeypatch.setattr(lists, "MOST_ENTRIES", 40_000)
    some, queries = documents(5_000), [Query(f"q{i}", text) for i, text in enumerate(texts(200, 7, 12))]
    encoded(some, tmp_path / "i")
    searcher = ImpactSearcher(PackedImpacts(Impacts.open(tmp_path / "i")))
    assert len(searcher.packed.parts) > 1
    found, wanted = as_found(searcher, Weights(), queries, 1_000), exact(some, queries, 1_000)
    for (ids, scores), (wanted_ids, wanted_scores) in zip(found, wanted, strict=True):
        assert ids == wanted_ids
        np.testing.assert_array_equal(scores, wanted_scores)


def test_runs_are_the_same_whatever_the_threads_and_without_a_compiler(tmp_path, monkeypatch):
    monkeypatch.setattr(lists, "MOST_ENTRIES", 2_000)
    some, queries = documents(400), [Query(f"q{i}", text) for i, text in enumerate([*texts(30, 7, 12), " "])]
    searcher = ImpactSearcher(PackedImpacts(encoded(some, tmp_path / "i")))
    runs = [search_impacts(searcher, Weights(), queries, 50, threads=threads) for threads in (1, 2)]
    monkeypatch.setattr(kernel, "COMPILED", False)
    plain = ImpactSearcher(PackedImpacts(Impacts.open(tmp_path / "i")))
    runs.append(search_impacts(plain, Weights(), queries, 50))
    assert not runs[0]["q30"].doc_ids
    for query in queries:
        first, *others = ([*run[query.id].to_dict().items()] for run in runs)
        assert all(other == first for other in others)


def test_only_what_is_new_is_encoded_and_it_is_the_same_as_at_once(tmp_path):
    some = documents(90)
    encoded(some[:50], tmp_path / "i")
    encoder = Weights()
    encoded(some, tmp_path / "i", encoder)
    assert encoder.passages == [one.text for one in some[50:] if one.text]
    whole = encoded(some, tmp_path / "j")
    for name in ("words.bin", "weights.bin", "ends.bin", "ids.bin", "structures/lists-0-90/lists.bin"):
        assert (tmp_path / "i" / name).read_bytes() == (tmp_path / "j" / name).read_bytes()
    assert not (tmp_path / "i" / "structures/lists-0-50").exists()
    assert len(whole) == 90
    again = Weights()
    encoded(some, tmp_path / "i", again)
    assert not again.passages


def test_an_interrupted_encoding_goes_on(tmp_path, monkeypatch):
    class Broken(Weights):
        def passage_weights(self, texts):
            if len(self.passages) >= 20:
                raise KeyboardInterrupt
            return super().passage_weights(texts)

    monkeypatch.setattr(growing, "JOURNAL_SECONDS", 0.0)
    some = documents(60)
    with pytest.raises(KeyboardInterrupt):
        encoded(some, tmp_path / "i", Broken(), chunk=10)
    with pytest.raises(BadIndex, match="the encoding stopped after"):
        Impacts.open(tmp_path / "i")
    encoder = Weights()
    encoded(some, tmp_path / "i", encoder, chunk=10)
    assert 0 < len(encoder.passages) < 45
    encoded(some, tmp_path / "j", chunk=10)
    for name in ("words.bin", "weights.bin", "structures/lists-0-60/lists.bin"):
        assert (tmp_path / "i" / name).read_bytes() == (tmp_path / "j" / name).read_bytes()


def test_a_split_document_has_the_largest_weight_of_each_word(tmp_path):
    some = [Document("d", "1 2 1 1 3 2 4 4 1 2 2 2"), Document("e", "")]
    with pytest.warns(RankhouseWarning, match="1 of 2 documents have no text"):
        impacts = encoded(some, tmp_path / "i", split=Words(3))
    words, weights = impacts.of(0)
    passages = [passage.text for passage in Words(3)(some[0])]
    assert len(passages) > 1
    assert words.tolist() == [1, 2, 3, 4]
    np.testing.assert_array_equal(weights, Weights().passage_weights(passages).toarray().max(0)[words])
    assert not len(impacts.of(1)[0])


def test_addends_sum_to_the_score_of_the_search(tmp_path):
    some = documents(15)
    searcher = ImpactSearcher(PackedImpacts(encoded(some, tmp_path / "i")))
    weights = weigh_queries(Weights(), [Query("q", "3 10 20 20 40")])
    [hits] = searcher.best(weights, 15)
    for row, score in zip(hits.rows.tolist(), hits.scores.tolist(), strict=True):
        words, values, impacts, total = impact_addends(searcher, weights, row)
        assert np.float32(total) == np.float32(score) == np.float32(values.sum())
        assert len(words) == len(impacts)


def test_what_is_damaged_or_of_another_encoder_is_refused(tmp_path):
    some = documents(30)
    folder = tmp_path / "i"
    with pytest.raises(MissingInput, match="there are no such impacts"):
        Impacts.open(folder)
    impacts = encoded(some, folder, Weights(table=True))
    assert impacts.query_files() == {"table.bin": b"1234"}
    impacts.require(documents=30, collection="collection of 30")
    with pytest.raises(BadIndex, match="the index now has 31"):
        impacts.require(documents=31, collection="other")
    other = Weights()
    other.fingerprint = "weights-2"
    with pytest.raises(WrongUse, match='holds vectors with encoder "weights-1"'):
        encoded(some, folder, other)
    with pytest.raises(BadIndex, match="was encoded by weights-1"):
        search_impacts(ImpactSearcher(PackedImpacts(impacts)), other, [Query("q", "1")])
    with pytest.raises(WrongUse, match="k=0"):
        search_impacts(ImpactSearcher(PackedImpacts(impacts)), Weights(), [Query("q", "1")], 0)
    (folder / "structures/query/table.bin").write_bytes(b"1235")
    with pytest.raises(BadIndex, match="does not have the content"):
        impacts.query_files()
    packed = folder / "structures/lists-0-30/sums.json"
    packed.unlink()
    with pytest.raises(BadIndex, match="is missing or damaged"):
        PackedImpacts(impacts)
    with pytest.raises(WrongUse, match="cannot name impacts"):
        impacts_folder(tmp_path, "../x")


def test_a_changed_byte_is_refused_and_mended_by_encoding_again(tmp_path):
    some = [Document(f"d{i * 7 % 30}", f"{i % 5} {i % 7} {i % 3}") for i in range(30)]
    impacts = encoded(some, tmp_path / "i")
    queries = [Query("q", "1 2 3 4")]
    before = search_impacts(ImpactSearcher(PackedImpacts(impacts)), Weights(), queries)
    for path in sorted((impacts.folder / "structures").glob("lists-*/*")):
        sound = path.read_bytes()
        for place in range(0, len(sound), max(1, len(sound) // 7)):
            path.write_bytes(sound[:place] + bytes([sound[place] ^ 16]) + sound[place + 1 :])
            with pytest.raises(BadIndex, match="run  rankhouse encode  again"):
                PackedImpacts(impacts)
        encoded(some, tmp_path / "i")
        assert path.read_bytes() == sound
    assert search_impacts(ImpactSearcher(PackedImpacts(impacts)), Weights(), queries) == before


@pytest.mark.parametrize("wrong", [-1.0, np.inf])
def test_weights_that_are_none_are_refused(wrong, tmp_path):
    class Wrong(Weights):
        def passage_weights(self, texts):
            weights = super().passage_weights(texts)
            weights.data[0] = wrong
            return weights

    with pytest.raises(BadModel, match="weights are finite and 0 or more"):
        encoded([Document("d", "1 2")], tmp_path / "i", Wrong())


def test_exported_impacts_rank_as_their_rounded_weights(tmp_path, monkeypatch):
    monkeypatch.setattr(lists, "MOST_ENTRIES", 500)  # several parts
    some, scale = documents(120, seed=3), 10
    encoded(some, tmp_path / "impacts")
    impacts = Impacts.open(tmp_path / "impacts")
    seen = []
    write_impacts(
        impacts, Weights(), tmp_path / "out.ciff.gz", scale, lambda done, of: seen.append((done, of))
    )
    written = write_impacts(impacts, Weights(), tmp_path / "again.ciff.gz", scale)
    assert (tmp_path / "out.ciff.gz").read_bytes() == (tmp_path / "again.ciff.gz").read_bytes()
    weights = Weights().passage_weights([one.text for one in some]).toarray().astype(np.float64)
    rounded = np.rint(weights * scale)
    assert written == np.count_nonzero(rounded) == impacts.state.entries
    fewer = write_impacts(impacts, Weights(), tmp_path / "fewer.ciff", 0.9)  # the lightest become 0
    assert fewer == np.count_nonzero(np.rint(weights * 0.9)) < written
    assert seen[-1] == (np.count_nonzero(rounded.sum(axis=0)),) * 2
    build_from_ciff(tmp_path / "out.ciff.gz", tmp_path / "index", BuildOptions(analyzer="whitespace"))
    index = Index.open(tmp_path / "index")
    for query in ("3 17 3", "0 1 2 50", "299"):
        scores = sum(rounded[:, int(word)] for word in query.split())
        [(_, found)] = retrieve(index, [Query("q", query)], LexicalOptions("impact", k=200)).items()
        wanted = {one.id: score for one, score in zip(some, scores, strict=True) if score > 0}
        assert dict(zip(found.doc_ids, found.scores.tolist(), strict=True)) == pytest.approx(wanted, abs=1e-3)


def test_exported_queries_rank_exported_impacts_as_integer_arithmetic_does(tmp_path):
    some, asked = documents(90, seed=5), [Query(f"q{i}", text) for i, text in enumerate(texts(40, seed=6))]
    asked.append(Query("blank", " "))
    encoded(some, tmp_path / "impacts")
    write_impacts(Impacts.open(tmp_path / "impacts"), Weights(), tmp_path / "out.ciff", 50)
    build_from_ciff(tmp_path / "out.ciff", tmp_path / "index", BuildOptions(analyzer="whitespace"))
    terms = list(query_terms(Weights(), asked, 20))
    assert [query.id for query in terms] == [query.id for query in asked]
    found = retrieve(Index.open(tmp_path / "index"), terms, LexicalOptions("impact", k=90))
    theirs = np.rint(Weights().passage_weights([one.text for one in some]).toarray().astype(float) * 50)
    ours = np.rint(Weights().query_weights([query.text for query in asked]).toarray().astype(float) * 20)
    scores = ours.astype(np.int64) @ theirs.astype(np.int64).T
    assert scores.max() < 1 << 24  # whole numbers that float32 holds
    for query, row in zip(asked, scores.tolist(), strict=True):
        best = sorted((-score, one.id) for score, one in zip(row, some, strict=True) if score > 0)
        assert found[query.id].doc_ids == tuple(doc_id for _, doc_id in best)
        assert np.rint(found[query.id].scores).tolist() == [-score for score, _ in best]


def test_queries_that_cannot_be_terms_are_refused():
    with pytest.raises(WrongUse, match='--scale 1e[+]07: query "q" becomes 2,623,643 terms'):
        list(query_terms(Weights(), [Query("q", "1")], 1e7))

    class Divided(Weights):
        def word(self, number):
            return "two words"

    with pytest.raises(WrongUse, match="'two words' of the encoder has white space"):
        list(query_terms(Divided(), [Query("q", "1")], 10))


def test_impacts_that_cannot_be_exported_are_refused(tmp_path):
    encoded(documents(30), tmp_path / "impacts")
    impacts = Impacts.open(tmp_path / "impacts")
    for scale, said in (
        (1e12, "the largest weight becomes"),
        (6e8, "a document's weights add up to"),
        (1e-9, "every weight rounds to 0"),
    ):
        with pytest.raises(WrongUse, match=said):
            write_impacts(impacts, Weights(), tmp_path / "out.ciff", scale)
    assert not list(tmp_path.glob("out*"))
