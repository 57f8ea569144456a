"""The cross-encoder against plain transformers, one pair at a time."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from rankhouse.core.errors import BadModel, MissingInput, WrongUse
from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.hosts import sentence_transformers
from rankhouse.models import bundle
from rankhouse.models.cedr_design import CEDRDesign
from rankhouse.models.checkpoint import load_tokenizer
from rankhouse.models.crossencoder import open_crossencoder
from rankhouse.models.ranker import NeuralRanker
from rankhouse.models.transformer_encoders import by_length, is_packable
from rankhouse.nn.layers.ragged import Packed, Ragged
from rankhouse.training.distillation import comparable

from . import tiny
from .conftest import edit_config, with_bert_vocabulary

PACKED = [
    "bert", "bert_one", "bert_tanh", "roberta", "electra", "distilbert", "modernbert", "modernbert_mean",
    "mpnet",
]  # fmt: skip
KINDS = [*PACKED, "deberta"]


def alone_in_transformers(folder, pairs, length=64):
    """Logits of each pair, alone, unpadded, tokenised as a pair by transformers itself."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    network = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.inference_mode():
        return np.stack(
            [
                network(
                    **tokenizer(
                        q.text, p.text, truncation="only_second", max_length=length, return_tensors="pt"
                    )
                ).logits[0]
                for q, p in pairs
            ]
        )


def log_softmax(x):
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


@pytest.mark.parametrize("kind", KINDS)
def test_fp32_scores_equal_plain_transformers(kind, checkpoint, pairs, fp32):
    logits = alone_in_transformers(checkpoint(kind), pairs)
    model = open_crossencoder(checkpoint(kind))
    expected = logits[:, 0] if logits.shape[1] == 1 else log_softmax(logits)[:, 1]
    assert is_packable(model.network.config) == (kind in PACKED)
    np.testing.assert_allclose(NeuralRanker(model, fp32).score(pairs), expected, atol=2e-5)
    with torch.inference_mode():
        np.testing.assert_allclose(model(model.encode(pairs)), expected, atol=2e-5)
    assert np.ptp(expected) > 0.1, "scores that hardly differ would prove nothing"


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_in_pieces_with_its_words_looked_up_once_has_the_gradients_of_row_by_row(
    kind, checkpoint, pairs
):
    model = open_crossencoder(checkpoint(kind))
    batch, weights = model.encode(pairs), torch.arange(1.0, len(pairs) + 1)

    def gradients(logits):
        model.zero_grad()
        (logits[:, -1] * weights).sum().backward()
        return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    found = gradients(model.logits(batch))
    rows = [model.network(**given).logits for n in range(len(pairs)) for given in by_length(batch.take([n]))]
    expected = gradients(torch.cat(rows))
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():  # a key's bias has none but rounding
        slack = 1e-4 * max(float(gradient.abs().max()), 1.0)
        torch.testing.assert_close(found[name], gradient, rtol=0, atol=slack, msg=name)


def test_near_certainty_pairs_still_differ_and_are_still_learned(checkpoint, pairs, fp32):
    """Losses on differences leave the level of the odds free; where it went up, digits must not be lost."""
    model = open_crossencoder(checkpoint("bert"))
    level = comparable(model, model.encode(pairs)).detach()
    with torch.no_grad():
        model.network.classifier.bias += torch.tensor([-15.0, 15.0])
    high = comparable(model, model.encode(pairs))
    torch.testing.assert_close(high.detach() - 30, level, rtol=0, atol=1e-4)
    assert torch.equal(torch.from_numpy(NeuralRanker(model, fp32).score(pairs)).argsort(), level.argsort())
    high.view(1, -1).log_softmax(1)[0, 0].neg().backward()
    assert model.network.classifier.weight.grad.norm() > 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_bf16_scores_are_near_and_order_alike(kind, checkpoint, pairs, fp32, bf16):
    model = open_crossencoder(checkpoint(kind))
    exact, quick = NeuralRanker(model, fp32).score(pairs), NeuralRanker(model, bf16).score(pairs)
    assert np.corrcoef(exact, quick)[0, 1] > 0.99
    assert np.abs(exact - quick).max() < 0.15 * np.ptp(exact)


def test_the_next_sentence_head_gives_its_raw_second_logit(checkpoint, pairs, fp32):
    from transformers import AutoTokenizer, BertForNextSentencePrediction

    folder = checkpoint("bert_nsp")
    network = BertForNextSentencePrediction.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        expected = [
            network(
                **tokenizer(q.text, p.text, truncation="only_second", max_length=64, return_tensors="pt")
            ).logits[0, 1]
            for q, p in pairs
        ]
    model = open_crossencoder(folder)
    assert model.policy["scale"] == "logit"
    np.testing.assert_allclose(NeuralRanker(model, fp32).score(pairs), expected, atol=2e-5)


@pytest.mark.parametrize("kind", ["bert", "bert_one"])
def test_scales_are_functions_of_the_same_numbers(kind, checkpoint, pairs, fp32):
    scores = {
        scale: NeuralRanker(open_crossencoder(checkpoint(kind), scale=scale), fp32).score(pairs)
        for scale in ("logit", "probability", "logprob", "log-odds")
    }
    np.testing.assert_allclose(np.exp(scores["logprob"]), scores["probability"], rtol=1e-5)
    np.testing.assert_allclose(1 / (1 + np.exp(-scores["log-odds"])), scores["probability"], rtol=1e-5)
    if kind == "bert_one":
        np.testing.assert_array_equal(scores["logit"], scores["log-odds"])
    assert open_crossencoder(checkpoint(kind), scale="log-odds").scale == "logit", "pools can convert it"


def test_only_the_passage_is_shortened_and_the_end_survives(checkpoint, fp32):
    ranker = NeuralRanker(open_crossencoder(checkpoint("bert"), max_length=20), fp32)
    pair = Pair(Query("q", "grain prices"), Passage("d", 0, "storm " * 500))
    row = ranker.model.encode([pair])
    ids = row.ids.values.tolist()
    assert len(ids) == 20
    assert ids[-1] == 3
    assert ids.count(3) == 2
    assert row.segments.tolist() == [0] * 4 + [1] * 16
    ranker.score([pair, Pair(pair.query, Passage("d", 1, "storm"))])
    assert (ranker.report.seen, ranker.report.truncated, ranker.report.tokens_lost) == (2, 1, 500 - 15)


def test_a_query_longer_than_the_model_leaves_the_passage_a_quarter(checkpoint, fp32):
    ranker = NeuralRanker(open_crossencoder(checkpoint("bert"), max_length=43), fp32)
    pair = Pair(Query("q", "grain " * 300), Passage("d", 0, "storm " * 300))
    segments = ranker.model.encode([pair]).segments.tolist()
    assert segments.count(1) == 10 + 1
    assert len(segments) == 43
    assert np.isfinite(ranker.score([pair])).all()


def test_text_that_spells_a_special_token_stays_text(checkpoint):
    model = open_crossencoder(checkpoint("bert"))
    batch = model.encode([Pair(Query("q", "grain"), Passage("d", 0, "storm [SEP] [CLS] harbour"))])
    assert batch.ids.values.tolist().count(3) == 2


@pytest.mark.parametrize("text", ["", " ", "\n\t", "x" * 100_000, "\u200b", "grain " * 20_000])
def test_odd_passages_get_a_finite_score(text, checkpoint, fp32):
    ranker = NeuralRanker(open_crossencoder(checkpoint("bert")), fp32)
    assert np.isfinite(ranker.score([Pair(Query("q", "grain"), Passage("d", 0, text))])).all()
    assert np.isfinite(ranker.score([Pair(Query("q", text), Passage("d", 0, "grain"))])).all()


def test_loss_is_cross_entropy_or_its_binary_form(checkpoint, pairs):
    labels = torch.tensor([[i % 2] for i in range(len(pairs))])
    for kind in ("bert", "bert_one"):
        model = open_crossencoder(checkpoint(kind), max_length=32)
        batch = model.encode(pairs)
        loss = model.loss(batch, labels)
        loss.backward()
        probability = torch.from_numpy(
            np.stack([1 - (p := model_probability(model, batch)), p])[labels[:, 0], np.arange(len(pairs))]
        )
        assert loss.item() == pytest.approx(-probability.log().mean().item(), abs=1e-5)
        assert all(p.grad is not None for name, p in model.named_parameters() if "classifier" in name)


def model_probability(model, batch):
    scale, model.policy = model.policy, {**model.policy, "scale": "probability"}
    with torch.no_grad():
        probability = model(batch).numpy()
    model.policy = scale
    return probability


def test_scores_too_large_for_the_quick_softmax_are_computed_the_long_way(checkpoint, pairs, fp32, bf16):
    """Attention scores of several hundred overflow 2**s; the result must not.

    Such attention looks at one token only, and rounding decides at which: a single model says little.
    """
    alike = []
    for by in (30, 60, 100):
        model = open_crossencoder(checkpoint("bert"))
        with torch.no_grad():
            for layer in model.network.bert.encoder.layer:
                layer.attention.self.query.weight.mul_(by)
        exact, quick = NeuralRanker(model, fp32).score(pairs), NeuralRanker(model, bf16).score(pairs)
        assert np.isfinite(quick).all()
        alike.append(np.corrcoef(exact, quick)[0, 1])
    assert np.mean(alike) > 0.9


def test_an_order_that_is_not_sorted_by_length_gives_the_same_numbers(checkpoint, pairs, fp32):
    model = open_crossencoder(checkpoint("roberta"))
    batch, scorer = model.encode(pairs), model.scorer(fp32)
    with torch.inference_mode():
        every = scorer(batch)
        alone = torch.cat([scorer(batch.take(torch.tensor([i]))) for i in range(len(pairs))])
    torch.testing.assert_close(every, alone, atol=1e-5, rtol=0)


def test_a_checkpoint_that_answers_with_words_is_refused(checkpoint):
    with pytest.raises(BadModel, match="monot5"):
        open_crossencoder(checkpoint("t5"))


def test_a_checkpoint_without_a_trained_head_is_refused(checkpoint):
    with pytest.raises(BadModel, match="classifier.*random"):
        open_crossencoder(checkpoint("bert_plain"))


def test_an_encoder_gets_a_new_head_to_begin_with_where_that_is_asked_for(checkpoint, pairs, fp32):
    begun = [open_crossencoder(checkpoint("bert_plain"), new_head=seed) for seed in (1, 1, 2)]
    scores = [NeuralRanker(model, fp32).score(pairs) for model in begun]
    np.testing.assert_array_equal(scores[0], scores[1])
    assert np.abs(scores[0] - scores[2]).max() > 1e-3, "another seed draws another head"
    assert begun[0].policy["scale"] == "log-odds"
    trained = checkpoint("bert")
    np.testing.assert_array_equal(
        NeuralRanker(open_crossencoder(trained, new_head=1), fp32).score(pairs),
        NeuralRanker(open_crossencoder(trained), fp32).score(pairs),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_similarity_of_states_begins_as_the_cosine_of_their_means(kind, checkpoint, pairs, fp32):
    from transformers import AutoModel, AutoTokenizer

    folder = checkpoint(kind)
    tokenizer, encoder = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    expected = []
    for query, passage in pairs:
        whole = tokenizer(
            query.text, passage.text, truncation="only_second", max_length=64, return_tensors="pt"
        )
        sides = whole.sequence_ids(0)
        start = sides.index(1) if 1 in sides else len(sides) - 1
        given = {name: whole[name] for name in ("input_ids", "attention_mask")}
        with torch.inference_mode():
            states = encoder(**given).last_hidden_state[0]
        means = [part.mean(0) for part in (states[:start], states[start:])]
        expected.append(20 * torch.cosine_similarity(*means, dim=0).item() - 13)
    model = open_crossencoder(folder, new_head="similarity")
    assert model.scale == "logit"
    scores = NeuralRanker(model, fp32).score(pairs)
    np.testing.assert_allclose(scores, expected, atol=3e-5)
    np.testing.assert_array_equal(scores, [NeuralRanker(model, fp32).score([pair])[0] for pair in pairs])
    with torch.inference_mode():
        np.testing.assert_allclose(model(model.encode(pairs)), expected, atol=3e-5)
    assert np.ptp(scores) > 0.1, "scores that hardly differ would prove nothing"


def test_a_similarity_of_states_is_learned_kept_and_begun_with(checkpoint, pairs, fp32, tmp_path):
    model = open_crossencoder(checkpoint("bert_plain"), new_head="similarity")
    labels = torch.tensor([[1.0], [0.0]] * (len(pairs) // 2))
    batch = model.encode(pairs[: len(labels)])
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    for _ in range(8):
        optimiser.zero_grad()
        losses.append(model.loss(batch, labels))
        losses[-1].backward()
        optimiser.step()
    assert losses[-1] < losses[0] / 2
    head = model.network.classifier
    assert head.first.abs().min() > 0, "the line over the first state learns as well"
    bundle.save(model, tmp_path)
    again = bundle.load(tmp_path)
    assert again.policy["head"] == "similarity"
    scores = [NeuralRanker(one, fp32).score(pairs) for one in (model, again)]
    np.testing.assert_array_equal(*scores)
    begun = CEDRDesign(str(tmp_path), query_length=8).fresh([])
    word = begun.network.state_dict()["embeddings.word_embeddings.weight"]
    assert torch.equal(word, model.network.encoder.state_dict()["embeddings.word_embeddings.weight"])
    with pytest.raises(WrongUse, match="compares the states"):
        sentence_transformers.save(NeuralRanker(model, fp32), tmp_path / "out")


@pytest.mark.parametrize("head", ["similarity", 1])
def test_a_sentence_encoder_begins_as_its_folder_says_that_it_reads(head, checkpoint, pairs, fp32, tmp_path):
    plain, folder = checkpoint("sentences"), tmp_path / "inner"
    shutil.copytree(plain, folder)
    (folder / "0_Transformer").mkdir()
    names = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
    for name in (*names, "sentence_bert_config.json"):
        (folder / name).rename(folder / "0_Transformer" / name)
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["path"] = "0_Transformer"
    (folder / "modules.json").write_text(json.dumps(modules))

    def scores(source, of=pairs):
        return NeuralRanker(open_crossencoder(str(source), new_head=head), fp32).score(of)

    np.testing.assert_array_equal(scores(folder), scores(plain))
    CEDRDesign(str(folder)).fresh([])
    edit_config(folder, {"default_prompt_name": "query"}, "config_sentence_transformers.json")
    asked = [Pair(Query("q", f"storm harbour {query.text}"), passage) for query, passage in pairs]
    np.testing.assert_array_equal(scores(folder), scores(plain, asked))
    edit_config(folder / "0_Transformer", {"do_lower_case": True}, "sentence_bert_config.json")
    edit_config(folder / "0_Transformer", {"do_lower_case": False}, "tokenizer_config.json")
    tokenizer = folder / "0_Transformer" / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text().replace('"lowercase": true', '"lowercase": false'))
    loud = [Pair(Query("q", query.text.upper()), passage) for query, passage in pairs]
    np.testing.assert_array_equal(scores(folder, loud), scores(folder))


def test_a_misspelt_start_is_refused(checkpoint):
    with pytest.raises(WrongUse, match='new_head="simil" is not known'):
        open_crossencoder(checkpoint("sentences"), new_head="simil")


def test_word_vectors_begin_no_cross_encoder(tmp_path):
    module = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.StaticEmbedding"}
    (tmp_path / "modules.json").write_text(json.dumps([module]))
    with pytest.raises(BadModel, match="begins with a StaticEmbedding"):
        open_crossencoder(str(tmp_path), new_head="similarity")


def test_a_modernbert_that_was_published_without_its_head_gets_a_new_one(pairs, fp32, tmp_path):
    folder = str(tiny.masked("ModernBertModel", tmp_path))
    assert np.ptp(NeuralRanker(open_crossencoder(folder, new_head=1), fp32).score(pairs)) > 1e-3


def test_a_decoder_that_reads_pairs_with_marks_is_a_classifier(pairs, fp32, tmp_path):
    from transformers import BioGptConfig, BioGptForSequenceClassification

    sizes = {"num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48}
    config = BioGptConfig(vocab_size=271, max_position_embeddings=64, num_labels=1, pad_token_id=0, **sizes)
    torch.manual_seed(0)
    BioGptForSequenceClassification(config).save_pretrained(tmp_path)
    with_bert_vocabulary(tmp_path)
    scores = NeuralRanker(open_crossencoder(str(tmp_path)), fp32).score(pairs)
    np.testing.assert_allclose(scores, alone_in_transformers(tmp_path, pairs)[:, 0], atol=1e-5)


def test_three_classes_are_refused(checkpoint):
    with pytest.raises(BadModel, match="3 classes"):
        open_crossencoder(checkpoint("bert_three"))


def test_a_checkpoint_without_tokenizer_is_refused_and_another_can_be_named(
    checkpoint, tmp_path, pairs, fp32
):
    import shutil

    shutil.copytree(checkpoint("bert"), tmp_path / "bare")
    for path in (tmp_path / "bare").glob("*tok*"):
        path.unlink()
    for path in (tmp_path / "bare").glob("vocab*"):
        path.unlink()
    with pytest.raises(BadModel, match='tokenizer="DIR"'):
        open_crossencoder(str(tmp_path / "bare"))
    helped = open_crossencoder(str(tmp_path / "bare"), tokenizer=checkpoint("bert"), max_length=64)
    own = open_crossencoder(checkpoint("bert"))
    np.testing.assert_array_equal(
        NeuralRanker(helped, fp32).score(pairs), NeuralRanker(own, fp32).score(pairs)
    )


def test_a_tokenizer_of_a_class_that_is_not_known_is_its_tokenizer_json(checkpoint, tmp_path, pairs, fp32):
    shutil.copytree(checkpoint("bert"), tmp_path / "new")
    own = {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}
    own |= {"tokenizer_class": "NewerTokenizer", "extra_special_tokens": ["[unused0]"]}
    edit_config(tmp_path / "new", own, "tokenizer_config.json")
    new, old = (open_crossencoder(str(folder)) for folder in (tmp_path / "new", checkpoint("bert")))
    np.testing.assert_array_equal(NeuralRanker(new, fp32).score(pairs), NeuralRanker(old, fp32).score(pairs))
    # Version 5 of transformers reads that one itself; not one of a type without a tokenizer of its own.
    (tmp_path / "new" / "tokenizer_config.json").unlink()
    config = {"model_type": "bloom", "tokenizer_class": "NewerTokenizer"}
    (tmp_path / "new" / "config.json").write_text(json.dumps(config))
    tokenizer, segments, _ = load_tokenizer(tmp_path / "new", None)
    known, _, _ = load_tokenizer(Path(checkpoint("bert")), None)
    assert tokenizer.encode("bread").ids == known.encode("bread").ids
    assert not segments


@pytest.mark.parametrize("content", ["", "[]", "null", '"BertTokenizer"'])
def test_a_tokenizer_config_that_is_none_is_named(checkpoint, tmp_path, content):
    shutil.copytree(checkpoint("bert"), tmp_path / "new")
    (tmp_path / "new" / "tokenizer_config.json").write_text(content)
    with pytest.raises(BadModel, match=r'^"[^"]*tokenizer_config.json" [^"]*; fetch the file again$'):
        load_tokenizer(tmp_path / "new", None)


def test_a_tokenizer_that_a_newer_version_wrote_is_refused_with_the_versions(checkpoint, tmp_path):
    shutil.copytree(checkpoint("bert"), tmp_path / "new")
    edit_config(tmp_path / "new", {"transformers_version": "99.0"})
    (tmp_path / "new" / "tokenizer.json").write_text('{"model": {"type": "Unheard"}}')
    with pytest.raises(BadModel, match=r"tokenizer.json\" cannot be read .* transformers 99.0 wrote"):
        open_crossencoder(str(tmp_path / "new"))


def test_wrong_words_are_refused_with_the_choices(checkpoint):
    with pytest.raises(WrongUse, match="logit, probability, logprob"):
        open_crossencoder(checkpoint("bert"), scale="log")
    with pytest.raises(WrongUse, match="64 positions"):
        open_crossencoder(checkpoint("bert"), max_length=65)
    with pytest.raises(WrongUse, match="at least 5"):
        open_crossencoder(checkpoint("bert"), max_length=4)


def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path):
    with pytest.raises(BadModel, match="config.json"):
        open_crossencoder(str(tmp_path))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(BadModel, match="cannot be read"):
        open_crossencoder(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(BadModel, match="model_type"):
        open_crossencoder(str(tmp_path))


def test_a_name_that_is_no_folder_says_what_to_do_without_network(monkeypatch):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(MissingInput, match="hf download nobody/nothing"):
        open_crossencoder("nobody/nothing")


def test_pickled_weights_are_read_only_when_allowed(checkpoint, tmp_path, pairs, fp32):
    import shutil

    from safetensors.torch import load_file

    shutil.copytree(checkpoint("bert"), tmp_path / "old")
    torch.save(load_file(tmp_path / "old" / "model.safetensors"), tmp_path / "old" / "pytorch_model.bin")
    (tmp_path / "old" / "model.safetensors").unlink()
    with pytest.raises(BadModel, match="allow_pickle=True"):
        open_crossencoder(str(tmp_path / "old"))
    old = open_crossencoder(str(tmp_path / "old"), allow_pickle=True)
    own = open_crossencoder(checkpoint("bert"))
    np.testing.assert_array_equal(NeuralRanker(old, fp32).score(pairs), NeuralRanker(own, fp32).score(pairs))


def test_damaged_weights_are_refused(checkpoint, tmp_path):
    import shutil

    shutil.copytree(checkpoint("bert"), tmp_path / "cut")
    weights = tmp_path / "cut" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])
    with pytest.raises(BadModel, match="cannot be loaded"):
        open_crossencoder(str(tmp_path / "cut"))
    weights.unlink()
    with pytest.raises(BadModel, match="no weights"):
        open_crossencoder(str(tmp_path / "cut"))


def test_scores_that_are_no_numbers_name_the_pair(checkpoint, pairs, fp32):
    model = open_crossencoder(checkpoint("bert"))
    with torch.no_grad():
        model.network.classifier.weight[0, 0] = float("nan")
    with pytest.raises(BadModel, match=f'document "d0" for query "{pairs[0].query.id}"'):
        NeuralRanker(model, fp32).score(pairs)


def test_a_batch_can_be_cut_from_ids_alone():
    batch = Packed(
        Ragged.of([[1, 2, 3], [4], [5, 6]]), torch.tensor([0, 1, 2]), torch.tensor([0, 0, 1, 0, 0, 1])
    )
    part = batch.take(torch.tensor([2, 0]))
    assert part.ids.values.tolist() == [5, 6, 1, 2, 3]
    assert part.segments.tolist() == [0, 1, 0, 0, 1]
    assert part.lost.tolist() == [2, 0]
    assert part.ids.positions().tolist() == [0, 1, 0, 1, 2]


@pytest.mark.parametrize(
    "kind", ["XLMRobertaXL", "RobertaPreLayerNorm", "Data2VecText", "Longformer", "IBert"]
)
def test_positions_that_begin_behind_the_padding_are_not_run_out_of(kind, tmp_path, fp32):
    own = {"pad_token_id": 1, "num_labels": 1, **({"attention_window": 8} if kind == "Longformer" else {})}
    folder = tiny.network(f"{kind}ForSequenceClassification", tmp_path / "own", **own)
    with_bert_vocabulary(folder, generic=True)
    edit_config(folder, {"model_max_length": 100_000}, "tokenizer_config.json")
    model = open_crossencoder(str(folder))
    assert model.policy["max_length"] == 64, "66 positions, of which the first two are never used"
    long = Pair(Query("q", "storm"), Passage("p", 0, "grain prices " * 100))
    assert np.isfinite(NeuralRanker(model, fp32).score([long])).all()
