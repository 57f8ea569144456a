"""The inverted index: building, storing, searching."""
