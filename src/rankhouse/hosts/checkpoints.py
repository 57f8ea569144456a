"""Files that sentence-transformers reads of encoders trained here, and of any network, by their paths."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from tokenizers import Tokenizer
from torch import nn

from rankhouse.core.errors import WrongUse
from rankhouse.models.sentence_transformers import ResidualDense
from rankhouse.models.transformer_encoders import STATIC

_SIMILARITIES: Final = {"dot": "dot", "cosine": "cosine", "l2": "euclidean"}
_POOLINGS: Final = {
    "cls": "cls_token",
    "max": "max_tokens",
    "mean": "mean_tokens",
    "mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "weightedmean": "weightedmean_tokens",
    "lasttoken": "lasttoken",
}
CONFIG: Final = "config_sentence_transformers.json"
MODULES: Final = "sentence_transformers.models."
_SPARSE: Final = "sentence_transformers.sparse_encoder.models."
_PYLATE: Final = "pylate.models.Dense.Dense"
_SPECIAL: Final = ("pad", "cls", "sep", "mask", "unk", "eos", "bos")


def _tokenizer(model: Any, described: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ANN401 - some CheckpointModel
    """Describe a tokenizer: its length, what it gives, and its special tokens by their usual spellings."""
    known = {token["content"] for token in described["added_tokens"] if token["special"]}
    named: dict[str, str] = {}
    for role in _SPECIAL:
        spellings = (
            f"[{role.upper()}]",
            f"<{role}>",
            {"eos": "</s>", "cls": "<s>", "sep": "</s>"}.get(role, ""),
        )
        found = [one for one in spellings if one in known]
        named |= {f"{role}_token": one for one in found[:1]}
    if "pad_token" not in named:  # as decoders have it: its number, or that of what ends a text
        config = json.loads(model.assets()["config.json"])
        ends = config.get("eos_token_id")
        numbers = [config.get("pad_token_id"), *(ends if isinstance(ends, list) else [ends])]
        found = [one["content"] for one in described["added_tokens"] if one["id"] in numbers]
        named["pad_token"] = next(iter([*found, *sorted(known), "<pad>"]))
    inputs = ["input_ids", "attention_mask"]
    if model.policy.get("segments"):
        inputs.insert(1, "token_type_ids")
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": model.policy["max_length"],
        "model_input_names": inputs,
        **named,
    }


def reader_files(model: Any, folder: str = "", **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - a CheckpointModel
    """Return the files of tokenizer and network: path -> JSON, bytes or tensors.

    Args:
        folder: Where they stand; "" or ending in "/".
        changes: Of config.json, and "weights" where they are not the network's own.
    """
    assets, network = model.assets(), model.network
    described = json.loads(assets["tokenizer.json"])
    config = json.loads(assets["config.json"])
    weights = changes.pop("weights", None) or network.state_dict()
    if config["model_type"] == STATIC:
        rows = {"embedding.weight": weights["embeddings.weight"]}
        return {f"{folder}tokenizer.json": assets["tokenizer.json"], f"{folder}model.safetensors": rows}
    config |= {"architectures": [type(network).__name__]} | changes
    config.pop("transformers_version", None)
    return {
        f"{folder}tokenizer.json": assets["tokenizer.json"],
        f"{folder}tokenizer_config.json": _tokenizer(model, described),
        f"{folder}config.json": config,
        f"{folder}model.safetensors": weights,
    }


def bi_encoder(model: Any) -> dict[str, Any]:  # noqa: ANN401 - a BiEncoder
    """A chain, or a Router of two where queries are encoded otherwise than passages."""
    policy, asked = model.policy, model.asked
    lengths = {} if asked is None else {"query_length": asked.policy["max_length"]}
    if asked is None or _alike(model, asked):
        names, files = _encoder(model, "", lengths)
    else:
        shared = asked.network is model.network
        names, files = _encoder(model, "document_", lengths if shared else {})
        theirs, more = _encoder(asked, "query_", {}, first=names[0] if shared else None)
        files |= more | _router({"query": theirs, "document": names}, MODULES)
    files = described_files(policy, [(folder, MODULES + kind) for folder, kind in names]) | files
    truncated = [shape["first"] for shape in policy["dense"] if "first" in shape]
    files[CONFIG] |= {"similarity_fn_name": _SIMILARITIES[policy["similarity"]]}
    files[CONFIG] |= {"truncate_dim": truncated[0]} if truncated else {}
    return files


def _alike(model: Any, asked: Any) -> bool:  # noqa: ANN401 - BiEncoders
    """Return whether two encoders of one network differ in the length of texts only."""
    same = all(model.policy[name] == asked.policy[name] for name in ("pooling", "normalised", "dense"))
    both = zip(model.dense.parameters(), asked.dense.parameters(), strict=False)
    return same and model.network is asked.network and all((one == other).all() for one, other in both)


def _router(routes: Mapping[str, list[tuple[str, str]]], modules: str) -> dict[str, Any]:
    """Return the files of a Router, which stands alone: the modules' classes begin with ``modules``."""
    types = {folder: modules + kind for names in routes.values() for folder, kind in names}
    structure = {side: [folder for folder, _ in names] for side, names in routes.items()}
    parameters = {"default_route": "document", "allow_empty_key": True}
    return {
        "modules.json": [{"idx": 0, "name": "0", "path": "", "type": f"{MODULES}Router"}],
        "router_config.json": {"types": types, "structure": structure, "parameters": parameters},
    }


def _encoder(
    model: Any,  # noqa: ANN401 - a BiEncoder
    prefix: str,
    lengths: dict[str, Any],
    first: tuple[str, str] | None = None,
) -> tuple[list[tuple[str, str]], dict[str, Any]]:
    """Return the modules of one encoder, folder and kind, and their files.

    Args:
        prefix: Begins the names of their folders; "" for a chain, whose first module has none.
        lengths: Of queries, where they differ, as sentence_bert_config.json has it.
        first: The first module, where it is another encoder's.
    """
    policy = model.policy
    is_static = json.loads(model.assets()["config.json"])["model_type"] == STATIC
    kind = "StaticEmbedding" if is_static else "Transformer"
    names = [first or (f"{prefix}0_{kind}" if prefix else "", kind)]
    folder = f"{names[0][0]}/" if prefix else ""
    files = {} if first else reader_files(model, folder)
    if is_static and policy["pooling"] != "mean":
        raise WrongUse(f"word vectors that are pooled by {policy['pooling']} are not written: only means are")
    if not is_static:
        config = model.network.config
        width = config.hidden_size if hasattr(config, "hidden_size") else config.d_model
        files |= pooling_files(policy, width, names, prefix)
        if not first:
            files[f"{folder}sentence_bert_config.json"] = reading(policy) | lengths
    shapes = [shape for shape in policy["dense"] if "first" not in shape]
    files |= layer_files(model.dense, [*shapes, *([{}] if policy["normalised"] else [])], names, prefix)
    return names, files


def pooling_files(
    policy: Mapping[str, Any], width: int, names: list[tuple[str, str]], prefix: str = ""
) -> dict[str, Any]:
    """Return the file of a pooling, which is added to the modules ``names``."""
    modes = policy["pooling"].split("+")
    names.append((f"{prefix}1_Pooling", "Pooling"))
    pooling = {f"pooling_mode_{key}": mode in modes for mode, key in _POOLINGS.items()}
    settings = {"word_embedding_dimension": width, "include_prompt": True, **pooling}
    return {f"{names[-1][0]}/config.json": settings}


def reading(policy: Mapping[str, Any]) -> dict[str, Any]:
    """Return what sentence_bert_config.json says of texts."""
    return {"max_seq_length": policy["max_length"], "do_lower_case": False}


def described_files(policy: Mapping[str, Any], modules: list[tuple[str, str]]) -> dict[str, Any]:
    """Return the files that say which modules there are, and what is put before texts."""
    prompts = {"query": policy["query_prompt"], "document": policy["passage_prompt"]}
    return {
        "modules.json": [
            {"idx": place, "name": str(place), "path": folder, "type": kind}
            for place, (folder, kind) in enumerate(modules)
        ],
        CONFIG: {"prompts": prompts, "default_prompt_name": None},
    }


def layer_files(
    dense: nn.Sequential, shapes: list[dict[str, Any]], names: list[tuple[str, str]], prefix: str = ""
) -> dict[str, Any]:
    """Return the files of layers behind the modules ``names``, to which they are added."""
    files: dict[str, Any] = {}
    weights = dense.state_dict()
    layers = [(str(place), one) for place, one in enumerate(dense)]
    for shape in shapes:
        kind = "LayerNorm" if "norm" in shape else "Dense" if "in" in shape else "Normalize"
        folder = f"{prefix}{len(names)}_{kind}"
        names.append((folder, kind))
        files[f"{folder}/config.json"] = _layer(kind, shape)
        if kind != "Normalize":
            place = next(
                name for name, one in layers if isinstance(one, nn.Linear | nn.LayerNorm | ResidualDense)
            )
            inner = "" if "residual" in shape else "norm." if kind == "LayerNorm" else "linear."
            files[f"{folder}/model.safetensors"] = {
                f"{inner}{name.partition('.')[2]}": t
                for name, t in weights.items()
                if name.startswith(f"{place}.")
            }
            layers = [(name, one) for name, one in layers if int(name) > int(place)]
    return files


def sparse_encoder(model: Any) -> dict[str, Any]:  # noqa: ANN401 - a SparseEncoder
    """As version 5 writes it: the language model, each tensor once, and its pooling; a table in a Router."""
    policy, network = model.policy, model.network
    prefix = "document_0_MLMTransformer/" if policy["query_table"] else ""
    first = {tensor.data_ptr(): name for name, tensor in reversed(network.state_dict().items())}
    weights = {name: tensor for name, tensor in network.state_dict().items() if name in first.values()}
    names = [
        (prefix.rstrip("/"), "MLMTransformer"),
        (f"{prefix and 'document_'}1_SpladePooling", "SpladePooling"),
    ]
    files = reader_files(model, prefix, weights=weights) | described_files(
        policy, [(folder, _SPARSE + kind) for folder, kind in names]
    )
    files[f"{prefix}sentence_bert_config.json"] = reading(policy)
    files[f"{names[1][0]}/config.json"] = {
        "pooling_strategy": policy["pooling"],
        "activation_function": "log1p_relu" if policy["logarithms"] == 2 else "relu",
        "word_embedding_dimension": network.config.vocab_size,
    }
    if model.table is not None:
        files |= _query_table(model, "query_0_SparseStaticEmbedding/")
        query = [("query_0_SparseStaticEmbedding", "SparseStaticEmbedding")]
        files |= _router({"query": query, "document": names}, _SPARSE)
    files[CONFIG] |= {"model_type": "SparseEncoder", "similarity_fn_name": "dot"}
    return files


def _query_table(model: Any, folder: str) -> dict[str, Any]:  # noqa: ANN401 - a SparseEncoder
    """Return the files of the words' weights in queries: as many as the tokenizer has words."""
    tokenizer = model.assets()["tokenizer.json"]
    words = Tokenizer.from_str(tokenizer.decode()).get_vocab_size()
    length = {"model_max_length": model.policy.get("table_length", model.policy["max_length"])}
    return {
        f"{folder}tokenizer.json": tokenizer,
        f"{folder}tokenizer_config.json": _tokenizer(model, json.loads(tokenizer)) | length,
        f"{folder}config.json": {"frozen": False},
        f"{folder}model.safetensors": {"weight": model.table[:words]},
    }


def late_interaction(model: Any) -> dict[str, Any]:  # noqa: ANN401 - a LateInteraction
    """As PyLate writes it, which sentence-transformers 6 reads."""
    policy = model.policy
    words = Tokenizer.from_str(model.assets()["tokenizer.json"].decode())
    names = [("", "Transformer")]
    files = layer_files(model.dense, policy["dense"], names)
    spoken = words.id_to_token(policy["filler"]) if policy["query_filled"] else "[MASK]"
    if (
        {kind for _, kind in names[1:]} != {"Dense"}
        or not policy["normalised"]
        or policy["similarity"].lower() != "maxsim"  # MaxSim, as PyLate has it
        or policy["query_filled"] not in {0, policy["query_length"]}
        or policy["skipped_sides"] != ["document"]
        or spoken not in {"[MASK]", "<mask>"}
    ):
        raise WrongUse("this late-interaction model has settings that only sentence-transformers 6 writes")
    marks = ("".join(str(words.id_to_token(number)) for number in markers) for markers in policy["markers"])
    kinds = [(folder, _PYLATE if folder else f"{MODULES}{kind}") for folder, kind in names]
    files |= described_files(policy, kinds) | {"sentence_bert_config.json": reading(policy)}
    files[CONFIG] |= {
        "model_type": "ColBERT",
        **dict(zip(("query_prefix", "document_prefix"), marks, strict=True)),
        "query_length": policy["query_length"],
        "document_length": policy["max_length"],
        "attend_to_expansion_tokens": policy["attend"],
        "do_query_expansion": bool(policy["query_filled"]),
        "skiplist_words": [words.id_to_token(number) for number in policy["skipped"]],
        "similarity_fn_name": "MaxSim",
    }
    return reader_files(model) | files


def _layer(kind: str, shape: Mapping[str, Any]) -> dict[str, Any]:
    if kind == "LayerNorm":
        return {"dimension": shape["norm"]}
    if kind == "Normalize":
        return {}
    name = {"tanh": "Tanh", "identity": "Identity"}.get(shape["activation"], shape["activation"])
    module = "linear" if name == "Identity" else "activation"
    return {
        "in_features": shape["in"],
        "out_features": shape["out"],
        "bias": shape["bias"],
        "activation_function": f"torch.nn.modules.{module}.{name}",
        **({"use_residual": True} if "residual" in shape else {}),
    }
