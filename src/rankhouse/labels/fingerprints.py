"""Names for contents, so that an unfinished labelling is never continued with other inputs."""

from __future__ import annotations

from hashlib import blake2b

from rankhouse.core.notation import write
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Run


def qrels_digest(qrels: Qrels) -> str:
    """Hash judgements, whatever their order, to 32 hexadecimal digits."""
    digest = blake2b(digest_size=16)
    for query_id in sorted(qrels):
        digest.update(f"\n{query_id}\t".encode())
        digest.update("\t".join(f"{d} {g}" for d, g in sorted(qrels[query_id].items())).encode())
    return digest.hexdigest()


def run_digest(run: Run, depth: int) -> str:
    """Hash the first ``depth`` documents of every query, in order, to 32 hexadecimal digits."""
    digest = blake2b(digest_size=16)
    for query_id in run:
        digest.update(f"\n{query_id}\t".encode())
        digest.update("\t".join(run[query_id].doc_ids[:depth]).encode())
    return digest.hexdigest()


def source_of_run(run: Run) -> str:
    """Name a run as a source of scores: by its documents and what it gives them."""
    scores = blake2b(digest_size=16)
    for query_id in run:
        scores.update(run[query_id].scores.tobytes())
    return write("ranked", run_digest(run, max(1, run.rows)), scores.hexdigest())
