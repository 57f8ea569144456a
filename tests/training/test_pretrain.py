"""Pre-training: a checkpoint that monot5 opens, the same bits after a kill, clear refusals."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from rankhouse.core.errors import BadData, BadModel, MissingInput, WrongUse
from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.models.monot5 import open_monot5
from rankhouse.training.log import read_log
from rankhouse.training.pretrain import PretrainingSettings, pretrain
from rankhouse.training.pretraining_data import Stream, write_tokens
from rankhouse.training.t5_pretraining import SIZES, T5Shape, begin, read_tokenizer, specials

SPIECE = Path(__file__).parents[1] / "golden" / "monot5" / "spiece.model"
TINY = T5Shape(d_model=16, layers=1, heads=2, d_ff=24)
QUICK = {"steps": 6, "batch": 4, "length": 24, "precision": "fp32", "device": "cpu", "log_every": 2}
PAIR = Pair(Query("q", "storm harbour"), Passage("d", 0, "the storm broke the harbour wall"))


@pytest.fixture(scope="module")
def vocabulary():
    return read_tokenizer(SPIECE)


@pytest.fixture
def corpus(tmp_path):
    rng = np.random.default_rng(0)
    words = [
        "the",
        "storm",
        "broke",
        "a",
        "harbour",
        "wall",
        "and",
        "grain",
        "prices",
        "rose",
        "in",
        "the",
        "north",
    ]
    lines = [{"id": f"d{i}", "text": " ".join(rng.choice(words, 30).tolist())} for i in range(40)]
    path = tmp_path / "corpus.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def weights(folder):
    return open_monot5(str(folder)).network.state_dict()


@pytest.mark.parametrize("style", ["1.0", "1.1"])
def test_what_comes_out_opens_as_monot5_and_as_transformers_own(style, corpus, tmp_path, vocabulary):
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    shape = T5Shape(style=style, d_model=16, layers=1, heads=2, d_ff=24)
    outcome = pretrain([corpus], (shape, vocabulary), PretrainingSettings(**QUICK), tmp_path / "t5")
    ranker = open_monot5(str(tmp_path / "t5"))
    assert ranker.policy["tied"] == ranker.policy["scaled"] == (style == "1.0")
    theirs = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "t5").eval()
    ids = AutoTokenizer.from_pretrained(tmp_path / "t5")(
        f"Query: {PAIR.query.text} Document: {PAIR.passage.text} Relevant:", return_tensors="pt"
    ).input_ids
    with torch.inference_mode():
        logits = theirs(input_ids=ids, decoder_input_ids=torch.zeros(1, 1, dtype=torch.int64)).logits[0, 0]
        words = [vocabulary.token_to_id("▁true"), vocabulary.token_to_id("▁false")]
        expected = torch.log_softmax(logits[words], -1)[0]
        assert abs(float(ranker(ranker.encode([PAIR]))) - float(expected)) < 1e-5
    assert outcome.parameters == sum(p.numel() for p in theirs.parameters())
    assert not (tmp_path / "t5" / "checkpoint.safetensors").exists()
    assert not (tmp_path / "t5" / "tokens.bin").exists()


def test_it_learns_what_stands_in_the_text(corpus, tmp_path, vocabulary):
    settings = PretrainingSettings(**QUICK | {"steps": 60, "batch": 8, "rate": 0.02})
    outcome = pretrain([corpus], (TINY, vocabulary), settings, tmp_path / "t5")
    assert outcome.held_out < outcome.held_out_at_start - 1
    assert outcome.tokens == 60 * 8 * settings.corruption.tokens
    log = read_log(tmp_path / "t5" / "log.jsonl")
    assert [e["step"] for e in log if "loss" in e] == list(range(2, 61, 2))
    assert [e["step"] for e in log if "held_out" in e] == [0, 60]


class Killed(Exception):
    pass


def test_a_killed_one_goes_on_and_ends_with_the_same_bits(corpus, tmp_path, vocabulary):
    settings = PretrainingSettings(**QUICK | {"checkpoint_every": 2, "accumulate": 2})
    start = (TINY, vocabulary)
    whole = pretrain([corpus], start, settings, tmp_path / "whole")

    def die(step, _):
        if step == 5:
            raise Killed

    with pytest.raises(Killed):
        pretrain([corpus], start, settings, tmp_path / "broken", progress=die)
    steps = []
    mended = pretrain(
        [corpus], start, settings, tmp_path / "broken", progress=lambda step, _: steps.append(step)
    )
    assert steps == [4, 5, 6]
    assert (mended.held_out, mended.loss) == (whole.held_out, whole.loss)
    other = weights(tmp_path / "broken")
    assert all(torch.equal(tensor, other[name]) for name, tensor in weights(tmp_path / "whole").items())
    logs = [read_log(tmp_path / name / "log.jsonl") for name in ("whole", "broken")]
    for entry in (e for log in logs for e in log):
        entry.pop("seconds")
    assert logs[0] == logs[1]


FILES = ("log.jsonl", "settings.json", "tokens.bin", "tokenizer.json", "config.json", "model.safetensors")


@pytest.mark.quick("settings.json", "tokens.bin")
@pytest.mark.parametrize("name", FILES)
def test_a_file_that_was_changed_is_refused_when_the_command_is_given_again(
    name, corpus, tmp_path, vocabulary
):
    settings = PretrainingSettings(**QUICK | {"checkpoint_every": 2})

    def again(progress=None):
        return pretrain([corpus], (TINY, vocabulary), settings, tmp_path / "t5", progress=progress)

    def die(step, _):
        if step == 5:
            raise Killed

    if name in ("log.jsonl", "settings.json", "tokens.bin"):
        with pytest.raises(Killed):
            again(die)
    else:
        again()
    path = tmp_path / "t5" / name
    sound = path.read_bytes()
    harm = sound.replace(b"1", b"2", 1) if path.suffix == ".jsonl" else sound[:-1] + b" "
    for damaged in (harm, None):
        path.unlink() if damaged is None else path.write_bytes(damaged)
        if (name, damaged) == ("tokens.bin", None):
            again()  # made again from the collection
        else:
            with pytest.raises((BadData, BadModel), match=rf"{name}: (was changed|is gone)"):
                again()


def test_no_steps_write_the_first_weights(corpus, tmp_path, vocabulary):
    settings = PretrainingSettings(**QUICK | {"steps": 0, "seed": 3})
    pretrain([corpus], (TINY, vocabulary), settings, tmp_path / "t5")
    with torch.random.fork_rng():
        torch.manual_seed(3)
        first = begin(TINY, vocabulary).network.state_dict()
    assert all(torch.equal(tensor, first[name]) for name, tensor in weights(tmp_path / "t5").items())


def test_it_goes_on_with_a_checkpoint_that_is_there(corpus, tmp_path, vocabulary):
    pretrain([corpus], (TINY, vocabulary), PretrainingSettings(**QUICK), tmp_path / "one")
    before = open_monot5(str(tmp_path / "one"))
    outcome = pretrain([corpus], before, PretrainingSettings(**QUICK | {"seed": 1}), tmp_path / "two")
    first = json.loads((tmp_path / "one" / "outcome.json").read_text())
    assert outcome.held_out_at_start == pytest.approx(first["held_out"], abs=0.5)
    assert outcome.held_out < first["held_out"]


def test_bf16_learns_too(corpus, tmp_path, vocabulary):
    settings = PretrainingSettings(**QUICK | {"precision": "bf16", "steps": 20, "rate": 0.02})
    outcome = pretrain([corpus], (TINY, vocabulary), settings, tmp_path / "t5")
    assert outcome.held_out < outcome.held_out_at_start - 0.5


def test_an_epoch_reads_every_row_once_and_the_held_out_ones_never(tmp_path, corpus, vocabulary):
    write_tokens([corpus], vocabulary, 1, tmp_path / "tokens.bin")
    stream = Stream.open(tmp_path / "tokens.bin", vocabulary, 20, seed=4)
    for epoch in range(3):
        starts = {stream._start(epoch * stream.rows + place) for place in range(stream.rows)}
        assert len(starts) == stream.rows
        assert len({start % 20 for start in starts}) == 1
        assert max(starts) + 20 <= len(stream.ids) - stream.held_out_rows * 20
    assert not np.array_equal(stream.batch(0, 4), stream.batch(1, 4))
    text = vocabulary.decode(stream.ids[: list(stream.ids).index(1)].tolist())
    assert text == json.loads(corpus.read_text().splitlines()[0])["text"]


def test_a_folder_of_something_else_is_refused(corpus, tmp_path, vocabulary):
    def die(step, _):
        if step == 3:
            raise Killed

    settings = PretrainingSettings(**QUICK | {"checkpoint_every": 2})
    with pytest.raises(Killed):
        pretrain([corpus], (TINY, vocabulary), settings, tmp_path / "t5", progress=die)
    other = PretrainingSettings(**QUICK | {"checkpoint_every": 2, "rate": 0.5})
    with pytest.raises(WrongUse, match="holds another pre-training, at step 2"):
        pretrain([corpus], (TINY, vocabulary), other, tmp_path / "t5")
    done = pretrain([corpus], (TINY, vocabulary), settings, tmp_path / "t5")
    (tmp_path / "t5" / "checkpoint.safetensors").write_bytes(b"killed before it was removed")
    assert pretrain([corpus], (TINY, vocabulary), settings, tmp_path / "t5") == done
    assert not (tmp_path / "t5" / "checkpoint.safetensors").exists()
    with pytest.raises(WrongUse, match="holds another pre-training, which is finished"):
        pretrain([corpus], (TINY, vocabulary), other, tmp_path / "t5")


def test_faults_are_told_before_time_is_spent(corpus, tmp_path, vocabulary):
    short = tmp_path / "short.jsonl"
    short.write_text('{"id": "a", "text": "the storm"}')
    with pytest.raises(BadData, match="four rows of 26 are the least to learn from"):
        pretrain([short], (TINY, vocabulary), PretrainingSettings(**QUICK), tmp_path / "t5")
    with pytest.raises(WrongUse, match="the vocabulary has 100 sentinels"):
        pretrain(
            [corpus], (TINY, vocabulary), PretrainingSettings(**QUICK | {"length": 4000}), tmp_path / "t5"
        )
    with pytest.raises(MissingInput, match="there is no such file"):
        pretrain([tmp_path / "no.jsonl"], (TINY, vocabulary), PretrainingSettings(**QUICK), tmp_path / "t5")
    bare = Tokenizer.from_str(vocabulary.to_str().replace("<extra_id_0>", "<other_0>"))
    with pytest.raises(BadModel, match="<extra_id_0>"):
        specials(bare)
    with pytest.raises(MissingInput, match=r"spiece\.model"):
        read_tokenizer(tmp_path / "nothing.model")
    (tmp_path / "bad.model").write_text("no model")
    with pytest.raises(BadModel, match="no SentencePiece model"):
        read_tokenizer(tmp_path / "bad.model")
    with pytest.raises(WrongUse, match="the heads divide"):
        T5Shape(d_model=10, heads=4)
    with pytest.raises(WrongUse, match="a batch of 2 has at most 2 parts"):
        PretrainingSettings(batch=2, accumulate=3)


def test_the_sizes_of_small_and_base_are_t5_1_1s(vocabulary):
    assert SIZES["small"] == T5Shape(style="1.1", d_model=512, layers=8, heads=6, d_kv=64, d_ff=1024)
    assert SIZES["base"] == T5Shape(style="1.1", d_model=768, layers=12, heads=12, d_kv=64, d_ff=2048)
