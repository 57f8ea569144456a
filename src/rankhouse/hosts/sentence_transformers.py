"""sentence-transformers: its evaluators over any ranker, and rankers trained here as its checkpoints.

``save`` writes the layout that sentence-transformers (2 to 6) and transformers read; neither is imported:

| family | opened by | scores |
|---|---|---|
| cross-encoder | ``CrossEncoder(DIR)``, ``AutoModelForSequenceClassification`` | of ``predict``: ours |
| bi-encoder | ``SentenceTransformer(DIR)`` | of ``similarity``: ours; for l2, its square root |
| sparse | ``SparseEncoder(DIR)`` | of ``similarity``: ours |
| ColBERT | ``MultiVectorEncoder(DIR)``, PyLate | of ``similarity``: ours |
| monoT5 | ``AutoModelForSeq2SeqLM``, pyterrier_t5, pygaggle | log softmax of the two target words: ours |

Texts that are too long are cut by each in its own way, so that such pairs have other scores there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rankhouse.api.rankers import open_ranker
from rankhouse.core.errors import WrongUse, needs
from rankhouse.core.nouns import Document
from rankhouse.hosts import beir
from rankhouse.hosts.adapters import RankerLike, checked_text, own_or_numbered
from rankhouse.hosts.model_card import ModelCard
from rankhouse.io.files import PathLike, as_path
from rankhouse.io.outputs import replacing_folder

with needs("sentence-transformers", "rankhouse.hosts.sentence_transformers"):
    from safetensors.torch import save_file
    from tokenizers import Tokenizer
    from torch import Tensor, nn

    from rankhouse.models.sentence_transformers import ResidualDense
    from rankhouse.training.folder import COMMAND, SETTINGS

if TYPE_CHECKING:
    from rankhouse.models.ranker import NeuralRanker

_ACTIVATIONS: Final = {
    "probability": "torch.nn.modules.activation.Sigmoid",
    "logprob": "torch.nn.modules.activation.LogSigmoid",
}
_IDENTITY: Final = "torch.nn.modules.linear.Identity"
_SIMILARITIES: Final = {"dot": "dot", "cosine": "cosine", "l2": "euclidean"}
_POOLINGS: Final = {
    "cls": "cls_token",
    "max": "max_tokens",
    "mean": "mean_tokens",
    "mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "weightedmean": "weightedmean_tokens",
    "lasttoken": "lasttoken",
}
_MODULES: Final = "sentence_transformers.models."
_SPARSE: Final = "sentence_transformers.sparse_encoder.models."
_PYLATE: Final = "pylate.models.Dense.Dense"
_SPECIAL: Final = ("pad", "cls", "sep", "mask", "unk", "eos", "bos")


class CrossEncoder(beir.CrossEncoder):
    """A ranker with ``predict`` and ``rank``, for sentence-transformers' evaluators and examples.

    >>> CrossEncoderRerankingEvaluator(samples)(CrossEncoder('crossencoder("DIR")'))  # doctest: +SKIP

    Args:
        ranker: A folder, ``crossencoder("DIR", split="sentences(10, 5)")``, or any ranker.

    Attributes:
        num_labels: One number for a pair.
        evaluations: What evaluators found: their name -> their numbers.
    """

    num_labels: Final = 1

    def __init__(self, ranker: RankerLike) -> None:
        super().__init__(ranker)
        self.evaluations: dict[str, dict[str, float]] = {}

    def rank(
        self,
        query: str,
        documents: Sequence[str],
        top_k: int | None = None,
        *,
        return_documents: bool = False,
        **options: object,
    ) -> list[dict[str, Any]]:
        """Order texts for a question: corpus_id (the place in what was given) and score, best first.

        Args:
            top_k: How many of the best are returned; None for all.
            return_documents: Add each one's "text".
            options: As for ``predict``.
        """
        del options
        ids = own_or_numbered([None] * len(documents), "")
        texts = [checked_text(text, f"document {place:,}") for place, text in enumerate(documents)]
        order = self._open.order(query, list(map(Document, ids, texts)), top_k)
        return [
            {"corpus_id": place, "score": score, **({"text": texts[place]} if return_documents else {})}
            for place, score in order
        ]

    @property
    def model_card_data(self) -> CrossEncoder:
        """What takes the numbers for a model card: itself."""
        return self

    def set_evaluation_metrics(
        self,
        evaluator: object,
        metrics: Mapping[str, Any],
        epoch: int = 0,
        step: int = 0,
    ) -> None:
        """Keep what an evaluator found."""
        del epoch, step
        self.evaluations[getattr(evaluator, "name", "") or type(evaluator).__name__] = dict(metrics)


class _Checkpoint(NamedTuple):
    """What a folder in transformers' layout holds.

    Attributes:
        architecture: transformers' class of the network.
        config: Changes of config.json.
        weights: By the names that the class gives them.
        modules: Files behind the transformer, for sentence-transformers: path -> JSON or tensors.
    """

    architecture: str
    config: Mapping[str, Any]
    weights: Mapping[str, Tensor]
    modules: Mapping[str, Any] = {}


def save(
    ranker: PathLike | NeuralRanker, folder: PathLike, *, card: ModelCard | None = None, name: str = ""
) -> Path:
    """Write a cross-encoder, an encoder or a monoT5 in the layout of sentence-transformers or transformers.

    Args:
        ranker: The folder of a training, or what ``rh.open_ranker`` opened.
        folder: The folder to make, whole or not at all; nothing is replaced.
        card: What README.md, the model card, says of licence and data.
        name: How the card calls it; the folder's name where left out.

    Raises:
        WrongUse: Another family, which they cannot compute; something stands there already.
        OutputFailed: It cannot be written.
    """
    opened = open_ranker(ranker) if isinstance(ranker, str | os.PathLike) else ranker
    model: Any = opened.model
    if model.family not in _FAMILIES:
        raise WrongUse(
            f"a {model.family} is not written for other libraries; {', '.join(_FAMILIES)} are, and "
            "ranker.save(DIR) writes any family for rankhouse"
        )
    checkpoint = _FAMILIES[model.family](model)
    assets = model.assets()
    config = (
        json.loads(assets["config.json"]) | {"architectures": [checkpoint.architecture]} | checkpoint.config
    )
    config.pop("transformers_version", None)
    target = as_path(folder, "folder")
    text = (card or ModelCard()).text(opened, name or target.name, _training(ranker))
    with replacing_folder(target, lambda there: [one.name for one in there.iterdir()]) as part:
        part.mkdir()
        (part / "tokenizer.json").write_bytes(assets["tokenizer.json"])
        _write(part / "tokenizer_config.json", _tokenizer(model, json.loads(assets["tokenizer.json"])))
        _write(part / "config.json", config)
        _write(part / "model.safetensors", checkpoint.weights)
        for path, content in checkpoint.modules.items():
            _write(part / path, content)
        (part / "README.md").write_text(text, encoding="utf-8")
    return target


def _training(ranker: PathLike | NeuralRanker) -> Path | None:
    """Return the folder of a training or an adaptation, where a ranker was named by it."""
    named = Path(ranker) if isinstance(ranker, str | os.PathLike) else None
    return named if named and any((named / name).is_file() for name in (SETTINGS, COMMAND)) else None


def _write(path: Path, content: Any) -> None:  # noqa: ANN401 - JSON, or tensors by name
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".safetensors":
        tensors = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in content.items()}
        save_file(tensors, path, metadata={"format": "pt"})
    else:
        path.write_text(
            json.dumps(content, indent=2, sort_keys=path.name != "modules.json") + "\n", encoding="utf-8"
        )


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
    inputs = ["input_ids", "attention_mask"]
    if model.policy.get("segments"):
        inputs.insert(1, "token_type_ids")
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": model.policy["max_length"],
        "model_input_names": inputs,
        **named,
    }


def _cross_encoder(model: Any) -> _Checkpoint:  # noqa: ANN401 - a CrossEncoder
    """One number a pair: two classes become the difference of their rows, whose function the scale is."""
    policy, network = model.policy, model.network
    if policy["head"] == "modules":
        raise WrongUse("a cross-encoder of sentence-transformers modules is written by that library only")
    if policy.get("query_prompt"):
        raise WrongUse("a cross-encoder with a prompt is written by sentence-transformers only")
    scale = "logit" if policy["scale"] == "log-odds" else policy["scale"]
    weights = dict(network.state_dict())
    if policy["classes"] == 2:
        last = [name for name, part in network.named_modules() if isinstance(part, nn.Linear)][-1]
        for name in (f"{last}.weight", f"{last}.bias"):
            if name in weights:
                is_raw = policy["scale"] == "logit"
                weights[name] = weights[name][1:] if is_raw else weights[name][1:] - weights[name][:1]
    architecture = type(network).__name__
    if "NextSentencePrediction" in architecture:
        architecture = architecture.replace("NextSentencePrediction", "SequenceClassification")
        weights = {k.replace("cls.seq_relationship.", "classifier."): v for k, v in weights.items()}
    return _Checkpoint(
        architecture,
        {
            "id2label": {"0": "LABEL_0"},
            "label2id": {"LABEL_0": 0},
            "sentence_transformers": {"activation_fn": _ACTIVATIONS.get(scale, _IDENTITY)},
        },
        weights,
    )


def _bi_encoder(model: Any) -> _Checkpoint:  # noqa: ANN401 - a BiEncoder
    policy, network = model.policy, model.network
    if not hasattr(network, "config"):
        raise WrongUse("a bi-encoder of word vectors is written by sentence-transformers itself only")
    width = network.config.hidden_size if hasattr(network.config, "hidden_size") else network.config.d_model
    modes = policy["pooling"].split("+")
    pooling = {f"pooling_mode_{key}": mode in modes for mode, key in _POOLINGS.items()}
    names = [("", "Transformer"), ("1_Pooling", "Pooling")]
    files: dict[str, Any] = {
        "1_Pooling/config.json": {"word_embedding_dimension": width, "include_prompt": True, **pooling}
    }
    files |= _layers(model.dense, [*policy["dense"], *([{}] if policy["normalised"] else [])], names)
    files |= _described(policy, [(folder, _MODULES + kind) for folder, kind in names])
    files["config_sentence_transformers.json"]["similarity_fn_name"] = _SIMILARITIES[policy["similarity"]]
    return _Checkpoint(type(network).__name__, {}, network.state_dict(), files)


def _described(policy: Mapping[str, Any], modules: list[tuple[str, str]]) -> dict[str, Any]:
    """Return the files that say which modules there are, and what of texts they read."""
    prompts = {"query": policy["query_prompt"], "document": policy["passage_prompt"]}
    return {
        "modules.json": [
            {"idx": place, "name": str(place), "path": folder, "type": kind}
            for place, (folder, kind) in enumerate(modules)
        ],
        "sentence_bert_config.json": {"max_seq_length": policy["max_length"], "do_lower_case": False},
        "config_sentence_transformers.json": {"prompts": prompts, "default_prompt_name": None},
    }


def _layers(
    dense: nn.Sequential, shapes: list[dict[str, Any]], names: list[tuple[str, str]]
) -> dict[str, Any]:
    """Return the files of layers behind the modules ``names``, to which they are added."""
    files: dict[str, Any] = {}
    weights = dense.state_dict()
    layers = [(str(place), one) for place, one in enumerate(dense)]
    for shape in shapes:
        kind = "LayerNorm" if "norm" in shape else "Dense" if "in" in shape else "Normalize"
        folder = f"{len(names)}_{kind}"
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


def _sparse(model: Any) -> _Checkpoint:  # noqa: ANN401 - a SparseEncoder
    """As version 5 writes it: the language model, each tensor once, and its pooling."""
    policy, network = model.policy, model.network
    if policy["query_table"]:
        raise WrongUse("a sparse encoder with a table for queries is written by sentence-transformers only")
    kinds = [("", f"{_SPARSE}MLMTransformer"), ("1_SpladePooling", f"{_SPARSE}SpladePooling")]
    files = _described(policy, kinds) | {
        "1_SpladePooling/config.json": {
            "pooling_strategy": policy["pooling"],
            "activation_function": "log1p_relu" if policy["logarithms"] == 2 else "relu",
            "word_embedding_dimension": network.config.vocab_size,
        }
    }
    files["config_sentence_transformers.json"] |= {"model_type": "SparseEncoder", "similarity_fn_name": "dot"}
    first = {tensor.data_ptr(): name for name, tensor in reversed(network.state_dict().items())}
    weights = {name: tensor for name, tensor in network.state_dict().items() if name in first.values()}
    return _Checkpoint(type(network).__name__, {}, weights, files)


def _colbert(model: Any) -> _Checkpoint:  # noqa: ANN401 - a LateInteraction
    """As PyLate writes it, which sentence-transformers 6 reads."""
    policy, network = model.policy, model.network
    words = Tokenizer.from_str(model.assets()["tokenizer.json"].decode())
    names = [("", "Transformer")]
    files = _layers(model.dense, policy["dense"], names)
    spoken = words.id_to_token(policy["filler"]) if policy["query_filled"] else "[MASK]"
    if (
        {kind for _, kind in names[1:]} != {"Dense"}
        or not policy["normalised"]
        or policy["similarity"] != "maxsim"
        or policy["query_filled"] not in {0, policy["query_length"]}
        or policy["skipped_sides"] != ["document"]
        or spoken not in {"[MASK]", "<mask>"}
    ):
        raise WrongUse("this late-interaction model has settings that only sentence-transformers 6 writes")
    marks = ("".join(str(words.id_to_token(number)) for number in markers) for markers in policy["markers"])
    kinds = [(folder, _PYLATE if folder else f"{_MODULES}{kind}") for folder, kind in names]
    files |= _described(policy, kinds)
    files["config_sentence_transformers.json"] |= {
        "model_type": "ColBERT",
        **dict(zip(("query_prefix", "document_prefix"), marks, strict=True)),
        "query_length": policy["query_length"],
        "document_length": policy["max_length"],
        "attend_to_expansion_tokens": policy["attend"],
        "do_query_expansion": bool(policy["query_filled"]),
        "skiplist_words": [words.id_to_token(number) for number in policy["skipped"]],
        "similarity_fn_name": "MaxSim",
    }
    return _Checkpoint(type(network).__name__, {}, network.state_dict(), files)


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


def _monot5(model: Any) -> _Checkpoint:  # noqa: ANN401 - a MonoT5
    """As published: the word vectors once, the output layer where it is another."""
    own = model.network.state_dict()
    copies = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}
    if model.policy["tied"]:
        copies.add("lm_head.weight")
    weights = {name: tensor for name, tensor in own.items() if name not in copies}
    return _Checkpoint(type(model.network).__name__, {}, weights)


_FAMILIES: Final[dict[str, Callable[[Any], _Checkpoint]]] = {
    "crossencoder": _cross_encoder,
    "biencoder": _bi_encoder,
    "sparse": _sparse,
    "colbert": _colbert,
    "monot5": _monot5,
}
