"""Tensors become tensors. No text, no document ids. Needs the ``neural`` extra."""
