"""Several indexes searched as one: whatever the cut, the answers are those of one index, to the bit."""

import pickle
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from rankhouse.core.errors import BadIndex, DuplicateId, MissingInput, WrongUse
from rankhouse.core.nouns import Document, Query
from rankhouse.explanation.lexical import LexicalExplainer
from rankhouse.index.dense.exact import ExactSearcher, search
from rankhouse.index.dense.vectors import EncodeOptions, Vectors, encode, vectors_folder
from rankhouse.index.impacts.encode import encode_impacts
from rankhouse.index.impacts.impacts import Impacts, PackedImpacts, impacts_folder
from rankhouse.index.impacts.search import ImpactSearcher, search_impacts
from rankhouse.index.index import Index
from rankhouse.index.lexical.build import BuildOptions, append, build
from rankhouse.index.lexical.search import LexicalOptions, retrieve
from rankhouse.index.sharded.shard import IndexShard, ShardFailed
from rankhouse.index.sharded.sharded_index import ShardedIndex
from rankhouse.index.sharded.vectors import ShardedImpactSearcher, ShardedSearcher, open_impacts, open_vectors
from rankhouse.systems.execution import open_index, with_snippets
from rankhouse.systems.short_forms import short_form

MODELS = [
    "bm25",
    "bm25(k1=0.0)",
    'bm25(k1=1.2, b=0.75, lengths="exact")',
    "ql",
    'ql(form="indri")',
    'ql(form="indri", combine="sum")',
    "jm(lambda=0.3)",
    "bm25f(title=3)",
]
FEEDBACKS = ["", "rm3", "rm3(terms=3, docs=4, weight=0.2, filter=False)", "rm3(common=1.0)"]


class Wires:
    """Parts behind real messages: everything that goes either way is pickled; some parts may be dead."""

    def __init__(self, folders, dead=()):
        self.names = [folder.name for folder in folders]
        self.parts = [IndexShard(Index.open(folder)) for folder in folders]
        self.dead, self.sent = set(dead), []

    def ask(self, requests):
        answers = {}
        for number, request in requests.items():
            if number in self.dead:
                raise ShardFailed(number, self.names[number], "killed")
            answer = pickle.loads(pickle.dumps(request))(self.parts[number])
            # Other requests than "about" bind a method of the shard.
            self.sent.append((getattr(request, "func", request), getattr(request, "keywords", {}), answer))
            answers[number] = pickle.loads(pickle.dumps(answer))
        return answers

    def hurried(self):
        return self


class LetterEncoder:
    """A small real encoder: a text's first letters, counted; many texts have the same vector."""

    fingerprint, similarity = "letters", "dot"

    def encode_passages(self, texts):
        out = np.zeros((len(texts), 4), np.float32)
        for row, text in enumerate(texts):
            for word in text.lower().split():
                out[row, ord(word[0]) % 4] += 1
        return out

    encode_queries = encode_passages


def cut(documents, cuts, folder, analyzer="english"):
    """Build one index of all documents, and one of each stretch between the cuts."""
    options = BuildOptions(analyzer, workers=1, fields=True)
    build(documents, folder / "whole", options)
    edges = [0, *sorted(cuts), len(documents)]
    parts = []
    for number, (start, end) in enumerate(pairwise(edges)):
        if documents[start:end]:
            parts.append(folder / f"part{number}")
            build(documents[start:end], parts[-1], options)
    return Index.open(folder / "whole"), parts


@pytest.fixture(scope="module")
def both(documents, tmp_path_factory):
    """A collection whole, and in five shards of very different sizes, one of them of several segments."""
    folder = tmp_path_factory.mktemp("cut")
    whole, parts = cut(documents[:290], [3, 90, 91, 200], folder)
    append(documents[290:], parts[-1], BuildOptions(workers=1))
    build(documents, folder / "whole", BuildOptions(workers=1, overwrite=True, fields=True))
    return Index.open(whole.path), parts


def same(one, other):
    """Compare two runs to the bit."""
    assert list(one) == list(other)
    for query_id in one:
        assert one[query_id].doc_ids == other[query_id].doc_ids
        assert one[query_id].scores.tobytes() == other[query_id].scores.tobytes()


@pytest.mark.parametrize("feedback", FEEDBACKS)
@pytest.mark.parametrize("model", MODELS)
def test_rankings_and_scores_are_those_of_one_index(both, queries, model, feedback):
    whole, folders = both
    for k in (1, 7, 1000):
        options = LexicalOptions(model, feedback, k)
        expected = retrieve(whole, queries, options)
        same(expected, retrieve(ShardedIndex.reach(Wires(folders)), queries, options))
        same(expected, retrieve(ShardedIndex.open(folders[::-1]), queries, options))


words = st.sampled_from(["a", "ship", "ships", "b", "lock", "steer", "pilot", "9", "#tag"])
texts = st.lists(words, max_size=6).map(" ".join)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.data())
def test_any_cut_of_any_collection(tmp_path_factory, data):
    collection = data.draw(st.lists(texts, min_size=1, max_size=25).filter(lambda t: any(map(str.strip, t))))
    names = data.draw(st.permutations([f"d{i}" for i in range(len(collection))]))
    documents = [Document(name, text) for name, text in zip(names, collection, strict=True)]
    cuts = data.draw(st.lists(st.integers(0, len(documents)), max_size=4))
    analyzer = data.draw(st.sampled_from(["english", "tweet", "whitespace"]))
    options = LexicalOptions(
        data.draw(st.sampled_from(MODELS)),
        data.draw(st.sampled_from(FEEDBACKS)),
        data.draw(st.integers(1, 9)),
    )
    asked = [Query(f"q{i}", text) for i, text in enumerate(data.draw(st.lists(texts, max_size=4)))]
    whole, folders = cut(documents, cuts, tmp_path_factory.mktemp("any"), analyzer)
    same(retrieve(whole, asked, options), retrieve(ShardedIndex.reach(Wires(folders)), asked, options))


def test_statistics_come_first_and_then_the_best_k_never_all(both, queries):
    _, folders = both
    wires = Wires(folders)
    index = ShardedIndex.reach(wires)
    retrieve(index, queries, LexicalOptions("bm25", "rm3", 5, threads=1))
    kinds = [method for method, _, _ in wires.sent]
    assert kinds.index(IndexShard.count) < kinds.index(IndexShard.rank) < kinds.index(IndexShard.terms)
    ranked = [(given["k"], answer) for method, given, answer in wires.sent if method is IndexShard.rank]
    assert len(ranked) == 2 * len(folders)
    assert all(len(hits.rows) <= k <= 10 for k, answer in ranked for hits in answer)
    # What was learned once is not asked again.
    wires.sent.clear()
    retrieve(index, queries, LexicalOptions("bm25", "rm3", 5, threads=1))
    assert IndexShard.count not in {method for method, _, _ in wires.sent}


def test_few_queries_are_spread_over_all_threads(both, queries, monkeypatch):
    _, folders = both
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    wires = Wires(folders)
    few = [query._replace(id=f"{query.id}{i}") for i in range(4) for query in queries[:2]]
    retrieve(ShardedIndex.reach(wires), few, LexicalOptions(threads=4))
    ranked = [given["queries"] for method, given, _ in wires.sent if method is IndexShard.rank]
    assert [len(asked) for asked in ranked] == [2] * 4 * len(folders)


def test_parts_answer_about_all_documents(both, documents):
    whole, folders = both
    index = ShardedIndex.reach(Wires(folders))
    assert len(index) == len(whole) == len(index.documents)
    assert index.collection == whole.collection
    assert [index.counts(t) for t in ("ship", "lamp", "none")] == [
        whole.counts(t) for t in ("ship", "lamp", "none")
    ]
    assert list(index.documents) == list(whole.documents)
    some = [documents[i].id for i in (299, 0, 95, 95, 200)]
    assert index.documents.fetch(some) == whole.documents.fetch(some)
    assert index.documents[some[2]] == whole.documents[some[2]]
    assert [index.row_of(i) for i in some] == [whole.row_of(i) for i in some]
    assert "nowhere" not in index.documents
    with pytest.raises(KeyError):
        index.documents.fetch([some[0], "nowhere"])
    with pytest.raises(WrongUse, match="no shard"):
        index.row_of("nowhere")
    index.require(some)


def test_snippets_and_fusion_are_those_of_one_index(both, queries):
    whole, folders = both
    index = ShardedIndex.reach(Wires(folders))
    system = short_form(("bm25", "ql"), "rm3", "rrf", k=20)
    run = system.run(queries, whole)
    same(run, system.run(queries, index))
    question = queries[1]
    shown = [str(with_snippets(one, question.text, run[question.id])) for one in (whole, index)]
    assert shown[0] == shown[1]


@pytest.mark.filterwarnings("ignore:.*have no text")
@pytest.mark.parametrize("similarity", ["dot", "cosine", "l2"])
@pytest.mark.parametrize("structure", ["exact", "flat"])
def test_nearest_documents_are_those_of_one_index(documents, tmp_path, similarity, structure):
    encoder = LetterEncoder()
    encoder.similarity = similarity
    whole, folders = cut(documents, [1, 60, 200], tmp_path)
    for index in (whole, *map(Index.open, folders)):
        options = EncodeOptions(len(index), index.fingerprint)
        vectors = encode(encoder, index.documents.stream(), vectors_folder(index.path), options)
        if structure == "flat":
            pytest.importorskip("faiss")
            from rankhouse.index.dense.faiss import build as build_structure

            build_structure(vectors, "flat")
    asked = [Query("1", "ships wind"), Query("2", "lamp"), Query("3", ""), Query("4", "stone river wind")]
    index = ShardedIndex.reach(Wires(folders))
    for k in (1, 13, 1000):
        expected = search(ExactSearcher(Vectors.open(vectors_folder(whole.path))), encoder, asked, k)
        searcher = ShardedSearcher(index, open_vectors(index, "default"), structure)
        same(expected, search(searcher, encoder, asked, k))


@pytest.mark.filterwarnings("ignore:.*have no text")
def test_vectors_that_a_part_lacks_or_made_otherwise_are_named(documents, tmp_path):
    _, folders = cut(documents[:40], [20], tmp_path)
    first, second = map(Index.open, folders)
    encoder = LetterEncoder()

    def encoded(index):
        options = EncodeOptions(len(index), index.fingerprint, overwrite=True)
        encode(encoder, index.documents.stream(), vectors_folder(index.path), options)

    encoded(first)
    with pytest.raises(MissingInput, match='part1: has no vectors "default"'):
        open_vectors(ShardedIndex.reach(Wires(folders)), "default")
    encoded(second)
    index = ShardedIndex.reach(Wires(folders))
    searcher = ShardedSearcher(index, open_vectors(index, "default"), "exact")
    encoder.fingerprint = "others"
    encoded(second)
    encoder.fingerprint = "letters"
    with pytest.raises(
        BadIndex, match='vectors "default": are of others now, of letters when they were opened'
    ):
        search(searcher, encoder, [Query("1", "ships")], 3)
    with pytest.raises(BadIndex, match="of part1 have encoder others"):
        open_vectors(ShardedIndex.reach(Wires(folders)), "default")


class LetterWeigher(LetterEncoder):
    """A small sparse encoder: the words are 26 letters, by which many documents are equally good."""

    vocabulary = 26

    def passage_weights(self, texts):
        out = np.zeros((len(texts), 26), np.float32)
        for row, text in enumerate(texts):
            for word in text.lower().split():
                out[row, ord(word[0]) % 26] += 0.5
        return scipy.sparse.csr_array(np.sqrt(out))

    query_weights = passage_weights

    def query_files(self):
        return {"letters.bin": b"abc"}


@pytest.mark.filterwarnings("ignore:.*have no text")
def test_impacts_rank_as_those_of_one_index(documents, tmp_path):
    encoder = LetterWeigher()
    whole, folders = cut(documents, [1, 60, 200], tmp_path)
    for index in (whole, *map(Index.open, folders)):
        options = EncodeOptions(len(index), index.fingerprint)
        encode_impacts(encoder, index.documents.stream(), impacts_folder(index.path), options)
    asked = [Query("1", "ships wind"), Query("2", "lamp"), Query("3", ""), Query("4", "stone river wind")]
    index = ShardedIndex.reach(Wires(folders))
    one = ImpactSearcher(PackedImpacts(Impacts.open(impacts_folder(whole.path))))
    impacts = open_impacts(index, "default")
    assert len(impacts) == len(whole) == impacts.state.documents
    assert impacts.query_files() == encoder.query_files()
    for k in (1, 13, 1000):
        expected = search_impacts(one, encoder, asked, k)
        same(expected, search_impacts(ShardedImpactSearcher(index, impacts), encoder, asked, k))
    part = Index.open(folders[1])
    encoder.fingerprint = "others"
    reached = ShardedIndex.reach(Wires(folders))
    before = ShardedImpactSearcher(reached, open_impacts(reached, "default"))
    encode_impacts(
        encoder,
        part.documents.stream(),
        impacts_folder(part.path),
        EncodeOptions(len(part), part.fingerprint, overwrite=True),
    )
    encoder.fingerprint = "letters"
    with pytest.raises(
        BadIndex, match='impacts "default": are of others now, of letters when they were opened'
    ):
        search_impacts(before, encoder, asked, 1)
    encoder.fingerprint = "others"
    with pytest.raises(BadIndex, match='impacts "default" of the shards were encoded by letters'):
        search_impacts(ShardedImpactSearcher(index, impacts), encoder, asked, 1)
    with pytest.raises(MissingInput, match='has no impacts "more" of all its documents'):
        open_impacts(index, "more")


def test_what_a_score_is_made_of_is_the_same(both, queries):
    whole, folders = both
    index = ShardedIndex.reach(Wires(folders))
    options = LexicalOptions("ql", "rm3", 50)
    for query in queries[:3]:
        doc_id = retrieve(whole, [query], options)[query.id].doc_ids[3]
        one, other = (LexicalExplainer(source, options).explain(query, doc_id) for source in (whole, index))
        assert one.to_dict() == other.to_dict()


# --- shards that do not answer, or do not go together ---


def test_a_dead_part_is_named(both, queries):
    _, folders = both
    wires = Wires(folders)
    index = ShardedIndex.reach(wires)
    wires.dead = {2}
    with pytest.raises(ShardFailed, match=r"the shard part2 does not answer \(killed\).*--partial"):
        retrieve(index, queries)
    with pytest.raises(ShardFailed, match="part2"):
        ShardedIndex.reach(wires)


def test_a_partial_result_is_that_of_the_other_parts(both, queries):
    _, folders = both
    wires = Wires(folders)
    index = ShardedIndex.reach(wires)
    options = LexicalOptions("bm25", "rm3")
    run, used = index.partial(lambda living: retrieve(living, queries, options))
    assert used.missing == ()
    wires.dead = {1, 4}
    run, used = index.partial(lambda living: retrieve(living, queries, options))
    assert used.missing == ("part1", "part4")
    same(retrieve(ShardedIndex.open([folders[i] for i in (0, 2, 3)]), queries, options), run)
    assert ShardedIndex.reach(wires, partial=True).missing == used.missing
    wires.dead = set()  # it is back: so are its documents
    assert index.partial(lambda living: retrieve(living, queries, options))[1].missing == ()
    wires.dead = set(range(5))
    with pytest.raises(ShardFailed):
        index.partial(lambda living: retrieve(living, queries, options))


def test_a_document_in_two_parts_is_named(tmp_path):
    for number, text in enumerate(["ships", "pilots steer"]):
        build([Document("d1", text), Document(f"e{number}", "ships")], tmp_path / f"p{number}")
    index = ShardedIndex.open([tmp_path / "p0", tmp_path / "p1"])
    with pytest.raises(DuplicateId, match=r'"d1" is in .*p0 and in .*p1'):
        index.documents.fetch(["d1"])
    with pytest.raises(DuplicateId, match="d1"):
        "d1" in index.documents  # noqa: B015 - looking is what raises
    with pytest.raises(DuplicateId, match="d1"):
        retrieve(index, [Query("q", "ships pilots")])


def test_parts_that_do_not_go_together_are_named(tmp_path):
    for name, analyzer in (("a", "english"), ("b", "tweet"), ("c", "english")):
        build([Document("d1", "ships")], tmp_path / name, BuildOptions(analyzer))
    with pytest.raises(BadIndex, match="b: was made with the analyzer tweet.*a with english"):
        ShardedIndex.open([tmp_path / "a", tmp_path / "b"])
    with pytest.raises(BadIndex, match="c: holds the same documents as .*a"):
        ShardedIndex.open([tmp_path / "a", tmp_path / "c"])
    with pytest.raises(MissingInput, match="nowhere"):
        ShardedIndex.open([tmp_path / "a", tmp_path / "nowhere"])


def test_parts_are_found_where_they_lie(tmp_path):
    for i in range(3):
        build([Document(f"d{i}", "ships")], tmp_path / "parts" / f"{i}" / "index")
    build([Document("x", "ships")], tmp_path / "one")
    assert isinstance(open_index([tmp_path / "one"]), Index)
    assert isinstance(open_index([tmp_path / "parts" / "1"]), Index)
    whole = open_index([tmp_path / "parts"])
    assert isinstance(whole, ShardedIndex)
    assert list(whole.documents) == ["d0", "d1", "d2"]
    assert len(open_index([tmp_path / "parts", tmp_path / "one"])) == 4
    with pytest.raises(BadIndex, match="is no rankhouse index"):
        open_index([tmp_path])


def test_python_opens_parts_as_one(documents, tmp_path):
    import rankhouse as rh

    build(documents, tmp_path / "whole", BuildOptions(workers=1))
    for i in range(3):
        build(documents[i * 100 : i * 100 + 100], tmp_path / f"p{i}", BuildOptions(workers=1))
    whole = rh.Index.open(tmp_path / "whole")
    index = rh.Index.open_parts(*(tmp_path / f"p{i}" for i in range(3)))
    asked = {"1": "ships", "2": "winding lamp"}
    for feedback in ("", "rm3"):
        same(
            whole.retrieve(asked, ["bm25", "ql"], feedback=feedback),
            index.retrieve(asked, ["bm25", "ql"], feedback=feedback),
        )
    assert str(whole.search("ships", k=3)) == str(index.search("ships", k=3))
    with pytest.raises(WrongUse, match="model"):
        index.retrieve(asked, 5)
