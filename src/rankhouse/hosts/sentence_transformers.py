"""sentence-transformers: its evaluators over any ranker, and rankers trained here as its checkpoints.

``save`` writes the layout that sentence-transformers (2 to 6) and transformers read; neither is imported:

| family | opened by | scores |
|---|---|---|
| cross-encoder | ``CrossEncoder(DIR)``, ``AutoModelForSequenceClassification`` | of ``predict``: ours |
| decoder | ``CrossEncoder(DIR)`` | of ``predict``: ours |
| bi-encoder | ``SentenceTransformer(DIR)`` | of ``similarity``: ours; for l2, its square root |
| sparse | ``SparseEncoder(DIR)`` | of ``similarity``: ours |
| ColBERT | ``MultiVectorEncoder(DIR)``, PyLate | of ``similarity``: ours |
| monoT5 | ``AutoModelForSeq2SeqLM``, pyterrier_t5, pygaggle | log softmax of the two target words: ours |

Texts that are too long are cut by each in its own way, so that such pairs have other scores there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rankhouse.api.session import open_ranker
from rankhouse.core.errors import WrongUse, needs
from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.hosts.beir import CrossEncoder
from rankhouse.hosts.model_card import ModelCard
from rankhouse.io.files import PathLike, as_path
from rankhouse.io.outputs import replacing_folder
from rankhouse.models.crossencoder import CHAIN, SIMILARITY

with needs("sentence-transformers", "rankhouse.hosts.sentence_transformers"):
    from safetensors.torch import save_file
    from tokenizers import Tokenizer
    from torch import Tensor, nn

    from rankhouse.hosts import checkpoints
    from rankhouse.models.prompts import PromptReader
    from rankhouse.training.folder import COMMAND, SETTINGS

if TYPE_CHECKING:
    from rankhouse.models.ranker import NeuralRanker

__all__ = ["CrossEncoder", "save"]

_ACTIVATIONS: Final = {
    "probability": "torch.nn.modules.activation.Sigmoid",
    "logprob": "torch.nn.modules.activation.LogSigmoid",
}
_IDENTITY: Final = "torch.nn.modules.linear.Identity"


def save(
    ranker: PathLike | NeuralRanker, folder: PathLike, *, card: ModelCard | None = None, name: str = ""
) -> Path:
    """Write a ranker in the layout of sentence-transformers, a monoT5 in that of transformers.

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
    files = _FAMILIES[model.family](model)
    target = as_path(folder, "folder")
    text = (card or ModelCard()).text(opened, name or target.name, _training(ranker))
    with replacing_folder(target, lambda there: [one.name for one in there.iterdir()]) as part:
        part.mkdir()
        for path, content in files.items():
            _write(part / path, content)
        (part / "README.md").write_text(text, encoding="utf-8")
    return target


def _training(ranker: PathLike | NeuralRanker) -> Path | None:
    """Return the folder of a training or an adaptation, where a ranker was named by it."""
    named = Path(ranker) if isinstance(ranker, str | os.PathLike) else None
    return named if named and any((named / name).is_file() for name in (SETTINGS, COMMAND)) else None


def _write(path: Path, content: Any) -> None:  # noqa: ANN401 - JSON, bytes, or tensors by name
    path.parent.mkdir(exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif path.suffix == ".safetensors":
        tensors = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in content.items()}
        save_file(tensors, path, metadata={"format": "pt"})
    else:
        path.write_text(
            json.dumps(content, indent=2, sort_keys=path.name != "modules.json") + "\n", encoding="utf-8"
        )


def _cross_encoder(model: Any) -> dict[str, Any]:  # noqa: ANN401 - a CrossEncoder
    """One number a pair: two classes become the difference of their rows, whose function the scale is."""
    policy, network = model.policy, model.network
    scale = "logit" if policy["scale"] == "log-odds" else policy["scale"]
    activation = _ACTIVATIONS.get(scale, _IDENTITY)
    if policy["head"] == CHAIN:
        return _scored_chain(model, activation)
    if policy["head"] == SIMILARITY:
        raise WrongUse(
            'a cross-encoder that began with new_head="similarity" compares the states of query and passage, '
            "which no module of sentence-transformers does: it ranks here only"
        )
    weights = dict(network.state_dict())
    if policy["classes"] == 2:
        last = [name for name, part in network.named_modules() if isinstance(part, nn.Linear)][-1]
        for name in (f"{last}.weight", f"{last}.bias"):
            if name in weights:
                weights[name] = _one_row(weights[name], policy["scale"])
    architecture = type(network).__name__
    if "NextSentencePrediction" in architecture:
        architecture = architecture.replace("NextSentencePrediction", "SequenceClassification")
        weights = {k.replace("cls.seq_relationship.", "classifier."): v for k, v in weights.items()}
    files = checkpoints.reader_files(
        model,
        architectures=[architecture],
        id2label={"0": "LABEL_0"},
        label2id={"LABEL_0": 0},
        sentence_transformers={"activation_fn": activation},
        weights=weights,
    )
    if policy.get("query_prompt"):
        files |= _scores_said(model, [("", "Transformer")], activation, "sequence-classification")
    return files


def _one_row(rows: Tensor, scale: str) -> Tensor:
    """Make one class of two: the second's row where its raw number is the score, else the difference."""
    return rows[1:] if scale == "logit" else rows[1:] - rows[:1]


def _scored_chain(model: Any, activation: str) -> dict[str, Any]:  # noqa: ANN401 - a CrossEncoder of modules
    policy, network = model.policy, model.network
    shapes, layers = [dict(shape) for shape in policy["dense"]], deepcopy(network.layers)
    if policy["classes"] == 2:
        if not isinstance(last := layers[-1], nn.Linear):
            raise WrongUse(
                "two classes behind a function of their own are written by sentence-transformers only"
            )
        shapes[-1]["out"] = 1
        for name, rows in last.named_parameters():
            setattr(last, name, nn.Parameter(_one_row(rows.data, policy["scale"])))
    names = [("", "Transformer")]
    files = checkpoints.pooling_files(policy, network.config.hidden_size, names) | checkpoints.layer_files(
        layers, shapes, names
    )
    files[f"{names[-1][0]}/config.json"]["module_output_name"] = "scores"
    own = checkpoints.reader_files(
        model, architectures=[type(network.encoder).__name__], weights=network.encoder.state_dict()
    )
    return own | files | _scores_said(model, names, activation)


def _scores_said(
    model: Any,  # noqa: ANN401 - a CrossEncoder or a CausalRanker
    names: list[tuple[str, str]],
    activation: str,
    task: str = "feature-extraction",
) -> dict[str, Any]:
    """Return the files that say which modules a cross-encoder has, and what it makes of their number."""
    prompt = model.policy.get("query_prompt") or ""
    kinds = [
        (folder, (_SCORES if kind == "LogitScore" else checkpoints.MODULES) + kind) for folder, kind in names
    ]
    files = checkpoints.described_files({"query_prompt": prompt, "passage_prompt": ""}, kinds)
    files["sentence_bert_config.json"] = checkpoints.reading(model.policy) | {"transformer_task": task}
    files[checkpoints.CONFIG] = {
        "model_type": "CrossEncoder",
        "activation_fn": activation,
        "prompts": {"query": prompt} if prompt else {},
        "default_prompt_name": "query" if prompt else None,
    }
    return files


_SCORES: Final = "sentence_transformers.cross_encoder.modules.logit_score."
_PROBES: Final = (
    ("a", "b"),
    ("What is it?", "It is so."),
    (" x ", "\n\n y"),
    ("42", "7%"),
    ("naïve", "東京。"),
)


def _causal(model: Any) -> dict[str, Any]:  # noqa: ANN401 - a CausalRanker
    """As version 5.4 writes it: the prompt as a chat template of the roles "query" and "document"."""
    policy, network = model.policy, model.network
    whole, classes = "".join(policy["prompt"]), policy["head"].endswith("SequenceClassification")
    words = Tokenizer.from_str(model.assets()["tokenizer.json"].decode())
    reader = PromptReader(model.pair_reader.texts, words, [whole], policy["max_length"])
    pairs = [Pair(Query("q", query), Passage("d", 0, text)) for query, text in _PROBES]
    if reader(pairs).ids.values.tolist() != model.encode(pairs).ids.values.tolist():
        raise WrongUse(
            "the segments of this prompt are tokenised apart, and joined in a chat template they would have "
            "other tokens; give the prompt as one segment, if the checkpoint was trained so"
        )
    template = json.dumps(whole, ensure_ascii=False)
    for role in ("query", "document"):
        said = f'(messages | selectattr("role", "eq", "{role}") | map(attribute="content") | first)'
        template = template.replace(f"{{{role}}}", f'" ~ {said} ~ "')
    scale, changes, names = policy["scale"], {}, [("", "Transformer")]
    if classes:
        rows = network.score.weight
        weights = network.state_dict()
        if len(rows) == 2:
            weights["score.weight"] = _one_row(rows, scale)
        changes = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}, "weights": weights}
    task = "sequence-classification" if classes else "text-generation"
    files = checkpoints.reader_files(model, **changes)
    padding = files["tokenizer_config.json"]["pad_token"]  # by its id, classifiers find the last token
    files["config.json"]["pad_token_id"] = words.token_to_id(padding)
    if not classes:
        names.append(("1_LogitScore", "LogitScore"))
        true, false = (*policy["targets"], None)[:2]
        raw = scale == "logit"
        files["1_LogitScore/config.json"] = {"true_token_id": true, "false_token_id": None if raw else false}
    files |= _scores_said(model, names, _ACTIVATIONS.get(scale, _IDENTITY), task)
    read = {"method": "forward", "method_output_name": "logits"}
    files["sentence_bert_config.json"] |= {
        "modality_config": {"text": read, "message": {**read, "format": "flat"}},
        "module_output_name": "scores" if classes else "causal_logits",
    }
    return files | {"chat_template.jinja": f"{{{{ {template} }}}}".encode()}


def _monot5(model: Any) -> dict[str, Any]:  # noqa: ANN401 - a MonoT5
    """As published: the word vectors once, the output layer where it is another."""
    own = model.network.state_dict()
    copies = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}
    if model.policy["tied"]:
        copies.add("lm_head.weight")
    weights = {name: tensor for name, tensor in own.items() if name not in copies}
    return checkpoints.reader_files(model, weights=weights)


_FAMILIES: Final[dict[str, Callable[[Any], dict[str, Any]]]] = {
    "crossencoder": _cross_encoder,
    "causal": _causal,
    "biencoder": checkpoints.bi_encoder,
    "sparse": checkpoints.sparse_encoder,
    "colbert": checkpoints.late_interaction,
    "monot5": _monot5,
}
"""Family -> what makes the files of a model of it: path -> JSON, bytes, or tensors by name."""
