"""Pairs -> scores, one paper one file. Needs the ``neural`` extra."""
