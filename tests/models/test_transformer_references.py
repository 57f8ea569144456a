"""monoT5, cross-encoder and bi-encoder against numbers of other code; kinds not given are made here."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parents[1]
GOLDEN = [
    HERE / "golden" / "monot5" / "monot5_v1_0.npz",
    HERE / "golden" / "bert" / "bert_seqcls2.npz",
    HERE / "golden" / "biencoder" / "biencoder_inbatch_s0.npz",
]


@pytest.fixture(scope="module")
def check():
    spec = importlib.util.spec_from_file_location("check", HERE / "reference" / "check.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["check"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.quick("bert*", "biencoder*")
@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_results_equal_the_reference(path, check):
    verdict = check.judge(path, check.kinds())
    assert verdict.passed
    assert verdict.absolute < 1e-5


def test_the_program_prints_a_line_a_file_and_fails_for_a_wrong_one(check, tmp_path, capsys):
    content = dict(np.load(GOLDEN[2]))
    content["out.loss"] = content["out.loss"] + 1e-3
    np.savez(tmp_path / "biencoder_inbatch_bad.npz", **content)
    (tmp_path / "other.npz").write_bytes(b"")
    (tmp_path / "monot5_broken.npz").write_bytes(b"")
    assert check.main([str(GOLDEN[2])]) == 0
    assert check.main([str(tmp_path / "biencoder_inbatch_bad.npz"), str(GOLDEN[2])]) == 1
    assert check.main([str(tmp_path / "monot5_broken.npz")]) == 1
    assert check.main([str(tmp_path / "other.npz")]) == 2
    assert check.main([]) == 2
    printed = capsys.readouterr().out
    assert printed.count("pass  in_batch") == 2
    assert printed.count("FAIL  in_batch") == 1


def vectors_of(path, checkpoint, name, cfg):
    """Write a vector file as the reference's are, from plain transformers alone and unpadded."""
    import torch
    import transformers

    monot5 = "kind" in cfg
    folder = HERE / "golden" / ("monot5" if monot5 else "bert")
    source = dict(np.load(GOLDEN[0] if monot5 else GOLDEN[1]))
    given = json.loads(str(source["cfg_json"])) | cfg
    ids, mask = (torch.from_numpy(source[f"in.{key}"]) for key in ("input_ids", "attention_mask"))
    kept = {key: value for key, value in source.items() if key.startswith("in.")}
    path.parent.mkdir()
    for file in folder.glob("*.*"):
        if file.suffix in {".txt", ".model"}:
            (path.parent / file.name).write_bytes(file.read_bytes())
    (path.parent / f"tiny_{'t5' if monot5 else 'bert'}_{name}").symlink_to(checkpoint)
    with torch.inference_mode():
        if monot5:
            network = transformers.AutoModelForSeq2SeqLM.from_pretrained(checkpoint).eval()
            start = torch.zeros(len(ids), 1, dtype=torch.int64)
            z = network(input_ids=ids, attention_mask=mask, decoder_input_ids=start).logits[:, 0]
            for key, words in given["targets"].items():
                two = [words["positive"][1], words["negative"][1]]
                kept[f"out.logprob_{key}"] = torch.log_softmax(z[:, two], -1)[:, 0].numpy()
            kept["out.score_pygaggle_logprob_true"] = kept["out.logprob_baseline"]
            kept["out.prob_true"] = np.exp(kept["out.logprob_baseline"])
            labels = torch.from_numpy(source["in.labels"])
            loss = network(input_ids=ids, attention_mask=mask, labels=labels).loss
            kept["out.loss_labels_word_and_eos"] = loss.numpy()
        else:
            kind = "NextSentencePrediction" if name == "nsp" else "SequenceClassification"
            network = getattr(transformers, f"BertFor{kind}").from_pretrained(checkpoint).eval()
            segments = torch.from_numpy(source["in.token_type_ids"])
            given_to = {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}
            out = network(**given_to, output_hidden_states=True)
            kept["out.logits"] = out.logits.numpy()
            kept["mid.hidden_states"] = torch.stack(out.hidden_states).numpy()
            if name == "nsp":
                kept["out.birch_logits"] = out.logits.numpy()
            else:
                kept["out.score_pygaggle_monobert"] = out.logits[:, 0].numpy()
    np.savez(path, **kept, cfg_json=json.dumps(given))


@pytest.mark.quick("bert_seqcls1*")
@pytest.mark.parametrize(
    ("file", "kind", "name"),
    [
        ("monot5_v1_1.npz", "t5_1_1", "v1_1"),
        ("bert_seqcls1.npz", "bert_one", "seqcls1"),
        ("bert_nsp.npz", "bert_nsp", "nsp"),
    ],
)
def test_kinds_without_a_given_file_equal_plain_transformers(file, kind, name, check, checkpoint, tmp_path):
    path = tmp_path / "vectors" / file
    vectors_of(path, checkpoint(kind), name, {"kind": name} if "t5" in kind else {"name": name})
    verdict = check.judge(path, check.kinds())
    assert verdict.passed, verdict
