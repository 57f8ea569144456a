"""Floor 1: tensors become tensors. No text, no document ids. Needs the ``neural`` extra."""
