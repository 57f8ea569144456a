"""A T5 to be pre-trained: its sizes, its first weights, and its files as published checkpoints have them.

Raffel et al., JMLR 2020. Style "1.0": ReLU, one matrix for words in and out, decoder states scaled by
d_model ** -0.5 before it. Style "1.1": gated GELU, an output layer of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import msgspec
import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import nn

from rankhouse.core.arguments import check_least
from rankhouse.core.errors import BadModel, MissingInput, WrongUse
from rankhouse.io.outputs import replacing
from rankhouse.models.checkpoint import load_tokenizer
from rankhouse.models.monot5 import MAX_LENGTH, PROMPT, MonoT5
from rankhouse.training.checkpoint import saving
from rankhouse.training.pretraining_data import Specials

Style = Literal["1.0", "1.1"]

CHECKPOINT_FILES = ("model.safetensors", "tokenizer.json", "config.json")
"""Files that :func:`write_checkpoint` writes, in that order."""


class T5Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of a T5."""

    style: Style = "1.1"  # "1.0" or "1.1"
    d_model: int = 128  # width
    layers: int = 2  # of the encoder, and of the decoder
    heads: int = 4  # of attention
    d_kv: int = 0  # width of a head; 0: d_model / heads
    d_ff: int = 256  # inner width of the feed-forward parts

    def __post_init__(self) -> None:
        check_least(self, 1, "d_model", "layers", "heads", "d_ff")
        if self.d_kv < 0 or (not self.d_kv and self.d_model % self.heads):
            raise WrongUse(
                f"d_model={self.d_model}, heads={self.heads}, d_kv={self.d_kv}: give a d_model that the "
                "heads divide, or the width of a head as d_kv"
            )


SIZES: dict[str, T5Shape] = {
    "tiny": T5Shape(),
    "mini": T5Shape(d_model=256, layers=4, heads=4, d_ff=512),
    "small": T5Shape(d_model=512, layers=8, heads=6, d_kv=64, d_ff=1024),
    "base": T5Shape(d_model=768, layers=12, heads=12, d_kv=64, d_ff=2048),
}
"""Name -> sizes; small and base are those of T5 1.1."""


def read_tokenizer(path: Path) -> Tokenizer:
    """Read a vocabulary: a SentencePiece model, a tokenizer.json, or a folder that has one of them.

    Raises MissingInput: no such file or folder; BadModel: it cannot be read.
    """
    if path.is_dir():
        return load_tokenizer(path, None)[0]
    if not path.is_file():
        raise MissingInput(f"{path}: there is no such file; give T5's spiece.model, or a tokenizer.json")
    name = "tokenizer.json" if path.suffix == ".json" else "spiece.model"
    with TemporaryDirectory() as folder:
        (Path(folder) / name).write_bytes(path.read_bytes())
        (Path(folder) / "config.json").write_text('{"model_type": "t5"}', encoding="utf-8")
        try:
            return load_tokenizer(Path(folder), None)[0]
        except BadModel as error:
            raise BadModel(
                f"{path}: no SentencePiece model or tokenizer.json that can be read; T5's is spiece.model "
                "beside any of its checkpoints"
            ) from error


def specials(tokenizer: Tokenizer) -> Specials:
    """Find the end token and the sentinels; BadModel for a vocabulary without, which is no T5's."""
    end = tokenizer.token_to_id("</s>")
    sentinels: list[int] = []
    while (number := tokenizer.token_to_id(f"<extra_id_{len(sentinels)}>")) is not None:
        sentinels.append(number)
    if end is None or not sentinels:
        raise BadModel(
            "the vocabulary has no </s> or no <extra_id_0>, <extra_id_1> ..., which stand for what was cut "
            "out; give the vocabulary of a T5"
        )
    return Specials(end, np.array(sentinels))


def _config(shape: T5Shape, tokenizer: Tokenizer, end: int) -> dict[str, Any]:
    """Return a config.json as the published checkpoints of this style have it."""
    tied = shape.style == "1.0"
    return {
        "architectures": ["T5ForConditionalGeneration"],
        "model_type": "t5",
        "vocab_size": -(-tokenizer.get_vocab_size() // 128) * 128,  # 32,128 rows for 32,100 tokens
        "d_model": shape.d_model,
        "d_kv": shape.d_kv or shape.d_model // shape.heads,
        "d_ff": shape.d_ff,
        "num_layers": shape.layers,
        "num_decoder_layers": shape.layers,
        "num_heads": shape.heads,
        "relative_attention_num_buckets": 32,
        "relative_attention_max_distance": 128,
        "dropout_rate": 0.1,
        "layer_norm_epsilon": 1e-6,
        "initializer_factor": 1.0,
        "feed_forward_proj": "relu" if tied else "gated-gelu",
        "is_encoder_decoder": True,
        "pad_token_id": 0,
        "eos_token_id": end,
        "decoder_start_token_id": 0,
        "tie_word_embeddings": tied,
        "scale_decoder_outputs": tied,
    }


def begin(shape: T5Shape, tokenizer: Tokenizer) -> MonoT5:
    """Make a T5 with weights drawn from torch's random state.

    Raises WrongUse: the vocabulary lacks the words "true" and "false".
    """
    tied = shape.style == "1.0"
    policy: Mapping[str, Any] = {
        "max_length": MAX_LENGTH,
        "prompt": list(PROMPT),
        "targets": ["true", "false"],
        "start": 0,
        "end": specials(tokenizer).end,
        "scaled": tied,
        "tied": tied,
    }
    config = json.dumps(_config(shape, tokenizer, policy["end"])).encode()
    files = {"config.json": config, "tokenizer.json": tokenizer.to_str().encode()}
    model = MonoT5.rebuild(policy, files)
    if not tied:  # logits that start near 1, not near d_model ** 0.5
        head: nn.Linear = model.network.lm_head  # type: ignore[assignment]  # a T5 has one
        nn.init.normal_(head.weight, std=shape.d_model**-0.5)
    return model


def write_checkpoint(model: MonoT5, folder: Path) -> None:
    """Write config.json, model.safetensors and tokenizer.json; config.json last, and so whole or absent."""
    needless = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}
    if model.policy["tied"]:
        needless.add("lm_head.weight")
    state = {
        name: tensor.detach().to("cpu", torch.float32).contiguous()
        for name, tensor in model.network.state_dict().items()
        if name not in needless
    }
    with saving(folder), replacing(folder / "model.safetensors") as temporary:
        save_file(state, temporary, {"format": "pt"})
    files = model.assets()
    config = json.dumps(json.loads(files["config.json"]), indent=2, sort_keys=True).encode() + b"\n"
    for name, content in (("tokenizer.json", files["tokenizer.json"]), ("config.json", config)):
        with replacing(folder / name) as temporary:
            temporary.write_bytes(content)
