"""The same loop teaches rankers made of transformers; tiny ones, drawn at random."""

from dataclasses import replace

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
from rankhouse.core.run import Run
from rankhouse.models.families import DESIGNS, open_model
from rankhouse.models.loading import load
from rankhouse.training.fit import fit
from rankhouse.training.log import read_log
from rankhouse.training.settings import defaults
from rankhouse.training.validation import Validation

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


class SharedWords:
    """A teacher: the share of the question's words that a passage has."""

    scale, fingerprint = "probability", "shared words"

    def score(self, pairs):
        shared = [len(set(q.text.split()) & set(p.text.split())) / len(q.text.split()) for q, p in pairs]
        return np.array(shared, np.float32)


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
