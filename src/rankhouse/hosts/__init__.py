"""Adapters for other people's frameworks, one file a host; nothing else of the package imports them."""
