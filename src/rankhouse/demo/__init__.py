"""The demo: Python's own documentation, found on this machine, with questions and judgements."""
