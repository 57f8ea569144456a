"""What a job depends on, said so that two machines say the same: options, and hashes of what they name."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from rankhouse.core.arguments import option_fields
from rankhouse.io.content_hash import described

if TYPE_CHECKING:
    from rankhouse.models.duot5 import DuoT5Ranker
    from rankhouse.models.ranker import NeuralRanker


def identity_of(options: object, **known: str) -> dict[str, str]:
    """Return what a result depends on: each option's value, or a hash of the files that it names.

    What is neutral is left out; ``known`` stands for options in place of their values.
    """
    identity = {}
    for name, _, _, option in option_fields(type(options)):
        value = getattr(options, name)
        if name in known or not option.neutral:
            names_files = option.kind in ("input", "source") and value is not None
            identity[name] = known.get(name) or (described(str(value)) if names_files else str(value))
    return identity


def computed_by(ranker: NeuralRanker | DuoT5Ranker) -> dict[str, str]:
    """Return what scores depend on that is known once a ranker is open: its weights, and what computes."""
    compute = ranker.compute
    return {
        "ranker's weights": ranker.fingerprint,
        "device in use": compute.device.type,
        "precision in use": compute.precision,
    }


def digest(text: str) -> str:
    """Return 16 digits that name a text."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
