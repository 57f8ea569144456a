"""Compiled loops for this processor, each behind a typed wrapper."""
