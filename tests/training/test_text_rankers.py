"""The same loop teaches rankers made of transformers; tiny ones, drawn at random."""

import json
from dataclasses import replace

import msgspec
import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

from rankhouse.core.errors import WrongUse
from rankhouse.core.notation import make
from rankhouse.core.nouns import Pair, Passage
from rankhouse.core.run import Run
from rankhouse.io.trec import read_run
from rankhouse.models.bundle import load
from rankhouse.models.encoder_rankers import DenseRanker
from rankhouse.models.families import DESIGNS, open_model
from rankhouse.nn.machine import choose
from rankhouse.training.fit import fit
from rankhouse.training.log import read_log
from rankhouse.training.settings import defaults
from rankhouse.training.steps import Stepper
from rankhouse.training.validation import Validation, Validator

SMALL_BERT = {
    "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32,
    "max_position_embeddings": 64, "num_labels": 2, "attn_implementation": "eager",
}  # fmt: skip
SMALL_T5 = {
    "d_model": 32, "d_kv": 16, "d_ff": 32, "num_layers": 1, "num_heads": 2, "decoder_start_token_id": 0,
    "pad_token_id": 0, "eos_token_id": 1,
}  # fmt: skip


def tokenizer_of(words, family):
    special = (
        ["<pad>", "</s>", "<unk>"] if family == "monot5" else ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    )
    prompt = ["Query:", "Document:", "Relevant:", "true", "false"] if family == "monot5" else []
    vocabulary = {word: number for number, word in enumerate([*special, *prompt, *sorted(words)])}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token=special[2 if family == "monot5" else 1]))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if family == "monot5":
        made.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
        return PreTrainedTokenizerFast(
            tokenizer_object=made, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
        )
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_max_length=64,
    )  # fmt: skip


@pytest.fixture(scope="module")
def checkpoint(toy, tmp_path_factory):
    """Saves a tiny network with a tokenizer of the toy's words; gives its folder."""
    words = {word for document in toy.documents.values() for word in document.full_text.split()}

    def make(family):
        folder = tmp_path_factory.mktemp(family)
        tokenizer = tokenizer_of(words, family)
        torch.manual_seed(0)
        if family == "monot5":
            network = T5ForConditionalGeneration(T5Config(vocab_size=len(tokenizer), **SMALL_T5))
        elif family == "crossencoder":
            network = BertForSequenceClassification(BertConfig(vocab_size=len(tokenizer), **SMALL_BERT))
        else:
            network = BertModel(BertConfig(vocab_size=len(tokenizer), **SMALL_BERT))
        network.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return make


def among_others(given):
    """Validation as in-batch negatives prepare for it: posts relevant to other queries stand against."""
    relevant = [d for own in given.qrels.values() for d, grade in own.items() if grade]
    rng = np.random.default_rng(0)
    run = Run.of([(query.id, d, float(rng.random())) for query in given.queries for d in relevant])
    return Validation(run, given.queries, given.qrels, given.documents)


CHANGES = {
    "crossencoder": {"rate": 3e-3, "epochs": 6},
    "biencoder": {"rate": 1e-3, "epochs": 5, "batch": 16},
    "biencoder hard": {"rate": 3e-3, "epochs": 6, "batch": 8, "count": 2, "temperature": 0.5},
    "monot5": {"rate": 1e-1, "epochs": 6, "batch": 16, "accumulate": 2},
    "cedr_knrm": {"rate": 3e-3, "rates": {"network": 1e-3}, "epochs": 6},
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CHANGES)
def test_text_rankers_learn_to_rank(toy, checkpoint, tmp_path, case):
    family = case.split()[0]
    pooling = ', pooling="mean"' if family == "biencoder" else ""
    if family in DESIGNS:
        model = make(f'{family}("{checkpoint(family)}", query_length=6)', DESIGNS, "ranker").fresh([], seed=1)
    else:
        model = open_model(f'{family}("{checkpoint(family)}"{pooling})')
    settings = defaults(family).but(**CHANGES[case], measure="AP", device="cpu", log_every=1)
    validation = among_others(toy.validation) if case == "biencoder" else toy.validation
    outcome = fit(model, toy.examples, settings, tmp_path, validation, use={"pool": "max"})
    losses = [entry["loss"] for entry in read_log(tmp_path / "log.jsonl") if "loss" in entry]
    assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:5])
    assert outcome.best > outcome.first_stage + 0.1
    assert outcome.best > outcome.validations[0][1] + 0.05
    kept = load(tmp_path / "ranker").state_dict()
    assert all(torch.equal(kept[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.quick("crossencoder")
@pytest.mark.parametrize("family", ["crossencoder", "biencoder", "monot5"])
def test_dropout_of_none_makes_learning_repeatable_and_none_given_is_the_models_own(toy, checkpoint, family):
    folder = checkpoint(family)
    pair = Pair(toy.examples.queries[0], Passage("d", 0, next(iter(toy.documents.values())).full_text))

    def twice(share):
        model = open_model(f'{family}("{folder}"' + (', pooling="mean")' if family == "biencoder" else ")"))
        Stepper(model, defaults(family).but(dropout=share, device="cpu"))
        batch = model.encode([pair])
        torch.manual_seed(0)
        return [float(model.train()(batch).detach()) for _ in range(2)]

    own, none, half = twice(None), twice(0), twice(0.5)
    assert own[0] != own[1]
    assert none[0] == none[1]
    assert half[0] != half[1]
    assert half != own


def as_sentence_encoder(folder):
    """Say how a BERT's vectors are made, as sentence-transformers writes it; gives the folder."""
    kinds = [("Transformer", ""), ("Pooling", "1_Pooling")]
    modules = [
        {"idx": i, "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    return folder


def without_positions(folder):
    """Make a drawn BERT's mean vectors near where texts have words in common; gives the folder."""
    network = BertModel.from_pretrained(folder)
    for part in ("position_embeddings", "token_type_embeddings"):
        network.embeddings.get_submodule(part).weight.data.zero_()
    network.save_pretrained(folder)
    return folder


def begun(family, folder):
    if family == "crossencoder":
        return open_model(f'crossencoder("{folder}", new_head=1)')
    return make(f'{family}("{folder}", query_length=6)', DESIGNS, "ranker").fresh([], seed=1)


@pytest.mark.quick("crossencoder")
@pytest.mark.filterwarnings(
    "ignore::rankhouse.core.errors.RankhouseWarning"
)  # at this rate nothing is learned
@pytest.mark.parametrize("family", ["crossencoder", "cedr_knrm"])
def test_beside_a_drawn_head_stands_what_its_encoder_is_worth_alone(toy, checkpoint, tmp_path, family):
    folder, given = as_sentence_encoder(without_positions(checkpoint("biencoder"))), toy.validation
    alone = DenseRanker(open_model(f'biencoder("{folder}")'), choose("fp32", "cpu"))
    value, run = Validator(given, "AP")(alone)
    settings = defaults(family).but(measure="AP", device="cpu", rate=1e-7, rates={}, steps=4, batch=4)
    settings = settings.but(accumulate=1, checkpoint_seconds=0)
    assert value > 0.6  # words in common count, so the drawn head cannot reach it
    outcome = fit(begun(family, folder), toy.examples, settings, tmp_path / "whole", given)
    assert outcome.encoder == value
    assert outcome.untaught == outcome.validations[0][1] < value
    assert any(f"untaught, as --ranker 'biencoder(\"{folder}\")'" in remark for remark in outcome.remarks)
    kept = read_run(tmp_path / "whole" / "encoder.run")
    assert {q: kept[q].doc_ids for q in kept} == {q: run[q].doc_ids for q in run}
    lines = [entry["encoder"] for entry in read_log(tmp_path / "whole" / "log.jsonl") if "encoder" in entry]
    assert lines == [value]
    with pytest.raises(KeyboardInterrupt):
        fit(begun(family, folder), toy.examples, settings, tmp_path / "cut", given, progress=interrupt)
    resumed = fit(begun(family, folder), toy.examples, settings, tmp_path / "cut", given)
    assert msgspec.structs.replace(resumed, seconds=0) == msgspec.structs.replace(outcome, seconds=0)


def interrupt(step, steps):
    if step == 2:
        raise KeyboardInterrupt


def test_no_encoder_stands_beside_a_trained_head_or_one_that_says_nothing_of_vectors(
    toy, checkpoint, tmp_path
):
    silent = begun("crossencoder", checkpoint("biencoder"))
    settings = defaults("crossencoder").but(measure="AP", device="cpu", steps=1, rate=1e-2)
    outcome = fit(silent, toy.examples, settings, tmp_path / "silent", toy.validation)
    assert outcome.encoder is None
    assert not (tmp_path / "silent" / "encoder.run").exists()
    assert load(tmp_path / "silent" / "ranker").encoder_ranker == ""
    headed = as_sentence_encoder(checkpoint("crossencoder"))
    assert open_model(f'crossencoder("{headed}")').encoder_ranker == ""


class SharedWords:
    """A teacher: the share of the question's words that a passage has."""

    scale, fingerprint = "probability", "shared words"

    def score(self, pairs):
        shared = [len(set(q.text.split()) & set(p.text.split())) / len(q.text.split()) for q, p in pairs]
        return np.array(shared, np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["margin-mse", "pointwise"])
@pytest.mark.parametrize("case", ["crossencoder", "biencoder", "monot5"])
def test_text_rankers_learn_a_teachers_scores(toy, checkpoint, tmp_path, case, loss):
    pooling = ', pooling="mean"' if case == "biencoder" else ""
    model = open_model(f'{case}("{checkpoint(case)}"{pooling})')
    changes = CHANGES[case] | {
        "loss": loss,
        "count": 4,
        "epochs": 4,
        "batch": 8 if case == "biencoder" else 40,
    }
    settings = defaults(case).but(**changes, measure="AP", device="cpu", log_every=1)
    examples = replace(toy.examples, teacher=SharedWords(), label=np.full(len(toy.examples), -1))
    outcome = fit(model, examples, settings, tmp_path, toy.validation)
    losses = [entry["loss"] for entry in read_log(tmp_path / "log.jsonl") if "loss" in entry]
    assert np.mean(losses[-5:]) < np.mean(losses[:5])
    assert outcome.best > outcome.validations[0][1] + 0.05


def test_a_temperature_is_for_losses_that_have_one(toy, fresh, tmp_path):
    with pytest.raises(WrongUse, match="the loss of a knrm has none"):
        fit(fresh("knrm"), toy.examples, defaults("knrm").but(temperature=0.1), tmp_path)


def test_only_encoders_of_queries_learn_alone(toy, fresh, tmp_path):
    with pytest.raises(WrongUse, match="a knrm has no encoder of queries alone"):
        fit(fresh("knrm"), toy.examples, defaults("knrm").but(tower="query"), tmp_path)


def test_in_bf16_attention_alone_is_computed_in_fp32_on_a_processor(checkpoint):
    model = begun("crossencoder", checkpoint("biencoder"))
    stepper = Stepper(model, defaults("crossencoder").but(precision="bf16", device="cpu"))
    heads = torch.randn(1, 2, 5, 8, dtype=torch.bfloat16)
    mask = torch.ones(1, 1, 5, 5, dtype=torch.bool).tril()
    attend = torch.nn.functional.scaled_dot_product_attention
    with stepper._autocast():
        found = attend(heads, heads, heads, attn_mask=mask)
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16
    exact = attend(*(3 * [heads.float()]), attn_mask=mask)
    assert found.dtype == torch.float32
    assert torch.equal(found, exact)
    assert attend(heads, heads, heads, attn_mask=mask).dtype == torch.bfloat16
