"""What the doctor asks of a ranker: does it load, does it score alone as in company, what will it cut off."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.io.corpora import read_documents
from rankhouse.page.charts import shortened
from rankhouse.systems.rankers import ComputeOptions, open_ranker

SAMPLE = 200
QUERIES = ("what is this about", "a longer question, with many words, that leaves less room for the passage")
PASSAGES = (
    "A short passage.",
    "",
    "One sentence stands here, and another follows it. " * 8,
    "Numbers 1 2 3 and a word-with-hyphens. " * 40,
)
CLOSE = 1e-5


def check_ranker(spec: str, corpus: Path | None, facts: dict[str, str], faults: list[str]) -> None:
    """Open a ranker and try it; fill in facts and faults.

    Args:
        corpus: Documents to measure truncation on, the first 200 of them.
    """
    ranker: Any = open_ranker(spec, ComputeOptions("fp32", "cpu"))
    policy = ranker.model.policy
    facts["family"] = ranker.model.family
    facts["most tokens"] = f"{ranker.max_length}"
    facts["scale of its scores"] = shortened(str(ranker.scale), 120)
    if "targets" in policy:
        facts["target words"] = " and ".join(repr(word) for word in policy["targets"])
    facts["weights"] = f"{sum(t.numel() for t in ranker.model.state_dict().values()):,} numbers"
    facts["fingerprint"] = ranker.fingerprint
    pairs = [Pair(Query(q, q), Passage(str(i), 0, p)) for q in QUERIES for i, p in enumerate(PASSAGES)]
    together = ranker.score(pairs)
    alone = np.array([ranker.score([pair])[0] for pair in pairs])
    apart = float(np.abs(together - alone).max())
    facts["alone and in company"] = f"at most {apart:.1e} apart in fp32"
    if apart > CLOSE:
        faults.append(
            f"scores differ by {apart:.1e} between a pair alone and in a batch; {CLOSE:.0e} is allowed"
        )
    if np.ptp(together) == 0:
        faults.append("all trial pairs have the same score; the weights may never have been trained")
    if corpus is not None:
        facts["truncation"] = _truncation(ranker, corpus)


def _truncation(ranker: Any, corpus: Path) -> str:  # noqa: ANN401 - opened behind an optional package
    before = ranker.report.truncated, ranker.report.tokens_lost
    sample = list(islice(read_documents([corpus]), SAMPLE))
    query = Query("q", QUERIES[0])
    ranker.score([Pair(query, Passage(document.id, 0, document.full_text)) for document in sample])
    cut, lost = ranker.report.truncated - before[0], ranker.report.tokens_lost - before[1]
    return f"{cut} of the first {len(sample)} documents do not fit whole ({lost:,} tokens); see --split"
