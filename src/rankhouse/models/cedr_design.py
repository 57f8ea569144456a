"""Starts of a CEDR: a fresh head on a published encoder, or on that of a cross-encoder trained here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers import Tokenizer
from torch import nn

from rankhouse.core.arguments import check_least
from rankhouse.core.errors import BadModel, WrongUse
from rankhouse.models import bundle
from rankhouse.models.cedr import CEDR, HEADS
from rankhouse.models.checkpoint import (
    encoder_class,
    find,
    load_network,
    load_tokenizer,
    network_of,
    read_assets,
    read_config,
)
from rankhouse.models.checkpoint_kinds import with_article
from rankhouse.models.crossencoder import CHAIN, SIMILARITY
from rankhouse.models.sentence_transformers import own_ranker, transformer_of
from rankhouse.models.transformer_encoders import is_like_bert, length_limit, reads_segments


@dataclass(frozen=True)
class CEDRDesign:
    """Settings of ``cedr_knrm("DIR")``, ``cedr_pacrr("DIR")`` and ``cedr_drmm("DIR")``.

    Attributes:
        path: The encoder: a folder or hub name, or the folder of a cross-encoder that was trained here; of a
            classifier, its head is left out.
        head: "knrm", "pacrr" or "drmm".
        query_length: Most tokens of a query.
        passage_length: Most tokens of a passage, in as many pieces as it takes.
        tokenizer: Folder of another tokenizer than the checkpoint's own.
        allow_pickle: Whether weights may be read from pytorch_model.bin.
    """

    path: str
    head: str = "knrm"
    query_length: int = 20
    passage_length: int = 800
    tokenizer: str | None = None
    allow_pickle: bool = False

    def __post_init__(self) -> None:
        check_least(self, 1, "query_length", "passage_length")
        if self.head not in HEADS:
            raise WrongUse(f'head="{self.head}" is not known; choose from: {", ".join(HEADS)}')

    def fresh(self, texts: Iterable[str], seed: int = 0) -> CEDR:
        """Begin a model with a fresh head on an encoder as it is.

        Raises:
            BadModel: No encoder like BERT, or damaged, or without tokenizer.
            WrongUse: A query so long that no passage fits beside it.
        """
        del texts
        network, tokenizer, raw, meant, asks_segments, encoder_ranker = self._start()
        config: Any = network.config
        if not is_like_bert(config):
            raise BadModel(
                f'"{self.path}" is {with_article(config.model_type)} checkpoint; CEDR reads encoders like '
                "BERT, whose tokens have absolute positions: BERT, ELECTRA, RoBERTa, XLM-RoBERTa, CamemBERT"
            )
        policy = {
            "max_length": self.query_length + self.passage_length,
            "head": self.head,
            "query_length": self.query_length,
            "passage_length": self.passage_length,
            "row_length": length_limit(config, meant, None),
            "segments": reads_segments(config, asks_segments),
        }
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = CEDR(network, tokenizer, policy, raw)
        model.encoder_ranker = encoder_ranker
        return model

    def _start(self) -> _Start:
        """Open the encoder: of a bundle that was trained here, or of a published checkpoint."""
        for place in (Path(self.path) / "ranker", Path(self.path)):
            if (place / bundle.MANIFEST).is_file():
                return _of_bundle(place)
        folder = find(self.path, self.allow_pickle)
        place, reading = transformer_of(folder)
        raw = read_config(place)
        tokenizer, asks_segments, meant = load_tokenizer(place, self.tokenizer, reading)
        network = load_network(place, encoder_class(raw), self.allow_pickle, ("pooler",))
        own = own_ranker(folder, self.allow_pickle)
        return _Start(network, tokenizer, raw, meant, asks_segments=asks_segments, encoder_ranker=own)


class _Start(NamedTuple):
    """An encoder to begin with."""

    network: nn.Module  # without a head
    tokenizer: Tokenizer  # its own
    config: Mapping[str, Any]  # its config.json as read
    meant: int  # the length its tokenizer is meant for
    asks_segments: bool  # whether it is meant to be given segment ids
    encoder_ranker: str = ""  # notation of the ranker that it is by itself; "" where none is known


def _of_bundle(folder: Path) -> _Start:
    """Take the encoder out of a cross-encoder that was trained here: the paper's own start."""
    manifest = bundle.read_manifest(folder)
    if manifest.family != "crossencoder":
        raise BadModel(
            f'"{folder}" is a {manifest.family}; CEDR begins with a published encoder or with a crossencoder '
            "that was trained here"
        )
    weights, assets = bundle.read_files(folder, manifest)
    tokenizer, config = read_assets(assets)
    network: Any = network_of(config, encoder_class(config))
    headed = manifest.policy["head"] in (CHAIN, SIMILARITY)
    start = f"network.{'encoder' if headed else network.base_model_prefix}."
    own = {name.removeprefix(start): tensor for name, tensor in weights.items() if name.startswith(start)}
    missing = [
        name for name in network.load_state_dict(own, strict=False).missing_keys if "pooler" not in name
    ]
    if missing:
        raise BadModel(f'"{folder}" lacks {len(missing)} tensor(s) of its encoder, first "{missing[0]}"')
    return _Start(
        network, tokenizer, config, manifest.policy["max_length"], asks_segments=manifest.policy["segments"]
    )
