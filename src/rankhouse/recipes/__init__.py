"""Experiments as recipes: one TOML file, one frozen structure, one manifest."""
