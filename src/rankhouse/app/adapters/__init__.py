"""Adapters to other people's software, one file each, each behind its extra."""
