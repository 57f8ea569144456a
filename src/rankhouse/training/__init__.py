"""From labelled pairs to a trained ranker; needs the ``neural`` extra."""
