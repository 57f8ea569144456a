"""Model cards: the README.md of a checkpoint's folder, by the hub's conventions, and the folder's way there.

A card says what is known and marks what is not by TODO: the licence is the writer's to choose, and a bundle
does not know which data it learned from. Numbers come from the training's own comparison on its validation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rankhouse import __version__
from rankhouse.core.errors import OutputFailed, needs
from rankhouse.io.decoding import read_own
from rankhouse.page.tables import Table
from rankhouse.training.folder import COMMAND, NUMBERS, SETTINGS

if TYPE_CHECKING:
    from rankhouse.models.ranker import NeuralRanker

_TODO: Final = "TODO"
_KINDS: Final = {
    "crossencoder": ("cross-encoder", "sentence-transformers", "text-ranking"),
    "causal": ("decoder", "sentence-transformers", "text-ranking"),
    "biencoder": ("bi-encoder", "sentence-transformers", "sentence-similarity"),
    "sparse": ("sparse encoder", "sentence-transformers", "feature-extraction"),
    "colbert": ("late-interaction encoder", "PyLate", "sentence-similarity"),
    "monot5": ("monoT5", "transformers", "text-ranking"),
}
_ENCODER: Final = (
    "from sentence_transformers import {kind}\n\n"
    'model = {kind}("{{name}}")\n'
    'model.similarity(model.encode_query("who steers ships?"), model.encode_document(texts))'
)
_PAIRS: Final = (
    "from sentence_transformers import CrossEncoder\n\n"
    'CrossEncoder("{name}").rank("who steers ships?", texts, return_documents=True)'
)
_OPEN: Final = {
    "crossencoder": _PAIRS,
    "causal": _PAIRS,
    "biencoder": _ENCODER.format(kind="SentenceTransformer"),
    "sparse": _ENCODER.format(kind="SparseEncoder"),
    "colbert": _ENCODER.format(kind="MultiVectorEncoder"),
    "monot5": (
        "from transformers import AutoModelForSeq2SeqLM, AutoTokenizer\n\n"
        'model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained("{name}"), '
        'AutoTokenizer.from_pretrained("{name}")'
    ),
}

_BODY: Final = """# {title}

A {kind} for document ranking, written by rankhouse {version}. It began with {begun}.

## Use

```python
import rankhouse as rh

ranker = rh.open_ranker('{spec}')
print(ranker.rank("who steers ships?", texts))
```

The same scores by {library}:

```python
{use}
```

## Training

- Data: {data}
- Command: {command}
- Settings: {settings}

## Evaluation

{numbers}
## Limits

- A pair is read up to {tokens:,} tokens; what is longer is cut.
- It ranks texts like those it learned from; on others, measure it before you rely on it.
- Licence: {license}
"""


@dataclass(frozen=True)
class ModelCard:
    """Facts about a checkpoint that a person adds; the rest comes from the ranker and its training's folder.

    Attributes:
        license: By the hub's list ("apache-2.0", "cc-by-nc-4.0" ...); "" leaves it to be filled in.
        data: What it learned from, and under which terms.
        base_model: The checkpoint it began with, by its hub name; "" takes it from the training's command.
        language: Codes of the languages, "en".
    """

    license: str = ""
    data: str = ""
    base_model: str = ""
    language: tuple[str, ...] = ()

    def text(self, ranker: NeuralRanker, name: str, training: Path | None = None) -> str:
        """Write the card.

        Args:
            ranker: What is described.
            name: How it is called: its folder, or its name on the hub.
            training: The folder of its training, where it has one.
        """
        model: Any = ranker.model
        record = _record(training)
        base = self.base_model or _base(record["command"])
        kind, library, _ = _KINDS[model.family]
        settings = ", ".join(f"{key} = {value}" for key, value in record["settings"].items())
        body = _BODY.format(
            title=name.rpartition("/")[2],
            kind=kind,
            version=__version__,
            begun=base or f"{_TODO}: its name",
            spec=f'{model.family}("{name}")',
            library=library,
            use=_OPEN[model.family].format(name=name),
            data=self.data or f"{_TODO}: which collection, queries and judgements, and under which terms",
            command=f"`{record['command']}`" if record["command"] else "not recorded",
            settings=settings or "not recorded",
            numbers=_numbers(record["numbers"]),
            tokens=model.policy["max_length"],
            license=self.license or f"{_TODO}; the terms of its base model and of its data bind it",
        )
        return "\n".join([*self._front(model.family, base), body])

    def _front(self, family: str, base: str) -> Iterator[str]:
        """Write the lines that the hub reads: YAML, whose strings JSON's are."""
        kind, library, task = _KINDS[family]
        yield "---"
        yield f"license: {json.dumps(self.license or 'other')}" + ("" if self.license else f"  # {_TODO}")
        yield f"base_model: {json.dumps(base)}" if base else f"# base_model: {_TODO}"
        yield f"library_name: {library}"
        yield f"pipeline_tag: {task}"
        if self.language:
            yield f"language: {json.dumps(self.language)}"
        yield f"tags: {json.dumps(['rankhouse', 'reranker', kind.lower(), library])}"
        yield "---"


def _record(training: Path | None) -> dict[str, Any]:
    """Read what a training's folder says of itself; "" and {} where it does not."""

    def read(name: str) -> dict[str, Any]:
        path = training / name if training else None
        if path is None or not path.is_file():
            return {}
        return read_own(path, dict[str, Any], "it was written by rankhouse train")

    command = training / COMMAND if training else None
    return {
        "command": command.read_text(encoding="utf-8").strip() if command and command.is_file() else "",
        "settings": {key: value for key, value in read(SETTINGS).items() if value not in ("", None)},
        "numbers": read(NUMBERS),
    }


def _base(command: str) -> str:
    """Return the hub's name of the checkpoint that a training began with; "" where its command names none."""
    begun = re.search(r"--(?:ranker|init) .*?\(\"([\w.-]+/[\w.-]+)\"", command)
    return begun[1] if begun is not None and not Path(begun[1]).exists() else ""


def _numbers(numbers: Mapping[str, Any]) -> str:
    """Lay out means with their intervals; the sentence below says what they are worth."""
    if not numbers:
        return f"{_TODO}: not recorded; `rankhouse evaluate` measures it with intervals.\n"
    cells = {(cell["system"], cell["measure"]): cell for cell in numbers["cells"]}
    measures = tuple(dict.fromkeys(measure for _, measure in cells))
    rows = tuple(
        (
            system,
            *(
                "{mean:.4f} ({low:.4f} to {high:.4f})".format_map(cells[system, measure])
                for measure in measures
            ),
        )
        for system in dict.fromkeys(system for system, _ in cells)
    )
    text = f"{numbers['method']} These are the validation queries, by which the model was chosen."
    return f"{Table(('', *measures), rows).to_markdown()}\n{text}\n"


def upload(folder: Path, name: str, *, overwrite: bool = False) -> str:
    """Create a repository on the hub and upload a folder; return its address.

    Args:
        folder: As ``save`` wrote it.
        name: "OWNER/NAME".
        overwrite: Add a commit where the repository is there already.

    Raises:
        MissingExtra: huggingface_hub is not installed.
        OutputFailed: The hub cannot be reached, or refuses.
    """
    with needs("neural", "uploading to the hub"):
        from huggingface_hub import HfApi  # noqa: PLC0415 - an optional package, slow to import
    api = HfApi()
    try:
        api.create_repo(name, exist_ok=overwrite)
        commit = api.upload_folder(
            repo_id=name, folder_path=folder, commit_message=f"Written by rankhouse {__version__}"
        )
    except Exception as error:  # of the network, of the hub, of a name that it cannot have
        reason = str(error).strip().partition("\n")[0]
        raise OutputFailed(
            f'"{name}" could not be uploaded ({type(error).__name__}: {reason}); {folder} is whole: log in '
            f"with  hf auth login , and upload it with  hf upload {name} {folder}"
        ) from error
    return str(commit.repo_url)
