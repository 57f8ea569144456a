"""The folders of ``benchmarks/formats.py``: what people publish, tiny; and what has to be refused."""

# ruff: noqa: ANN401  # objects of libraries without types; one signature for all
from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from benchmarks import format_references as theirs
from safetensors.torch import load_file, save_file
from tests.models import tiny
from tests.models.conftest import GOLDEN, WIDE, with_bert_vocabulary
from tests.models.test_causal import CHAT

from rankhouse.core.errors import RankhouseError
from rankhouse.core.nouns import Pair
from rankhouse.models import bundle
from rankhouse.nn.machine import Compute

PLACES = {"max_position_embeddings": 258, **WIDE}
LONGEST = 256
_CLASSES = "ForSequenceClassification"


class Format(NamedTuple):
    """A published format.

    Attributes:
        make: Writes the folder.
        reference: Scores its pairs.
        ids: Compares token ids; None where scores alone are compared.
        notation: What opens it here; "DIR" is the folder.
        most: The largest difference that is accepted.
        spelled: Whether pairs hold texts that spell special tokens.
    """

    kind: str
    name: str
    make: Callable[[Path], Any]
    reference: Callable[[Path, Any, Sequence[Pair]], np.ndarray]
    ids: Callable[[Path, Any, Sequence[Pair]], str] | None = None
    notation: str = "DIR"
    most: float = 1e-5
    spelled: bool = True


# --- vocabularies


def wordpiece(folder: Path, generic: bool = True) -> None:
    with_bert_vocabulary(folder, generic=generic)
    longer(folder)


def longer(folder: Path) -> None:
    """Let a tokenizer read as much as the network does."""
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_max_length": LONGEST}))


def byte_level(folder: Path, roberta: bool) -> int:
    """ModernBERT's and RoBERTa's kind: bytes, with their own special tokens around texts."""
    from tokenizers import processors
    from transformers import AutoTokenizer

    own = (
        ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
        if roberta
        else ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    )
    kinds = ("cls", "pad", "sep", "unk", "mask") if roberta else ("pad", "unk", "cls", "sep", "mask")
    names = {f"{kind}_token": token for kind, token in zip(kinds, own, strict=True)}
    size = tiny.with_byte_vocabulary(folder, own, LONGEST, 600, **names)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    first, last = names["cls_token"], names["sep_token"]
    places = [(token, own.index(token)) for token in (first, last)]
    middle = f"{last} {last}" if roberta else last
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}", pair=f"{first} $A {middle} $B {last}", special_tokens=places
    )
    tokenizer.save_pretrained(folder)
    return size


def unigram(folder: Path) -> int:
    """XLM-R's kind: SentencePiece, its pieces behind four special tokens."""
    from sentencepiece import SentencePieceProcessor
    from transformers import XLMRobertaTokenizer

    given = SentencePieceProcessor(str(GOLDEN / "monot5" / "spiece.model"))
    own = ["<s>", "<pad>", "</s>", "<unk>"]
    pieces = [(given.id_to_piece(i), given.get_score(i)) for i in range(3, given.get_piece_size())]
    vocabulary = [*((token, 0.0) for token in own), *pieces, ("<mask>", 0.0)]
    tokenizer = XLMRobertaTokenizer(vocab=vocabulary, model_max_length=LONGEST)
    tokenizer.save_pretrained(folder)
    return len(tokenizer)


def encoder(name: str, folder: Path, **settings: Any) -> Path:
    """Save a network with the kind of vocabulary that its architecture has."""
    folder.mkdir(parents=True)
    own = {}
    if name.startswith("XLMRoberta"):
        own = {"vocab_size": unigram(folder)}
    elif name.startswith(("Roberta", "MPNet", "ModernBert")):
        own = {"vocab_size": byte_level(folder, not name.startswith("ModernBert"))}
    else:
        wordpiece(folder, generic=not name.startswith(("Bert", "Electra", "DistilBert")))
    if name.startswith("ModernBert"):
        own |= {"local_attention": 16}
    tiny.network(name, folder, 0.1, **{**PLACES, **own, **settings})
    return folder


# --- kinds


def chain(name: str, then: str, folder: Path, pooling: str = "mean", **settings: Any) -> None:
    """Save a chain of sentence-transformers modules.

    Args:
        then: "", "normalise", "dense", "residual", "scores" or "prompted" (scores, a prompt before queries).
    """
    from sentence_transformers import CrossEncoder, SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

    plain = folder.with_name(f"{folder.name}-plain")
    width = settings.get("hidden_size", WIDE["hidden_size"])
    if name.startswith(("Qwen3", "Gemma3")):
        tiny.decoder(name, plain, **{"num_hidden_layers": 2, **settings})
        ends_with(plain, "<|endoftext|>" if name.startswith("Qwen3") else "<bos>")
    else:
        encoder(name, plain, **settings)
    torch.manual_seed(2)
    parts: list[Any] = [modules.Transformer(str(plain)), modules.Pooling(width, pooling_mode=pooling)]
    if then in {"scores", "prompted"}:
        norm = modules.LayerNorm(width)
        with torch.no_grad():
            norm.norm.weight.add_(torch.randn(width) / 3)
        parts += [modules.Dense(width, width, bias=False, activation_function=torch.nn.GELU()), norm]
        parts += [modules.Dense(width, 1, activation_function=None, module_output_name="scores")]
        said = {"prompts": {"web": "storm harbour: "}, "default_prompt_name": "web"}
        said = said if then == "prompted" else {}
        CrossEncoder(modules=parts, device="cpu", **said).save_pretrained(str(folder))
        return
    if then == "residual":
        parts += [modules.Dense(width, width, activation_function=torch.nn.GELU(), use_residual=True)]
        parts += [modules.Dense(width, 32, bias=False, use_residual=True)]
    if then == "dense":
        parts += [modules.Dense(width, 96, bias=False, activation_function=torch.nn.Identity())]
        parts += [modules.Dense(96, 32, bias=False, activation_function=torch.nn.Identity())]
    parts += [modules.Normalize()] if then else []
    prompts = {"query": "storm harbour: ", "document": "grain prices "}
    SentenceTransformer(modules=parts, prompts=prompts, device="cpu").save_pretrained(str(folder))


def ends_with(folder: Path, token: str) -> None:
    """Put a token behind every text (Qwen3-Embedding) or before it (Gemma)."""
    from tokenizers import processors
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    single = f"$A {token}" if token != "<bos>" else f"{token} $A"
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=single, special_tokens=[(token, tokenizer.convert_tokens_to_ids(token))]
    )
    tokenizer.save_pretrained(folder)


def routed(case: str, folder: Path) -> None:
    """Save a Router: "words" (queries by word vectors), "heads", "networks", or "sparse" (two of these)."""
    from sentence_transformers import SentenceTransformer, SparseEncoder
    from sentence_transformers.base.modules import Router
    from sentence_transformers.sentence_transformer import modules
    from sentence_transformers.sparse_encoder.modules import SpladePooling

    name = "BertForMaskedLM" if case == "sparse" else "BertModel"
    plain = encoder(name, folder.with_name(f"{folder.name}-plain"))
    task = "fill-mask" if case == "sparse" else "feature-extraction"
    torch.manual_seed(4)
    read, of = modules.Transformer(str(plain), transformer_task=task), Router.for_query_document
    pooled = modules.Pooling(64)
    if case == "words":
        words = modules.StaticEmbedding(read.tokenizer, embedding_dim=64)
        parts = [of([words], [read, pooled]), modules.Normalize()]
    elif case == "heads":
        heads = modules.Dense(64, 32), modules.Dense(64, 32, activation_function=None)
        parts = [read, pooled, of([heads[0]], [heads[1], modules.Normalize()])]
    elif case == "networks":
        other = encoder("ModernBertModel", folder.with_name(f"{folder.name}-other"))
        asked = [modules.Transformer(str(other)), modules.Pooling(64, pooling_mode="cls")]
        parts = [of(asked, [read, pooled])]
    else:
        parts = [of([read, SpladePooling("sum")], [read, SpladePooling("max")])]
    prompts = {"query": "storm harbour: ", "document": "grain prices "}
    kind = SparseEncoder if case == "sparse" else SentenceTransformer
    kind(modules=parts, prompts=prompts, device="cpu").save_pretrained(str(folder))


def _network_of(name: str, config: str, folder: Path) -> None:
    import transformers

    getattr(transformers, name)(getattr(transformers, config)(**PLACES, vocab_size=271)).save_pretrained(
        folder
    )


def _after(name: str, folder: Path) -> None:
    """Save a classifier with a module of sentence-transformers behind it."""
    encoder(name, folder, num_labels=1)
    kinds = ("Transformer", ""), ("Dense", "1_Dense")
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(listed))


def static(folder: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules
    from transformers import AutoTokenizer

    folder.mkdir()
    wordpiece(folder / "words")
    torch.manual_seed(4)
    table = modules.StaticEmbedding(AutoTokenizer.from_pretrained(folder / "words"), embedding_dim=64)
    SentenceTransformer(modules=[table, modules.Normalize()], device="cpu").save_pretrained(str(folder))


def chat(folder: Path) -> None:
    """A decoder with a chat template for pairs, as sentence-transformers saves it."""
    from sentence_transformers import CrossEncoder
    from sentence_transformers.cross_encoder.modules import LogitScore
    from sentence_transformers.sentence_transformer import modules

    plain = tiny.decoder("Qwen3ForCausalLM", folder.with_name("chat-plain"))
    (plain / "chat_template.jinja").write_text(CHAT)
    reader = modules.Transformer(str(plain), transformer_task="text-generation")
    yes, no = reader.tokenizer.convert_tokens_to_ids(["yes", "no"])
    given = {"web": "Does it answer?"}
    model = CrossEncoder(
        modules=[reader, LogitScore(yes, no)], prompts=given, default_prompt_name="web", device="cpu"
    )
    model.save_pretrained(str(folder))


def masked(name: str, folder: Path, **said: Any) -> None:
    plain = encoder(name, folder.with_name(f"{folder.name}-plain"))
    tiny.splade(plain, folder, **said)


def marked(save: Callable[..., Any], name: str, folder: Path, *given: Any, **said: Any) -> None:
    own = {"local_attention": 16} if name.startswith("ModernBert") else {}
    plain = tiny.with_marks(name, folder.with_name(f"{folder.name}-plain"), LONGEST, by=0.1, **PLACES | own)
    save(plain, folder, *given, **said)


def _changed(make: Callable[[Path], Any], name: str = "config.json", **said: Any) -> Callable[[Path], None]:
    """A folder with other words in one of its JSON files."""

    def changed(folder: Path) -> None:
        make(folder)
        path = folder / name
        settings = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(settings | said))

    return changed


def _classifier(label: str, name: str, notation: str = "DIR", **settings: Any) -> Format:
    make = partial(encoder, name + _CLASSES, **{"num_labels": 1, **settings})
    spelled = name != "XLMRoberta"  # whose own tokenizer reads "</s>" in a text as the text's end
    return Format(
        "cross-encoder", f"{label} classifier", make, theirs.cross, theirs.pair_ids, notation, spelled=spelled
    )


def _chain(kind: str, label: str, name: str, then: str, pooling: str, **settings: Any) -> Format:
    make = partial(chain, name, then, pooling=pooling, **settings)
    if then in {"scores", "prompted"}:
        return Format(kind, label, make, theirs.cross, theirs.pair_ids if then == "scores" else None)
    return Format(kind, label, make, theirs.dual, spelled=name != "XLMRobertaModel")


def _decoder(label: str, name: str, prompt: str, ids: Any = None) -> Format:
    notation = f'causal("DIR", prompt="{prompt}", max_length=512)'
    return Format("decoder", label, partial(tiny.decoder, name), theirs.causal, ids, notation, 1e-4)


def _sparse(label: str, name: str, **said: Any) -> Format:
    make = partial(masked, name, **said)
    return Format("sparse", label, make, theirs.sparse, spelled=name != "XLMRobertaForMaskedLM")


def _late(label: str, save: Callable[..., Any], name: str, *given: Any, **said: Any) -> Format:
    return Format(
        "late interaction", label, lambda folder: marked(save, name, folder, *given, **said), theirs.late
    )


_FIXED = {"strategy": "fixed", "length": 16}
FORMATS = (
    _classifier("BERT", "Bert"),
    _classifier("ELECTRA", "Electra"),
    _classifier("DistilBERT", "DistilBert", 'crossencoder("DIR", scale="log-odds")', num_labels=2),
    _classifier("RoBERTa", "Roberta"),
    _classifier("XLM-R", "XLMRoberta"),
    _classifier("MPNet", "MPNet"),
    _classifier("ModernBERT", "ModernBert", classifier_pooling="mean"),
    _classifier("DeBERTa-v2", "DebertaV2"),
    _chain("cross-encoder", "ModernBERT chain (ettin)", "ModernBertModel", "scores", "cls"),
    _chain("cross-encoder", "BERT chain", "BertModel", "scores", "mean"),
    _chain("cross-encoder", "ModernBERT chain, prompt before queries", "ModernBertModel", "prompted", "cls"),
    _chain("bi-encoder", "BERT, not normalised (paraphrase-MiniLM)", "BertModel", "", "mean"),
    _chain("bi-encoder", "BERT, layers with residual", "BertModel", "residual", "mean"),
    _chain("bi-encoder", "BERT (all-MiniLM)", "BertModel", "normalise", "mean"),
    _chain("bi-encoder", "XLM-R (bge-m3, e5)", "XLMRobertaModel", "normalise", "cls"),
    _chain("bi-encoder", "MPNet (all-mpnet)", "MPNetModel", "normalise", "mean"),
    _chain("bi-encoder", "ModernBERT (gte, granite)", "ModernBertModel", "normalise", "cls"),
    _chain("bi-encoder", "DistilBERT with Dense", "DistilBertModel", "dense", "weightedmean"),
    _chain("bi-encoder", "Qwen3-Embedding", "Qwen3Model", "normalise", "lasttoken"),
    _chain("bi-encoder", "EmbeddingGemma", "Gemma3TextModel", "dense", "mean"),
    Format("bi-encoder", "StaticEmbedding (potion)", static, theirs.dual),
    Format("bi-encoder", "Router: word vectors for queries, BERT", partial(routed, "words"), theirs.dual),
    Format("bi-encoder", "Router behind BERT: two Dense heads", partial(routed, "heads"), theirs.dual),
    Format("bi-encoder", "Router: ModernBERT for queries, BERT", partial(routed, "networks"), theirs.dual),
    Format(
        "bi-encoder",
        "BERT, truncate_dim, dot product",
        _changed(
            partial(chain, "BertModel", "normalise"),
            "config_sentence_transformers.json",
            truncate_dim=16,
            similarity_fn_name="dot",
        ),
        theirs.dual,
    ),
    Format(
        "bi-encoder",
        "Qwen3 read both ways",
        _changed(partial(chain, "Qwen3Model", "normalise"), is_causal=False),
        theirs.dual,
    ),
    _decoder("Qwen3-Reranker", "Qwen3ForCausalLM", "qwen3-reranker", theirs.qwen_ids),
    _decoder("Qwen3-Reranker seq-cls", f"Qwen3{_CLASSES}", "qwen3-reranker", theirs.qwen_ids),
    _decoder("mxbai-rerank-v2 (Qwen2)", "Qwen2ForCausalLM", "mxbai-rerank-v2", theirs.mxbai_ids),
    _decoder("bge-reranker-v2-gemma", "GemmaForCausalLM", "bge-reranker-v2-gemma", theirs.gemma_ids),
    _decoder("Llama", "LlamaForCausalLM", "qwen3-reranker", theirs.qwen_ids),
    _decoder("Mistral", "MistralForCausalLM", "qwen3-reranker", theirs.qwen_ids),
    _decoder("Gemma 2", "Gemma2ForCausalLM", "bge-reranker-v2-gemma", theirs.gemma_ids),
    Format("decoder", "Qwen3 with chat template", chat, theirs.chat, most=1e-4, spelled=False),
    _sparse("BERT (SPLADE-v3)", "BertForMaskedLM"),
    _sparse(
        "BERT, Router, log1p twice (opensearch v3)", "BertForMaskedLM", activation="log1p_relu", table=True
    ),
    _sparse("DistilBERT", "DistilBertForMaskedLM"),
    _sparse("MPNet, sum", "MPNetForMaskedLM", pooling="sum"),
    _sparse("ModernBERT", "ModernBertForMaskedLM"),
    _sparse("RoBERTa", "RobertaForMaskedLM"),
    _sparse("XLM-R", "XLMRobertaForMaskedLM"),
    _late("BERT, Stanford (ColBERTv2)", tiny.stanford, "BertModel"),
    _late("ModernBERT, PyLate", tiny.pylate, "ModernBertModel", attend_to_expansion_tokens=True),
    _late("BERT, PyLate", tiny.pylate, "BertModel"),
    _late("DistilBERT, sentence-transformers", tiny.native, "DistilBertModel", _FIXED),
    _late("MPNet, sentence-transformers", tiny.native, "MPNetModel", None, "meanmaxsim"),
)


# --- what is refused


def expect_error(notation: str, compute: Compute) -> str:
    """Return the sentence that refuses a folder; a traceback, or none, is a fault."""
    try:
        bundle.open_ranker(notation, compute)
    except RankhouseError as error:
        return " ".join(str(error).split())
    return "OPENED"


def _said(config: dict[str, Any], modules: Sequence[str] = ()) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config))
        listed = [{"idx": i, "name": str(i), "path": "", "type": name} for i, name in enumerate(modules)]
        if listed:
            (folder / "modules.json").write_text(json.dumps(listed))

    return make


def _tensors(change: Callable[[dict[str, torch.Tensor]], Any], name: str = f"Bert{_CLASSES}") -> Any:
    def make(folder: Path) -> None:
        path = encoder(name, folder, num_labels=1) / "model.safetensors"
        weights = load_file(path)
        change(weights)
        save_file(weights, path, metadata={"format": "pt"})

    return make


def _wider(folder: Path) -> None:
    path = encoder(f"Bert{_CLASSES}", folder, num_labels=1) / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"intermediate_size": 128}))


def _module(name: str, **config: Any) -> Callable[[Path], None]:
    """A bi-encoder with one module changed."""

    def make(folder: Path) -> None:
        chain("BertModel", "dense", folder)
        modules = json.loads((folder / "modules.json").read_text())
        if config:
            path = folder / modules[2]["path"] / "config.json"
            path.write_text(json.dumps(json.loads(path.read_text()) | config))
        else:
            modules[2]["type"] = name
        (folder / "modules.json").write_text(json.dumps(modules))

    return make


def _narrow_dense(folder: Path) -> None:
    chain("BertModel", "dense", folder)
    save_file({"linear.weight": torch.randn(96, 48)}, folder / "2_Dense" / "model.safetensors")


def _others_tokenizer(folder: Path) -> None:
    encoder(f"Bert{_CLASSES}", folder, num_labels=1)
    for path in folder.glob("tokenizer*"):
        path.unlink()
    (folder / "vocab.txt").unlink(missing_ok=True)
    byte_level(folder, roberta=False)


def _damaged(folder: Path) -> None:
    path = encoder(f"Bert{_CLASSES}", folder, num_labels=1) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-2_000])


_DECODER = partial(tiny.decoder, "Qwen3ForCausalLM")
_PLAIN = partial(encoder, "BertModel")
_CUSTOM = {
    "auto_map": {"AutoModel": "modeling.Own"},
    "architectures": ["JinaForRanking"],
    "model_type": "qwen3",
}
BAD = (
    ("ColBERTv2 (a bare folder)", 'biencoder("DIR")', lambda f: marked(tiny.stanford, "BertModel", f)),
    ("SPLADE (a bare folder)", 'biencoder("DIR")', partial(encoder, "BertForMaskedLM")),
    ("SPLADE (a bare folder)", "DIR", partial(encoder, "BertForMaskedLM")),
    ("SPLADE", 'biencoder("DIR")', partial(masked, "BertForMaskedLM")),
    ("cross-encoder", 'biencoder("DIR")', partial(encoder, f"Bert{_CLASSES}", num_labels=1)),
    ("bi-encoder", 'crossencoder("DIR")', partial(chain, "BertModel", "normalise")),
    ("bare encoder", 'crossencoder("DIR")', _PLAIN),
    ("decoder without a known prompt (RankZephyr, FIRST)", "DIR", _DECODER),
    ("a prompt without document", 'causal("DIR", prompt=["Query: {query}"], targets=["yes"])', _DECODER),
    ("Qwen3 without an output layer", "DIR",
     _said({"model_type": "qwen3", "architectures": ["Qwen3Model"]})),
    ("jina-reranker-v3 (own code)", "DIR", _said(_CUSTOM)),
    ("gte-Qwen2 (a known network read both ways by its own code)", "DIR",
     _changed(partial(chain, "Qwen3Model", "normalise", pooling="lasttoken"),
              auto_map={"AutoModel": "modeling_qwen.Qwen3Model"})),
    ("jina-reranker-v2 (own code)", "DIR",
     _changed(partial(encoder, f"XLMRoberta{_CLASSES}"), auto_map={f"AutoModel{_CLASSES}": "modeling.Own"})),
    ("an adapter (LoRA), alone or beside other weights", "DIR", _changed(_PLAIN, "adapter_config.json")),
    ("GPTQ without its package", "DIR",
     _changed(partial(encoder, f"Bert{_CLASSES}", num_labels=1),
              quantization_config={"quant_method": "gptq", "bits": 4})),
    ("T5 that labels", "DIR", _said({"model_type": "t5", "architectures": [f"T5{_CLASSES}"]})),
    ("another similarity", "DIR",
     _changed(partial(chain, "BertModel", ""), "config_sentence_transformers.json",
              similarity_fn_name="manhattan")),
    ("ColBERT compared by distance", "DIR",
     lambda f: marked(tiny.stanford, "BertModel", f, similarity="l2")),
    ("a decoder with a layer before its output layer", 'causal("DIR", prompt="qwen3-reranker")',
     partial(tiny.decoder, "ModernBertDecoderForCausalLM", pad_token_id=4, bos_token_id=3, eos_token_id=0,
             cls_token_id=3, sep_token_id=0)),
    ("custom module", "DIR", _said({"model_type": "bert"}, ["modeling_own.Own"])),
    ("Router whose routes are not query and document", "DIR",
     _changed(partial(routed, "heads"), "2_Router/router_config.json",
              structure={"QRY": [], "DOC": []}, parameters={})),
    ("Router of two sparse encoders", "DIR", partial(routed, "sparse")),
    ("texts that lose their beginnings", "DIR",
     _changed(partial(chain, "BertModel", "normalise"), "tokenizer_config.json", truncation_side="left")),
    ("texts in a chat template, as vectors", "DIR",
     _changed(partial(chain, "BertModel", "normalise"), "sentence_bert_config.json",
              modality_config={"text": {}, "message": {}})),
    ("the largest weights of a text alone", "DIR",
     _changed(partial(masked, "BertForMaskedLM"), "config_sentence_transformers.json", max_active_dims=64)),
    ("layers behind a classifier", "DIR",
     _changed(partial(_after, f"Bert{_CLASSES}"), "config_sentence_transformers.json",
              model_type="CrossEncoder")),
    ("DPR of transformers (no states of tokens)", "DIR",
     lambda f: encoder("BertModel", f) and _network_of("DPRQuestionEncoder", "DPRConfig", f)),
    ("KaLM-Reranker (T5Gemma)", "DIR",
     _said({"model_type": "t5gemma", "architectures": ["T5Gemma"], "is_encoder_decoder": True})),
    ("question answering", "DIR",
     _said({"model_type": "bert", "architectures": ["BertForQuestionAnswering"]})),
    ("five classes", 'crossencoder("DIR")', partial(encoder, f"Bert{_CLASSES}", num_labels=5)),
    ("a tensor missing", "DIR", _tensors(lambda w: w.pop("classifier.weight"))),
    ("a tensor too many", "DIR", _tensors(lambda w: w.update({"head.weight": torch.ones(4)}))),
    ("weights of another width", "DIR", _wider),
    ("a Dense of another width", "DIR", _narrow_dense),
    ("a module that is not known", "DIR", _module("sentence_transformers.models.CNN")),
    ("an activation that is not known", "DIR", _module("", activation_function="own.module.Swish")),
    ("a tokenizer that is another's", "DIR", _others_tokenizer),
    ("a damaged file", "DIR", _damaged),
)  # fmt: skip
