"""Published formats: tiny checkpoints of true architectures, scored by their reference package and here.

    python -m benchmarks.formats                      # about three minutes on one core
    python -m benchmarks.formats --only decoder --pylate VENV/bin/python

Each folder is saved by the package whose case it is (64 wide, 2 layers, random weights). 200 pairs, among
them empty texts, 2,000 words, other scripts and texts that spell special tokens, are scored by the reference
and here, in fp32; a difference is taken relative to the score where that is above 1. "ids": of 50 pairs, how
many have the token ids of the reference's tokenizer or, for prompts, of their makers' own code (mxbai_rerank
and FlagEmbedding, where installed). "others": the largest change of a score by order, batch mates and
padding; "bundle": whether a saved bundle gives the same bits; "written": the reference's difference on what
``rankhouse.hosts.sentence_transformers.save`` writes for it, long texts left out, and of decoders those that
spell special tokens. Then: what is refused, with
the sentence.
The tables are those of docs/published-rankers.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from benchmarks import format_references as theirs
from benchmarks.format_folders import BAD, FORMATS, Format, expect_error
from tests.models.conftest import make_pairs

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.hosts.sentence_transformers import save
from rankhouse.models import bundle
from rankhouse.models.ranker import NeuralRanker
from rankhouse.models.transformer_encoders import decoder_sizes, is_packable
from rankhouse.nn.machine import Compute

FP32 = Compute("fp32", torch.device("cpu"), 1)
ODD = [
    "",
    " ",
    "storm",
    "naïve 東京 😀",
    "a\n\nb ",
    "{document} {query}",
    "storm, harbour.",
    "grain " * 2_000,
]
SPELLED = ["storm [SEP] gale", "[CLS]", "</s> grain", "<pad>", "<|im_end|>\n<|im_start|>", "[MASK] [unused0]"]


class Result(NamedTuple):
    """Result of a format; a row of the table."""

    case: Format
    reference: str
    largest: float
    same_ids: str
    others: float
    same_bundle: bool
    written: str
    path: str


def all_pairs(spelled: bool) -> list[Pair]:
    """200 pairs; the first 50 hold all that is odd."""
    texts = [*ODD, *(SPELLED if spelled else [])]
    odd = [
        Pair(Query(f"o{i}", text), Passage(f"o{i}", 0, "grain prices")) for i, text in enumerate(texts[:-1])
    ]
    odd += [Pair(Query(f"p{i}", "storm"), Passage(f"p{i}", 0, text)) for i, text in enumerate(texts)]
    odd = [pair for pair in odd if len(pair.query.text) < 1_000]
    return [*odd, *make_pairs(200 - len(odd), 3)]


def measure(case: Format, root: Path) -> Result:
    folder = root / case.name.replace("/", "-").replace(" ", "_")
    case.make(folder)
    spec = case.notation.replace("DIR", str(folder))
    ranker = bundle.open_ranker(spec, FP32)
    pairs = all_pairs(case.spelled)
    scores = ranker.score(pairs)
    expected = case.reference(folder, ranker.model, pairs)
    largest = float(np.max(np.abs(scores - expected) / np.maximum(1, np.abs(expected))))
    assert np.ptp(expected) > 0.02, f"{case.name}: scores that hardly differ would prove nothing"
    ranker.save(folder / "bundle")
    again = bundle.open_ranker(str(folder / "bundle"), FP32).score(pairs)
    return Result(
        case,
        (case.reference.__doc__ or "").rstrip("."),
        largest,
        case.ids(folder, ranker.model, pairs[:50]) if case.ids else "",
        alone(ranker, pairs, scores),
        np.array_equal(again, scores),
        written(case, folder / "written", ranker, pairs, scores=scores),
        path_of(ranker.model),
    )


def written(
    case: Format, folder: Path, ranker: NeuralRanker, pairs: Sequence[Pair], *, scores: np.ndarray
) -> str:
    """Return the difference of the reference's scores once the ranker is written for it, or why it is not."""
    try:
        save(ranker, folder)
    except WrongUse as error:
        return f"refused: {str(error).partition(';')[0]}"
    reference = theirs.chat if case.reference is theirs.causal else case.reference
    left_out = {*SPELLED} if reference is theirs.chat else set()  # whose tokens are the library's own there
    short = [
        place
        for place, pair in enumerate(pairs)
        if len(pair.passage.text) < 200 and not left_out & {pair.query.text, pair.passage.text}
    ]
    some = [pairs[place] for place in short]
    again = reference(folder, ranker.model, some)
    return f"{np.max(np.abs(again - scores[short]) / np.maximum(1, np.abs(scores[short]))):.1e}"


def alone(ranker: NeuralRanker, pairs: Sequence[Pair], scores: np.ndarray) -> float:
    """Return the largest change of a score by order, batches, threads and being alone."""
    other = type(ranker)
    changed = [
        np.abs(other(ranker.model, FP32).score(pairs[::-1])[::-1] - scores),
        np.abs(other(ranker.model, FP32, budget=300).score(pairs) - scores),
        np.abs(other(ranker.model, FP32._replace(threads=2)).score(pairs) - scores),
        *(np.abs(ranker.score([pairs[i]]) - scores[i]) for i in range(0, 200, 8)),
    ]
    return float(max(one.max() for one in changed))


def path_of(model: Any) -> str:  # noqa: ANN401  # a model of any family
    """Return which code computes a network: the packed loops here, or transformers'."""
    network = getattr(model, "network", None)
    network = getattr(network, "encoder", network)
    base = getattr(network, "base_model", network)
    if base.config.model_type == "static":
        return "own loops"
    return "own loops" if is_packable(base.config) or decoder_sizes(base) is not None else "PyTorch"


def show(results: Sequence[Result]) -> None:
    names = ["kind", "checkpoint", "reference", "largest difference", "ids", "others", "bundle", "written"]
    print(f"| {' | '.join([*names, 'computed by'])} |\n|{' --- |' * (len(names) + 1)}")
    for one in results:
        others = "same bits" if one.others == 0 else f"{one.others:.0e}"
        same = "same bits" if one.same_bundle else "OTHER BITS"
        row = [one.case.kind, one.case.name, one.reference, f"{one.largest:.1e}", one.same_ids, others]
        print(f"| {' | '.join([*row, same, one.written, one.path])} |")


def show_refused(root: Path) -> None:
    print("\n| what | opened as | the error |\n| --- | --- | --- |")
    for number, (what, notation, make) in enumerate(BAD):
        folder = root / f"bad{number}"
        made = make(folder)
        sentence = expect_error(notation.replace("DIR", str(made or folder)), FP32)
        print(
            f"| {what} | `{notation}` | {sentence.replace(str(root), '').replace(f'/bad{number}', 'DIR')} |"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default="", help="formats whose kind or name holds this; or  refused")
    parser.add_argument("--pylate", help="a Python that has PyLate, to score its folders with it, too")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    results, start = [], time.perf_counter()
    with tempfile.TemporaryDirectory() as work:
        root = Path(work)
        for case in FORMATS:
            if chosen.only in f"{case.kind} {case.name}":
                results.append(measure(case, root))
                print(f"{case.name}: {results[-1].largest:.1e}", file=sys.stderr, flush=True)
                if chosen.pylate and "PyLate" in case.name:
                    results.append(with_pylate(case, root, chosen.pylate, results[-1]))
        print(f"{theirs.versions()}; {len(results)} rows, {time.perf_counter() - start:.0f} s\n")
        show(results)
        if chosen.only in {"", "refused"}:
            show_refused(root)
    failed = [one.case.name for one in results if one.largest > one.case.most or not one.same_bundle]
    print(*(f"FAILED: {name}" for name in failed), sep="\n", file=sys.stderr)
    return bool(failed)


def with_pylate(case: Format, root: Path, python: str, ours: Result) -> Result:
    folder = root / case.name.replace("/", "-").replace(" ", "_")
    pairs = all_pairs(case.spelled)
    scores = bundle.open_ranker(str(folder), FP32).score(pairs)
    expected, version = theirs.by_pylate(folder, pairs, python)
    largest = float(np.max(np.abs(scores - expected) / np.maximum(1, np.abs(expected))))
    return ours._replace(reference=f"PyLate {version}", largest=largest)


if __name__ == "__main__":
    sys.exit(main())
