"""Tiny checkpoints with random weights, written as transformers writes them, and pairs to score."""

import json
import random
import shutil
from pathlib import Path

import pytest
import torch

from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.nn.machine import Compute

GOLDEN = Path(__file__).parents[1] / "golden"
WORDS = [w for w in (GOLDEN / "bert" / "vocab.txt").read_text().split() if w.isalpha() and len(w) > 2]
SIZES = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48}
WIDE = SIZES | {"hidden_size": 64, "intermediate_size": 96}  # wide enough for the compiled loops
SPOKEN = (
    "grain prices rose again this week because the harvest in the north was poor; bread, milk and salt too"
)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    assert torch.get_num_threads() == 1, "the number of threads was not put back"
    torch.set_num_threads(before)


@pytest.fixture
def fp32():
    return Compute("fp32", torch.device("cpu"), 1)


@pytest.fixture
def bf16():
    return Compute("bf16", torch.device("cpu"), 1)


def make_pairs(n, seed=0, longest=60):
    """n pairs of a few queries; lengths from 0 to ``longest`` words."""
    rng = random.Random(seed)
    queries = [Query(f"q{i}", " ".join(rng.choices(WORDS, k=rng.randint(1, 6)))) for i in range(3)]
    return [
        Pair(
            rng.choice(queries), Passage(f"d{i}", 0, " ".join(rng.choices(WORDS, k=rng.randint(0, longest))))
        )
        for i in range(n)
    ]


@pytest.fixture
def pairs():
    return make_pairs(30)


@pytest.fixture(scope="session")
def many():
    return make_pairs(120, seed=7)


def shaken(network, by=0.3):
    """Move every weight away from its start, so that each term counts."""
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(torch.randn_like(weight) * (by if weight.dim() > 1 else by / 3))
    return network


def edit_config(folder, change, name="config.json"):
    path = folder / name
    config = json.loads(path.read_text())
    config |= change
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))


class Checkpoints:
    """Makes each kind once and keeps its folder."""

    def __init__(self, folder):
        self.folder, self.made = folder, {}

    def __call__(self, kind):
        if kind not in self.made:
            from transformers.utils import logging

            logging.disable_progress_bar()
            torch.manual_seed(0)
            BUILDERS[kind](self.folder / kind)
            self.made[kind] = str(self.folder / kind)
        return self.made[kind]


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    return Checkpoints(tmp_path_factory.mktemp("checkpoints"))


def with_bert_vocabulary(folder, generic=False):
    from transformers import BertTokenizerFast, PreTrainedTokenizerFast

    tokenizer = BertTokenizerFast(str(GOLDEN / "bert" / "vocab.txt"), model_max_length=64)
    if generic:
        names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]"}
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=tokenizer.backend_tokenizer, model_max_length=64, **names
        )
    tokenizer.save_pretrained(folder)


def bert(folder, labels=2, head="BertForSequenceClassification", **more):
    import transformers

    config = transformers.BertConfig(
        vocab_size=271, max_position_embeddings=64, num_labels=labels, **(SIZES | more)
    )
    shaken(getattr(transformers, head)(config)).save_pretrained(folder)
    with_bert_vocabulary(folder)


def electra(folder, **more):
    from transformers import ElectraConfig, ElectraForSequenceClassification

    config = ElectraConfig(
        vocab_size=271, max_position_embeddings=64, embedding_size=16, num_labels=1, **(SIZES | more)
    )
    shaken(ElectraForSequenceClassification(config)).save_pretrained(folder)
    with_bert_vocabulary(folder)


def distilbert(folder):
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    config = DistilBertConfig(
        vocab_size=271, max_position_embeddings=64, n_layers=2, dim=32, n_heads=4, hidden_dim=48, num_labels=2
    )
    shaken(DistilBertForSequenceClassification(config)).save_pretrained(folder)
    with_bert_vocabulary(folder)


def roberta(folder):
    from tokenizers import ByteLevelBPETokenizer
    from transformers import RobertaConfig, RobertaForSequenceClassification, RobertaTokenizerFast

    folder.mkdir()
    trained = ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trained.train_from_iterator([SPOKEN, *WORDS], vocab_size=400, special_tokens=special, show_progress=False)
    trained.save_model(str(folder))
    files = str(folder / "vocab.json"), str(folder / "merges.txt")
    RobertaTokenizerFast(*files, model_max_length=64).save_pretrained(folder)
    config = RobertaConfig(
        vocab_size=400, max_position_embeddings=66, type_vocab_size=1, num_labels=1, **SIZES
    )
    shaken(RobertaForSequenceClassification(config)).save_pretrained(folder)


def deberta(folder):
    from transformers import DebertaV2Config, DebertaV2ForSequenceClassification

    config = DebertaV2Config(
        vocab_size=271, max_position_embeddings=64, relative_attention=True, position_buckets=16,
        pos_att_type=["p2c", "c2p"], norm_rel_ebd="layer_norm", share_att_key=True,
        type_vocab_size=0, num_labels=1, **SIZES,
    )  # fmt: skip
    shaken(DebertaV2ForSequenceClassification(config)).save_pretrained(folder)
    with_bert_vocabulary(folder, generic=True)


def modernbert(folder, **more):
    from transformers import ModernBertConfig, ModernBertForSequenceClassification

    config = ModernBertConfig(
        vocab_size=271, max_position_embeddings=64, num_labels=1, local_attention=16, pad_token_id=0,
        cls_token_id=2, sep_token_id=3, bos_token_id=2, eos_token_id=3, **(SIZES | more),
    )  # fmt: skip
    shaken(ModernBertForSequenceClassification(config)).save_pretrained(folder)
    with_bert_vocabulary(folder, generic=True)


def mpnet(folder, **more):
    from transformers import MPNetConfig, MPNetForSequenceClassification

    config = MPNetConfig(vocab_size=271, max_position_embeddings=66, num_labels=2, **(SIZES | more))
    shaken(MPNetForSequenceClassification(config)).save_pretrained(folder)
    with_bert_vocabulary(folder, generic=True)


def t5(folder, gated=False, shape=(32, 8, 48), **more):
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=260, d_model=shape[0], d_kv=shape[1], d_ff=shape[2], num_layers=2, num_heads=4,
        num_decoder_layers=3, feed_forward_proj="gated-gelu" if gated else "relu", decoder_start_token_id=0,
    )  # fmt: skip
    network = shaken(T5ForConditionalGeneration(config), 0.1)
    if gated:  # as transformers 4 wrote T5 1.1: an output layer of its own, and the configuration says so
        torch.manual_seed(2)
        network.lm_head.weight = torch.nn.Parameter(torch.randn(260, shape[0]) / 4)
    network.save_pretrained(folder)
    if gated:
        change = {
            "tie_word_embeddings": False,
            "scale_decoder_outputs": None,
            "transformers_version": "4.46.3",
        }
        edit_config(folder, change | more)
    shutil.copy(GOLDEN / "monot5" / "spiece.model", folder)


def sentences(folder, pooling="mean", normalise=True):
    library = pytest.importorskip("sentence_transformers", reason="the yardstick is not installed")
    from sentence_transformers.sentence_transformer import modules

    bert(folder / "plain", head="BertModel")
    transformer = modules.Transformer(str(folder / "plain"), max_seq_length=40)
    parts = [transformer, modules.Pooling(32, pooling_mode=pooling)]
    if not normalise:
        torch.manual_seed(3)
        parts.append(modules.Dense(32, 16))
    parts += [modules.Normalize()] * normalise
    prompts = {"query": "storm harbour ", "document": "grain prices "}
    model = library.SentenceTransformer(modules=parts, prompts=prompts, device="cpu")
    model.save_pretrained(str(folder))


BUILDERS = {
    "bert": bert,
    "bert_one": lambda folder: bert(folder, labels=1),
    "bert_three": lambda folder: bert(folder, labels=3),
    "bert_plain": lambda folder: bert(folder, head="BertModel"),
    "bert_masked": lambda folder: bert(folder, head="BertForMaskedLM"),
    "bert_nsp": lambda folder: bert(folder, head="BertForNextSentencePrediction"),
    "bert_tanh": lambda folder: bert(folder, hidden_act="gelu_new"),
    "electra": electra,
    "distilbert": distilbert,
    "roberta": roberta,
    "deberta": deberta,
    "modernbert": modernbert,
    "modernbert_mean": lambda folder: modernbert(
        folder, classifier_pooling="mean", norm_bias=True, attention_bias=True, mlp_bias=True
    ),
    "mpnet": mpnet,
    "t5": t5,
    "t5_1_1": lambda folder: t5(folder, gated=True),
    "wide_bert": lambda folder: bert(folder, labels=1, **WIDE),
    "wide_bert_encoder": lambda folder: bert(folder, head="BertModel", **WIDE),
    "wide_electra": lambda folder: electra(folder, **WIDE),
    "wide_modernbert": lambda folder: modernbert(folder, **WIDE),
    "wide_mpnet": lambda folder: mpnet(folder, **WIDE),
    "wide_t5": lambda folder: t5(folder, shape=(64, 16, 96)),
    "wide_t5_1_1": lambda folder: t5(folder, gated=True, shape=(64, 16, 96)),
    "sentences": sentences,
    "sentences_cls": lambda folder: sentences(folder, "cls", normalise=False),
}
