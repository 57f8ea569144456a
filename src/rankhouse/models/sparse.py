"""Sparse encoders: a text becomes a weight for each word of the vocabulary; the score is the dot product.

Papers: Formal, Piwowarski, Clinchant, "SPLADE", SIGIR 2021, eq. 1 (sum over tokens), and "SPLADE v2", 2021,
eq. 6 (maximum): log(1 + relu(logit)) of a language model that predicts masked words; Geng et al., "Towards
Competitive Search Relevance For Inference-Free Learned Sparse Retrievers", 2024 (the query's words by a table
of weights; the logarithm twice).
Deviations: none; special tokens that a text spells are read as text.
Shapes: n texts, t tokens together, w width of the network, v words of the vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from rankhouse.core.errors import BadModel, WrongUse
from rankhouse.models.biencoder import BiEncoder
from rankhouse.models.checkpoint import find, load_network, load_tokenizer, network_of, read_config, read_json
from rankhouse.models.checkpoint_kinds import (
    LIBRARY_SETTINGS,
    Module,
    is_chain,
    library_settings,
    modules_of,
    require,
)
from rankhouse.models.contract import Tower
from rankhouse.models.pair_encoding import Layout, TextReader
from rankhouse.models.sentence_transformers import module_weights, read_transformer
from rankhouse.models.text_ids import TextIds
from rankhouse.models.transformer_encoders import (
    by_length,
    by_rows,
    encoder_of,
    frozen,
    is_packable,
    length_limit,
)
from rankhouse.nn.layers.linear import linear, packed_linears
from rankhouse.nn.layers.ragged import Packed
from rankhouse.nn.machine import Compute, require_int8

MASKED: Final = "AutoModelForMaskedLM"
_TABLE: Final = "SparseStaticEmbedding"


class SparseEncoder(BiEncoder):
    """A language model whose vectors are weights of words.

    Args:
        network: transformers' ...ForMaskedLM; no layers stand behind it.
        policy: max_length, pooling ("max" or "sum"), logarithms (1 or 2), query_table (whether a query's
            words are weighed by a table), prompts: all JSON values.

    Attributes:
        table: (v,) the weight of each word in a query, where a table says it.
    """

    family = "sparse"

    def __init__(
        self,
        network: nn.Module,
        dense: nn.Sequential,
        tokenizer: Tokenizer,
        policy: Mapping[str, Any],
        config: Mapping[str, Any],
        asked: BiEncoder | None = None,
    ) -> None:
        super().__init__(network, dense, tokenizer, policy, config=config, asked=asked)
        self.table: nn.Parameter | None = None
        if policy["query_table"]:
            self.table = nn.Parameter(torch.zeros(int(config["vocab_size"])))
            most = policy.get("table_length", policy["max_length"])
            self._words = TextReader(TextIds(self._tokenizer, most), Layout((), (), ()), most)

    @staticmethod
    def network_of(config: Mapping[str, Any]) -> nn.Module:
        """Make the network of a bundle, weights apart."""
        return network_of(config, MASKED)

    def token(self, number: int) -> str:
        """Return a word of the vocabulary as it is written there."""
        return self._tokenizer.id_to_token(number) or f"[{number}]"

    def learn(self, tower: Tower) -> None:
        """Let all learn; WrongUse for queries alone: their network is that of passages."""
        if tower == "query":
            table = (
                "" if self.table is None else '; so that its table alone learns, say  rates={"network": 0}'
            )
            raise WrongUse(
                'tower="query": a sparse has no encoder of queries alone; leave it out, or train a '
                f"biencoder{table}"
            )

    def encode_queries(self, texts: Sequence[str]) -> Packed:
        """Turn n queries into ids, prompt before them; without the model's own tokens for a table."""
        if self.table is None:
            return super().encode_queries(texts)
        return self._words(self.policy["query_prompt"] + text for text in texts)

    def vectors(self, batch: Packed) -> Tensor:
        """Return weights (n, v), with gradients where they are on."""

        def pooled(answer: Any, mask: Tensor) -> Tensor:  # noqa: ANN401  # transformers has no common type
            weights = self._weights(answer.logits).masked_fill(~mask[:, :, None], 0.0)
            return weights.amax(1) if self.policy["pooling"] == "max" else weights.sum(1)

        return by_rows(self.network, batch, pooled)

    def query_vectors(self, batch: Packed) -> Tensor:
        """Return weights of queries (n, v), with gradients where they are on."""
        return super().query_vectors(batch) if self.table is None else _in_table(batch, self.table)

    def vector_scorer(self, compute: Compute) -> Callable[[Packed], Tensor]:  # type: ignore[override]  # no states
        """Return the quickest way from ids to weights (n, v)."""
        states = _states_of(self.network, compute) if is_packable(self._net.config) else None
        if states is None:
            return self._by_length(compute)
        head = _head(self._net)
        fp32, plain = compute.fp32, compute.unquantised
        transform = packed_linears(deepcopy(head.transform).to(compute.device).eval(), fp32)
        words = linear(head.words.weight, head.words.bias, plain)

        def weigh(batch: Packed) -> Tensor:
            x = transform(states(batch.to(compute.device))).to(plain.dtype)
            rows = [self._pooled_text(words(row).float()) for row in x.split(batch.lengths.tolist())]
            return torch.stack(rows)

        return weigh

    def query_scorer(
        self, compute: Compute, passages: Callable[[Packed], Tensor]
    ) -> Callable[[Packed], Tensor]:
        """Return the quickest way from ids to weights of queries (n, v)."""
        if self.table is None:
            return super().query_scorer(compute, passages)
        table = self.table.detach().float().to(compute.device)
        return lambda batch: _in_table(batch, table)

    @property
    def _net(self) -> Any:  # noqa: ANN401  # transformers' networks have no common type
        return self.network

    def _weights(self, logits: Tensor) -> Tensor:
        weights = logits.relu().log1p()
        return weights.log1p() if self.policy["logarithms"] == 2 else weights

    def _pooled_text(self, logits: Tensor) -> Tensor:
        """Pool the logits (t, v) of one text: (v,). Logarithms rise, so that one of the maximum is enough."""
        if self.policy["pooling"] == "max":
            return self._weights(logits.amax(0))
        return self._weights(logits).sum(0)

    def _by_length(self, compute: Compute) -> Callable[[Packed], Tensor]:
        """Return the whole network called with rows of one length only."""
        require_int8(compute, type(self.network).__name__)
        net = frozen(self.network, compute.fp32)

        def weigh(batch: Packed) -> Tensor:
            logits = (net(**given).logits for given in by_length(batch.to(compute.device)))
            return torch.stack([self._pooled_text(row.float()) for some in logits for row in some])

        return weigh


def _in_table(batch: Packed, table: Tensor) -> Tensor:
    """Give each word of n texts its weight in the table, once: (n, v)."""
    rows = torch.repeat_interleave(torch.arange(len(batch)), batch.lengths.cpu()).to(table.device)
    ids = batch.ids.values.to(table.device)
    present = torch.zeros(len(batch), len(table), device=table.device)
    present[rows, ids] = 1.0
    return present * table


class _MaskedHead(NamedTuple):
    """Output layer that makes logits of states."""

    transform: nn.Module  # (t, w) -> (t, w)
    words: nn.Linear  # (t, w) -> (t, v)


def _head(net: Any) -> _MaskedHead:  # noqa: ANN401  # transformers' networks have no common type
    """Return the output layer of a language model that predicts masked words."""
    match net.config.model_type:
        case "bert":
            return _MaskedHead(net.cls.predictions.transform, net.cls.predictions.decoder)
        case "distilbert":
            layers = nn.Sequential(net.vocab_transform, net.activation, net.vocab_layer_norm)
            return _MaskedHead(layers, net.vocab_projector)
        case "modernbert":
            return _MaskedHead(net.head, net.decoder)
        case "electra":
            return _MaskedHead(net.generator_predictions, net.generator_lm_head)
    layers = nn.Sequential(net.lm_head.dense, nn.GELU(), net.lm_head.layer_norm)
    return _MaskedHead(layers, net.lm_head.decoder)


def _states_of(network: nn.Module, compute: Compute) -> Callable[[Packed], Tensor]:
    net: Any = network
    return encoder_of(net.base_model, compute, first_only=False).hidden


class _SparseSettings(NamedTuple):
    """Settings of a folder, besides weights."""

    network: Path  # folder of the language model
    table: Path | None = None  # folder of the query's weights; None where queries are read by the network
    max_length: int | None = None  # most tokens of a text; None: the tokenizer says
    own: Mapping[str, Any] = {}  # what the Transformer module says of how it reads texts
    pooling: str = "max"
    logarithms: int = 1
    prompts: tuple[str, str] = ("", "")


def open_sparse(
    path: str,
    pooling: str | None = None,
    max_length: int | None = None,
    prompts: tuple[str, str] | None = None,
    tokenizer: str | None = None,
    allow_pickle: bool = False,
) -> SparseEncoder:
    """Open a published checkpoint: ``sparse("naver/splade-v3")``.

    Args:
        path: A folder or hub name: of sentence-transformers, or a bare language model that predicts masked
            words.
        pooling: "max" or "sum"; None: what the folder says, for a bare one "max".
        max_length: Most tokens of a text; None: what tokenizer and network were made for.
        prompts: What is put before queries and before passages; None: what the folder says.
        tokenizer: Folder of another tokenizer than the checkpoint's own.
        allow_pickle: Whether weights may be read from pytorch_model.bin.

    Raises BadModel: no sparse encoder, or damaged, or without tokenizer; WrongUse: an unknown pooling; more
    tokens than the network has positions.
    """
    if pooling not in {None, "max", "sum"}:
        raise WrongUse(f'pooling="{pooling}" is not known; choose from: max, sum')
    folder = find(path, allow_pickle)
    require(folder, "sparse", ("masked",))
    settings = _read_settings(folder)
    raw = read_config(settings.network)
    own_tokenizer, _, meant = load_tokenizer(settings.network, tokenizer, settings.own)
    network = load_network(
        settings.network, MASKED, allow_pickle, unread=("position_ids", "pooler", "seq_relationship")
    )
    own: Any = network.config
    query_prompt, passage_prompt = settings.prompts if prompts is None else prompts
    policy = {
        "max_length": length_limit(own, settings.max_length or meant, max_length),
        "pooling": pooling or settings.pooling,
        "logarithms": settings.logarithms,
        "query_table": settings.table is not None,
        "normalised": False,
        "similarity": "dot",
        "query_prompt": query_prompt,
        "passage_prompt": passage_prompt,
        "dense": [],
    }
    if settings.table is not None:
        length = max_length or _table_length(settings, own_tokenizer, tokenizer)
        policy |= {"table_length": length} if length != policy["max_length"] else {}
    model = SparseEncoder(network, nn.Sequential(), own_tokenizer, policy, config=raw)
    if settings.table is not None and model.table is not None:
        with torch.no_grad():
            model.table.copy_(_read_table(settings.table, own_tokenizer, len(model.table), allow_pickle))
    return model


def _table_length(settings: _SparseSettings, tokenizer: Tokenizer, given: str | None) -> int:
    """Return the most tokens of a query; BadModel if its words are not those of passages."""
    own, _, most = load_tokenizer(settings.network, given or str(settings.table))
    read, asked = (json.loads(one.to_str()) for one in (tokenizer, own))
    if any(read[part] != asked[part] for part in ("normalizer", "pre_tokenizer", "model", "added_tokens")):
        raise BadModel(
            f'"{settings.table}" reads queries by another vocabulary than passages are read by; fetch the '
            'folder again, or name the right one for both:  tokenizer="DIR"'
        )
    return most


def _read_settings(folder: Path) -> _SparseSettings:
    """Read what sentence-transformers wrote; a bare language model is SPLADE as its makers publish it.

    Raises BadModel: a module that cannot be computed here.
    """
    if not is_chain(folder):
        return _SparseSettings(folder)
    modules, asked = modules_of(folder), modules_of(folder, "query")
    table = None
    if [module.kind for module in asked] == [_TABLE]:
        table = asked[0].place
    elif asked != modules:
        raise _unknown(folder, asked, "the query's side: one SparseStaticEmbedding")
    if [module.kind for module in modules] not in (
        ["Transformer", "SpladePooling"],
        ["MLMTransformer", "SpladePooling"],
    ):
        raise _unknown(folder, modules, "Transformer and SpladePooling")
    pooling = read_json(modules[1].place / "config.json")
    strategy = pooling.get("pooling_strategy", "max")
    if strategy not in ("max", "sum"):
        raise BadModel(f'"{folder}" pools by {strategy!r}; read here: max and sum')
    settings = library_settings(folder)
    if settings.get("similarity_fn_name") not in {None, "dot"}:
        raise BadModel(f'"{folder}" compares by {settings["similarity_fn_name"]!r}; read here: dot')
    if (most := settings.get("max_active_dims")) is not None:
        raise BadModel(
            f'"{folder}" keeps the {most} largest weights of a text; all of them are kept here, so take '
            f"max_active_dims out of {LIBRARY_SETTINGS} to open it without that limit"
        )
    named: Mapping[str, str] = settings.get("prompts") or {}
    own = read_transformer(modules[0].place, "fill-mask")
    lengths = {own.get(f"{side}_length") for side in ("document", "query")[: 2 - (table is not None)]}
    if len(lengths) > 1:
        raise BadModel(f'"{folder}" cuts queries and passages at other lengths; read here is one for both')
    return _SparseSettings(
        modules[0].place,
        table,
        max_length=lengths.pop(),
        own=own,
        pooling=strategy,
        logarithms=2 if pooling.get("activation_function") == "log1p_relu" else 1,
        prompts=(named.get("query") or "", named.get("document") or ""),
    )


def _unknown(folder: Path, found: Sequence[Module], wanted: str) -> BadModel:
    kinds = ", ".join(module.kind for module in found) or "nothing"
    return BadModel(f'"{folder}" is a chain of {kinds}; read here: {wanted}')


def _read_table(folder: Path, tokenizer: Tokenizer, size: int, allow_pickle: bool) -> Tensor:
    """Read a query's weights: of each word's id, (v,).

    Raises BadModel: there are none, or they are of another vocabulary.
    """
    config = read_json(folder / "config.json")
    if str(config.get("path") or "").endswith(".json"):
        named: Mapping[str, float] = read_json(folder / Path(config["path"]).name)
        table = torch.zeros(size)
        for word, weight in named.items():
            if (number := tokenizer.token_to_id(word)) is not None:
                table[number] = weight
        return table
    table = module_weights(folder, allow_pickle, "weight")["weight"].float()
    if len(table) > size:
        raise BadModel(f'"{folder}" weighs {len(table)} words; the network has {size}')
    return torch.nn.functional.pad(table, (0, size - len(table)))
