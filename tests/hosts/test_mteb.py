"""MTEB: its own evaluation of tasks of retrieval and of reranking, with the command line's numbers."""

import tomllib
from pathlib import Path

import pytest

mteb = pytest.importorskip("mteb", reason="MTEB is not installed; make hosts")

from datasets import Dataset  # noqa: E402
from host_material import EXPRESSIONS, QRELS, QUERIES, TEXTS, TITLES, Broken, Overlap  # noqa: E402
from mteb.abstasks.retrieval import AbsTaskRetrieval  # noqa: E402

from rankhouse.core.errors import BadData, BadModel, DuplicateId, WrongUse  # noqa: E402
from rankhouse.core.run import Run  # noqa: E402
from rankhouse.evaluation.measures import evaluate  # noqa: E402
from rankhouse.hosts.adapters import OldHost  # noqa: E402
from rankhouse.hosts.mteb import RerankModel, SearchModel  # noqa: E402
from rankhouse.index.index import Index  # noqa: E402

pytestmark = [pytest.mark.outside, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

CORPUS = [{"id": i, "text": text, "title": TITLES.get(i, "")} for i, text in TEXTS.items()]
ASKED = [{"id": i, "text": text} for i, text in QUERIES.items()]
CANDIDATES = {"q1": ["d8", "d2", "d5", "d1"], "q2": ["d3", "d4", "d1"], "q3": ["d6", "d7", "d3", "d2"]}


class Notes(AbsTaskRetrieval):
    metadata = mteb.TaskMetadata(
        name="Notes", description="A few notes.", type="Retrieval", category="t2t", modalities=["text"],
        eval_splits=["test"], eval_langs=["eng-Latn"], main_score="ndcg_at_10",
        dataset={"path": "rankhouse/notes", "revision": "1"},
    )  # fmt: skip
    candidates = None

    def load_data(self, num_proc=None, **kwargs):
        data = {"corpus": Dataset.from_list(CORPUS), "queries": Dataset.from_list(ASKED)}
        data |= {"relevant_docs": {q: dict(g) for q, g in QRELS.items()}, "top_ranked": self.candidates}
        self.dataset, self.data_loaded = {"default": {"test": data}}, True


class NotesReranking(Notes):
    metadata = Notes.metadata.model_copy(update={"name": "NotesReranking", "type": "Reranking"})
    candidates = CANDIDATES


def scores_of(model, task, tmp_path):
    """Let MTEB evaluate a model; gives its scores and what it kept of the ranking."""
    result = mteb.evaluate(model, task(), cache=None, prediction_folder=tmp_path / "predictions")
    [path] = (tmp_path / "predictions").rglob("*_predictions.json")
    import json

    [scores] = result.task_results[0].scores["test"]
    return scores, json.loads(path.read_text())["default"]["test"]


def check(scores, run):
    own = evaluate(run, QRELS, "nDCG@10 AP@10 R@10")
    found = [scores["ndcg_at_10"], scores["map_at_10"], scores["recall_at_10"]]
    assert found == pytest.approx(list(own.means.values()), abs=1e-5)


def test_the_recipe_of_reranking_has_the_tasks_and_folders_of_the_benchmark():
    recipe = Path(__file__).parents[2] / "recipes" / "mteb-reranking.toml"
    data = tomllib.loads(recipe.read_text())
    entries = [data["data"][name] for name in data["loop"]["set"]]
    folders = {one if isinstance(one, str) else one["path"] for one in entries}
    tasks = [
        one.metadata for one in mteb.get_benchmark("MTEB(eng, v2)").tasks if one.metadata.type == "Retrieval"
    ]
    assert folders == {f"@root/{one.dataset['path'].removeprefix('mteb/')}" for one in tasks}
    named = {expect["source"] for expect in data["table"][0]["expect"]}
    assert named == {f"MTEB, {one.name}.json" for one in tasks if one.name != "TRECCOVID"}


def test_protocols_are_mtebs_own():
    assert isinstance(SearchModel("bm25"), mteb.SearchProtocol)
    assert not isinstance(SearchModel("bm25"), mteb.CrossEncoderProtocol)  # such ones it lets rerank only
    assert isinstance(RerankModel(Overlap()), mteb.CrossEncoderProtocol)
    assert SearchModel("bm25 % 10").mteb_model_meta.name == "rankhouse/bm25-10"
    assert SearchModel("bm25", name="me/mine").mteb_model_meta.name == "me/mine"
    with pytest.raises(WrongUse, match="owner/name"):
        SearchModel("bm25", name="mine")


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_a_system_retrieves_as_the_command_line_does(expression, searched, tmp_path):
    expected = searched(expression)
    scores, kept = scores_of(SearchModel(expression), Notes, tmp_path)
    assert kept == expected.to_dict()
    check(scores, expected)


def test_a_system_reranks_the_candidates_of_a_task(reranked, tmp_path):
    expected = reranked(Run.of({q: {d: -i for i, d in enumerate(ids)} for q, ids in CANDIDATES.items()}))
    scores, kept = scores_of(SearchModel('bm25 % 2 >> "ranker"'), NotesReranking, tmp_path)
    assert kept == expected.to_dict()
    check(scores, expected)


def test_a_ranker_reranks_the_candidates_of_a_task(reranked, tmp_path):
    expected = reranked(Run.of({q: {d: -i for i, d in enumerate(ids)} for q, ids in CANDIDATES.items()}))
    scores, kept = scores_of(RerankModel("ranker"), NotesReranking, tmp_path)
    assert kept == expected.to_dict()
    check(scores, expected)


@pytest.mark.parametrize(
    "expression",
    ["bm25", "bm25 % 1", "bm25 + ql", 'rrf(bm25, bm25 % 2 >> "ranker")', '(ql >> "ranker") % 2 >> "ranker"'],
)
def test_candidates_take_the_place_of_what_a_first_stage_finds(expression, folder):
    model = SearchModel(expression)
    model.index(CORPUS)
    ranked = model.search(ASKED, top_k=10, top_ranked=CANDIDATES)
    found = Index.open("notes.index")
    for query_id, ids in CANDIDATES.items():
        assert ranked[query_id].keys() <= set(ids)
        assert ranked[query_id]
        if expression == "bm25":
            whole = model.search(ASKED, top_k=len(found))[query_id]
            assert ranked[query_id] == {doc_id: s for doc_id, s in whole.items() if doc_id in ids}


def test_vectors_are_encoded_for_a_system_that_needs_them(tmp_path, monkeypatch, bert):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "encoder").symlink_to(bert("BertModel"))
    index = __import__("rankhouse").Index.build(CORPUS, "notes.index")
    index.encode('biencoder("encoder")')
    expected = index.retrieve(QUERIES, 'dense(biencoder("encoder"))', k=5).to_dict()
    model = SearchModel('dense(biencoder("encoder")) % 5')
    model.index(CORPUS)
    assert model.search(ASKED, top_k=5) == expected


def test_instructions_stand_behind_the_text_as_mteb_puts_them():
    from mteb._create_dataloaders import _combine_queries_with_instruction_text

    model = SearchModel("bm25")
    model.index(CORPUS)
    rows = [{"id": "q", "text": "ships", "instruction": "in the harbour"}]
    [joined] = _combine_queries_with_instruction_text(Dataset.from_list(rows))["text"]
    assert model.search(rows, top_k=5) == model.search([{"id": "q", "text": joined}], top_k=5)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"id": "d1"}, 'the corpus has no column "text"; it has id'),
        ({"text": "ships"}, 'the corpus has no column "id"'),
        ({"id": 3, "text": "ships"}, 'the column "id" of the corpus is 3'),
        ({"id": "d1", "text": None}, 'the column "text" of document "d1" is None'),
    ],
)
def test_a_faulty_document_is_named(row, words):
    with pytest.raises(BadData) as error:
        SearchModel("bm25").index([row])
    assert words in str(error.value)


def test_other_faults_are_named(tmp_path):
    model = SearchModel("bm25")
    with pytest.raises(WrongUse, match="no corpus was indexed"):
        model.search(ASKED, top_k=3)
    with pytest.raises(DuplicateId, match='"d1"'):
        model.index([CORPUS[0], CORPUS[0]])
    model.index(CORPUS)
    with pytest.raises(BadData, match='column "text" of query "q"'):
        model.search([{"id": "q", "text": ["a", "turn"]}], top_k=3)
    with pytest.raises(BadData, match='no column "text"'):
        model.search([{"id": "q"}], top_k=3)
    with pytest.raises(WrongUse, match="0 documents are asked for"):
        model.search(ASKED, top_k=0)
    for k in (0, -1, 2.5, "3", True):
        with pytest.raises(WrongUse, match="documents are asked for"):
            model.search(ASKED, top_k=k, top_ranked=CANDIDATES)
    whole = model.search(ASKED, top_k=5, top_ranked=CANDIDATES)
    assert model.search(ASKED, top_k=10**30, top_ranked=CANDIDATES) == whole
    with pytest.raises(BadData, match="inputs1 has 2 texts and inputs2 has 1"):
        RerankModel(Overlap()).predict([{"text": ["a", "b"]}], [{"text": ["b"]}])
    with pytest.raises(BadModel, match="not a number"):
        RerankModel(Broken()).predict([{"text": ["a"]}], [{"text": ["b"]}])
    with pytest.raises(WrongUse, match="without a depth"):
        RerankModel('open("DIR", depth=3)').predict([{"text": ["a"]}], [{"text": ["b"]}])


def test_an_old_host_is_named_with_the_version_that_is_needed(old_host):
    with pytest.raises(OldHost, match=r"needs mteb 2\.26 or newer, and mteb 1\.39\.7 is installed"):
        old_host("mteb", "1.39.7")
