"""What several commands report alike."""

from __future__ import annotations

from rankhouse.app import console
from rankhouse.core.files import Skips


def report_skips(skips: Skips, most: int = 10) -> None:
    """Say which faulty records were passed over.

    Args:
        skips: How many faulty records may be passed over; none by default.
        most: How many are shown.
    """
    if not skips.seen:
        return
    console.say(f"warning: {len(skips.seen)} faulty records were passed over:")
    for fault in skips.seen[:most]:
        console.say(f"  {fault}")
    if len(skips.seen) > most:
        console.say(f"  ... and {len(skips.seen) - most} more")
