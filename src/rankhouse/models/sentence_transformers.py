"""What a sentence-transformers folder says besides weights: pooling, length, prompts, layers behind."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, normalizers
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules import activation

from rankhouse.core.errors import BadModel
from rankhouse.models.checkpoint import read_json, refuse_pickle
from rankhouse.models.checkpoint_kinds import kind_of
from rankhouse.models.transformer_encoders import PoolingMode

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
_SIMILARITIES = {"": None, "dot": "dot", "cosine": "cosine", "euclidean": "l2"}
_PLAIN = {"Tanh": "tanh", "Identity": "identity"}  # activations as bundles have always named them


class EncoderSettings(NamedTuple):
    """How texts become vectors.

    Attributes:
        transformer: Folder of the transformer itself, or of the word vectors.
        pooling: Modes of :func:`~rankhouse.models.transformer_encoders.pool`, joined by "+".
        layers: Kind and folder of the modules behind the pooling.
        normalised: Whether vectors are given length 1 in the end.
        max_length: Most tokens of a text; None: the tokenizer says.
        similarity: "dot", "cosine" or "l2"; None: not said.
        query_prompt: Put before queries.
        passage_prompt: Put before passages.
        prompts: All prompts by their names.
        static: Whether a token's vector is one row of a table.
        lowercase: Whether texts are put into small letters before they are tokenised.
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
    lowercase: bool = False


def read_settings(folder: Path) -> EncoderSettings | None:
    """Read a sentence-transformers folder; None if it is a bare transformer.

    Raises:
        BadModel: A module or a pooling that cannot be computed here.
    """
    if not (folder / "modules.json").is_file():
        return None
    pooling, static, transformer = "", False, folder
    layers: list[tuple[str, Path]] = []
    for module in read_json(folder / "modules.json"):
        kind, place = str(module["type"]).rsplit(".", 1)[-1], folder / module["path"]
        if kind == "Transformer":
            transformer = place
        elif kind == "StaticEmbedding":
            transformer, static, pooling = place, True, "mean"
        elif kind == "Pooling":
            pooling = _pooling(place / "config.json")
        elif kind in _LAYERS and pooling:
            layers.append((kind, place))
        elif kind != "Dropout":
            raise BadModel(
                f'"{folder}" has a module "{module["type"]}" at place {module.get("idx")}; read here are '
                "Transformer and Pooling or StaticEmbedding, then Dense, LayerNorm and Normalize"
            )
    if not pooling:
        raise BadModel(f'"{folder}" has no Pooling module, so it gives no vectors of texts')
    normalised = bool(layers) and layers[-1][0] == "Normalize"
    own: Mapping[str, Any] = next(map(read_json, sorted(transformer.glob("sentence_*_config.json"))), {})
    extra = folder / "config_sentence_transformers.json"
    more: Mapping[str, Any] = read_json(extra) if extra.is_file() else {}
    named = str(more.get("similarity_fn_name") or "")
    if named not in _SIMILARITIES:
        known = ", ".join(filter(None, _SIMILARITIES))
        raise BadModel(f'"{folder}" compares vectors by {named!r}; read here are {known}')
    return EncoderSettings(
        transformer,
        pooling,
        tuple(layers[:-1] if normalised else layers),
        normalised,
        max_length=own.get("max_seq_length"),
        similarity=_SIMILARITIES[named],
        query_prompt=_prompt(more, _QUERY_PROMPTS),
        passage_prompt=_prompt(more, _PASSAGE_PROMPTS),
        prompts=more.get("prompts") or {},
        static=static,
        lowercase=bool(own.get("do_lower_case")),
    )


def own_ranker(folder: Path, allow_pickle: bool = False) -> str:
    """Return the notation of the bi-encoder that a folder holds; "" for any other folder."""
    is_biencoder = kind_of(folder).key == "sentences"
    pickle = ", allow_pickle=True" if allow_pickle else ""
    return f"biencoder({json.dumps(str(folder))}{pickle})" if is_biencoder else ""


def in_small_letters(tokenizer: Tokenizer) -> Tokenizer:
    """Let a tokenizer lower the case of its texts first, unless it does."""
    settings = json.loads(tokenizer.to_str())["normalizer"]
    described = json.dumps(settings)
    if '"lowercase": true' not in described and '"type": "Lowercase"' not in described:
        given = [tokenizer.normalizer] if settings else []
        tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *given])
    return tokenizer


class UnitLength(nn.Module):
    """Normalize between other layers."""

    def forward(self, x: Tensor) -> Tensor:
        """(n, w) -> (n, w)."""
        return F.normalize(x, dim=-1)


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
        if (own := config.get("module_input_name", source)) != source:
            raise BadModel(f'"{folder}" reads {own}; read here are layers of {source}')
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
    prompts: Mapping[str, str] = settings.get("prompts") or {}
    named = [prompts[name] for name in names if prompts.get(name)]
    return named[0] if named else prompts.get(settings.get("default_prompt_name") or "", "")
