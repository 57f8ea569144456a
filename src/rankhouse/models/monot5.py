"""monoT5: a sequence-to-sequence model says "true" or "false" about a query and a passage.

Paper: Nogueira, Jiang, Lin, "Document Ranking with a Pretrained Sequence-to-Sequence Model", 2020.
Input: eq. 1, ``Query: q Document: d Relevant:``. Score: log of P("true") in the softmax over the two target
words' logits at the first decoder step (section 2); the order is that of P itself.
Deviations, each for a reason (docs/monot5.md): only the passage is shortened, so that "Relevant:" survives
(pygaggle cuts the finished prompt); one </s> at the end and padding behind it (pyterrier_t5 pads inside);
whether the output layer is tied is read from the weights, not from the configuration.
Shapes: n pairs, t tokens of all pairs together, w width.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from rankhouse.core.errors import BadModel, WrongUse
from rankhouse.models.checkpoint import (
    SEQ2SEQ,
    PairModel,
    find,
    load_network,
    load_tokenizer,
    network_of,
    read_assets,
    read_config,
    read_tensor,
)
from rankhouse.models.checkpoint_kinds import with_article
from rankhouse.models.contract import Objective
from rankhouse.models.pair_encoding import Layout, PairReader
from rankhouse.models.text_ids import TextIds
from rankhouse.nn.layers.ragged import Packed
from rankhouse.nn.layers.t5 import T5FirstStep, T5Sizes
from rankhouse.nn.machine import Activation, Compute

PROMPT = ("Query:", "Document:", "Relevant:")
MAX_LENGTH = 512

KNOWN_TARGETS: dict[str, tuple[str, str]] = {
    r"monoptt5": ("Sim", "Não"),
    r"ptt5": ("sim", "não"),
    r"mt5-(3b|13b)-mmarco": ("true", "▁"),
    r"mt5": ("yes", "no"),
    r"": ("true", "false"),
}
"""Name of a checkpoint (regular expression, first match) -> its words for relevant and not relevant."""

_ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu": "gelu",
}
_PROBES = (
    "", " ", "word", "two words", " edges ", "a  b", "tab\tand\nline", "\u0301x", "x\u200d", "\u3000wide",
    "▁x", "Grain prices, 3.14 (rose) again!", "naïve Ünïcode", "東京タワー", "😀", "</s>",
)  # fmt: skip


class T5Checkpoint(NamedTuple):
    """A T5 as published."""

    network: nn.Module  # transformers' own, its output layer as in the file
    tokenizer: Tokenizer
    config: Mapping[str, Any]  # config.json as read
    tied: bool  # whether the output layer is that of the input

    @property
    def start(self) -> int:
        """The id that the decoder starts from."""
        return int(self.config.get("decoder_start_token_id", 0))

    @property
    def end(self) -> int:
        """The id of </s>."""
        return int(self.config.get("eos_token_id", 1))

    @property
    def scaled(self) -> bool:
        """Whether decoder states are scaled before the output layer, by the raw config.json.

        T5 1.0 does, 1.1 and mT5 do not. Up to transformers 4, "tie_word_embeddings": false said which; from 5
        on that key is always true and "scale_decoder_outputs" says it.
        """
        if self.config["model_type"] != "t5":
            return False
        return bool(self.config.get("scale_decoder_outputs", self.config.get("tie_word_embeddings", True)))


def open_t5(
    path: str, family: str, tokenizer: str | None = None, *, allow_pickle: bool = False
) -> T5Checkpoint:
    """Open a published T5 or mT5; BadModel if it is none, damaged, or without tokenizer."""
    folder = find(path, allow_pickle)
    config = read_config(folder)
    if config["model_type"] not in SEQ2SEQ:
        raise BadModel(
            f'"{folder}" is {with_article(config["model_type"])} checkpoint; {family} reads T5 and mT5 only. '
            f'If it gives one or two numbers for a pair, open it as  crossencoder("{path}")'
        )
    own_tokenizer, _, _ = load_tokenizer(folder, tokenizer)
    network = load_network(folder, "AutoModelForSeq2SeqLM", allow_pickle, ("lm_head", "embed_tokens"))
    head = read_tensor(folder, "lm_head.weight", allow_pickle)
    tied = head is None or torch.equal(head.float(), shared(network))
    if head is not None and not tied:
        untie(network, head.float())
    return T5Checkpoint(network, own_tokenizer, config, tied)


def shared(network: nn.Module) -> Tensor:
    """Return the weights of the input layer."""
    layer: nn.Embedding = network.shared  # type: ignore[assignment]  # a T5 has one
    return layer.weight


def untie(network: nn.Module, head: Tensor) -> None:
    """Put an output layer of its own on a network."""
    layer = nn.Linear(head.shape[1], head.shape[0], bias=False, device="meta")
    layer.weight = nn.Parameter(head)
    network.lm_head = layer


class MonoT5(PairModel):
    """A T5 that ranks.

    Args:
        network: transformers' T5ForConditionalGeneration (or MT5...), its output layer as in the file.
        tokenizer: The checkpoint's.
        policy: targets, prompt, max_length, scaled, start, end: all JSON values.
        config: The checkpoint's config.json as read.

    Attributes:
        learns_end: Whether the loss also covers the </s> behind the target word, as the authors' code does.
    """

    family = "monot5"
    objective: Objective = "points"
    scale = "logprob"

    def __init__(
        self, network: nn.Module, tokenizer: Tokenizer, policy: Mapping[str, Any], config: Mapping[str, Any]
    ) -> None:
        super().__init__(network, tokenizer, policy, config)
        self.learns_end = True
        self._words = [target_id(self._tokenizer, word) for word in policy["targets"]]
        self.pair_reader = prompt_reader(
            self._tokenizer, policy["prompt"], policy["max_length"], policy["end"]
        )

    @classmethod
    def rebuild(cls, policy: Mapping[str, Any], assets: Mapping[str, bytes]) -> Self:
        """Make the model of a bundle, weights apart."""
        tokenizer, config = read_assets(assets)
        network = network_of(config, "AutoModelForSeq2SeqLM")
        if not policy["tied"]:
            untie(network, torch.empty_like(shared(network)))
        return cls(network, tokenizer, policy, config)

    def forward(self, batch: Packed) -> Tensor:
        """Score a batch: (n,) log P(first target word), with gradients where they are on."""
        return F.logsigmoid(self.log_odds(batch))

    def log_odds(self, batch: Packed) -> Tensor:
        """Return log P(first target word) / P(second), (n,)."""
        states = self._decode(batch, self._start(len(batch)))[:, 0]
        return _difference(F.linear(states, self._head().weight[self._words]))

    def loss(self, batch: Packed, labels: Tensor) -> Tensor:
        """Cross-entropy over the whole vocabulary of saying the right word (and then </s>).

        Args:
            batch: n pairs.
            labels: (n, 1), above 0.5 for relevant.
        """
        relevant = labels.reshape(-1).to(self._device) > 0.5
        words = torch.where(relevant, self._words[0], self._words[1])[:, None]
        prompt, to_say = self._start(len(words)), words
        if self.learns_end:
            prompt = torch.cat([prompt, words], 1)
            to_say = torch.cat([words, torch.full_like(words, self.policy["end"])], 1)
        logits = self._head()(self._decode(batch, prompt)).float()
        return F.cross_entropy(logits.flatten(0, 1), to_say.flatten())

    def scorer(self, compute: Compute) -> Callable[[Packed], Tensor]:
        """Return the packed forward pass: encoder once, one decoder step, two rows of the output layer."""
        head = self._head().weight[self._words]
        first_step = T5FirstStep(
            self.network.state_dict(),
            head,
            self.policy["start"],
            _sizes(self._config, self.policy),
            compute=compute,
        )

        def score(batch: Packed) -> Tensor:
            return F.logsigmoid(_difference(first_step(batch.to(compute.device))))

        return score

    def _decode(self, batch: Packed, tokens: Tensor) -> Tensor:
        """Return the decoder's states (n, words said, w) before the output layer."""
        batch = batch.to(self._device)
        mask = batch.ids.mask()
        network: Any = self.network
        encoded = network.encoder(input_ids=batch.ids.pad(), attention_mask=mask.long()).last_hidden_state
        states: Tensor = network.decoder(
            input_ids=tokens,
            encoder_hidden_states=encoded,
            encoder_attention_mask=mask.long(),
            use_cache=False,
        ).last_hidden_state
        return states * states.shape[-1] ** -0.5 if self.policy["scaled"] else states

    def _start(self, n: int) -> Tensor:
        return torch.full((n, 1), self.policy["start"], device=self._device)

    def _head(self) -> nn.Linear:
        head: nn.Linear = self.network.lm_head  # type: ignore[assignment]  # a T5 has one
        return head

    @property
    def _device(self) -> torch.device:
        return self._head().weight.device


def _difference(logits: Tensor) -> Tensor:
    """Return how far the first word's logit is above the second's: log softmax is logsigmoid of it."""
    logits = logits.float()
    return logits[:, 0] - logits[:, 1]


def open_monot5(
    path: str,
    targets: tuple[str, str] | None = None,
    max_length: int = MAX_LENGTH,
    prompt: tuple[str, str, str] = PROMPT,
    tokenizer: str | None = None,
    allow_pickle: bool = False,
) -> MonoT5:
    """Open a published checkpoint: ``monot5("castorini/monot5-base-msmarco")``.

    Args:
        path: A folder or hub name.
        targets: Words for relevant and not relevant; None: what is known of the checkpoint by its name.
        max_length: Most tokens of the whole input.
        prompt: What stands before the query, before the passage and at the end.
        tokenizer: Folder of another tokenizer than the checkpoint's own.
        allow_pickle: Whether weights may be read from pytorch_model.bin.

    Raises:
        BadModel: Not a T5 or mT5 checkpoint, or damaged, or without tokenizer.
        WrongUse: A target word that is not a single token.
    """
    checkpoint = open_t5(path, "monot5", tokenizer, allow_pickle=allow_pickle)
    policy = {
        "max_length": max_length,
        "prompt": list(prompt),
        "targets": list(targets or known_targets(path)),
        "start": checkpoint.start,
        "end": checkpoint.end,
        "scaled": checkpoint.scaled,
        "tied": checkpoint.tied,
    }
    return MonoT5(checkpoint.network, checkpoint.tokenizer, policy, checkpoint.config)


def known_targets(name: str) -> tuple[str, str]:
    """Return the words a checkpoint was trained with, by the last part of its name."""
    last = name.partition("@")[0].rstrip("/").split("/")[-1].lower()
    return next(words for pattern, words in KNOWN_TARGETS.items() if re.search(pattern, last))


def target_id(tokenizer: Tokenizer, word: str) -> int:
    """Return the one token a target word is.

    Raises:
        WrongUse: It is split into several; says how.
    """
    spelled = tokenizer.encode(word, add_special_tokens=False)
    if len(spelled.ids) == 1 and spelled.ids[0] != tokenizer.token_to_id("<unk>"):
        return int(spelled.ids[0])
    piece = tokenizer.token_to_id(word)
    if word.startswith("▁") and piece is not None:
        return int(piece)
    raise WrongUse(
        f'the target word "{word}" is no single token of this model: it is split into {spelled.tokens}. '
        'Choose words that are one token each, like targets=("true", "false"), or name a piece of the '
        'vocabulary by its mark: "▁word"'
    )


def prompt_reader(tokenizer: Tokenizer, prompt: Sequence[str], max_length: int, end: int) -> PairReader:
    """Make what reads ``Query: q Document: d Relevant:`` piece by piece.

    SentencePiece never joins across a space, so that pieces tokenised alone give the prompt's own ids. This
    is checked on probes; a tokenizer for which it is not so reads finished prompts.
    """
    texts = TextIds(tokenizer, max_length)

    def ids(text: str) -> list[int]:
        return texts.whole([text])[0]

    def whole(query: str, passage: str) -> list[int]:
        return [*ids(f"{prompt[0]} {query} {prompt[1]} {passage} {prompt[2]}"), end]

    first, second, last = (ids(piece) for piece in prompt)
    joins = all(
        whole(query, passage) == [*first, *ids(query), *second, *ids(passage), *last, end]
        for query, passage in zip(_PROBES, reversed(_PROBES), strict=True)
    )
    layout = Layout(tuple(first), tuple(second), (*last, end))
    return PairReader(texts, layout, max_length, None if joins else whole)


def _sizes(config: Mapping[str, Any], policy: Mapping[str, Any]) -> T5Sizes:
    activation = config.get("feed_forward_proj", "relu").split("-")[-1]
    if config.get("feed_forward_proj") == "gated-gelu":
        activation = "gelu_new"
    if activation not in _ACTIVATIONS:
        raise BadModel(
            f'the checkpoint\'s feed_forward_proj "{config["feed_forward_proj"]}" is not known here; '
            f"T5s with {', '.join(sorted(_ACTIVATIONS))} can be read"
        )
    layers = config.get("num_layers", 6)
    return T5Sizes(
        encoder_layers=layers,
        decoder_layers=config.get("num_decoder_layers") or layers,
        heads=config.get("num_heads", 8),
        eps=config.get("layer_norm_epsilon", 1e-6),
        activation=_ACTIVATIONS[activation],
        furthest=config.get("relative_attention_max_distance", 128),
        scaled=policy["scaled"],
    )
