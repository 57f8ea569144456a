"""Strings become words and passages. No tensors, no ids of documents beyond carrying them."""
