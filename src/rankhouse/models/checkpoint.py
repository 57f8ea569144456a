"""Published checkpoints: found on disk or on the hub, checked before use, read without pickle."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer, normalizers
from torch import Tensor, nn

from rankhouse.core.errors import BadModel, MissingInput
from rankhouse.core.nouns import Pair
from rankhouse.models.pair_encoding import PairReader
from rankhouse.models.text_ids import plain
from rankhouse.nn.layers.ragged import Packed

SEQ2SEQ = frozenset({"t5", "mt5"})
"""Model types that answer with words; all others in use here answer with numbers."""

_CUT = 'here their ends are cut; to have it so, write  "truncation_side": "right"  there'
_FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "*.metadata"]  # in folders of it, too


def find(name: str, allow_pickle: bool = False) -> Path:
    """Return the folder of a checkpoint, fetched from the hub if it is no folder here.

    Args:
        name: A folder, or a hub name "owner/model", optionally "owner/model@revision".

    Raises MissingInput: neither a folder nor on the hub (or the hub cannot be reached); BadModel: the folder
    holds no config.json.
    """
    folder = Path(name).expanduser()
    if not folder.is_dir():
        if folder.exists():
            raise BadModel(
                f'"{name}" is a file; give the folder that holds config.json and model.safetensors'
            )
        folder = _fetch(name, allow_pickle)
    if (folder / "adapter_config.json").is_file():
        raise BadModel(
            f'"{folder}" holds an adapter (LoRA), which only changes another checkpoint; put the two '
            'together once with peft:  PeftModel.from_pretrained(BASE, "DIR").merge_and_unload()'
            '.save_pretrained("NEW")'
        )
    if not any((folder / name).is_file() for name in ("config.json", "modules.json")):
        raise BadModel(
            f'"{folder}" holds no config.json, so it is no checkpoint; a published checkpoint\'s folder has '
            "config.json, model.safetensors and tokenizer.json"
        )
    return folder


def read_config(folder: Path) -> dict[str, Any]:
    """Read config.json as it was written, before any library fills in its own defaults.

    Raises BadModel: it cannot be read or names no model type.
    """
    config = read_json(folder / "config.json")
    if not isinstance(config, dict) or "model_type" not in config:
        raise BadModel(
            f'"{folder / "config.json"}" names no model_type; it must be a transformers checkpoint'
        )
    return config


def read_json(path: Path) -> Any:  # noqa: ANN401  # whatever JSON holds
    """Read one of a checkpoint's JSON files; BadModel if it cannot be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadModel(f'"{path}" cannot be read ({error}); fetch the file again') from None


def load_network(
    folder: Path,
    kind: str,
    allow_pickle: bool,
    needless: tuple[str, ...] = (),
    hint: str = "",
    unread: tuple[str, ...] | None = None,
    *,
    keep_type: bool = False,
) -> nn.Module:
    """Load a transformers class, in fp32 unless its own number type is kept.

    Args:
        allow_pickle: Whether weights may be read from pytorch_model.bin.
        needless: Parts of the names of tensors that the file may lack.
        hint: Ends the error where others are missing.
        unread: Parts of the names of tensors that the file may hold although nothing reads them; None: any.

    Raises BadModel: no readable weights, weights missing or of another network, a damaged file.
    """
    import transformers  # noqa: PLC0415  # slow to import

    refuse_pickle(folder, allow_pickle)
    try:
        with quiet():
            network, info = getattr(transformers, kind).from_pretrained(
                folder,
                use_safetensors=None if allow_pickle else True,
                local_files_only=True,
                trust_remote_code=False,
                output_loading_info=True,
            )
    except (ImportError, OSError, SafetensorError, ValueError, RuntimeError, KeyError) as error:
        why = _first_line(error)
        if "mismatched" in why:
            why = "they are of other sizes than its config.json says"
        if isinstance(error, ImportError):
            raise BadModel(
                f'the weights in "{folder}" need a package that is not installed ({why}): install it, '
                "or give the checkpoint that they were made from, without quantisation"
            ) from error
        raise BadModel(
            f'the weights in "{folder}" cannot be loaded: {why}; fetch the folder again'
        ) from error
    missing = sorted(k for k in info["missing_keys"] if not any(part in k for part in needless))
    if missing:
        raise BadModel(
            f'the weights in "{folder}" lack {len(missing)} tensor(s), first "{missing[0]}": this is not a '
            f"checkpoint trained as {kind.removeprefix('Auto')}; a scoring head that was never "
            f"trained would rank at random{hint}"
        )
    more = sorted(
        k for k in info["unexpected_keys"] if unread is not None and not any(u in k for u in unread)
    )
    if more:
        raise BadModel(
            f'"{folder}" holds {len(more)} tensor(s) that {type(network).__name__} does not read, first '
            f'"{more[0]}": it is a checkpoint of another kind than its config.json says, and would rank at '
            "random; open it with the code it was made for, or fetch the folder again"
        )
    return (network if keep_type else network.float()).eval()  # type: ignore[no-any-return]


def encoder_class(config: Mapping[str, Any]) -> str:
    """Return transformers' class for the encoder of a config.json as read."""
    return {"t5": "T5EncoderModel", "mt5": "MT5EncoderModel"}.get(config["model_type"], "AutoModel")


def network_of(config: Mapping[str, Any], kind: str) -> nn.Module:
    """Make a network from a config.json as read; its weights are put in afterwards."""
    import transformers  # noqa: PLC0415  # slow to import

    with quiet():
        filled = transformers.AutoConfig.for_model(**config)
        made: Any = getattr(transformers, kind)
        network: nn.Module = (made.from_config if kind.startswith("Auto") else made)(filled)
    return network.float().eval()


def checkpoint_assets(tokenizer: Tokenizer, config: Mapping[str, Any]) -> dict[str, bytes]:
    """Return a bundle's files for a tokenizer and a config.json as read."""
    return {
        "tokenizer.json": tokenizer.to_str().encode(),
        "config.json": json.dumps(config, sort_keys=True).encode(),
    }


def read_assets(assets: Mapping[str, bytes]) -> tuple[Tokenizer, dict[str, Any]]:
    """Return the tokenizer and the configuration that :func:`checkpoint_assets` wrote."""
    return Tokenizer.from_str(assets["tokenizer.json"].decode()), json.loads(assets["config.json"])


def _words(tokenizer: Tokenizer) -> int:
    """Count the words that texts may be cut into; T5's sentinels, say, need no vectors."""
    added = tokenizer.get_added_tokens_decoder()
    return 1 + max(n for n in tokenizer.get_vocab(with_added_tokens=False).values() if n not in added)


class CheckpointModel(nn.Module):
    """Base of the families of published checkpoints.

    Args:
        policy: Everything besides weights and vocabulary that changes a score: all JSON values.
        config: The checkpoint's config.json as read.
    """

    batch_tokens = 0
    reads_words = False

    def __init__(
        self, network: nn.Module, tokenizer: Tokenizer, policy: Mapping[str, Any], config: Mapping[str, Any]
    ) -> None:
        super().__init__()
        self.network, self._config = network, dict(config)
        self.policy: Mapping[str, Any] = dict(policy)
        self._tokenizer = plain(tokenizer)
        rows = getattr(cast(Any, network).get_input_embeddings(), "num_embeddings", None)
        if rows and tokenizer.get_vocab_size(False) > rows and (size := _words(tokenizer)) > rows:
            raise BadModel(
                f"the tokenizer has {size:,} words, the network vectors of {rows:,}: it is the tokenizer of "
                'another checkpoint; fetch the folder again, or name the right one:  tokenizer="DIR"'
            )

    def assets(self) -> dict[str, bytes]:
        """Return tokenizer.json and config.json."""
        return checkpoint_assets(self._tokenizer, self._config)


class PairModel(CheckpointModel):
    """A checkpoint that reads query and passage in one sequence."""

    pair_reader: PairReader  # what turns pairs into ids

    def encode(self, pairs: Sequence[Pair]) -> Packed:
        """Turn the text of n pairs into ids."""
        return self.pair_reader(pairs)

    def characters_read(self, pair: Pair) -> int | None:
        """Return how many characters of the passage are read; None: all of them."""
        return self.pair_reader.passage_tokens(pair).characters_read

    def forget(self) -> None:
        """Drop the ids of texts that were tokenised before."""
        self.pair_reader.texts.forget()


def read_tensor(folder: Path, name: str, allow_pickle: bool) -> Tensor | None:
    """Read one tensor as the file has it; None if the file does not."""
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            if name in file.keys():  # noqa: SIM118  # a safetensors file is no mapping
                tensor: Tensor = file.get_tensor(name)
                return tensor
    if allow_pickle:
        for path in sorted(folder.glob("pytorch_model*.bin")):
            state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
            if name in state:
                return state[name].clone()  # type: ignore[no-any-return]
    return None


_NOTHING: Mapping[str, Any] = {}


def load_tokenizer(
    folder: Path, given: str | None, own: Mapping[str, Any] = _NOTHING
) -> tuple[Tokenizer, bool, int]:
    """Load a checkpoint's tokenizer.

    Args:
        folder: The checkpoint; its config.json says of which kind the tokenizer is.
        given: A folder with another tokenizer, or None for the checkpoint's own.
        own: What a Transformer module says of how it reads texts; it may lower their case first.

    Returns:
        The tokenizer; whether its model is meant to be given segment ids; the length it is meant for.

    Raises BadModel: there is none, or none that works without Python code.
    """
    place = Path(given) if given is not None else folder
    try:
        with quiet():
            tokenizer = _open_tokenizer(folder, place)
            backend = tokenizer.backend_tokenizer
    except BadModel:
        raise
    except Exception as error:
        raise BadModel(_unreadable(folder, place, _first_line(error))) from error
    if not _holds_tokenizer(place):
        raise BadModel(
            f'"{place}" holds no tokenizer: none of tokenizer.json, vocab.txt, vocab.json, *.model; copy it '
            'there, or name another folder that has one: tokenizer="DIR"'
        )
    if tokenizer.truncation_side == "left":
        raise BadModel(f'"{place / "tokenizer_config.json"}" cuts the beginnings of long texts: {_CUT}')
    made = Tokenizer.from_str(backend.to_str())
    if own.get("do_lower_case"):
        described = json.dumps(json.loads(made.to_str())["normalizer"])
        if '"lowercase": true' not in described and '"type": "Lowercase"' not in described:
            before = [made.normalizer] if made.normalizer is not None else []
            made.normalizer = normalizers.Sequence([normalizers.Lowercase(), *before])
    segments = "token_type_ids" in tokenizer.model_input_names
    return made, segments, own.get("max_seq_length") or min(int(tokenizer.model_max_length), 1_000_000)


def _open_tokenizer(folder: Path, place: Path) -> Any:  # noqa: ANN401  # transformers has few types
    """Open a tokenizer as transformers does.

    Of a class that this transformers lacks, it is what tokenizer.json says: newer versions name classes that
    do nothing else.
    """
    import transformers  # noqa: PLC0415  # slow to import

    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    try:
        return transformers.AutoTokenizer.from_pretrained(
            place, config=config, local_files_only=True, trust_remote_code=False
        )
    except (AttributeError, ValueError):
        path = place / "tokenizer_config.json"
        settings = read_json(path) if path.is_file() else {}
        if not isinstance(settings, dict):
            raise BadModel(f'"{path}" holds no JSON object; fetch the file again') from None
        kind = settings.get("tokenizer_class") or getattr(config, "tokenizer_class", None) or ""
        is_known = any(hasattr(transformers, kind + fast) for fast in ("", "Fast"))
        if not kind or is_known or "auto_map" in settings or not (place / "tokenizer.json").is_file():
            raise
        return transformers.PreTrainedTokenizerFast.from_pretrained(
            place,
            local_files_only=True,
            model_input_names=settings.get("model_input_names", ["input_ids", "attention_mask"]),
            extra_special_tokens={},  # a list in newer versions; tokenizer.json holds them
        )


def _unreadable(folder: Path, place: Path, why: str) -> str:
    """Say what to do about a tokenizer that cannot be read."""
    import transformers  # noqa: PLC0415  # slow to import

    if not (place / "tokenizer.json").is_file():
        return (
            f'"{place}" holds no tokenizer that can be read ({why}); it needs tokenizer.json, vocab.txt or '
            'spiece.model beside the weights, or name another folder that has one: tokenizer="DIR"'
        )
    writer, here = read_config(folder).get("transformers_version"), transformers.__version__
    versions = f"transformers {writer} wrote the checkpoint, here is {here}: " * (writer not in {None, here})
    return (
        f'"{place / "tokenizer.json"}" cannot be read ({why}); {versions}if a newer version wrote it, '
        "install that:  pip install -U transformers tokenizers  ; else fetch the folder again, or name "
        'another that has a tokenizer: tokenizer="DIR"'
    )


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' progress bars and notices to itself for a while."""
    from transformers.utils import logging  # noqa: PLC0415  # slow to import

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(40)  # logging.ERROR
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # transformers has few types
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]  # likewise


def _fetch(name: str, allow_pickle: bool) -> Path:
    """Fetch a checkpoint from the hub, or find it in the hub's local store."""
    from huggingface_hub import snapshot_download  # noqa: PLC0415  # slow to import

    owner_model, _, revision = name.partition("@")
    patterns = [*_FILES, "*.bin"] if allow_pickle else _FILES
    try:
        return Path(snapshot_download(owner_model, revision=revision or None, allow_patterns=patterns))
    except Exception as error:
        raise MissingInput(
            f'"{name}" is no folder here, and could not be had from the hub ({_first_line(error)}); give the '
            'path of a folder, or a hub name "owner/model"; without network, fetch it elsewhere with  '
            f"hf download {owner_model} --local-dir DIR  and give that folder"
        ) from error


def refuse_pickle(folder: Path, allow_pickle: bool) -> None:
    """Refuse a folder without weights, or with pickles only, unless these are allowed."""
    if any(folder.glob("*.safetensors")):
        return
    pickles = sorted(p.name for p in folder.glob("*.bin"))
    if not pickles:
        raise BadModel(f'"{folder}" holds no weights: no *.safetensors file is there; fetch the folder again')
    if not allow_pickle:
        raise BadModel(
            f'"{folder}" holds its weights only as {pickles[0]}, a pickle, which can run code when it is '
            "read; only safetensors is read by default. If you trust its origin, add allow_pickle=True (then "
            "bare tensors are read, and a bundle saved from it holds no pickle), or convert it once with "
            "transformers: AutoModel.from_pretrained(DIR).save_pretrained(DIR)"
        )


def _holds_tokenizer(folder: Path) -> bool:
    known = {"tokenizer.json", "vocab.txt", "vocab.json"}
    return any(p.name in known or p.suffix == ".model" for p in folder.iterdir())


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:200]}" if text else type(error).__name__
