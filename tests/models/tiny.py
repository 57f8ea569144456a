"""Tiny checkpoints of true architectures with random weights, saved as their makers' packages save them."""

import json
import re
import shutil
import string

import torch
from safetensors.torch import load_file, save_file

from rankhouse.models.prompts import KNOWN

from .conftest import GOLDEN, SIZES, SPOKEN, WORDS, shaken, with_bert_vocabulary

MARKS = ["[unused0]", "[unused1]", *string.punctuation]
"""Tokens of ColBERT's vocabularies besides words: PyLate skips unknown words where they lack punctuation."""
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<bos>", "<pad>"]
"""Special tokens of decoders."""
_ENDS = {"cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3}


def _own(kind, sizes):
    """Return what only one architecture's configuration has."""
    width, heads, inner = (sizes[k] for k in ("hidden_size", "num_attention_heads", "intermediate_size"))
    own = {
        "DistilBert": {"dim": width, "n_layers": 2, "n_heads": heads, "hidden_dim": inner,
                       "activation": "gelu"},
        "MPNet": {"pad_token_id": 1},
        "Roberta": {"pad_token_id": 1, "type_vocab_size": 1},
        "XLMRoberta": {"pad_token_id": 1, "type_vocab_size": 1},
        "Electra": {"embedding_size": 16},
        "ModernBert": _ENDS,
        "DebertaV2": {"relative_attention": True, "position_buckets": 16, "pos_att_type": ["p2c", "c2p"],
                      "norm_rel_ebd": "layer_norm", "share_att_key": True, "type_vocab_size": 0},
        "Gemma3Text": {"use_bidirectional_attention": True, "sliding_window": 32, "head_dim": width // heads,
                       "num_key_value_heads": 2},
    }  # fmt: skip
    if kind in {"Qwen2", "Qwen3", "Llama", "Mistral", "Gemma", "Gemma2"}:
        return {"num_key_value_heads": 2} | (
            {} if kind in {"Qwen2", "Llama"} else {"head_dim": width // heads}
        )
    return own.get(kind, {})


def network(name, folder, by=0.3, **settings):
    """Save transformers' class of this name, 32 wide where nothing else is said."""
    import transformers

    kind = re.sub(r"(For[A-Z]|Model$).*", "", name)
    usual = {"vocab_size": 271, "max_position_embeddings": 66, "pad_token_id": 0, **SIZES}
    own = usual | _own(kind, SIZES | {k: v for k, v in settings.items() if k in SIZES}) | settings
    torch.manual_seed(0)
    config = getattr(transformers, kind + "Config")(**own)
    shaken(getattr(transformers, name)(config), by).save_pretrained(folder)
    return folder


def with_byte_vocabulary(folder, special=SPECIAL, longest=2_000, size=900, **names):
    """Save a byte-level vocabulary, by itself without a post-processor; return its size."""
    import transformers
    from tokenizers import ByteLevelBPETokenizer

    trained = ByteLevelBPETokenizer()
    prompts = [text for prompt in KNOWN.values() for text in prompt.filled(None)]
    corpus = [SPOKEN, *WORDS, *prompts, "yes no Yes 1 0 " * 50]
    trained.train_from_iterator(corpus, vocab_size=size, special_tokens=special, show_progress=False)
    names = names or {"pad_token": "<pad>", "bos_token": "<bos>"}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=trained._tokenizer, model_max_length=longest, **names
    )
    tokenizer.save_pretrained(folder)
    return len(tokenizer)


def decoder(name, folder, **settings):
    """Save a decoder with a byte-level vocabulary that reads the known prompts."""
    size = with_byte_vocabulary(folder)
    sizes = {"hidden_size": 64, "intermediate_size": 96}
    return network(name, folder, 0.1, vocab_size=size + 10, num_labels=1,
                   **{"max_position_embeddings": 2_048} | sizes | settings)  # fmt: skip


def with_marks(name, folder, longest=64, **settings):
    """Save an encoder whose vocabulary has ColBERT's marks."""
    import transformers

    words = (GOLDEN / "bert" / "vocab.txt").read_text().splitlines()
    vocabulary = list(dict.fromkeys([*words, *MARKS]))
    if name.startswith("MPNet"):  # whose code takes token 1 for padding
        vocabulary[:2] = reversed(vocabulary[:2])
    network(name, folder, vocab_size=len(vocabulary), **settings)
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    transformers.BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=longest).save_pretrained(
        folder
    )
    return folder


def masked(name, folder, **settings):
    """Save a language model that predicts masked words."""
    with_bert_vocabulary(network(name, folder, **settings), generic=not name.startswith("Bert"))
    return folder


def splade(plain, folder, pooling="max", activation="relu", table=False):
    """Save a sparse encoder as sentence-transformers does; ``plain`` is a masked language model."""
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sentence_transformer.modules import Router
    from sentence_transformers.sparse_encoder import modules

    reader = [
        modules.Transformer(str(plain), transformer_task="fill-mask"),
        modules.SpladePooling(pooling, activation_function=activation),
    ]
    if table:
        torch.manual_seed(4)
        vocabulary = reader[0].tokenizer
        words = modules.SparseStaticEmbedding(vocabulary, torch.rand(len(vocabulary)) * 3)
        reader = [Router.for_query_document(query_modules=[words], document_modules=reader)]
    prompts = {"query": "storm harbour ", "document": ""}
    SparseEncoder(modules=reader, prompts=prompts, device="cpu").save_pretrained(str(folder))
    return str(folder)


def native(plain, folder, expansion, similarity="maxsim", prompts=("[unused0] ", "[unused1] "), **mask):
    """Save late interaction as sentence-transformers 6 does."""
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Transformer

    reader = Transformer(str(plain), document_length=50, query_expansion=expansion)
    reader.tokenizer.add_special_tokens({"additional_special_tokens": ["[unused0]", "[unused1]"]})
    torch.manual_seed(2)
    width = reader.get_embedding_dimension()
    dense = Dense(
        width, 16, bias=False, activation_function=torch.nn.Identity(), module_input_name="token_embeddings"
    )
    model = MultiVectorEncoder(
        modules=[reader, dense, MultiVectorMask(**mask), Normalize(module_input_name="token_embeddings")],
        prompts=dict(zip(("query", "document"), prompts, strict=True)),
        similarity_fn_name=similarity,
        device="cpu",
    )
    model.save_pretrained(str(folder))


def stanford(plain, folder, **said):
    """Save late interaction as Stanford's code does: all weights in one file, artifact.metadata beside it."""
    shutil.copytree(plain, folder)
    weights = load_file(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text()) | {"architectures": ["HF_ColBERT"]}
    torch.manual_seed(2)
    own = {f"bert.{key}": value for key, value in weights.items()}
    own["linear.weight"] = torch.randn(16, config["hidden_size"])
    save_file(own, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    usual = {"query_token_id": "[unused0]", "doc_token_id": "[unused1]", "query_maxlen": 16, "doc_maxlen": 40}
    (folder / "artifact.metadata").write_text(json.dumps(usual | said))


def pylate(plain, folder, **said):
    """Save late interaction as PyLate does: settings in config_sentence_transformers.json."""
    shutil.copytree(plain, folder)
    (folder / "1_Dense").mkdir()
    config = json.loads((folder / "config.json").read_text())
    width = config.get("hidden_size") or config["dim"]
    torch.manual_seed(2)
    save_file({"linear.weight": torch.randn(16, width)}, folder / "1_Dense" / "model.safetensors")
    dense = {"in_features": width, "out_features": 16, "bias": False, "use_residual": False,
             "activation_function": "torch.nn.modules.linear.Identity"}  # fmt: skip
    (folder / "1_Dense" / "config.json").write_text(json.dumps(dense))
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Dense", "type": "pylate.models.Dense.Dense"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    usual = {"model_type": "ColBERT", "query_prefix": "[unused0]", "document_prefix": "[unused1]",
             "query_length": 16, "document_length": 40, "attend_to_expansion_tokens": False,
             "skiplist_words": list(string.punctuation), "similarity_fn_name": "MaxSim",
             "prompts": {}}  # fmt: skip
    (folder / "config_sentence_transformers.json").write_text(json.dumps(usual | said))
