"""The other libraries of ``benchmarks/rerank.py``: one function each that makes a scorer.

Every one is used as its documentation shows, at the batch size that is best for it here (tried on some
passages before).
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

Score = Callable[[str, Sequence[str]], np.ndarray]
BATCHES = (1, 4, 8, 16, 32)


class Peer(NamedTuple):
    """A system's name, and what scores passages for a query."""

    name: str
    score: Score


class Setting(NamedTuple):
    """A checkpoint, and what batch sizes are tried on and quantisers are calibrated with."""

    path: Path
    threads: int
    query: str
    texts: Sequence[str]


def best_batch(make: Callable[[int], Score], s: Setting) -> tuple[int, Score]:
    """Return the batch size that scores the sample quickest, and its scorer."""
    _, size, score = timed_batches(make, s)
    return size, score


def best_way(name: str, way: Callable[[int], Callable[[int], Score]], s: Setting) -> Peer:
    """Try all threads on one batch, and each on batches of its own; give the quicker, at its best batch."""
    tried = [(*timed_batches(way(workers), s), workers) for workers in sorted({1, s.threads})]
    _, size, score, workers = min(tried, key=lambda found: found[0])
    return Peer(f"{name}, batch {size}, {workers} at once", score)


def timed_batches(make: Callable[[int], Score], s: Setting) -> tuple[float, int, Score]:
    """Return the least time the sample took, its batch size and scorer."""
    taken = []
    for size in BATCHES:
        score = make(size)
        score(s.query, s.texts[:size])
        start = time.perf_counter()
        score(s.query, s.texts)
        taken.append((time.perf_counter() - start, size, score))
    return min(taken, key=lambda found: found[0])


def prompt(query: str, text: str) -> str:
    return f"Query: {query} Document: {text} Relevant:"


def predicting(
    model: Any,  # noqa: ANN401  # a CrossEncoder of a library that may be absent
    s: Setting,
    name: str,
) -> Peer:
    """Use a sentence-transformers CrossEncoder's predict at its best batch size."""

    def make(size: int) -> Score:
        return lambda query, texts: model.predict(
            [(query, text) for text in texts], batch_size=size, show_progress_bar=False
        )

    size, score = best_batch(make, s)
    return Peer(f"{name}, batch {size}", score)


def st_default(s: Setting) -> Peer:
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(str(s.path), device="cpu", max_length=512)
    return Peer(
        "sentence-transformers default",
        lambda query, texts: model.predict([(query, text) for text in texts], show_progress_bar=False),
    )


def st_bf16(s: Setting) -> Peer:
    from sentence_transformers import CrossEncoder

    given = {"torch_dtype": torch.bfloat16}
    model = CrossEncoder(str(s.path), device="cpu", max_length=512, model_kwargs=given)
    return predicting(model, s, "sentence-transformers bf16")


def st_openvino(s: Setting) -> Peer:
    from sentence_transformers import CrossEncoder

    settings = {"INFERENCE_PRECISION_HINT": "bf16", "INFERENCE_NUM_THREADS": str(s.threads)}
    model = CrossEncoder(
        str(s.path), device="cpu", max_length=512, backend="openvino", model_kwargs={"ov_config": settings}
    )
    return predicting(model, s, "OpenVINO bf16")


def st_openvino_int8(s: Setting) -> Peer:
    import nncf
    import openvino
    from sentence_transformers import CrossEncoder

    folder = s.path.parent / f"{s.path.name}-openvino-int8"
    settings = {"INFERENCE_NUM_THREADS": str(s.threads)}
    if not folder.exists():
        plain = CrossEncoder(str(s.path), device="cpu", max_length=512, backend="openvino")
        plain.save_pretrained(str(folder))
        given = [dict(plain.tokenizer(s.query, text, return_tensors="np")) for text in s.texts]
        small = nncf.quantize(
            plain.model.model,
            nncf.Dataset(given),
            model_type=nncf.ModelType.TRANSFORMER,
            subset_size=len(given),
        )
        openvino.save_model(small, folder / "openvino" / "openvino_model_int8.xml")
    named = {"file_name": "openvino_model_int8.xml", "subfolder": "openvino", "ov_config": settings}
    model = CrossEncoder(str(folder), device="cpu", max_length=512, backend="openvino", model_kwargs=named)
    return predicting(model, s, "OpenVINO int8")


def onnx_int8_file(path: Path) -> Path:
    """Export to ONNX and quantise weights, once."""
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from sentence_transformers import CrossEncoder

    folder = path.parent / f"{path.name}-onnx-int8"
    small = folder / "onnx" / "model_int8.onnx"
    if not small.exists():
        given = {"provider": "CPUExecutionProvider"}
        CrossEncoder(
            str(path), device="cpu", max_length=512, backend="onnx", model_kwargs=given
        ).save_pretrained(str(folder))
        quantize_dynamic(folder / "onnx" / "model.onnx", small, weight_type=QuantType.QInt8)
    return small


def onnx_fused_int8_file(path: Path) -> Path:
    """Fuse attention, norms and activations with ONNX Runtime's own tool, then quantise weights, once."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.transformers import optimizer

    plain = onnx_int8_file(path)
    small = plain.with_name("model_fused_int8.onnx")
    if not small.exists():
        config = json.loads((path / "config.json").read_text())
        heads, width = config["num_attention_heads"], config["hidden_size"]
        fused = optimizer.optimize_model(
            str(plain.with_name("model.onnx")), "bert", num_heads=heads, hidden_size=width, opt_level=0
        )
        fused.save_model_to_file(str(plain.with_name("model_fused.onnx")))
        quantize_dynamic(
            plain.with_name("model_fused.onnx"),
            small,
            weight_type=QuantType.QInt8,
            extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
        )
    return small


def st_onnx_fused_int8(s: Setting) -> Peer:
    return st_onnx_int8(s, onnx_fused_int8_file(s.path), "onnxruntime int8, fused")


def st_onnx_int8(s: Setting, small: Path | None = None, name: str = "onnxruntime int8") -> Peer:
    import onnxruntime
    from sentence_transformers import CrossEncoder

    small = small or onnx_int8_file(s.path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = s.threads
    given = {
        "provider": "CPUExecutionProvider",
        "file_name": f"onnx/{small.name}",
        "session_options": options,
    }
    model = CrossEncoder(
        str(small.parents[1]), device="cpu", max_length=512, backend="onnx", model_kwargs=given
    )
    return predicting(model, s, name)


def flashrank_int8(s: Setting) -> Peer:
    """FlashRank's own code over these weights, under the name of one of its models."""
    from flashrank import Ranker, RerankRequest
    from flashrank.Config import model_file_map

    name = "ms-marco-MiniLM-L-12-v2"
    folder = s.path.parent / f"{s.path.name}-flashrank" / name
    if not folder.exists():
        folder.mkdir(parents=True)
        shutil.copy(onnx_int8_file(s.path), folder / model_file_map[name])
        for file in (*s.path.glob("*.json"), *s.path.glob("*.txt")):
            shutil.copy(file, folder)
        if not (folder / "special_tokens_map.json").exists():
            tokens = (
                '{"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]"}'
            )
            (folder / "special_tokens_map.json").write_text(tokens)
    ranker = Ranker(name, str(folder.parent), max_length=512, log_level="ERROR")

    def score(query: str, texts: Sequence[str]) -> np.ndarray:
        asked = RerankRequest(query, [{"id": i, "text": text} for i, text in enumerate(texts)])
        found = {row["id"]: row["score"] for row in ranker.rerank(asked)}
        return np.array([found[i] for i in range(len(texts))])

    return Peer("FlashRank int8", score)


def ct2_bert(s: Setting, precision: str = "int8") -> Peer:
    import ctranslate2
    from tokenizers import Tokenizer
    from transformers import AutoModelForSequenceClassification, BertConfig

    if not hasattr(BertConfig, "position_embedding_type"):  # gone in transformers 5, read by CTranslate2
        BertConfig.position_embedding_type = "absolute"
    folder = s.path.parent / f"{s.path.name}-ctranslate2-{precision}"
    if not folder.exists():
        ctranslate2.converters.TransformersConverter(str(s.path)).convert(str(folder), quantization=precision)
    head = AutoModelForSequenceClassification.from_pretrained(s.path).classifier
    tokenizer = Tokenizer.from_file(str(s.path / "tokenizer.json"))
    tokenizer.enable_truncation(512, strategy="only_second")
    tokenizer.no_padding()

    def way(workers: int) -> Callable[[int], Score]:
        encoder = ctranslate2.Encoder(
            str(folder), compute_type=precision, intra_threads=s.threads // workers, inter_threads=workers
        )
        pool = ThreadPoolExecutor(workers)

        def make(size: int) -> Score:
            def score(query: str, texts: Sequence[str]) -> np.ndarray:
                rows = tokenizer.encode_batch([(query, text) for text in texts])
                order = sorted(range(len(rows)), key=lambda i: -len(rows[i].ids))
                parts = [order[start : start + size] for start in range(0, len(rows), size)]

                def compute(part: list[int]) -> np.ndarray:
                    made = encoder.forward_batch(
                        [rows[i].ids for i in part], token_type_ids=[rows[i].type_ids for i in part]
                    )
                    with torch.inference_mode():
                        return head(torch.from_numpy(np.array(made.pooler_output)))[:, 0].numpy()

                out = np.empty(len(rows), np.float32)
                out[np.concatenate(parts)] = np.concatenate(list(pool.map(compute, parts)))
                return out

            return score

        return make

    return best_way(f"CTranslate2 {precision}", way, s)


def ct2_t5(s: Setting) -> Peer:
    import ctranslate2
    from tokenizers import Tokenizer

    folder = s.path.parent / f"{s.path.name}-ctranslate2"
    if not folder.exists():
        ctranslate2.converters.TransformersConverter(str(s.path)).convert(str(folder), quantization="int8")
    tokenizer = Tokenizer.from_file(str(s.path / "tokenizer.json"))
    words = [tokenizer.token_to_id(word) for word in ("▁true", "▁false")]

    def way(workers: int) -> Callable[[int], Score]:
        translator = ctranslate2.Translator(
            str(folder),
            device="cpu",
            compute_type="int8",
            intra_threads=s.threads // workers,
            inter_threads=workers,
        )

        def make(size: int) -> Score:
            def score(query: str, texts: Sequence[str]) -> np.ndarray:
                rows = [row.tokens for row in tokenizer.encode_batch([prompt(query, text) for text in texts])]
                said = translator.translate_batch(
                    rows, max_decoding_length=1, beam_size=1, return_logits_vocab=True, max_batch_size=size
                )
                logits = torch.tensor(np.array([np.asarray(row.logits[0][0])[words] for row in said]))
                return torch.log_softmax(logits.float(), -1)[:, 0].numpy()

            return score

        return make

    return best_way("CTranslate2 int8", way, s)


def rerankers_t5(s: Setting, dtype: torch.dtype = torch.float32) -> Peer:
    from rerankers import Reranker

    ranker = Reranker(
        str(s.path),
        model_type="t5",
        dtype=dtype,
        device="cpu",
        verbose=0,
        token_true="▁true",
        token_false="▁false",
    )

    def make(size: int) -> Score:
        def score(query: str, texts: Sequence[str]) -> np.ndarray:
            ranker.batch_size = size
            found = {row.doc_id: row.score for row in ranker.rank(query, list(texts)).results}
            return np.array([found[i] for i in range(len(texts))])

        return score

    size, score = best_batch(make, s)
    return Peer(f"rerankers {'bf16' if dtype is torch.bfloat16 else 'fp32'}, batch {size}", score)


def rerankers_t5_bf16(s: Setting) -> Peer:
    return rerankers_t5(s, torch.bfloat16)


def rerankers_bert(s: Setting) -> Peer:
    from rerankers import Reranker

    ranker = Reranker(str(s.path), model_type="cross-encoder", dtype=torch.bfloat16, device="cpu", verbose=0)

    def score(query: str, texts: Sequence[str]) -> np.ndarray:
        found = {row.doc_id: row.score for row in ranker.rank(query, list(texts)).results}
        return np.array([found[i] for i in range(len(texts))])

    return Peer("rerankers bf16", score)


def openvino_t5(s: Setting) -> Peer:
    from optimum.intel import OVModelForSeq2SeqLM
    from transformers import AutoTokenizer

    settings = {"INFERENCE_PRECISION_HINT": "bf16", "INFERENCE_NUM_THREADS": str(s.threads)}
    model = OVModelForSeq2SeqLM.from_pretrained(s.path, export=True, use_cache=False, ov_config=settings)
    tokenizer = AutoTokenizer.from_pretrained(s.path)
    words = tokenizer.convert_tokens_to_ids(["▁true", "▁false"])

    def make(size: int) -> Score:
        def score(query: str, texts: Sequence[str]) -> np.ndarray:
            order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
            out = np.empty(len(texts), np.float32)
            for start in range(0, len(order), size):
                part = order[start : start + size]
                given = tokenizer([prompt(query, texts[i]) for i in part], padding=True, return_tensors="pt")
                begin = torch.zeros(len(part), 1, dtype=torch.int64)
                logits = model(
                    input_ids=given.input_ids, attention_mask=given.attention_mask, decoder_input_ids=begin
                ).logits[:, 0, words]
                out[part] = torch.log_softmax(torch.as_tensor(logits).float(), -1)[:, 0].numpy()
            return out

        return score

    size, score = best_batch(make, s)
    return Peer(f"OpenVINO bf16 (T5 by optimum), batch {size}", score)


BERT_PEERS = (
    st_default,
    st_bf16,
    st_openvino,
    st_openvino_int8,
    st_onnx_int8,
    st_onnx_fused_int8,
    flashrank_int8,
    ct2_bert,
    rerankers_bert,
)
T5_PEERS = (rerankers_t5, rerankers_t5_bf16, openvino_t5, ct2_t5)


def peers_for(
    path: Path, threads: int, wanted: Sequence[str] | None, texts: Sequence[str], query: str
) -> tuple[list[Peer], dict[str, str]]:
    """Make every peer that is installed; give them, and the reasons why others are left out."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    found, absent = [], {}
    for make in T5_PEERS if path.name.startswith("t5") else BERT_PEERS:
        if wanted and not any(part in make.__name__ for part in wanted):
            continue
        torch.set_num_threads(threads)
        try:
            found.append(make(Setting(path, threads, query, texts)))
        except Exception as error:  # noqa: BLE001  # a peer that fails is reported, not fatal
            absent[make.__name__] = (
                f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:160]
            )
    return found, absent
