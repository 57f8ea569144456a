"""Decoders as rankers against transformers, and their prompts against their makers' code."""

import json
import shutil

import numpy as np
import pytest
import torch

from rankhouse.core.errors import BadModel, WrongUse
from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.models import bundle
from rankhouse.models.causal import open_causal
from rankhouse.models.families import open_model
from rankhouse.models.prompts import KNOWN, known_prompt
from rankhouse.models.ranker import NeuralRanker
from rankhouse.training.settings import defaults

from . import tiny
from .conftest import make_pairs

KINDS = {
    "Qwen3ForCausalLM": "qwen3-reranker",
    "Qwen3ForSequenceClassification": "qwen3-reranker",
    "Qwen2ForCausalLM": "mxbai-rerank-v2",
    "GemmaForCausalLM": "bge-reranker-v2-gemma",
    "LlamaForCausalLM": "qwen3-reranker",
    "MistralForCausalLM": "qwen3-reranker",
    "Gemma2ForCausalLM": "bge-reranker-v2-gemma",  # not packed: computed by rows of equal length
}
TARGETS = {"qwen3-reranker": ["yes", "no"], "mxbai-rerank-v2": ["1", "0"], "bge-reranker-v2-gemma": ["Yes"]}


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    """From an architecture to a tiny checkpoint of it with a byte-level vocabulary."""
    root = tmp_path_factory.mktemp("decoders")

    def make(kind):
        return str(root / kind if (root / kind).is_dir() else tiny.decoder(kind, root / kind))

    return make


def ids_as_their_makers_do(name, tokenizer, query, document, room):
    """Put a prompt together as the makers' code describes it, with texts of this many tokens at most."""

    def own(text):
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    def plain(text):  # what a text spells is text
        return tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]

    before, *_, behind = KNOWN[name].filled(None)
    if name == "qwen3-reranker":
        task = "Given a web search query, retrieve relevant passages that answer the query"
        body = plain(f"<Instruct>: {task}\n<Query>: {query}\n<Document>: {document}")
        return [*own(before), *body[:room], *own(behind)]
    separator = own("\n")
    asked = plain(("query: " if name == "mxbai-rerank-v2" else "A: ") + query)
    read = plain(("document: " if name == "mxbai-rerank-v2" else "B: ") + document)
    texts = [*asked, *separator, *read[: room - len(asked)], *separator]
    task = own(KNOWN[name].filled(None)[-2]) if name == "mxbai-rerank-v2" else []
    return [*own(before), *texts, *task, *own(behind)]


def odd_pairs():
    texts = ["", " ", "yes", "<|im_end|>\n<|im_start|>", "naïve {document} {query}", "東京 😀", "a\n\nb "]
    sides = [*zip(texts, reversed(texts), strict=True), *zip(texts, [*texts[1:], ""], strict=True)]
    odd = [*sides, ("grain", "grain " * 2_000), ("", "")]
    return [
        *make_pairs(34, 3),
        *(Pair(Query(f"o{i}", query), Passage(f"o{i}", 0, text)) for i, (query, text) in enumerate(odd)),
    ]


@pytest.mark.parametrize("name", KNOWN)
def test_ids_of_prompts_are_those_of_their_makers(name, decoder):
    from transformers import AutoTokenizer

    folder = decoder({value: kind for kind, value in reversed(KINDS.items())}[name])
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = open_causal(folder, prompt=name, max_length=600)
    pairs = odd_pairs()
    assert len(pairs) == 50
    batch = model.encode(pairs)
    fixed = model.pair_reader._layout.fixed
    for pair, ids in zip(pairs, batch.ids.values.split(batch.lengths.tolist()), strict=True):
        room = 600 - fixed
        assert ids.tolist() == ids_as_their_makers_do(
            name, tokenizer, pair.query.text, pair.passage.text, room
        )
    assert batch.lost.max() > 1_000
    assert (batch.query_lost <= batch.lost).all()
    long, short = "grain prices rose " * 700, "storm"
    cut = model.encode(
        [Pair(Query("q", one), Passage("d", 0, other)) for one, other in ((long, short), (short, long))]
    )
    assert cut.query_lost[0] == cut.lost[0] > 1_000
    assert cut.query_lost[1] == 0 < cut.lost[1]
    assert len(batch.ids.values) > batch.lengths.sum() - 1


def alone_in_transformers(folder, kind, model, pairs):
    """Score each pair's ids alone, by the whole network of transformers."""
    import transformers

    classes = kind.endswith("SequenceClassification")
    opened = transformers.AutoModelForSequenceClassification if classes else transformers.AutoModelForCausalLM
    network = opened.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    words = tokenizer.convert_tokens_to_ids(TARGETS[KINDS[kind]])
    scores = []
    for pair in pairs:
        ids = model.encode([pair]).ids.values[None]
        with torch.inference_mode():
            logits = network(input_ids=ids).logits
        if classes:
            scores.append(float(logits[0, 0]))
        else:
            first, *second = logits[0, -1, words].tolist()
            scores.append(first - sum(second))
    return np.array(scores)


@pytest.mark.quick("Qwen3ForCausalLM")
@pytest.mark.parametrize("kind", KINDS)
def test_scores_equal_plain_transformers_whatever_stands_beside_them(kind, decoder, fp32, tmp_path):
    model = open_causal(decoder(kind), prompt=KINDS[kind], max_length=400)
    pairs = [
        *make_pairs(24, 1),
        Pair(Query("q", ""), Passage("d", 0, "")),
        Pair(Query("q", ":"), Passage("d", 0, "salt " * 900)),
    ]
    expected = alone_in_transformers(decoder(kind), kind, model, pairs)
    assert np.ptp(expected) > 0.05, "scores that hardly differ would prove nothing"
    scores = NeuralRanker(model, fp32).score(pairs)
    np.testing.assert_allclose(scores, expected, atol=1e-4)
    with torch.inference_mode():
        np.testing.assert_allclose(model(model.encode(pairs)), expected, atol=1e-4)
    for ranker in (NeuralRanker(model, fp32, budget=300), NeuralRanker(model, fp32._replace(threads=2))):
        np.testing.assert_array_equal(ranker.score(pairs[::-1])[::-1], scores)
    np.testing.assert_array_equal(
        [NeuralRanker(model, fp32).score([pair])[0] for pair in pairs[:6]], scores[:6]
    )
    bundle.save(model, tmp_path / "bundle")
    again = NeuralRanker(bundle.load(tmp_path / "bundle"), fp32)
    np.testing.assert_array_equal(again.score(pairs), scores)
    assert again.model.policy["prompt"] == list(KNOWN[KINDS[kind]].filled(None))


def test_layers_that_all_see_a_window_only_are_not_computed_as_if_they_saw_everything(fp32, tmp_path):
    window = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 0}
    folder = tiny.decoder("Qwen2ForCausalLM", tmp_path, **window)
    model, pairs = open_causal(str(folder), prompt="mxbai-rerank-v2"), make_pairs(6, 1)
    expected = alone_in_transformers(folder, "Qwen2ForCausalLM", model, pairs)
    np.testing.assert_allclose(NeuralRanker(model, fp32).score(pairs), expected, atol=1e-4)


def test_bf16_is_near(decoder, fp32, bf16):
    model = open_causal(decoder("Qwen3ForCausalLM"), prompt="qwen3-reranker")
    pairs = make_pairs(20, 2)
    exact, other = NeuralRanker(model, fp32).score(pairs), NeuralRanker(model, bf16).score(pairs)
    assert np.corrcoef(exact, other)[0, 1] > 0.98


def test_a_decoder_without_a_known_prompt_is_refused_in_words(decoder):
    folder = decoder("Qwen3ForCausalLM")
    for opening in (open_causal, lambda path: open_model(f'causal("{path}")'), bundle.load):
        with pytest.raises(
            BadModel, match='its scores are random. Say  causal\\(".*", prompt="NAME"\\)  with one of qwen3'
        ):
            opening(folder)
    with pytest.raises(WrongUse, match='prompt="qwen" is not known; known are qwen3-reranker'):
        open_causal(folder, prompt="qwen")
    with pytest.raises(WrongUse, match=r"must hold \{query\} and \{document\} once each"):
        open_causal(folder, prompt=("Query: {query}", "Relevant:"), targets=("yes", "no"))
    with pytest.raises(WrongUse, match="which words stand for relevant and not relevant is not known"):
        open_causal(folder, prompt=("{query}", "{document}"))
    with pytest.raises(WrongUse, match='target word "harbours and" is no single token'):
        open_causal(folder, prompt=("{query}", "{document}"), targets=("harbours and",))
    with pytest.raises(WrongUse, match="78 tokens are the model's own"):
        open_causal(folder, prompt="qwen3-reranker", max_length=30)
    with pytest.raises(BadModel, match="is a decoder, no biencoder .*open it as  causal"):
        open_model(f'biencoder("{folder}")')
    with pytest.raises(WrongUse, match='"causal"'):
        defaults("causal")


def test_names_on_the_hub_say_the_prompt():
    for name, prompt in {
        "Qwen/Qwen3-Reranker-4B": "qwen3-reranker",
        "tomaarsen/Qwen3-Reranker-0.6B-seq-cls": "qwen3-reranker",
        "mixedbread-ai/mxbai-rerank-large-v2@main": "mxbai-rerank-v2",
        "/models/bge-reranker-v2-gemma/": "bge-reranker-v2-gemma",
    }.items():
        assert known_prompt(name) is KNOWN[prompt]
    for name in ("Qwen/Qwen3-0.6B", "mixedbread-ai/mxbai-rerank-base-v1", "BAAI/bge-reranker-v2-m3"):
        assert known_prompt(name) is None


def test_an_instruction_and_other_words_change_scores(decoder, fp32):
    folder, pairs = decoder("Qwen2ForCausalLM"), make_pairs(8, 4)
    usual = NeuralRanker(open_causal(folder, prompt="mxbai-rerank-v2"), fp32).score(pairs)
    told = open_causal(folder, prompt="mxbai-rerank-v2", instruction="find the harvest")
    assert "instruction: find the harvest\nquery: {query}" in told.policy["prompt"]
    assert (NeuralRanker(told, fp32).score(pairs) != usual).all()
    turned = open_causal(folder, prompt="mxbai-rerank-v2", targets=("0", "1"))
    np.testing.assert_allclose(NeuralRanker(turned, fp32).score(pairs), -usual, atol=1e-6)
    chance = open_causal(folder, prompt="mxbai-rerank-v2", scale="probability")
    np.testing.assert_allclose(NeuralRanker(chance, fp32).score(pairs), 1 / (1 + np.exp(-usual)), atol=1e-6)


CHAT = (
    "{%- set system = (messages | selectattr('role', 'eq', 'system') | map(attribute='content') | first) -%}"
    "<|im_start|>system\n{{ system | default('Judge.') }}<|im_end|>\n<|im_start|>user\n"
    "{{ messages | selectattr('role', 'eq', 'query') | map(attribute='content') | first }}\n"
    "{{ messages | selectattr('role', 'eq', 'document') | map(attribute='content') | first }}<|im_end|>\n"
)


@pytest.mark.quick("True")
@pytest.mark.parametrize("both", [True, False])
def test_a_chat_template_for_pairs_is_read_as_sentence_transformers_reads_it(both, decoder, fp32, tmp_path):
    library = pytest.importorskip("sentence_transformers", reason="the yardstick is not installed")
    from sentence_transformers.cross_encoder.modules import LogitScore
    from sentence_transformers.sentence_transformer import modules

    shutil.copytree(decoder("Qwen3ForCausalLM"), tmp_path / "plain")
    (tmp_path / "plain" / "chat_template.jinja").write_text(CHAT)
    transformer = modules.Transformer(str(tmp_path / "plain"), transformer_task="text-generation")
    yes, no = transformer.tokenizer.convert_tokens_to_ids(["yes", "no"])
    theirs = library.CrossEncoder(
        modules=[transformer, LogitScore(yes, no if both else None)],
        prompts={"web": "Does it answer?"},
        default_prompt_name="web",
        device="cpu",
    )
    theirs.save_pretrained(str(tmp_path / "chat"))
    opened = library.CrossEncoder(str(tmp_path / "chat"), device="cpu")
    pairs = make_pairs(20, 5)
    expected = opened.predict(
        [(p.query.text, p.passage.text) for p in pairs], activation_fn=torch.nn.Identity()
    )
    model = bundle.load(tmp_path / "chat")
    np.testing.assert_allclose(NeuralRanker(model, fp32).score(pairs), expected, atol=1e-4)
    back = written_back(NeuralRanker(model, fp32), tmp_path / "back", pairs)
    np.testing.assert_allclose(back, expected, atol=1e-4)
    assert "Does it answer?" in json.dumps(model.policy["prompt"])
    settings = json.loads((tmp_path / "chat" / "sentence_bert_config.json").read_text())
    del settings["modality_config"]["message"]  # then the library reads bare pairs, and no template
    (tmp_path / "chat" / "sentence_bert_config.json").write_text(json.dumps(settings))
    with pytest.raises(BadModel, match="a decoder whose prompt is not known"):
        bundle.load(tmp_path / "chat")


def written_back(ranker, folder, pairs):
    """Scores of pairs by sentence-transformers, of what is written for it."""
    library = pytest.importorskip("sentence_transformers", reason="the yardstick is not installed")
    from rankhouse.hosts.sentence_transformers import save

    save(ranker, folder)
    theirs = library.CrossEncoder(str(folder), device="cpu")
    return theirs.predict([(p.query.text, p.passage.text) for p in pairs], show_progress_bar=False)


@pytest.mark.quick("*options0", "*options4")
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("Qwen3ForCausalLM", {"prompt": "qwen3-reranker"}),
        ("Qwen3ForCausalLM", {"prompt": "qwen3-reranker", "scale": "probability"}),
        ("Qwen3ForCausalLM", {"prompt": "qwen3-reranker", "scale": "logit"}),
        ("Qwen3ForSequenceClassification", {"prompt": "qwen3-reranker"}),
        ("LlamaForCausalLM", {"prompt": ('Say "{query}"\n\t{document} {{ no }} ja:',), "targets": ("yes",)}),
    ],
)
def test_a_decoder_is_written_with_its_prompt_as_a_chat_template(kind, options, decoder, fp32, tmp_path):
    ranker = NeuralRanker(open_causal(decoder(kind), **options), fp32)
    pairs = make_pairs(20, 5)
    np.testing.assert_allclose(written_back(ranker, tmp_path / "back", pairs), ranker.score(pairs), atol=1e-4)
    again = NeuralRanker(bundle.load(tmp_path / "back"), fp32)
    if again.model.policy["scale"] == ranker.model.policy["scale"]:
        np.testing.assert_allclose(again.score(pairs), ranker.score(pairs), atol=1e-5)


def test_a_prompt_whose_segments_would_join_is_not_written(decoder, fp32, tmp_path):
    from rankhouse.hosts.sentence_transformers import save

    prompt = ("Query: {query} st", "orm {document}", "Relevant:")
    ranker = NeuralRanker(open_causal(decoder("Qwen3ForCausalLM"), prompt, targets=("yes", "no")), fp32)
    with pytest.raises(WrongUse, match="tokenised apart"):
        save(ranker, tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_a_decoder_whose_output_layer_is_more_than_one_product_is_refused(tmp_path):
    ids = {"pad_token_id": 4, "bos_token_id": 3, "eos_token_id": 0, "cls_token_id": 3, "sep_token_id": 0}
    folder = tiny.decoder("ModernBertDecoderForCausalLM", tmp_path / "own", **ids)
    with pytest.raises(BadModel, match="ModernBertDecoderForCausalLM, whose output layer does more"):
        open_causal(str(folder), prompt="qwen3-reranker")
