"""The runtimes of ``benchmarks/latency.py`` that compute a BERT cross-encoder's graph.

Nothing else stands between: the tokenizers library gives ids, rows are ordered by length and padded in
batches of the size that is best for the runtime. onnxruntime also gets the graph that its own tool fused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from rerank_peers import Peer, Score, Setting, timed_batches
from tokenizers import Tokenizer

NAMES = ("input_ids", "attention_mask", "token_type_ids")
Run = Callable[[dict[str, np.ndarray]], np.ndarray]


def in_batches(s: Setting, run: Run) -> Callable[[int], Score]:
    """Return what makes a scorer of a batch size from a function of padded ids."""
    tokenizer = Tokenizer.from_file(str(s.path / "tokenizer.json"))
    tokenizer.enable_truncation(512, strategy="only_second")
    tokenizer.no_padding()

    def make(size: int) -> Score:
        def score(query: str, texts: Sequence[str]) -> np.ndarray:
            rows = tokenizer.encode_batch([(query, text) for text in texts])
            order = sorted(range(len(rows)), key=lambda i: -len(rows[i].ids))
            out = np.empty(len(rows), np.float32)
            for start in range(0, len(order), size):
                part = order[start : start + size]
                given = {name: np.zeros((len(part), len(rows[part[0]].ids)), np.int64) for name in NAMES}
                for place, i in enumerate(part):
                    own = rows[i].ids, rows[i].attention_mask, rows[i].type_ids
                    for name, values in zip(NAMES, own, strict=True):
                        given[name][place, : len(values)] = values
                out[part] = run(given)[:, 0]
            return out

        return score

    return make


def quickest(name: str, s: Setting, runs: dict[str, Run]) -> Peer:
    """Try every way at every batch size; give the quickest."""
    tried = [(*timed_batches(in_batches(s, run), s), way) for way, run in runs.items()]
    _, size, score, way = min(tried, key=lambda found: found[0])
    return Peer(f"{name}, {way}, batch {size}", score)


def graph(path: Path) -> Path:
    """Export a checkpoint to ONNX, once."""
    out = path / "graph.onnx"
    if not out.exists():
        import torch
        from transformers import AutoModelForSequenceClassification

        model = AutoModelForSequenceClassification.from_pretrained(path, attn_implementation="eager").eval()
        ids = torch.randint(1000, 2000, (2, 20))
        torch.onnx.export(
            model,
            (ids, torch.ones_like(ids), torch.zeros_like(ids)),
            str(out),
            input_names=list(NAMES),
            output_names=["logits"],
            dynamic_axes={name: {0: "n", 1: "t"} for name in NAMES},
            dynamo=False,
        )
    return out


def fused(path: Path) -> Path:
    """Fuse attention, norms and activations with ONNX Runtime's own tool, once."""
    out = path / "fused.onnx"
    if not out.exists():
        from onnxruntime.transformers import optimizer

        config = json.loads((path / "config.json").read_text())
        heads, width = config["num_attention_heads"], config["hidden_size"]
        made = optimizer.optimize_model(str(graph(path)), "bert", num_heads=heads, hidden_size=width)
        made.save_model_to_file(str(out))
    return out


def in_onnxruntime(file: Path, threads: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    return lambda given: session.run(None, given)[0]


def onnxruntime_fp32(s: Setting) -> Peer:
    files = {"as exported": graph(s.path), "fused": fused(s.path)}
    return quickest(
        "onnxruntime fp32", s, {way: in_onnxruntime(file, s.threads) for way, file in files.items()}
    )


def onnxruntime_int8(s: Setting) -> Peer:
    """Quantise dynamically; unsigned weights are right without VNNI, signed ones may be cut off there."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    runs = {}
    for way, file in (("as exported", graph(s.path)), ("fused", fused(s.path))):
        small = file.with_name(f"{file.stem}-int8.onnx")
        if not small.exists():
            more = {"DefaultTensorType": onnx.TensorProto.FLOAT}  # of what the fused operators give
            quantize_dynamic(file, small, weight_type=QuantType.QUInt8, extra_options=more)
        runs[way] = in_onnxruntime(small, s.threads)
    return quickest("onnxruntime int8", s, runs)


def in_openvino(model: object, threads: int, precision: str = "f32") -> Run:
    import openvino

    settings = {
        "INFERENCE_PRECISION_HINT": precision,
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
    }
    compiled = openvino.Core().compile_model(model, "CPU", settings)
    return lambda given: compiled(given)[0]


def openvino_fp32(s: Setting) -> Peer:
    import openvino

    model = openvino.convert_model(str(graph(s.path)))
    return quickest("OpenVINO fp32", s, {"as exported": in_openvino(model, s.threads)})


def openvino_bf16(s: Setting) -> Peer:
    """Compute in bf16, where the processor has instructions for it."""
    import openvino

    from rankhouse.nn import machine

    if not machine.has_bf16():
        raise RuntimeError("no instructions for bf16 here")
    model = openvino.convert_model(str(graph(s.path)))
    return quickest("OpenVINO bf16", s, {"as exported": in_openvino(model, s.threads, "bf16")})


def openvino_int8(s: Setting) -> Peer:
    """Quantise weights and activations, calibrated on the sample's texts."""
    import nncf
    import openvino

    from rankhouse.nn import machine

    small = s.path / "openvino-int8.xml"
    if not small.exists():
        tokenizer = Tokenizer.from_file(str(s.path / "tokenizer.json"))
        tokenizer.enable_truncation(512, strategy="only_second")
        tokenizer.no_padding()
        rows = tokenizer.encode_batch([(s.query, text) for text in s.texts])
        given = [
            {
                name: np.array([values], np.int64)
                for name, values in zip(NAMES, (row.ids, row.attention_mask, row.type_ids), strict=True)
            }
            for row in rows
        ]
        plain = openvino.convert_model(str(graph(s.path)))
        model = nncf.quantize(
            plain, nncf.Dataset(given), model_type=nncf.ModelType.TRANSFORMER, subset_size=len(given)
        )
        openvino.save_model(model, small)
    ways = {"calibrated": in_openvino(str(small), s.threads)}
    if machine.has_bf16():
        ways["calibrated, rest bf16"] = in_openvino(str(small), s.threads, "bf16")
    return quickest("OpenVINO int8", s, ways)


GRAPH_PEERS = (onnxruntime_fp32, onnxruntime_int8, openvino_fp32, openvino_bf16, openvino_int8)
