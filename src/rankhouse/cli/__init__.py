"""The ``rankhouse`` command."""

TRANSFERS = "rankhouse.transfers"
"""Key of a command's context for the remote files that options named; absent if none was."""
