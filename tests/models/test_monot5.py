"""monoT5 against plain transformers on the finished prompt, one pair at a time, and against the reference."""

import json
import random
import re

import numpy as np
import pytest
import torch
from sentencepiece import SentencePieceProcessor
from tokenizers import Tokenizer

from rankhouse.core.errors import BadModel, WrongUse
from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.models.monot5 import T5Checkpoint, known_targets, open_monot5, prompt_reader, target_id
from rankhouse.models.ranker import NeuralRanker
from rankhouse.nn.layers.attention import bucket

ODD = [
    "",
    " ",
    "\n",
    " storm ",
    "a  b\t c",
    "\u0301x",
    "x\u200d",
    "\u3000wide",
    "▁x",
    "naïve 東京 😀",
    "</s>",
    "\u200b",
]


def alone_in_transformers(folder, pairs, words, dtype=torch.float32):
    """log P(first word) of each pair, alone, unpadded, from the finished prompt."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    tokenizer, network = AutoTokenizer.from_pretrained(folder), AutoModelForSeq2SeqLM.from_pretrained(folder)
    network.to(dtype).eval()
    scores = []
    for query, passage in pairs:
        prompt = f"Query: {query.text} Document: {passage.text} Relevant:"
        ids = tokenizer(prompt, truncation=True, max_length=512, return_tensors="pt").input_ids
        with torch.inference_mode():
            logits = network(input_ids=ids, decoder_input_ids=torch.zeros(1, 1, dtype=torch.int64)).logits
        scores.append(torch.log_softmax(logits[0, 0, words].float(), -1)[0].item())
    return np.array(scores)


@pytest.mark.parametrize("kind", ["t5", "t5_1_1"])
def test_fp32_scores_equal_plain_transformers_on_the_joined_prompt(kind, checkpoint, pairs, fp32):
    expected = alone_in_transformers(checkpoint(kind), pairs, [17, 19])
    model = open_monot5(checkpoint(kind))
    np.testing.assert_allclose(NeuralRanker(model, fp32).score(pairs), expected, atol=2e-5)
    with torch.inference_mode():
        np.testing.assert_allclose(model(model.encode(pairs)), expected, atol=2e-5)
    assert np.ptp(expected) > 0.1


@pytest.mark.quick("t5_1_1")
@pytest.mark.parametrize("kind", ["t5", "t5_1_1"])
def test_bf16_scores_are_nearer_than_plain_bf16(kind, checkpoint, pairs, fp32, bf16):
    exact = alone_in_transformers(checkpoint(kind), pairs, [17, 19])
    plain = alone_in_transformers(checkpoint(kind), pairs, [17, 19], dtype=torch.bfloat16)
    model = open_monot5(checkpoint(kind))
    ours = NeuralRanker(model, bf16).score(pairs)
    assert np.abs(ours - exact).mean() < 1.2 * np.abs(plain - exact).mean()


def test_the_untied_output_layer_of_the_file_is_used_unscaled(checkpoint):
    model, older = open_monot5(checkpoint("t5_1_1")), open_monot5(checkpoint("t5"))
    assert (model.policy["tied"], model.policy["scaled"]) == (False, False)
    assert (older.policy["tied"], older.policy["scaled"]) == (True, True)
    assert not torch.equal(model.network.lm_head.weight, model.network.shared.weight)


@pytest.mark.parametrize(
    ("config", "scaled"),
    [
        ({"model_type": "t5"}, True),
        ({"model_type": "t5", "tie_word_embeddings": False}, False),
        ({"model_type": "t5", "tie_word_embeddings": True, "scale_decoder_outputs": False}, False),
        ({"model_type": "t5", "tie_word_embeddings": True, "scale_decoder_outputs": True}, True),
        ({"model_type": "mt5", "tie_word_embeddings": True}, False),
    ],
)
def test_scaling_is_read_as_each_version_wrote_it(config, scaled):
    assert T5Checkpoint(None, None, config, tied=False).scaled is scaled


def random_texts(n):
    rng = random.Random(0)
    ranges = [(32, 126), (160, 0x24F), (0x300, 0x36F), (0x2000, 0x206F), (0x3000, 0x30FF), (0x1F300, 0x1F6FF)]
    spaces = [9, 10, 13, 32, 32, 32, 0xA0, 0x3000]
    return [
        "".join(
            chr(rng.choice([rng.randint(*rng.choice(ranges)), rng.choice(spaces)]))
            for _ in range(rng.randint(0, 30))
        )
        for _ in range(n)
    ]


def test_pieces_join_to_the_ids_of_the_whole_prompt(checkpoint):
    model = open_monot5(checkpoint("t5"))
    tokenizer = Tokenizer.from_str(model.assets()["tokenizer.json"].decode())
    tokenizer.encode_special_tokens = True
    texts = ODD + random_texts(600)
    pairs = [Pair(Query("q", q), Passage("d", 0, p)) for q, p in zip(texts, reversed(texts), strict=True)]
    batch = model.encode(pairs)
    rows = torch.split(batch.ids.values, batch.lengths.tolist())
    own = SentencePieceProcessor(f"{checkpoint('t5')}/spiece.model")  # "</s>" in a text is text to it
    for (query, passage), row in zip(pairs, rows, strict=True):
        prompt = f"Query: {query.text} Document: {passage.text} Relevant:"
        parts = [tokenizer.encode(part, add_special_tokens=False).ids for part in prompt.split("</s>")]
        expected = [*parts[0], *(i for part in parts[1:] for i in (*own.encode("</s>"), *part))]
        assert row.tolist() == [*expected, 1], prompt


def test_a_tokenizer_whose_pieces_do_not_join_reads_finished_prompts(checkpoint):
    """Where spaces are not collapsed, a leading one changes the pieces: the whole prompt is tokenised."""
    described = json.loads(open_monot5(checkpoint("t5")).assets()["tokenizer.json"])
    described["pre_tokenizer"] = {
        "type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True,
    }  # fmt: skip
    tokenizer = Tokenizer.from_str(json.dumps(described))
    tokenizer.encode_special_tokens = True
    odd = [text for text in ODD if text != "</s>"]  # which tokenizers takes for the token
    pairs = [Pair(Query("q", q), Passage("d", 0, p)) for q in odd for p in odd]
    batch = prompt_reader(tokenizer, ("Query:", "Document:", "Relevant:"), 512, 1)(pairs)
    rows = torch.split(batch.ids.values, batch.lengths.tolist())
    for (query, passage), row in zip(pairs, rows, strict=True):
        prompt = f"Query: {query.text} Document: {passage.text} Relevant:"
        assert row.tolist() == [*tokenizer.encode(prompt, add_special_tokens=False).ids, 1], prompt


def test_a_long_passage_is_cut_and_relevant_survives(checkpoint, fp32):
    ranker = NeuralRanker(open_monot5(checkpoint("t5"), max_length=40), fp32)
    pair = Pair(Query("q", "grain prices"), Passage("d", 0, "storm harbour " * 400))
    ids = ranker.model.encode([pair]).ids.values.tolist()
    tail = ranker.model._tokenizer.encode("Relevant:", add_special_tokens=False).ids
    assert len(ids) == 40
    assert ids[-len(tail) - 1 :] == [*tail, 1]
    assert ids.count(1) == 1
    ranker.score([pair])
    assert ranker.report.truncated == 1


@pytest.mark.parametrize("text", [*ODD, "x" * 100_000, "storm " * 20_000])
def test_odd_texts_get_a_finite_score(text, checkpoint, fp32):
    ranker = NeuralRanker(open_monot5(checkpoint("t5"), max_length=64), fp32)
    pairs = [
        Pair(Query("q", text), Passage("d", 0, "storm")),
        Pair(Query("q", "storm"), Passage("d", 0, text)),
        Pair(Query("q", text), Passage("d", 0, text)),
    ]
    assert np.isfinite(ranker.score(pairs)).all()


def test_target_words_are_free_and_swapping_them_swaps_the_probability(checkpoint, pairs, fp32):
    for words in (("hot", "cold"), ("▁apple", "orange")):
        one = NeuralRanker(open_monot5(checkpoint("t5"), targets=words), fp32).score(pairs)
        other = NeuralRanker(open_monot5(checkpoint("t5"), targets=words[::-1]), fp32).score(pairs)
        np.testing.assert_allclose(np.exp(one) + np.exp(other), 1, atol=1e-5)


def test_a_target_that_is_no_single_token_is_refused_with_its_split(checkpoint):
    with pytest.raises(WrongUse, match=re.escape("['▁', 'air', 'y']")):
        open_monot5(checkpoint("t5"), targets=("airy", "false"))
    with pytest.raises(WrongUse, match="no single token"):
        open_monot5(checkpoint("t5"), targets=("true", "東"))


def test_targets_are_known_by_a_checkpoints_name():
    assert known_targets("castorini/monot5-base-msmarco-10k") == ("true", "false")
    assert known_targets("unicamp-dl/mt5-base-mmarco-v2") == ("yes", "no")
    assert known_targets("unicamp-dl/mt5-13b-mmarco-100k") == ("true", "▁")
    assert known_targets("unicamp-dl/ptt5-base-pt-msmarco-100k-v2@main") == ("sim", "não")
    assert known_targets("/models/monoptt5-large/") == ("Sim", "Não")


def test_a_piece_of_the_vocabulary_can_be_named_by_its_mark(checkpoint):
    tokenizer = open_monot5(checkpoint("t5"))._tokenizer
    assert target_id(tokenizer, "▁") == tokenizer.token_to_id("▁")
    assert target_id(tokenizer, "true") == target_id(tokenizer, "▁true") == 17


def test_the_loss_is_that_of_saying_the_word_and_the_end(checkpoint, pairs):
    model = open_monot5(checkpoint("t5_1_1"))
    batch = model.encode(pairs[:4])
    labels = torch.tensor([[1], [0], [0], [1]])
    loss = model.loss(batch, labels)
    loss.backward()
    gradients = {name: p.grad for name, p in model.named_parameters()}
    assert all(gradients[f"network.{part}.weight"] is not None for part in ("lm_head", "shared"))
    from transformers import AutoModelForSeq2SeqLM

    plain = AutoModelForSeq2SeqLM.from_pretrained(checkpoint("t5_1_1"))
    plain.eval()
    words = torch.tensor([[17, 1], [19, 1], [19, 1], [17, 1]])
    with torch.inference_mode():
        given = {"input_ids": batch.ids.pad(), "attention_mask": batch.ids.mask().long()}
        assert loss.item() == pytest.approx(plain(**given, labels=words).loss.item(), abs=1e-5)
        model.learns_end = False
        one = plain(**given, labels=words[:, :1]).loss.item()
        assert model.loss(batch, labels).item() == pytest.approx(one, abs=1e-5)


def test_position_buckets_equal_transformers():
    from transformers.models.t5.modeling_t5 import T5Attention

    distance = torch.arange(-600, 601)
    for buckets, furthest in ((32, 128), (32, 256), (16, 64)):
        theirs = T5Attention._relative_position_bucket(distance, True, buckets, furthest)
        assert torch.equal(bucket(distance, buckets, furthest), theirs)


def test_a_checkpoint_that_gives_numbers_is_refused(checkpoint):
    with pytest.raises(BadModel, match="crossencoder"):
        open_monot5(checkpoint("bert"))


def test_too_short_a_length_is_refused(checkpoint):
    with pytest.raises(WrongUse, match="the model's own"):
        open_monot5(checkpoint("t5"), max_length=10)
