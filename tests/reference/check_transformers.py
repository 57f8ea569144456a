"""Hold monoT5, the cross-encoder and the bi-encoder to the reference vectors: file name -> largest errors.

The checkpoint of a file lies beside it, named after its kind: ``tiny_t5_v1_0``, ``tiny_bert_seqcls2`` ...;
the tokenizer's file (spiece.model, vocab.txt) lies there too. Both ways of computing are compared: the packed
one that ranks and transformers' padded one that is trained. Ids that differ make the error infinite.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.models.biencoder import compare_all, in_batch_loss
from rankhouse.models.crossencoder import open_crossencoder
from rankhouse.models.monot5 import open_monot5
from rankhouse.models.ranker import NeuralRanker
from rankhouse.models.transformer_encoders import encoder_of
from rankhouse.nn.layers.ragged import Packed, Ragged
from rankhouse.nn.machine import Compute

Errors = tuple[float, float]
LIMIT = ("absolute", 1e-5)
"""SPEC: logits of T5 and BERT, and what is made of them."""

FP32 = Compute("fp32", torch.device("cpu"), 1)


class Compared:
    """Collects the largest errors; relative ones against the largest entry."""

    def __init__(self) -> None:
        self.absolute = self.relative = 0.0

    def add(self, ours, theirs) -> None:
        ours = np.asarray(ours.detach() if isinstance(ours, torch.Tensor) else ours, np.float64)
        theirs = np.asarray(theirs, np.float64)
        if ours.size == theirs.size:
            theirs = theirs.reshape(ours.shape)
        gap = np.abs(ours - theirs).max(initial=0)
        self.absolute = max(self.absolute, float(gap))
        self.relative = max(self.relative, float(gap / max(np.abs(theirs).max(initial=0), 1e-12)))

    def same(self, ours, theirs) -> None:
        if not np.array_equal(ours, theirs):
            self.absolute = self.relative = math.inf

    @property
    def errors(self) -> Errors:
        return self.absolute, self.relative


def load(path):
    z = np.load(path)
    return {k: z[k] for k in z.files if k != "cfg_json"}, json.loads(str(z["cfg_json"]))


def packed(z):
    """The file's own ids as one batch."""
    mask = z["in.attention_mask"].astype(bool)
    segments = z["in.token_type_ids"][mask] if "in.token_type_ids" in z else None
    ids = Ragged(torch.from_numpy(z["in.input_ids"][mask]), torch.from_numpy(mask.sum(1)))
    return Packed(
        ids,
        torch.zeros(len(mask), dtype=torch.int64),
        None if segments is None else torch.from_numpy(segments),
    )


def texts(cfg):
    return [Pair(Query(str(i), q), Passage(str(i), 0, p)) for i, (q, p) in enumerate(cfg["pairs"])]


def rows_that_fit(found, model, z, cfg):
    """Encode the file's texts; rows that were not shortened must have its ids. Gives their numbers."""
    ours, theirs = model.encode(texts(cfg)), packed(z)
    fit = (ours.lost == 0).nonzero()[:, 0]
    found.same(ours.ids.take(fit).values, theirs.ids.take(fit).values)
    return fit.numpy()


def monot5(path: Path) -> Errors:
    z, cfg = load(path)
    found, place = Compared(), str(path.parent)
    checkpoint = str(path.parent / f"tiny_t5_{cfg['kind']}")
    for name, words in cfg["targets"].items():
        targets = (words["positive"][0], words["negative"][0])
        model = open_monot5(checkpoint, targets, cfg["max_length"], tokenizer=place)
        batch, theirs = packed(z), z[f"out.logprob_{name}"]
        with torch.inference_mode():
            found.add(model.scorer(FP32)(batch), theirs)
            found.add(model(batch), theirs)
        if name == "baseline":
            fit = rows_that_fit(found, model, z, cfg)
            scores = NeuralRanker(model, FP32).score(texts(cfg))
            found.add(scores[fit], z["out.score_pygaggle_logprob_true"][fit])
            found.add(np.exp(scores[fit]), z["out.prob_true"][fit])
            said = torch.from_numpy((z["in.labels"][:, 0] == words["positive"][1]).astype(np.float32))
            losses = {True: "out.loss_labels_word_and_eos", False: "out.loss_labels_word_only"}
            for model.learns_end, key in losses.items():
                if key in z:
                    found.add(model.loss(batch, said[:, None]), z[key])
    return found.errors


def cross_encoder(path: Path) -> Errors:
    z, cfg = load(path)
    found = Compared()
    checkpoint = str(path.parent / f"tiny_bert_{cfg['name']}")
    model = open_crossencoder(checkpoint, max_length=cfg["max_length"], tokenizer=str(path.parent))
    batch, net = packed(z), model.network
    with torch.inference_mode():
        logits = model.logits(batch)
        for key in ("out.logits", "out.logits_unpadded"):
            found.add(logits, z.get(key, logits))
        mask = z["in.attention_mask"].astype(bool)
        hidden = encoder_of(net.base_model, FP32, first_only=False).hidden(batch)
        found.add(hidden, z["mid.hidden_states"][-1][mask])
        for scale, key in (
            ("logprob", "out.logprob_class1"),
            ("probability", "out.prob_class1"),
            ("logit", "out.logits"),
        ):
            model.policy = {**model.policy, "scale": scale}
            theirs = z[key] if key in z else model(batch).numpy()
            theirs = theirs[:, -1] if theirs.ndim == 2 else theirs
            found.add(model.scorer(FP32)(batch), theirs)
            found.add(model(batch), theirs)
    rows_that_fit(found, model, z, cfg)
    compare_published(found, model, z, batch)
    return found.errors


def compare_published(found, model, z, batch):
    """Compare with the scores of pygaggle and birch, each on its scale, and with the loss."""
    one = model.policy["classes"] == 1
    scales = {"out.score_pygaggle_monobert": "logit" if one else "logprob", "out.birch_logits": "logit"}
    for key, scale in scales.items():
        if key in z:
            model.policy = {**model.policy, "scale": scale}
            theirs = z[key][:, -1] if z[key].ndim == 2 else z[key]
            found.add(model.scorer(FP32)(batch), theirs)
    if "out.cross_entropy" in z and not one:
        found.add(model.loss(batch, torch.from_numpy(z["in.labels"])[:, None]), z["out.cross_entropy"])


def in_batch(path: Path) -> Errors:
    """Gradients are compared relative to their largest entry, so that the relative error counts."""
    z, _ = load(path)
    found = Compared()
    queries, passages = (
        torch.from_numpy(z[f"in.{s}_vectors"]).requires_grad_() for s in ("query", "passage")
    )
    own = torch.from_numpy(z["in.positive_idx"])
    dots = compare_all(queries, passages, "dot")
    distances = -compare_all(queries, passages, "l2")
    found.add(dots, z["mid.dot_scores"])
    found.add(distances, z["mid.squared_l2"])
    found.same(dots.argsort(dim=1, descending=True, stable=True), z["out.order_by_dot"])
    found.same(distances.argsort(dim=1, stable=True), z["out.order_by_l2"])
    loss = in_batch_loss(dots, own)
    loss.backward()
    found.add(loss, z["out.loss"])
    found.same(int((dots.argmax(1) == own).sum()), z["out.n_correct"])
    found.add(queries.grad, z["grad.query_vectors"])
    found.add(passages.grad, z["grad.passage_vectors"])
    return found.errors


KINDS: dict[str, Callable[[Path], Errors]] = {
    "monot5*": monot5,
    "bert*": cross_encoder,
    "biencoder_inbatch*": in_batch,
}
"""Name pattern -> check; the first that fits counts."""
