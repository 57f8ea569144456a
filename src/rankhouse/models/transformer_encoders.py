"""The ways an encoder checkpoint is computed: BERT and its kin packed, all others by rows of equal length.

Both are ``Packed`` rows in, states out, which is all the models above know: a compiled encoder would take the
place of one of them. Training has a third, transformers' own code, which has gradients. Behind them, pooling
and linear layers make the vector of a text.
Shapes: n rows or texts, t tokens together, w width of states, d width of vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy, deepcopy
from types import SimpleNamespace
from typing import Any, Literal, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankhouse.core.errors import BadModel, WrongUse
from rankhouse.models.checkpoint_kinds import with_article
from rankhouse.nn.layers.bert import BERT_NAMES, DISTILBERT_NAMES, MPNET_NAMES, PostNormEncoder, PostNormSizes
from rankhouse.nn.layers.decoder import Decoder, DecoderSizes
from rankhouse.nn.layers.linear import packed_linears
from rankhouse.nn.layers.modernbert import LayerKind, ModernEncoder, ModernSizes
from rankhouse.nn.layers.prenorm import Rotary
from rankhouse.nn.layers.ragged import Packed, Ragged
from rankhouse.nn.machine import Activation, Compute, require_int8

PoolingMode = Literal["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
STATIC = "static"  # model type of word vectors
POSITIONS_FROM_PADDING = frozenset({"roberta", "xlm-roberta", "camembert"})
_SHIFTED = POSITIONS_FROM_PADDING | {"mpnet", "longformer", "xlm-roberta-xl", "roberta-prelayernorm"}
_SHIFTED |= {"ibert", "xmod", "luke", "data2vec-text"}
"""Types whose first position, too, is the one behind the padding's."""
_LIKE_BERT = POSITIONS_FROM_PADDING | {"bert", "electra"}
_STEADY = frozenset({"default", "linear", "yarn", "llama3"})  # rotary positions that no length changes
_DECODERS = frozenset({"qwen2", "qwen3", "llama", "mistral", "gemma"})
_MOST = 8_192  # tokens of a row, unless more are asked for
_MPNET_PADDING = 1  # token from which its code counts positions, whatever config.json says
_FURTHEST = 128  # MPNet's distance from which on all share a bias
_ROWS, _ROWS_BF16 = 4, 8  # of a call while training, on a processor; calls weigh more where sums are quick
_ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
}


class StateEncoder(Protocol):
    """Rows of ids -> hidden states, without gradients. Shapes: n rows, t tokens together, w width."""

    def hidden(self, batch: Packed) -> Tensor:
        """Return every token's last state, (t, w) float32, rows end to end."""
        ...

    def first(self, batch: Packed) -> Tensor:
        """Return the last state of every row's first token, (n, w) float32."""
        ...


def is_packable(config: Any) -> bool:  # noqa: ANN401  # transformers' configurations have no common type
    """Return whether ``nn.layers`` computes the very function of this checkpoint."""
    named = {"distilbert": "activation", "modernbert": "hidden_activation"}.get(
        config.model_type, "hidden_act"
    )
    if getattr(config, named, None) not in _ACTIVATIONS:
        return False
    if config.model_type == "modernbert":
        return all(one["rope_type"] in _STEADY for one in config.rope_parameters.values())
    return (
        (config.model_type in _LIKE_BERT or config.model_type in {"distilbert", "mpnet"})
        and (config.model_type != "mpnet" or config.pad_token_id == _MPNET_PADDING)
        and getattr(config, "position_embedding_type", None) in {None, "absolute"}
        and not getattr(config, "is_decoder", False)
        and not getattr(config, "sinusoidal_pos_embds", False)
    )


def is_like_bert(config: Any) -> bool:  # noqa: ANN401  # as above
    """Return whether an encoder has BERT's own layers, embeddings with segments and positions among them."""
    return config.model_type in _LIKE_BERT and is_packable(config)


def encoder_of(base: nn.Module, compute: Compute, *, first_only: bool) -> StateEncoder:
    """Make the quickest encoder there is for a transformers encoder.

    Args:
        first_only: Whether only ``first`` will be asked for, else only ``hidden``.
    """
    config: Any = base.config
    if (decoder := decoder_sizes(base)) is not None:
        return Decoder(base.state_dict(), decoder, compute)
    if not is_packable(config):
        return ByLength(base, compute)
    if config.model_type == "modernbert":
        return ModernEncoder(base.state_dict(), _modern_sizes(base), compute, first_only=first_only)
    distil = config.model_type == "distilbert"
    sizes = PostNormSizes(
        layers=config.num_hidden_layers,
        heads=config.num_attention_heads,
        eps=1e-12 if distil else config.layer_norm_eps,
        activation=_ACTIVATIONS[config.activation if distil else config.hidden_act],
        first_position=first_position(config),
        furthest=_FURTHEST if config.model_type == "mpnet" else 0,
    )
    names = {"distilbert": DISTILBERT_NAMES, "mpnet": MPNET_NAMES}.get(config.model_type, BERT_NAMES)
    return PostNormEncoder(base.state_dict(), names, sizes, compute, first_only=first_only)


def _modern_sizes(base: Any) -> ModernSizes:  # noqa: ANN401  # as above
    """Read off a ModernBERT what its weights do not say."""
    config, turning = base.config, base.rotary_emb
    kinds = {
        name: LayerKind(
            config.sliding_window if name == "sliding_attention" else None,
            Rotary(getattr(turning, f"{name}_inv_freq"), getattr(turning, f"{name}_attention_scaling")),
        )
        for name in set(config.layer_types)
    }
    return ModernSizes(
        kinds=tuple(kinds[name] for name in config.layer_types),
        heads=config.num_attention_heads,
        eps=config.norm_eps,
        activation=_ACTIVATIONS[config.hidden_activation],
    )


def decoder_sizes(base: Any) -> DecoderSizes | None:  # noqa: ANN401  # as above
    """Read off a decoder what its weights do not say; None where ``nn.layers`` does not compute it."""
    config = base.config
    kind, activation = config.model_type, getattr(config, "hidden_act", None)
    rope = getattr(config, "rope_parameters", None) or {}
    window = getattr(config, "sliding_window", None) if kind == "mistral" else None
    if (
        kind not in _DECODERS
        or getattr(config, "is_causal", True) is False  # read both ways
        or activation not in _ACTIVATIONS
        or rope.get("rope_type", "default") not in _STEADY
        or set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
        or (window is not None and window < _MOST)
    ):
        return None
    gemma = kind == "gemma"
    return DecoderSizes(
        layers=config.num_hidden_layers,
        heads=config.num_attention_heads,
        key_heads=config.num_key_value_heads,
        eps=config.rms_norm_eps,
        activation=_ACTIVATIONS[activation],
        rotary=Rotary(base.rotary_emb.inv_freq, base.rotary_emb.attention_scaling),
        gain_from=1.0 if gemma else 0.0,
        scale=config.hidden_size**0.5 if gemma else 1.0,
    )


def first_position(config: Any) -> int:  # noqa: ANN401  # as above
    """Return the row of the position table that a row's first token takes."""
    padding = _MPNET_PADDING if config.model_type == "mpnet" else config.pad_token_id
    return padding + 1 if config.model_type in _SHIFTED else 0


def length_limit(config: Any, meant: int, asked: int | None) -> int:  # noqa: ANN401  # as above
    """Settle the most tokens of a row; WrongUse if the network has not that many positions."""
    places = int(getattr(config, "max_position_embeddings", 0) or 0)
    most = places - first_position(config) if places > 0 else 1_000_000
    if asked is not None and asked > most:
        raise WrongUse(f"max_length={asked}: this network has {most} positions; give {most} or less")
    return asked if asked is not None else min(meant, most, _MOST)


def reads_segments(config: Any, asked: bool) -> bool:  # noqa: ANN401  # as above
    """Return whether a network wants segment ids: its tokenizer says so and it has more than one."""
    return asked and getattr(config, "type_vocab_size", 0) > 1


def frozen(network: nn.Module, compute: Compute) -> Any:  # noqa: ANN401  # transformers has no common type
    """Copy a network that the packed layers do not compute, its products quick; WrongUse for int8."""
    require_int8(compute, type(network).__name__)
    return packed_linears(deepcopy(network).to(compute.device, compute.dtype).eval(), compute)


class ByLength:
    """Any transformers encoder, called with rows of one length only: no padding, no mask."""

    def __init__(self, base: nn.Module, compute: Compute) -> None:
        self._base = frozen(base, compute)

    def hidden(self, batch: Packed) -> Tensor:
        """Return every token's last state, (t, w) float32, rows end to end."""
        states = (self._base(**given).last_hidden_state for given in by_length(batch))
        return torch.cat([rows.flatten(0, 1).float() for rows in states])

    def first(self, batch: Packed) -> Tensor:
        """Return the last state of every row's first token, (n, w) float32."""
        return torch.cat([self._base(**given).last_hidden_state[:, 0].float() for given in by_length(batch)])


def require_states(network: nn.Module, folder: object) -> None:
    """Refuse a network that makes no states of a text's tokens: one for pictures, or one that pools them."""
    net: Any = network
    if is_packable(net.config) or decoder_sizes(network) is not None:
        return
    try:
        with torch.inference_mode():
            ids = torch.arange(1, 9, device=net.device)[None]
            _ = net(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0, 7]
    except Exception as error:  # whatever a network raises that was made for something else
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        raise BadModel(
            f'"{folder}" is {with_article(type(net).__name__)}, which cannot read a text ({reason})'
        ) from error


def by_length(batch: Packed) -> Iterator[dict[str, Tensor]]:
    """Cut a batch into runs of rows of one length, laid out as transformers takes them."""
    lengths, counts = torch.unique_consecutive(batch.lengths, return_counts=True)
    start = 0
    for length, rows in zip(lengths.tolist(), counts.tolist(), strict=True):
        span = slice(start, start + length * rows)
        given = {"input_ids": batch.ids.values[span].view(rows, length)}
        given["attention_mask"] = torch.ones_like(given["input_ids"])
        if batch.segments is not None:
            given["token_type_ids"] = batch.segments[span].view(rows, length)
        yield given
        start = span.stop


def by_rows(network: nn.Module, batch: Packed, read: Callable[[Any, Tensor], Tensor]) -> Tensor:
    """Compute a batch as training does, with gradients: (n, ...).

    Rows of about one length go through the network together, since padding costs as much as text. On CUDA a
    batch stays whole: there, many small calls cost more.

    Args:
        network: transformers' own; it learns.
        read: Takes the network's answer for some rows and their mask (rows, length) of true tokens, and
            returns what is wanted of each of these rows.
    """
    net: Any = network
    batch = batch.to(net.device)
    order = batch.lengths.argsort(stable=True)
    pad_id = net.config.pad_token_id or 0
    found = []
    with words_once(network, batch.ids.values):
        for rows in torch.split(order, rows_together(net.device, len(order))):
            some = batch.take(rows)
            found.append(read(net(**_padded(some, pad_id)), some.ids.mask()))
    return torch.cat(found)[order.argsort()]


def rows_together(device: torch.device, rows: int) -> int:
    """Return how many rows of a training batch one call of a network gets."""
    if device.type != "cpu":
        return rows
    return _ROWS_BF16 if torch.is_autocast_enabled("cpu") else _ROWS


@contextmanager
def words_once(network: nn.Module, ids: Tensor) -> Iterator[None]:
    """Look a batch's word vectors up once, however many calls of the network use them.

    Each look-up makes a gradient as large as the whole vocabulary: six calls with 80 tokens a row spend a
    quarter of a training step on filling and adding these.

    Args:
        network: transformers' own; its calls within the block may know these ids and the padding only.
    """
    words = cast(Any, network).get_input_embeddings()
    simple = type(words) is nn.Embedding and not (words.sparse or words.scale_grad_by_freq or words.max_norm)
    if not (simple and ids.device.type == "cpu" and torch.is_grad_enabled() and words.weight.requires_grad):
        yield
        return
    pad = torch.tensor([cast(Any, network).config.pad_token_id or 0])
    known = torch.unique(torch.cat([ids, pad]))
    vectors = F.embedding(known, words.weight, words.padding_idx)
    place = torch.empty(words.num_embeddings, dtype=torch.int64)
    place[known] = torch.arange(len(known))
    words.forward = lambda some: F.embedding(place[some], vectors)
    try:
        yield
    finally:
        del words.forward


def _padded(batch: Packed, pad_id: int) -> dict[str, Tensor]:
    given = {"input_ids": batch.ids.pad(pad_id), "attention_mask": batch.ids.mask().long()}
    if batch.segments is not None:
        given["token_type_ids"] = Ragged(batch.segments, batch.lengths).pad()
    return given


class Finish:
    """Layers and length 1, behind the pooling.

    Args:
        normalised: Whether vectors are given length 1.
        compute: Where to compute with a copy of the layers; None: with the layers themselves, which learn.
    """

    def __init__(self, dense: nn.Module, normalised: bool, compute: Compute | None = None) -> None:
        if compute is not None:
            plain = compute.fp32
            dense = packed_linears(deepcopy(dense).to(compute.device).eval(), plain)
        self._dense, self._normalised = dense, normalised

    def __call__(self, pooled: Tensor) -> Tensor:
        """(n, w) -> (n, d)."""
        vectors: Tensor = self._dense(pooled)
        return F.normalize(vectors, dim=-1) if self._normalised else vectors


class VectorScorer:
    """The quickest way from ids to vectors."""

    def __init__(self, base: nn.Module, pooling: str, finish: Finish, compute: Compute) -> None:
        self._first, self._pooling = pooling == "cls", pooling
        self._encoder = encoder_of(base, compute, first_only=self._first)
        self.finish, self._device = finish, compute.device

    def __call__(self, batch: Packed) -> Tensor:
        """Return the vectors of n texts: (n, d)."""
        batch = batch.to(self._device)
        if self._first:
            return self.finish(self._encoder.first(batch))
        return self.finish(pool(self._encoder.hidden(batch), batch.lengths, self._pooling))

    def finished_by(self, finish: Finish) -> VectorScorer:
        """Return the same encoder and pooling with something else behind them."""
        other = copy(self)
        other.finish = finish
        return other

    def states(self, batch: Packed) -> Tensor:
        """Return the states of all tokens, end to end, of which vectors are means: (t, w)."""
        return self._encoder.hidden(batch.to(self._device))


def pool(states: Tensor, lengths: Tensor, pooling: str) -> Tensor:
    """Make one vector of the states (t, w) of each of n rows of these lengths: (n, w), w for each mode.

    Args:
        states: Of all rows, end to end.
        lengths: (n,) int64.
        pooling: Modes of sentence-transformers, joined by "+"; "weightedmean" weighs the i-th state by i.
    """
    lengths = lengths.to(states.device)
    ends = lengths.cumsum(0)
    rows = torch.repeat_interleave(torch.arange(len(lengths), device=states.device), lengths)

    def mean(states: Tensor, weights: Tensor) -> Tensor:
        sums = states.new_zeros(len(lengths), states.shape[1]).index_add(0, rows, states)
        return sums / weights.clamp(min=1)[:, None]

    def pooled(mode: str) -> Tensor:
        match mode:
            case "cls":
                return states[ends - lengths]
            case "lasttoken":
                return states[ends - 1]
            case "max":
                return torch.segment_reduce(states, "max", lengths=lengths)
            case "weightedmean":
                places = 1 + torch.arange(len(rows), device=rows.device) - (ends - lengths)[rows]
                return mean(states * places[:, None], lengths * (lengths + 1) / 2)
            case "mean_sqrt_len_tokens":
                return mean(states, lengths.sqrt())
        return mean(states, lengths)

    return torch.cat([pooled(mode) for mode in pooling.split("+")], 1)


class StaticEncoder(nn.Module):
    """Word vectors that know no context, called as transformers' encoders are."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.embeddings = nn.Embedding(rows, width)
        self.config = SimpleNamespace(model_type=STATIC, pad_token_id=0)

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.embeddings.weight.device

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the table itself."""
        return self.embeddings

    def forward(self, input_ids: Tensor, **_: Tensor) -> SimpleNamespace:
        """Look up ids."""
        return SimpleNamespace(last_hidden_state=self.embeddings(input_ids))
