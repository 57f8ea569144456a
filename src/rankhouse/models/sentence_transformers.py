"""Settings in a sentence-transformers folder, besides weights: pooling, length, prompts, layers behind."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, get_args

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules import activation

from rankhouse.core.errors import BadModel
from rankhouse.models.checkpoint import read_json, refuse_pickle
from rankhouse.models.checkpoint_kinds import is_chain, kind_of, library_settings, modules_of
from rankhouse.models.transformer_encoders import STATIC, PoolingMode, StaticEncoder, pool

_OLD_NAMES = {  # in the order in which their vectors stand side by side
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_QUERY_PROMPTS, _PASSAGE_PROMPTS = ("query",), ("document", "passage", "corpus")
_LAYERS = ("Dense", "LayerNorm", "Normalize")
_CHATS = ("text-generation", "sequence-classification")  # tasks whose pairs a chat template may put together
_ARGUMENTS = ("model", "tokenizer", "config", "processor")
_HARMLESS = {"trust_remote_code", "torch_dtype", "dtype", "attn_implementation", "padding", "padding_side"}
_HARMLESS |= {"logits_to_keep", "add_pooling_layer", "use_fast", "use_safetensors"}  # change no score
_PLAIN = {"Tanh": "tanh", "Identity": "identity"}  # activations as bundles have always named them


class EncoderSettings(NamedTuple):
    """Settings of an encoder: how texts become vectors.

    Attributes:
        transformer: Folder of the transformer itself, or of the word vectors.
        pooling: Modes of :func:`~rankhouse.models.transformer_encoders.pool`, joined by "+".
        layers: Kind and folder of the modules behind the pooling.
        normalised: Whether vectors are given length 1 in the end.
        max_length: Most tokens of a text; None: the tokenizer says.
        similarity: As the folder names it; None: not said.
        query_prompt: Put before queries.
        passage_prompt: Put before passages.
        prompts: All prompts by their names.
        static: Whether a token's vector is one row of a table.
        own: What the Transformer module says of how it reads texts.
        query: How queries become vectors, where other than documents.
    """

    transformer: Path
    pooling: str = "cls"
    layers: tuple[tuple[str, Path], ...] = ()
    normalised: bool = False
    max_length: int | None = None
    similarity: str | None = None
    query_prompt: str = ""
    passage_prompt: str = ""
    prompts: Mapping[str, str] = {}
    static: bool = False
    own: Mapping[str, Any] = {}
    truncated: int | None = None
    query: EncoderSettings | None = None


def read_settings(folder: Path) -> EncoderSettings | None:
    """Read a sentence-transformers folder; None if it is a bare transformer.

    Raises:
        BadModel: A module or a pooling that cannot be computed here.
    """
    if not is_chain(folder):
        return None
    documents, queries = (_side(folder, side) for side in ("document", "query"))
    return documents if queries == documents else documents._replace(query=queries)


def _side(folder: Path, side: str) -> EncoderSettings:
    """Read what texts of a side go through."""
    pooling, static, transformer = "", False, folder
    layers: list[tuple[str, Path]] = []
    for number, (kind, source, place) in enumerate(modules_of(folder, side)):
        if kind == "Transformer" and not number:
            transformer = place
        elif kind == "StaticEmbedding" and not number:
            transformer, static, pooling = place, True, "mean"
        elif kind == "Pooling" and not pooling:
            pooling = _pooling(place / "config.json")
        elif kind in _LAYERS and pooling:
            layers.append((kind, place))
        elif kind != "Dropout":
            raise BadModel(
                f'"{folder}" has a module "{source}" at place {number}; read here are '
                "Transformer and Pooling or StaticEmbedding, then Dense, LayerNorm and Normalize"
            )
    if not pooling:
        raise BadModel(f'"{folder}" has no Pooling module, so it gives no vectors of texts')
    normalised = bool(layers) and layers[-1][0] == "Normalize"
    own = {} if static else read_transformer(transformer)
    more = library_settings(folder)
    return EncoderSettings(
        transformer,
        pooling,
        tuple(layers[:-1] if normalised else layers),
        normalised,
        max_length=own.get(f"{side}_length") or own.get("max_seq_length"),
        similarity=more.get("similarity_fn_name"),
        query_prompt=_prompt(more, _QUERY_PROMPTS),
        passage_prompt=_prompt(more, _PASSAGE_PROMPTS),
        prompts=more.get("prompts") or {},
        static=static,
        own=own,
        truncated=more.get("truncate_dim"),
    )


def read_transformer(place: Path, task: str = "feature-extraction") -> Mapping[str, Any]:
    """Read how a Transformer module reads texts, besides its network.

    Raises:
        BadModel: Its tokenizer is called, or its network asked, otherwise than here for this task.
    """
    own = _own_settings(place)
    kinds = own.get("modality_config") or {}
    asked = kinds.get("text") or {}
    given = own.get("processing_kwargs") or {}
    changed = [
        given.get("text"),
        given.get("common"),
        *(own.get(f"{name}_{end}") for name in _ARGUMENTS for end in ("args", "kwargs")),
    ]
    odd = {key for some in changed for key in some or () if key not in _HARMLESS}
    answer = "last_hidden_state" if task == "feature-extraction" else "logits"
    usual = {"method": "forward", "method_output_name": answer}
    odd |= {f"{name}={asked[name]}" for name in usual if asked.get(name, usual[name]) != usual[name]}
    odd |= {named for named in (own.get("transformer_task"),) if named not in {None, task}}
    odd |= {"texts in a chat template"} if "message" in kinds and task not in _CHATS else set()
    if odd:
        raise BadModel(
            f'"{place}": its Transformer module has settings that cannot be computed here '
            f"({', '.join(sorted(odd))}); use another checkpoint"
        )
    return own


def _own_settings(place: Path) -> Mapping[str, Any]:
    """Return the settings of a Transformer module as its folder holds them."""
    return next(map(read_json, sorted(place.glob("sentence_*_config.json"))), {})


def transformer_of(folder: Path) -> tuple[Path, Mapping[str, Any]]:
    """Return where the transformer of a folder lies, and how :func:`load_tokenizer` is to read its texts.

    The length that it is meant for holds for single texts, not for pairs, and is left out.

    Raises:
        BadModel: Word vectors, or another module, in place of a transformer.
    """
    if not is_chain(folder):
        return folder, {}
    first = modules_of(folder)[0]
    if not (first.place / "config.json").is_file() or first.kind == "StaticEmbedding":
        raise BadModel(f'"{folder}" begins with a {first.kind}, no Transformer that could read pairs')
    return first.place, {"do_lower_case": _own_settings(first.place).get("do_lower_case")}


def own_ranker(folder: Path, allow_pickle: bool = False) -> str:
    """Return the notation of the bi-encoder that a folder holds; "" for any other folder."""
    is_biencoder = kind_of(folder).key == "sentences"
    pickle = ", allow_pickle=True" if allow_pickle else ""
    return f"biencoder({json.dumps(str(folder))}{pickle})" if is_biencoder else ""


class UnitLength(nn.Module):
    """Normalize between other layers."""

    def forward(self, x: Tensor) -> Tensor:
        """(n, w) -> (n, w)."""
        return F.normalize(x, dim=-1)


class FirstNumbers(nn.Module):
    """Vectors cut to their first numbers (Matryoshka)."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def forward(self, x: Tensor) -> Tensor:
        """(n, w) -> (n, count)."""
        return x[:, : self.count]


class ResidualDense(nn.Module):
    """A layer that adds its input to its output, by a layer of its own where their widths differ."""

    def __init__(self, linear: nn.Linear, act: nn.Module) -> None:
        super().__init__()
        self.linear, self.act = linear, act
        widths = linear.in_features, linear.out_features
        self.residual = nn.Identity() if widths[0] == widths[1] else nn.Linear(*widths, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(n, in) -> (n, out)."""
        added: Tensor = self.act(self.linear(x)) + self.residual(x)
        return added


def layers_of(shapes: Sequence[Mapping[str, Any]]) -> nn.Sequential:
    """Make the layers behind the pooling, untrained."""
    layers: list[nn.Module] = []
    for shape in shapes:
        if "norm" in shape:
            layers.append(nn.LayerNorm(shape["norm"]))
        elif "first" in shape:
            layers.append(FirstNumbers(shape["first"]))
        elif "in" not in shape:
            layers.append(UnitLength())
        else:
            linear = nn.Linear(shape["in"], shape["out"], bias=shape["bias"])
            name = {"tanh": "Tanh", "identity": ""}.get(shape["activation"], shape["activation"])
            act = [getattr(activation, name)()] if name else []
            residual = shape.get("residual")
            layers += [ResidualDense(linear, *act or [nn.Identity()])] if residual else [linear, *act]
    return nn.Sequential(*layers)


def read_layers(
    modules: Sequence[tuple[str, Path]], source: str = "sentence_embedding", *, allow_pickle: bool = False
) -> tuple[list[dict[str, Any]], nn.Sequential]:
    """Read the layers behind the pooling: their shapes as JSON values, and themselves.

    Args:
        source: What they must read: "sentence_embedding", or "token_embeddings" where nothing pools.
        allow_pickle: Whether weights may be read from pytorch_model.bin.

    Raises:
        BadModel: What a layer reads or its activation is not known, weights that do not fit.
    """
    shapes: list[dict[str, Any]] = []
    weights: dict[str, Tensor] = {}
    for kind, folder in modules:
        path = folder / "config.json"
        config: Mapping[str, Any] = read_json(path) if path.is_file() else {}
        own = config.get("module_input_name", source)
        made = config.get("module_output_name") or own
        if own != source or made not in {source, "scores"}:
            raise BadModel(f'"{folder}" reads {own} and makes {made}; read here are layers of {source}')
        if kind == "Normalize":
            shapes.append({"normalise": True})
            continue
        tensors = module_weights(
            folder, allow_pickle, "norm.weight" if kind == "LayerNorm" else "linear.weight"
        )
        place = len(layers_of(shapes))
        shapes.append(_shape(kind, config, tensors, folder))
        whole = shapes[-1].get("residual")
        names = {name: name if whole else name.rsplit(".", 1)[-1] for name in tensors}
        weights |= {f"{place}.{names[name]}": tensor.float() for name, tensor in tensors.items()}
    layers = layers_of(shapes)
    try:
        layers.load_state_dict(weights)
    except RuntimeError as error:
        raise BadModel(f"the layers {[str(place) for _, place in modules]} do not fit: {error}") from None
    return shapes, layers


def module_weights(folder: Path, allow_pickle: bool, wanted: str = "") -> dict[str, Tensor]:
    """Read a module's tensors, ``wanted`` among them; BadModel where there are none that may be read."""
    safe, pickled = folder / "model.safetensors", folder / "pytorch_model.bin"
    if not safe.is_file():
        refuse_pickle(folder, allow_pickle)
        if not allow_pickle or not pickled.is_file():
            raise BadModel(f'"{folder}" holds no model.safetensors; fetch the folder again')
    try:
        tensors: dict[str, Tensor] = (
            load_file(safe) if safe.is_file() else torch.load(pickled, map_location="cpu", weights_only=True)
        )
        if wanted:
            tensors[wanted]
    except Exception as error:  # damaged files make the two libraries raise a dozen kinds
        why = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise BadModel(f'the weights in "{folder}" cannot be read ({why}); fetch the folder again') from error
    return tensors


def static_encoder(
    place: Path, tokenizer: str | None, allow_pickle: bool
) -> tuple[nn.Module, Tokenizer, dict[str, Any], int]:
    """Open word vectors as sentence-transformers or model2vec write them.

    Returns:
        The encoder; its tokenizer; what stands for a config.json; most tokens of a text.

    Raises:
        BadModel: No tokenizer.json or model.safetensors, or the two do not fit.
    """
    try:
        own = Tokenizer.from_file(str(Path(tokenizer or place) / "tokenizer.json"))
        tensors = module_weights(place, allow_pickle)
        table = tensors["embedding.weight"] if "embedding.weight" in tensors else tensors["embeddings"]
        table = (table[tensors["mapping"].long()] if "mapping" in tensors else table).float()
        if "weights" in tensors:  # of single tokens, in model2vec's vocabularies that share rows
            table = table * tensors["weights"].float()[:, None]
        if (own.truncation or {}).get("direction", "right").lower() != "right":
            raise ValueError("long texts lose their beginnings; only their ends are cut here")
        if len(table) <= max(own.get_vocab(with_added_tokens=True).values()):
            raise ValueError(f"{len(table)} vectors for {own.get_vocab_size()} tokens")
    except Exception as error:  # tokenizers raises a bare Exception
        raise BadModel(
            f'"{place}" holds no word vectors that can be read ({error}); it needs tokenizer.json and '
            "model.safetensors of one StaticEmbedding; fetch the folder again"
        ) from error
    network = StaticEncoder(*table.shape)
    network.load_state_dict({"embeddings.weight": table})
    raw = {"model_type": STATIC, "vocab_size": table.shape[0], "hidden_size": table.shape[1]}
    return network, own, raw, (own.truncation or {}).get("max_length", 1_000_000)


def _shape(
    kind: str, config: Mapping[str, Any], tensors: Mapping[str, Tensor], folder: Path
) -> dict[str, Any]:
    """Describe a layer with weights."""
    if kind == "LayerNorm":
        return {"norm": len(tensors["norm.weight"])}
    named = str(config.get("activation_function", "torch.nn.modules.activation.Tanh"))
    name = named.rsplit(".", 1)[-1]
    known = name == "Identity" or name in set(activation.__all__) - {"MultiheadAttention", "Threshold"}
    if not known or not named.startswith("torch.nn."):
        raise BadModel(f'"{folder}" has the activation {named}; read here are those of torch.nn')
    out_features, in_features = tensors["linear.weight"].shape
    shape = {"in": in_features, "out": out_features, "bias": "linear.bias" in tensors}
    residual = {"residual": True} if config.get("use_residual") else {}
    return {**shape, "activation": _PLAIN.get(name, name), **residual}


def _pooling(path: Path) -> str:
    """Read a pooling as versions 2 to 6 write it."""
    config = read_json(path)
    modes = config.get("pooling_mode")
    if modes is None:
        modes = [mode for key, mode in _OLD_NAMES.items() if config.get(key)] or ["mean"]
    modes = [modes] if isinstance(modes, str) else list(modes)
    if set(modes) <= set(get_args(PoolingMode)) and config.get("include_prompt", True):
        return "+".join(modes)
    left_out = "" if config.get("include_prompt", True) else ", prompts left out of it"
    known = ", ".join(get_args(PoolingMode))
    raise BadModel(f'"{path}" pools by {" and ".join(modes)}{left_out}; read here are {known}')


def _prompt(settings: Mapping[str, Any], names: tuple[str, ...]) -> str:
    """Return the first prompt of these names, empty ones among them; else the default one."""
    prompts: Mapping[str, str | None] = settings.get("prompts") or {}
    named = next((name for name in names if name in prompts), settings.get("default_prompt_name") or "")
    return prompts.get(named) or ""


class HeadedEncoder(nn.Module):
    """An encoder with something behind it, called as transformers' classifiers are."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        own: Any = encoder
        self.encoder, self.config = encoder, own.config

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return next(self.parameters()).device

    def get_input_embeddings(self) -> nn.Module:
        """Return the word vectors."""
        own: Any = self.encoder
        embeddings: nn.Module = own.get_input_embeddings()
        return embeddings

    def states(self, mask: Tensor, given: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the states of true tokens, rows end to end, (t, w), and how many each row has, (rows,)."""
        states: Tensor = self.encoder(attention_mask=mask, **given).last_hidden_state
        return states[mask.bool()], mask.sum(1)


class ScoredEncoder(HeadedEncoder):
    """Pooling, and layers behind it that end in a pair's numbers."""

    def __init__(self, encoder: nn.Module, pooling: str, layers: nn.Sequential) -> None:
        super().__init__(encoder)
        self.pooling, self.layers = pooling, layers

    def forward(self, attention_mask: Tensor, **given: Tensor) -> SimpleNamespace:
        """Score rows: ``logits`` (rows, c)."""
        states, lengths = self.states(attention_mask, given)
        return SimpleNamespace(logits=self.layers(pool(states, lengths, self.pooling)))
