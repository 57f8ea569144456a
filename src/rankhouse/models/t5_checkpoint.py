"""T5 and mT5 checkpoints as others publish them, whatever they are put to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from rankhouse.core.errors import BadModel
from rankhouse.models.checkpoint import (
    SEQ2SEQ,
    find,
    load_network,
    load_tokenizer,
    read_config,
    read_tensor,
)


class T5Checkpoint(NamedTuple):
    """A T5 as published.

    Attributes:
        network: transformers' own, its output layer as in the file.
        tokenizer: Its tokenizer.
        config: config.json as read.
        tied: Whether the output layer is that of the input.
    """

    network: nn.Module
    tokenizer: Tokenizer
    config: Mapping[str, Any]
    tied: bool

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
        """Whether decoder states are scaled before the output layer."""
        return is_scaled(self.config)


def open_t5(
    path: str, family: str, tokenizer: str | None = None, *, allow_pickle: bool = False
) -> T5Checkpoint:
    """Open a published T5 or mT5.

    Raises:
        BadModel: Not a T5 or mT5 checkpoint, or damaged, or without tokenizer.
    """
    folder = find(path, allow_pickle)
    config = read_config(folder)
    if config["model_type"] not in SEQ2SEQ:
        raise BadModel(
            f'"{folder}" is a {config["model_type"]} checkpoint; {family} reads T5 and mT5 only. If it gives '
            f'one or two numbers for a pair, open it as  crossencoder("{path}")'
        )
    own_tokenizer, _, _ = load_tokenizer(folder, tokenizer)
    network = load_network(folder, "AutoModelForSeq2SeqLM", allow_pickle, ("lm_head", "embed_tokens"))
    head = read_tensor(folder, "lm_head.weight", allow_pickle)
    tied = head is None or torch.equal(head.float(), shared(network))
    if head is not None and not tied:
        untie(network, head.float())
    return T5Checkpoint(network, own_tokenizer, config, tied)


def is_scaled(config: Mapping[str, Any]) -> bool:
    """Return, by the raw config.json, whether decoder states are scaled before the output layer.

    T5 1.0 does, 1.1 and mT5 do not. Up to transformers 4, "tie_word_embeddings": false said which; from 5 on
    that key is always true and "scale_decoder_outputs" says it.
    """
    if config["model_type"] != "t5":
        return False
    return bool(config.get("scale_decoder_outputs", config.get("tie_word_embeddings", True)))


def shared(network: nn.Module) -> Tensor:
    """Return the weights of the input layer."""
    layer: nn.Embedding = network.shared  # type: ignore[assignment]  # a T5 has one
    return layer.weight


def untie(network: nn.Module, head: Tensor) -> None:
    """Put an output layer of its own on a network."""
    layer = nn.Linear(head.shape[1], head.shape[0], bias=False, device="meta")
    layer.weight = nn.Parameter(head)
    network.lm_head = layer
