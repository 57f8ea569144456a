"""Kinds of published folders, by their own files, so that no checkpoint is opened as what it is not.

``modules.json`` decides first (sentence-transformers computes what it lists, whatever the transformer inside
was trained as), then the architecture in ``config.json``.
"""

from __future__ import annotations

import json
import re
from ast import literal_eval
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

from rankhouse.core.errors import BadModel
from rankhouse.models.checkpoint import SEQ2SEQ, find, read_config, read_json


class Kind(NamedTuple):
    """A kind of checkpoint."""

    noun: str  # as the field calls it
    family: str = ""  # that opens it; "" for none
    advice: str = ""  # what to do with it where that is not said by the family


_BEGIN = (
    "its vectors were never trained to be compared; to train a bi-encoder from it, say how to pool:  "
    'biencoder("DIR", pooling="cls")  or "mean"'
)
KINDS: Final = {
    "classifier": Kind("a cross-encoder", "crossencoder"),
    "chain": Kind("a cross-encoder of sentence-transformers modules", "crossencoder"),
    "sentences": Kind("a bi-encoder of sentence-transformers", "biencoder"),
    "encoder": Kind("a bare encoder", "biencoder"),
    "words": Kind("a T5, which answers with words", "monot5"),
    "masked": Kind(
        "a language model that predicts masked words",
        advice=f'if it is a SPLADE, open it as  sparse("DIR") ; {_BEGIN}',
    ),
    "colbert": Kind("a ColBERT checkpoint (late interaction: a vector for each token)", "colbert"),
    "sparse": Kind("a sparse encoder (SPLADE: a weight for each word of the vocabulary)", "sparse"),
    "decoder": Kind("a decoder", "causal"),
    "headless": Kind(
        "a decoder without its output layer",
        advice='for a bi-encoder of it, say how to pool:  biencoder("DIR", pooling="lasttoken")',
    ),
    "vectors": Kind("a folder of model2vec without modules.json", advice="save it with a newer model2vec"),
    "custom": Kind("a model computed by Python code of its own, which is never run here"),
    "other": Kind("a network that does not rank texts"),
    "unknown": Kind("a checkpoint that names no architecture", advice='say its family:  biencoder("DIR")'),
}
_NAMES = {  # model_type -> the name in its paper
    "albert": "ALBERT", "bart": "BART", "bert": "BERT", "camembert": "CamemBERT", "deberta": "DeBERTa",
    "deberta-v2": "DeBERTa", "distilbert": "DistilBERT", "electra": "ELECTRA", "gemma": "Gemma",
    "gpt2": "GPT-2", "llama": "Llama", "longformer": "Longformer", "mistral": "Mistral",
    "modernbert": "ModernBERT", "mpnet": "MPNet", "mt5": "mT5", "qwen2": "Qwen2", "qwen3": "Qwen3",
    "roberta": "RoBERTa", "t5": "T5", "xlm-roberta": "XLM-RoBERTa", "xlnet": "XLNet",
}  # fmt: skip
_LIKE_A_VOWEL = re.compile("[aeio]|x[lm]|m[tp]", re.IGNORECASE)  # ELECTRA, XLNet, MPNet, mT5
_ADVICE = (
    "this version cannot compute it; use another checkpoint: a cross-encoder, a bi-encoder or a monoT5 "
    "(rankhouse models  lists some)"
)
_OWN_TYPES = frozenset(
    {"nomic_bert", "eurobert", "jina_embeddings_v3"}
)  # their auto_map computes what transformers does
_DECODERS = ("qwen", "gemma", "llama", "mistral", "mixtral", "phi", "gpt", "olmo", "falcon", "opt", "bloom")
_BOTH_WAYS = frozenset({"xlnet", "bert-generation"})  # tokens read those behind them, too
_READS_PAIRS = frozenset(  # with marks between the two, as encoders do
    {"ModernBertDecoderForSequenceClassification", "BioGptForSequenceClassification"}
)
_MODULES = {  # class of a sentence-transformers module -> kind; the first that is found decides
    "SpladePooling": "sparse",
    "MLMTransformer": "sparse",
    "SparseStaticEmbedding": "sparse",
    "SparseAutoEncoder": "sparse",
    "MultiVectorMask": "colbert",
    "LogitScore": "decoder",
}
_LABELS = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
_ENDINGS = {  # of an architecture's name -> kind
    "ForSequenceClassification": "classifier",
    "ForNextSentencePrediction": "classifier",
    "ForMaskedLM": "masked",
    "ForPreTraining": "masked",
    "ForCausalLM": "decoder",
    "LMHeadModel": "decoder",
    "ColBERT": "colbert",
    "ForRetrieval": "other",
}


def with_article(name: str) -> str:
    """Return "an ELECTRA", "a BERT" for a model type of config.json, or the name of a network's class."""
    name = _NAMES.get(name, name)
    return f"{'an' if _LIKE_A_VOWEL.match(name) else 'a'} {name}"


class Module(NamedTuple):
    """A module of sentence-transformers."""

    kind: str  # the last part of its class's name
    source: str  # its class as the folder names it
    place: Path


def modules_of(folder: Path, side: str = "document") -> list[Module]:
    """List the modules that texts of a side, "query" or "document", go through, a Router's among them.

    Raises BadModel: a Router that sends them nowhere, or files that cannot be read.
    """
    listed = read_json(folder / "modules.json")
    return _along([(str(one["type"]), folder / one["path"]) for one in listed], side)


def _along(listed: Sequence[tuple[str, Path]], side: str) -> list[Module]:
    found: list[Module] = []
    for source, place in listed:
        if source.startswith("sentence_transformers.") and source.endswith((".Router", ".Asym")):
            found += _along(_route(place, side), side)
        else:
            found.append(Module(source.rsplit(".", 1)[-1], source, place))
    return found


def _route(router: Path, side: str) -> list[tuple[str, Path]]:
    """Return the modules that a Router (up to version 4: Asym) sends texts of a side to."""
    path = router / "router_config.json"
    settings = read_json(path if path.is_file() else router / "config.json")
    if not {"structure", "types"} <= settings.keys():
        raise BadModel(f'"{router}" is a Router that lists no routes; fetch the folder again')
    routes: dict[str, list[str]] = settings["structure"]
    rules = (settings.get("parameters") or {}).get("route_mappings") or {}
    mapped = {literal_eval(rule): route for rule, route in rules.items()}
    wanted = [mapped[rule] for rule in product((side, None), ("text", None)) if rule in mapped]
    wanted += [name for name in (side, "text") if name in routes]
    if not wanted or wanted[0] not in routes:
        raise BadModel(
            f'"{router}" has routes for {" and ".join(map(repr, routes))}, none for a {side}; read here are '
            "Routers with the routes 'query' and 'document'"
        )
    return [(str(settings["types"][name]), router / name) for name in routes[wanted[0]]]


class KindEvidence(NamedTuple):
    """Kind of a folder: the key of :data:`KINDS`, and the evidence for it."""

    key: str
    evidence: str

    @property
    def kind(self) -> Kind:
        """The kind itself."""
        return KINDS[self.key]


def kind_of(folder: Path) -> KindEvidence:
    """Tell what a checkpoint's folder holds; BadModel if its JSON files cannot be read."""
    sides = [modules_of(folder, side) for side in ("document", "query")] if is_chain(folder) else []
    if evidence := _own_code([folder, *(module.place for modules in sides for module in modules)]):
        return KindEvidence("custom", evidence)
    if sides and (found := _by_modules(folder, *sides)) is not None:
        return found
    return _by_architecture(folder)


def is_chain(folder: Path) -> bool:
    """Return whether a folder lists modules of sentence-transformers."""
    return (folder / "modules.json").is_file()


def _own_code(folders: Sequence[Path]) -> str:
    """Return what says that Python code of its own computes a network, even one of a known type; else ""."""
    for folder in folders:
        path, config = folder / "config.json", None
        with suppress(BadModel):  # a broken one is refused where it is needed
            config = read_json(path) if path.is_file() else {}
        if not isinstance(config, dict):
            continue
        mapped = config.get("auto_map") or ()
        owned = any(key.startswith(("AutoConfig", "AutoModel")) for key in mapped)
        if owned and config.get("model_type") not in _OWN_TYPES:
            named = " and ".join(str(name) for name in config.get("architectures") or ())
            return (
                f"config.json names {named or config.get('model_type')}, and auto_map its code; where "
                "transformers' own class computes the same, take auto_map out of config.json"
            )
    return ""


def _by_architecture(folder: Path) -> KindEvidence:
    """Tell the kind by config.json."""
    raw = read_config(folder)
    names = [str(name) for name in raw.get("architectures") or ()]
    evidence = f"config.json names {names[0]}" if names else f"config.json: model_type {raw['model_type']}"
    if (folder / "artifact.metadata").is_file():
        return KindEvidence("colbert", "artifact.metadata is ColBERT's own")
    if raw["model_type"] == "model2vec":
        return KindEvidence("vectors", evidence)
    if raw["model_type"] in SEQ2SEQ and names and names[0].endswith("EncoderModel"):
        return KindEvidence("encoder", evidence)
    if raw["model_type"] in SEQ2SEQ or raw.get("is_encoder_decoder"):
        answers = raw["model_type"] in SEQ2SEQ and not any(name.endswith(_LABELS) for name in names)
        return KindEvidence("words" if answers else "other", evidence)
    if _is_decoder(str(raw["model_type"]), names):
        bare = bool(names) and names[0].endswith("Model") and not names[0].endswith("LMHeadModel")
        return KindEvidence("headless" if bare else "decoder", evidence)
    if not names:
        return KindEvidence("unknown", evidence)
    ending = next((kind for end, kind in _ENDINGS.items() if names[0].endswith(end)), None)
    if ending is None:
        ending = "other" if "For" in names[0] else "encoder"
    return KindEvidence(ending, evidence)


def _is_decoder(model_type: str, names: Sequence[str]) -> bool:
    """Return whether each token of a type of network reads only those before it."""
    if model_type in _BOTH_WAYS or not _READS_PAIRS.isdisjoint(names):
        return False
    if model_type.startswith(_DECODERS):
        return True
    from transformers.models.auto import modeling_auto as known  # noqa: PLC0415  # slow to import

    predicts = model_type in known.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    masked = model_type in known.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    return predicts and not masked


LIBRARY_SETTINGS: Final = "config_sentence_transformers.json"


def library_settings(folder: Path) -> Mapping[str, Any]:
    """Read what sentence-transformers says of a folder as a whole; nothing where it does not."""
    path = folder / LIBRARY_SETTINGS
    settings: Mapping[str, Any] = read_json(path) if path.is_file() else {}
    return settings


def default_prompt(folder: Path) -> str:
    """Return the prompt that sentence-transformers puts before everything, of a pair before the query."""
    settings = library_settings(folder)
    return str((settings.get("prompts") or {}).get(settings.get("default_prompt_name") or "") or "")


def notation_of(folder: Path) -> str:
    """Return the notation that opens a published checkpoint by its family: ``biencoder("DIR")``.

    Raises BadModel: no family here computes it: says what it is.
    """
    found = kind_of(find(str(folder)))
    if not found.kind.family:
        raise refusal(folder, found)
    return f"{found.kind.family}({json.dumps(str(folder))})"


def require(folder: Path, family: str, accepted: Sequence[str] = ()) -> KindEvidence:
    """Tell what a folder holds, if a family can open it.

    Args:
        accepted: Other kinds that are good enough, as to begin a training with.

    Raises BadModel: it is something else: says what, and what opens it.
    """
    found = kind_of(folder)
    if (family, found.key) == ("crossencoder", "sentences") and (folder / "config.json").is_file():
        own = _by_architecture(folder)  # a classifier whose encoder makes vectors, too, is what is asked for
        found = own if own.key == "classifier" else found
    if found.kind.family != family and found.key not in accepted:
        raise refusal(folder, found, family)
    return found


def refusal(folder: Path, found: KindEvidence, family: str = "") -> BadModel:
    """Return the error for a checkpoint that a family, or none, can open."""
    kind = found.kind
    opened = f'open it as  {kind.family}("{folder}")' if kind.family else kind.advice or _ADVICE
    wanted = f", no {family}" if family else ""
    if (family, found.key) == ("colbert", "sentences"):
        opened += ", or compare the vectors of its tokens, untrained, with  from_encoder=True"
    if (family, found.key) == ("crossencoder", "sentences"):
        opened += ', or begin a training with it:  new_head="similarity"'
    return BadModel(f'"{folder}" is {kind.noun}{wanted} ({found.evidence}); {opened}')


def _by_modules(folder: Path, modules: Sequence[Module], asked: Sequence[Module]) -> KindEvidence | None:
    """Tell the kind by the modules of documents and of queries; None where only config.json can."""
    for kind, source, _ in (*modules, *asked):
        if source.startswith("pylate."):
            return KindEvidence("colbert", f"modules.json names {source}")
        if not source.startswith("sentence_transformers."):
            return KindEvidence("custom", f"modules.json names {source}")
        if kind == "LogitScore" and len(modules) > 2:
            return KindEvidence("other", f"modules.json names more than a Transformer and {kind}")
        if kind in _MODULES:
            return KindEvidence(_MODULES[kind], f"modules.json names {kind}")
    task = library_settings(folder).get("model_type")
    if task in {"MultiVectorEncoder", "ColBERT"}:
        return KindEvidence("colbert", f"{LIBRARY_SETTINGS} says {task}")
    if {module.kind for module in modules} <= {"Transformer"}:
        return None  # a classifier, or a decoder
    last = modules[-1].place / "config.json"
    scores = last.is_file() and read_json(last).get("module_output_name") == "scores"
    return KindEvidence("chain" if scores or task == "CrossEncoder" else "sentences", "modules.json")
