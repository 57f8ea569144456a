"""Decoders as rankers: a language model says "yes" or "no" about a query and a document.

monoT5's idea (Nogueira, Jiang, Lin, 2020) with the decoders that people run. Qwen3-Reranker and
mxbai-rerank-v2 score by the difference of two target words' logits behind the prompt, bge-reranker-v2-gemma
by one word's, their conversions to classifiers by one number of the last token's state. The prompt is part of
the ranker.
Deviations: only the document is shortened, the query only where it would leave it less than a quarter;
special tokens that a text spells are read as text.
Shapes: n pairs, c words or classes, w width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, Self

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from rankhouse.core.errors import BadModel, WrongUse
from rankhouse.models.checkpoint import (
    PairModel,
    find,
    load_network,
    load_tokenizer,
    network_of,
    read_assets,
    read_config,
    read_json,
)
from rankhouse.models.checkpoint_kinds import is_chain, require, with_article
from rankhouse.models.contract import Objective
from rankhouse.models.crossencoder import SCALES, Scale, scaled
from rankhouse.models.monot5 import target_id
from rankhouse.models.prompts import KNOWN, PromptReader, chat_prompt, check_prompt, known_prompt
from rankhouse.models.sentence_transformers import read_transformer
from rankhouse.models.text_ids import TextIds
from rankhouse.models.transformer_encoders import by_length, by_rows, decoder_sizes, length_limit
from rankhouse.nn.layers.decoder import Decoder
from rankhouse.nn.layers.linear import products
from rankhouse.nn.layers.ragged import Packed, Ragged
from rankhouse.nn.machine import Compute, require_int8

WORDS, CLASSES = "AutoModelForCausalLM", "AutoModelForSequenceClassification"


class CausalRanker(PairModel):
    """A decoder that ranks.

    Args:
        network: transformers' ...ForCausalLM or ...ForSequenceClassification.
        policy: max_length, prompt, targets (ids; none for a classifier), scale, head: all JSON values.
    """

    family = "causal"
    objective: Objective = "points"

    def __init__(
        self, network: nn.Module, tokenizer: Tokenizer, policy: Mapping[str, Any], config: Mapping[str, Any]
    ) -> None:
        super().__init__(network, tokenizer, policy, config)
        most = policy["max_length"]
        texts = TextIds(self._tokenizer, most)
        self.pair_reader: PromptReader = PromptReader(texts, self._tokenizer, policy["prompt"], most)

    @classmethod
    def rebuild(cls, policy: Mapping[str, Any], assets: Mapping[str, bytes]) -> Self:
        """Make the model of a bundle, weights apart."""
        tokenizer, config = read_assets(assets)
        return cls(network_of(config, policy["head"]), tokenizer, policy, config)

    @property
    def scale(self) -> str:
        """Scale of the scores."""
        own = str(self.policy["scale"])
        return "logit" if own == "log-odds" else own

    def logits(self, batch: Packed) -> Tensor:
        """Return the numbers asked for of the last tokens, (n, c), with gradients where they are on."""
        net: Any = self.network

        def last(answer: Any, mask: Tensor) -> Tensor:  # noqa: ANN401  # transformers has no common type
            rows = torch.arange(len(mask), device=mask.device)
            return answer.last_hidden_state[rows, mask.sum(1) - 1]  # type: ignore[no-any-return]

        return self._capped(F.linear(by_rows(net.base_model, batch, last), self._head()))

    def forward(self, batch: Packed) -> Tensor:
        """Score a batch: (n,), higher is better, with gradients where they are on."""
        return self._scaled(self.logits(batch), self.policy["scale"])

    def loss(self, batch: Packed, labels: Tensor) -> Tensor:
        """Cross-entropy of relevant against not, by the score's own logits.

        Args:
            labels: (n, 1), above 0.5 for relevant.
        """
        odds = self._scaled(self.logits(batch), "log-odds")
        return F.binary_cross_entropy_with_logits(odds, (labels.reshape(-1) > 0.5).to(odds))

    def scorer(self, compute: Compute) -> Callable[[Packed], Tensor]:
        """Return the packed forward pass where there is one; else the network by rows of equal length."""
        head = self._head().detach().float().to(compute.device)
        last = self._packed(compute) or self._by_length(compute)
        scale = self.policy["scale"]

        def score(batch: Packed) -> Tensor:
            states = last(batch.to(compute.device)).float()
            return self._scaled(self._capped(products(states, head)), scale)

        return score

    def _packed(self, compute: Compute) -> Callable[[Packed], Tensor] | None:
        """Return ids -> states of last tokens (n, w); the prompt's beginning is computed once, here."""
        net: Any = self.network
        if (sizes := decoder_sizes(net.base_model)) is None:
            return None
        beginning = self.pair_reader.beginning
        decoder = Decoder(net.base_model.state_dict(), sizes, compute, beginning)

        def last(batch: Packed) -> Tensor:
            begun = _begin_with(batch.ids, beginning)
            states = torch.empty(len(batch), self._head().shape[1], device=compute.device)
            for rows in (begun.nonzero()[:, 0], (~begun).nonzero()[:, 0]):
                if len(rows):
                    some, is_begun = batch.take(rows), bool(begun[rows[0]])
                    some = _without(some, len(beginning)) if is_begun else some
                    states[rows] = decoder.last(some, begun=is_begun)
            return states

        return last

    def _by_length(self, compute: Compute) -> Callable[[Packed], Tensor]:
        require_int8(compute, type(self.network).__name__)
        net: Any = self.network
        base = deepcopy(net.base_model).to(compute.device, compute.dtype).eval()
        return lambda batch: torch.cat([base(**rows).last_hidden_state[:, -1] for rows in by_length(batch)])

    def _head(self) -> Tensor:
        """Return the rows of the output layer that are asked for: (c, w)."""
        net: Any = self.network
        if self.policy["head"] == CLASSES:
            return net.score.weight  # type: ignore[no-any-return]
        return net.get_output_embeddings().weight[self.policy["targets"]]  # type: ignore[no-any-return]

    def check_head(self, folder: Path) -> None:
        """Refuse a network that makes its logits of last states otherwise than :meth:`logits` does."""
        net: Any = self.network
        ids = torch.tensor([[i for i in range(4) if i != net.config.pad_token_id][:3]])
        with torch.inference_mode():
            numbers = net(input_ids=ids).logits
            states = net.base_model(input_ids=ids).last_hidden_state[:, -1]
            own = self._capped(F.linear(states, self._head()))[0].float()
        theirs = (
            numbers[0] if self.policy["head"] == CLASSES else numbers[0, -1, self.policy["targets"]]
        ).float()
        near = 1e-4 if states.dtype is torch.float32 else 0.02
        if not torch.allclose(own, theirs, rtol=near, atol=near):
            raise BadModel(
                f'"{folder}" is {with_article(type(net).__name__)}, whose output layer does more than '
                "multiply (a bias, a factor, a layer before it); this version cannot compute it; use another "
                "checkpoint (rankhouse models  lists some)"
            )

    def _capped(self, logits: Tensor) -> Tensor:
        """Bound logits as some do (Gemma 2): "final_logit_softcapping" of config.json."""
        cap = self._config.get("final_logit_softcapping")
        return torch.tanh(logits / cap) * cap if cap and self.policy["head"] == WORDS else logits

    def _scaled(self, logits: Tensor, scale: Scale) -> Tensor:
        """Make scores of (n, c): words stand the relevant one first, classes last."""
        return scaled(logits if self.policy["head"] == CLASSES else logits.flip(1), scale)


def _begin_with(ids: Ragged, beginning: Sequence[int]) -> Tensor:
    """Return which rows begin with these ids and go on behind them: (n,) bool."""
    begun = ids.lengths > len(beginning)
    starts = ids.offsets[:-1]
    for place, number in enumerate(beginning):
        at = (starts + place).clamp(max=len(ids.values) - 1)
        begun &= ids.values[at] == number
    return begun & (len(beginning) > 0)


def _without(batch: Packed, count: int) -> Packed:
    """Leave out the first ids of every row."""
    kept = batch.ids.positions() >= count
    return Packed(
        Ragged(batch.ids.values[kept], batch.ids.lengths - count), batch.lost, None, batch.query_lost
    )


def open_causal(
    path: str,
    prompt: str | tuple[str, ...] | None = None,
    instruction: str | None = None,
    targets: tuple[str, ...] | None = None,
    scale: Scale | None = None,
    max_length: int | None = None,
    tokenizer: str | None = None,
) -> CausalRanker:
    """Open a published decoder: ``causal("Qwen/Qwen3-Reranker-0.6B")``.

    Args:
        path: A folder or hub name.
        prompt: The name of a known prompt ("qwen3-reranker", "mxbai-rerank-v2", "bge-reranker-v2-gemma"),
            or its segments, with "{query}" and "{document}" in them; None: what is known of the checkpoint
            by its name, or its own chat template for queries and documents.
        instruction: The task, where the prompt names one; None: the usual one.
        targets: Words for relevant and not relevant, or the former alone; None: those of the prompt.
        scale: "logit", "probability", "logprob" or "log-odds"; None: "log-odds" for two words, else "logit".
        max_length: Most tokens of the whole input; None: what prompt and network were made for.
        tokenizer: Folder of another tokenizer than the checkpoint's own.

    Raises BadModel: no decoder, or damaged, or without tokenizer, or one whose prompt is not known; WrongUse:
    a prompt without query or document, a target word that is not a single token.
    """
    if scale is not None and scale not in SCALES:
        raise WrongUse(f'scale="{scale}" is not known; choose from: {", ".join(SCALES)}')
    folder = find(path)
    require(folder, "causal")
    raw = read_config(folder)
    head = CLASSES if "ForSequenceClassification" in " ".join(raw.get("architectures") or ()) else WORDS
    known = KNOWN.get(prompt) if isinstance(prompt, str) else known_prompt(path) if prompt is None else None
    if isinstance(prompt, str) and known is None:
        raise WrongUse(f'prompt="{prompt}" is not known; known are {", ".join(KNOWN)}; or give its segments')
    if known is not None:
        segments: Sequence[str] = known.filled(instruction)
    elif prompt is not None:
        segments = prompt
    else:
        segments = chat_prompt(folder, instruction) or _without_prompt(folder)
    check_prompt(segments)
    task = "text-generation" if head == WORDS else "sequence-classification"
    own = read_transformer(folder, task) if is_chain(folder) else {}
    own_tokenizer, _, meant = load_tokenizer(folder, tokenizer, own)
    words = _target_ids(folder, own_tokenizer, targets or (known.targets if known else ()), head)
    network = load_network(folder, head, allow_pickle=False, keep_type=True)
    config: Any = network.config
    classes = len(words) if head == WORDS else int(config.num_labels)
    if classes not in {1, 2}:
        raise BadModel(f'"{folder}" tells {classes} classes apart; a ranker has one number or two classes')
    policy = {
        "max_length": length_limit(config, min(meant, known.max_length if known else meant), max_length),
        "prompt": list(segments),
        "targets": words,
        "scale": scale or ("log-odds" if classes == 2 else "logit"),
        "head": head,
    }
    model = CausalRanker(network, own_tokenizer, policy, raw)
    model.check_head(folder)
    return model


def _target_ids(folder: Path, tokenizer: Tokenizer, targets: Sequence[str], head: str) -> list[int]:
    """Return the ids of target words, or those that a LogitScore module names; none for a classifier."""
    if head == CLASSES:
        return []
    if targets:
        return [target_id(tokenizer, word) for word in targets]
    modules = read_json(folder / "modules.json") if (folder / "modules.json").is_file() else []
    for module in modules:
        if str(module["type"]).endswith(".LogitScore"):
            config = read_json(folder / module["path"] / "config.json")
            both = (config["true_token_id"], config.get("false_token_id"))
            return [int(number) for number in both if number is not None]
    raise WrongUse(
        f'"{folder}": which words stand for relevant and not relevant is not known; say  '
        'targets=("yes", "no")  as it was trained'
    )


def _without_prompt(folder: Path) -> Sequence[str]:
    raise BadModel(
        f'"{folder}" is a decoder whose prompt is not known; with another prompt than it was trained '
        f'with, its scores are random. Say  causal("{folder}", prompt="NAME")  with one of '
        f"{', '.join(KNOWN)}, or write its segments:  "
        'prompt=("Query: {query}", "\\nDocument: {document}", "\\nRelevant:"), targets=("yes", "no")'
    )
