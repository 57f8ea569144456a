"""Work beyond one machine, on a Ray cluster: jobs, recipes, search and service."""

from typing import Final

TRANSFERS: Final = "rankhouse.transfers"
"""Where a command's context keeps the remote files that options named; nothing is there if none was."""
