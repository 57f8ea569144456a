"""Work beyond one machine: slices of an input become parts, parts what one machine would write."""

from typing import Final

TRANSFERS: Final = "rankhouse.transfers"
"""Where a command's context keeps the remote files that options named; nothing is there if none was."""
