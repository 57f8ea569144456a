"""Hold the word-level families to the reference vectors: file name -> function giving the largest errors.

Each check loads a vector file, gives its parameters to our model, and compares every result and, where there
are any, every gradient. Errors are (largest absolute, largest relative); a relative error is taken against
the size that the tolerance speaks of: the score itself, or the largest entry of a gradient or matrix.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from rankhouse.models.knrm import KNRM, ConvKNRM, ConvKNRMDesign, KNRMDesign
from rankhouse.models.samcnn import SamCNN, SamCNNDesign
from rankhouse.models.tk import TK, TKDesign
from rankhouse.models.word_models import WordReader, hinge
from rankhouse.nn.layers.ragged import Ragged, TwoSided
from rankhouse.nn.layers.tk_encoder import OuterEpsNorm, sinusoids
from rankhouse.text.vocabulary import Vocabulary, VocabularyEntry

Errors = tuple[float, float]
GROUPS = torch.zeros(4, 2)
BEFORE_NORM = {"final.bias", "text.hidden.bias", "attended.hidden.bias"}
"""Shifts that batch norm takes away again: their true gradient is zero, what is computed is rounding."""


class Compared:
    """Collects the largest errors of a file."""

    def __init__(self) -> None:
        self.absolute = self.relative = 0.0

    def add(self, ours, theirs, each: bool = False) -> None:
        """Compare arrays; ``each``: relative to every entry (scores), else to the largest."""
        ours = np.asarray(ours.detach() if isinstance(ours, torch.Tensor) else ours, np.float64)
        theirs = np.asarray(theirs, np.float64).reshape(ours.shape)
        gap = np.abs(ours - theirs)
        size = np.abs(theirs) if each else np.abs(theirs).max(initial=0)
        self.absolute = max(self.absolute, float(gap.max(initial=0)))
        self.relative = max(self.relative, float((gap / np.maximum(size, 1e-12)).max(initial=0)))

    @property
    def errors(self) -> Errors:
        return self.absolute, self.relative


def load(path):
    z = np.load(path)
    return {k: z[k] for k in z.files if k != "cfg_json"}, json.loads(str(z["cfg_json"]))


def reader(design, rows):
    """A reader whose vocabulary has as many numbers as the file's table has rows."""
    return WordReader(design, Vocabulary([VocabularyEntry(f"w{i}", 1, 1) for i in range(rows - 2)], 1, 1))


def ragged(ids, pad=0):
    ids = torch.from_numpy(ids)
    lengths = (ids != pad).sum(1)
    mask = torch.arange(ids.shape[1]) < lengths[:, None]
    return Ragged(ids[mask], lengths)


def pairs(z, side="document_ids", pad=0):
    query, passage = ragged(z["in.query_ids"], pad), ragged(z[f"in.{side}"], pad)
    return TwoSided(query, passage, torch.zeros(len(query), dtype=torch.int64))


def params(z, prefix="param."):
    return {
        k.removeprefix(prefix): torch.from_numpy(np.array(v)) for k, v in z.items() if k.startswith(prefix)
    }


def renamed(held, rules):
    """Move a parameter dict to our names by the first rule that fits; constants are dropped."""
    out = {}
    for name, value in held.items():
        for ours, change in (
            ((rules[name] if isinstance(rules[name], tuple) else (rules[name], None)),)
            if name in rules
            else ()
        ):
            out[ours] = change(value) if change else value
    return out


def tk_names(layers, order):
    rules = {"mixer": ("mix", lambda x: x.reshape(())), "nn_scaler": ("head.scale", lambda x: x.reshape(()))}
    rules |= {
        f"dense{a}.weight": f"head.{b}.weight"
        for a, b in (("", "log_weight"), ("_mean", "length_weight"), ("_comb", "merge"))
    }
    for i in range(layers):
        ours = f"encoder.layers.{i}."
        if order == "ff-first":
            theirs = {
                f"feedforward_{i}._linear_layers.0.": "widen.",
                f"feedforward_{i}._linear_layers.1.": "narrow.",
                f"self_attention_{i}._combined_projection.": "attention.project.",
                f"self_attention_{i}._output_projection.": "attention.out.",
            }
            rules |= {
                f"stacked_att.{a}{s}": f"{ours}{b}{s}" for a, b in theirs.items() for s in ("weight", "bias")
            }
            for a, b in ((f"feedforward_layer_norm_{i}", "norm_feed"), (f"layer_norm_{i}", "norm_attention")):
                rules |= {
                    f"stacked_att.{a}.gamma": f"{ours}{b}.weight",
                    f"stacked_att.{a}.beta": f"{ours}{b}.bias",
                }
            continue
        theirs = {
            "linear1.": "widen.", "linear2.": "narrow.", "norm1.": "norm_attention.", "norm2.": "norm_feed.",
            "self_attn.out_proj.": "attention.out.", "self_attn.in_proj_": "attention.project.",
        }  # fmt: skip
        rules |= {
            f"contextualizer.layers.{i}.{a}{s}": f"{ours}{b}{s}"
            for a, b in theirs.items()
            for s in ("weight", "bias")
        }
    return rules


def give(model, z, rules, table):
    """Put the file's parameters into a model; every parameter of ours must get one."""
    state = renamed(params(z), rules) | {"embedding.weight": torch.from_numpy(table)}
    model.load_state_dict(state)
    return model


def compare_ranker(model, z, rules, each=True):
    """Scores in a batch, alone, of the negatives, the hinge loss, and all gradients."""
    found = Compared()
    with torch.no_grad():
        batch = pairs(z)
        found.add(model(batch), z["out.score"], each)
        alone = torch.cat([model(batch.take(torch.tensor([i]))) for i in range(len(batch))])
        found.add(alone, z["out.score_unpadded"], each)
    model.zero_grad()
    found.add(model(pairs(z)), z["out.score"], each)  # the path that training takes
    if "out.score_neg" in z:
        good, bad = model(pairs(z)), model(pairs(z, "document_ids_neg"))
        found.add(bad, z["out.score_neg"], each)
        loss = hinge(torch.stack([good, bad], 1).flatten(), GROUPS)
        found.add(loss, z["out.hinge_loss"])
        loss.backward()
        expected = renamed(params(z, "grad."), rules) | {
            "embedding.weight": torch.from_numpy(z["grad.embedding_table"])
        }
        ours = dict(model.named_parameters())
        assert expected.keys() == ours.keys(), expected.keys() ^ ours.keys()
        for name, gradient in expected.items():
            mine = ours[name].grad
            mine = mine.to_dense() if mine.is_sparse else mine
            if name == "embedding.weight":  # padding is never trained
                mine, gradient = mine[1:], gradient[1:]  # noqa: PLW2901
            found.add(mine, gradient.numpy())
    return found.errors


def tk(path: Path) -> Errors:
    z, cfg = load(path)
    order = "attention-first" if "native" in cfg["model"].lower() else "ff-first"
    inner = 0
    if order == "ff-first":
        inner = z["param.stacked_att.self_attention_0._output_projection.weight"].shape[1]
    design = TKDesign(
        passage_length=max(cfg["d_lens"]), order=order, layers=cfg["layers"], heads=cfg["heads"],
        attention_width=inner, feed_forward=cfg["ff_dim"],
    )  # fmt: skip
    table = z["in.embedding_table"]
    rules = tk_names(cfg["layers"], order)
    return compare_ranker(give(TK(design, reader(design, len(table)), table), z, rules, table), z, rules)


def tk_windows(path: Path) -> Errors:
    z, cfg = load(path)
    inner = z["param.stacked_att.self_attention_0._output_projection.weight"].shape[1]
    design = TKDesign(
        passage_length=cfg["max_doc_length"], layers=cfg["layers"], heads=cfg["heads"], attention_width=inner,
        feed_forward=cfg["ff_dim"], windows=tuple(cfg["window_sizes"]),
    )  # fmt: skip
    table, held = z["in.embedding_table"], params(z)
    rules = tk_names(cfg["layers"], "ff-first") | {"window_merger.weight": "head.merge.weight"}
    for i in range(len(design.windows)):
        rules |= {f"kernel_weights.{i}.weight": f"head.kernel_weights.{i}.weight"}
        rules |= {f"window_scorer.{i}.weight": f"head.window_weights.{i}.weight"}
    model = TK(design, reader(design, len(table)), table)
    state = renamed(held, rules) | {"embedding.weight": torch.from_numpy(table)}
    state["head.scales"] = torch.cat([held[f"nn_scaler.{i}"] for i in range(len(design.windows))])
    model.load_state_dict(state)
    return compare_ranker(model, z, rules)


def knrm(path: Path) -> Errors:
    z, _ = load(path)
    design, table = KNRMDesign(), z["in.embedding_table"]
    rules = {"dense.weight": "weight.weight"}
    return compare_ranker(give(KNRM(design, reader(design, len(table)), table), z, rules, table), z, rules)


def conv_knrm(path: Path) -> Errors:
    z, cfg = load(path)
    design, table = ConvKNRMDesign(grams=cfg["n_grams"], filters=cfg["conv_out_dim"]), z["in.embedding_table"]
    rules = {"dense.weight": "weight.weight"}
    for i in range(cfg["n_grams"]):
        rules |= {f"convolutions.{i}.1.{s}": f"convolutions.{i}.{s}" for s in ("weight", "bias")}
    return compare_ranker(
        give(ConvKNRM(design, reader(design, len(table)), table), z, rules, table), z, rules
    )


def samcnn_model(z, cfg):
    """Our samCNN with a file's parameters; their padding (1) and unknown (0) change places."""
    attention = {"SM": None, "FastDynamic": "query", "Attention": "position"}[cfg["model"]]
    design = SamCNNDesign(
        attention=attention, filters=cfg["output_channel"], filter_length=cfg["kernel_size"],
        hidden=cfg["hidden_size"], final=cfg["hidden_layer_units"], dropout=cfg["dropout"],
        importance="equal", overlap=False,
        class_weights=cfg.get("class_weight") or (),
    )  # fmt: skip
    swap = torch.arange(cfg["word_num"])
    swap[0], swap[1] = cfg.get("pad_id", 1), cfg.get("unk_id", 0)
    rules = {"embedding.weight": ("embedding.weight", lambda x: x[swap])}
    for a, b in (("sm_cnn", "text"), ("context_cnn", "attended")):
        rules |= {
            f"{a}.conv.0.weight": (f"{b}.filters.weight", lambda x: x[:, 0]),
            f"{a}.conv.0.bias": f"{b}.filters.bias",
        }
        rules |= {f"{a}.fc.{s}": f"{b}.hidden.{s}" for s in ("weight", "bias")}
    for i, b in ((0, "final"), (1, "norm")):
        rules |= {
            f"final_layers.{i}.{s}": f"{b}.{s}"
            for s in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
        }
    rules |= {f"softmax.0.{s}": f"decide.{s}" for s in ("weight", "bias")}
    state = renamed(params(z), rules)
    model = SamCNN(design, reader(design, cfg["word_num"]), state["embedding.weight"].numpy())
    state["embedding.weight"] = state["embedding.weight"].clone()
    state["embedding.weight"][0] = 0  # padding is masked, so what its row holds is never read
    model.load_state_dict(state)

    def encode(ids):
        ids = ids.copy()
        ids[ids == cfg["pad_id"]], ids[ids == cfg["unk_id"]] = -1, cfg["pad_id"]
        ids[ids == -1] = 0
        return ids

    return model, rules, encode


def samcnn(path: Path) -> Errors:
    z, cfg = load(path)
    model, _, encode = samcnn_model(z, cfg)
    model.eval()
    z["in.query_ids"], z["in.post_ids"] = encode(z["in.query_ids"]), encode(z["in.post_ids"])
    batch, found = pairs(z, "post_ids"), Compared()
    found.add(model.log_probabilities(batch), z["out.log_probs_unpadded"], each=True)
    with torch.no_grad():
        found.add(model.log_probabilities(batch), z["out.log_probs_unpadded"], each=True)
        found.add(model(batch), z["out.log_probs_unpadded"][:, 1], each=True)
    return found.errors


def samcnn_training(path: Path) -> Errors:
    """One step of training on rows of one length: loss, gradients, batch statistics, loss after SGD."""
    z, cfg = load(path)
    model, rules, _ = samcnn_model(z, cfg)
    model.train()
    # The reference takes every position for a word, padding included: so its padding row (1) becomes a word.
    table = z["param.embedding.weight"]
    with torch.no_grad():
        model.embedding = torch.nn.Embedding(len(table) + 1, table.shape[1], padding_idx=0)
        model.embedding.weight.copy_(torch.from_numpy(np.concatenate([np.zeros((1, table.shape[1])), table])))
    z["in.query_ids"], z["in.post_ids"] = z["in.query_ids"] + 1, z["in.post_ids"] + 1
    batch, labels, found = pairs(z, "post_ids"), torch.from_numpy(z["in.labels"]), Compared()
    found.add(model.log_probabilities(batch), z["out.log_probs"], each=True)
    model.norm.load_state_dict(
        {k.removeprefix("final_layers.1."): v for k, v in params(z).items() if "final_layers.1." in k}
    )
    sgd = cfg["sgd"]
    optimiser = torch.optim.SGD(
        model.parameters(), sgd["lr"], sgd["momentum"], weight_decay=sgd["weight_decay"]
    )
    loss = model.loss(batch, labels[:, None])
    found.add(loss, z["out.loss"], each=True)
    loss.backward()
    found.add(model.norm.running_mean, z["mid.final_layers.1.running_mean"])
    found.add(model.norm.running_var, z["mid.final_layers.1.running_var"])
    theirs = renamed(params(z, "grad."), rules) | {
        "embedding.weight": torch.from_numpy(
            np.concatenate([np.zeros((1, table.shape[1]), np.float32), z["grad.embedding.weight"]])
        )
    }
    ours = dict(model.named_parameters())
    assert theirs.keys() == ours.keys(), theirs.keys() ^ ours.keys()
    for name, gradient in theirs.items():
        if name in BEFORE_NORM:
            assert float(ours[name].grad.abs().max()) < 1e-5
            continue
        found.add(ours[name].grad, gradient.numpy())
    optimiser.step()
    found.add(model.loss(batch, labels[:, None]), z["out.loss_after_one_step"], each=True)
    return found.errors


def positions(path: Path) -> Errors:
    z, _ = load(path)
    found = Compared()
    for name, expected in z.items():
        width, length = (int(part[1:]) for part in name.removeprefix("out.").split("_"))
        found.add(sinusoids(length, width), expected)
    return found.errors


def layer_norm(path: Path) -> Errors:
    z, _ = load(path)
    norm, found = OuterEpsNorm(z["in.x"].shape[1]), Compared()
    norm.load_state_dict(
        {"weight": torch.from_numpy(z["param.gamma"]), "bias": torch.from_numpy(z["param.beta"])}
    )
    x = torch.from_numpy(z["in.x"])
    found.add(norm(x), z["out.y"])
    with torch.no_grad():
        found.add(norm(x), z["out.y"])
    return found.errors


def embedding_bag(path: Path) -> Errors:
    """Sum subwords' rows as TK's authors do: torch's own sum, as no ranker of this package reads subwords."""
    z, _ = load(path)
    table, found = torch.from_numpy(z["in.matrix"]), Compared()
    for mode in ("mean", "sum"):
        for tokens, offsets, expected in zip(z["in.tokens"], z["in.offsets"], z[f"out.{mode}"], strict=True):
            rows = torch.from_numpy(tokens), table, torch.from_numpy(offsets)
            made = 10 * torch.nn.functional.embedding_bag(*rows, mode=mode)
            found.add(made[:-1], expected)
    return found.errors


KINDS: dict[str, Callable[[Path], Errors]] = {
    "tk_v1*": tk,
    "tk_native*": tk,
    "tk_v2*": tk_windows,
    "knrm*": knrm,
    "conv_knrm*": conv_knrm,
    "samcnn_*_train*": samcnn_training,
    "samcnn_*": samcnn,
    "positional_encoding*": positions,
    "layernorm*": layer_norm,
    "fasttext_embeddingbag*": embedding_bag,
}
"""Name pattern -> check; the first that fits counts."""
