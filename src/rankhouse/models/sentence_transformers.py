"""What a sentence-transformers folder says besides weights: pooling, length, prompts, layers behind."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from safetensors.torch import load_file
from torch import Tensor

from rankhouse.core.errors import BadModel
from rankhouse.models.checkpoint import read_json
from rankhouse.models.checkpoint_kinds import kind_of

Pooling = Literal["cls", "mean"]

_OLD_NAMES = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean"}
_QUERY_PROMPTS, _PASSAGE_PROMPTS = ("query",), ("document", "passage", "corpus")


class EncoderSettings(NamedTuple):
    """How texts become vectors.

    Attributes:
        transformer: Folder of the transformer itself.
        pooling: "cls" or "mean".
        dense: Folders of linear layers behind the pooling.
        normalised: Whether vectors are given length 1.
        max_length: Most tokens of a text; None: the tokenizer says.
        similarity: "dot", "cosine" or "l2"; None: not said.
        query_prompt: Put before queries.
        passage_prompt: Put before passages.
    """

    transformer: Path
    pooling: Pooling
    dense: tuple[Path, ...]
    normalised: bool
    max_length: int | None
    similarity: str | None
    query_prompt: str
    passage_prompt: str


def read_settings(folder: Path) -> EncoderSettings | None:
    """Read a sentence-transformers folder; None if it is a bare transformer.

    Raises:
        BadModel: A module or a pooling that cannot be computed here.
    """
    if not (folder / "modules.json").is_file():
        return None
    pooling: Pooling | None = None
    dense: list[Path] = []
    transformer, normalised = folder, False
    for module in read_json(folder / "modules.json"):
        kind, place = str(module["type"]).rsplit(".", 1)[-1], folder / module["path"]
        if kind == "Transformer":
            transformer = place
        elif kind == "Pooling":
            pooling = _pooling(place / "config.json")
        elif kind == "Dense" and pooling is not None and not normalised:
            dense.append(place)
        elif kind == "Normalize":
            normalised = True
        elif kind != "Dropout":
            raise BadModel(
                f'"{folder}" has a module "{module["type"]}" at place {module.get("idx")}; read here are '
                "Transformer, Pooling, Dense and Normalize, in this order"
            )
    if pooling is None:
        raise BadModel(f'"{folder}" has no Pooling module, so it gives no vectors of texts')
    own = transformer / "sentence_bert_config.json"
    most = read_json(own).get("max_seq_length") if own.is_file() else None
    extra = folder / "config_sentence_transformers.json"
    prompts: Mapping[str, Any] = read_json(extra) if extra.is_file() else {}
    similarity = {"dot": "dot", "cosine": "cosine", "euclidean": "l2"}.get(
        prompts.get("similarity_fn_name") or ""
    )
    return EncoderSettings(
        transformer,
        pooling,
        tuple(dense),
        normalised,
        max_length=most,
        similarity=similarity,
        query_prompt=_prompt(prompts, _QUERY_PROMPTS),
        passage_prompt=_prompt(prompts, _PASSAGE_PROMPTS),
    )


def own_ranker(folder: Path, allow_pickle: bool = False) -> str:
    """Return the notation of the bi-encoder that a folder holds; "" for any other folder."""
    is_biencoder = kind_of(folder).key == "sentences"
    pickle = ", allow_pickle=True" if allow_pickle else ""
    return f"biencoder({json.dumps(str(folder))}{pickle})" if is_biencoder else ""


def read_dense(folders: Sequence[Path]) -> tuple[list[dict[str, Any]], dict[str, Tensor]]:
    """Read linear layers: their shapes as JSON values, and their weights by the names of one Sequential.

    Raises:
        BadModel: An activation that is not known, or no safetensors.
    """
    shapes: list[dict[str, Any]] = []
    weights: dict[str, Tensor] = {}
    place = 0
    for folder in folders:
        config = read_json(folder / "config.json")
        activation = str(config.get("activation_function", "torch.nn.modules.activation.Tanh")).rsplit(
            ".", 1
        )[-1]
        if activation not in {"Tanh", "Identity"}:
            raise BadModel(f'"{folder}" has the activation {activation}; read here are Tanh and Identity')
        if not (folder / "model.safetensors").is_file():
            raise BadModel(f'"{folder}" holds no model.safetensors; pickles are not read here')
        tensors = load_file(folder / "model.safetensors")
        weights |= {f"{place}.{name.rsplit('.', 1)[-1]}": tensor.float() for name, tensor in tensors.items()}
        out_features, in_features = tensors["linear.weight"].shape
        shape = {"in": in_features, "out": out_features, "bias": "linear.bias" in tensors}
        shapes.append({**shape, "activation": activation.lower()})
        place += 2 if activation == "Tanh" else 1
    return shapes, weights


def _pooling(path: Path) -> Pooling:
    """Read a pooling as versions 2 to 6 write it."""
    config = read_json(path)
    modes = config.get("pooling_mode", [])
    modes = [modes] if isinstance(modes, str) else list(modes)
    modes += [
        _OLD_NAMES.get(k, k) for k, on in config.items() if k.startswith("pooling_mode_") and on is True
    ]
    if modes == ["cls"]:
        return "cls"
    if modes == ["mean"] and config.get("include_prompt", True):
        return "mean"
    left_out = "" if config.get("include_prompt", True) else ", prompts left out of it"
    raise BadModel(f'"{path}" pools by {" and ".join(modes)}{left_out}; read here are cls and mean')


def _prompt(settings: Mapping[str, Any], names: tuple[str, ...]) -> str:
    prompts: Mapping[str, str] = settings.get("prompts") or {}
    named = [prompts[name] for name in names if prompts.get(name)]
    return named[0] if named else prompts.get(settings.get("default_prompt_name") or "", "")
