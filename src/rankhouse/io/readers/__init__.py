"""Readers of the files that people have: text, pages, notebooks, mail, tables, PDF, Office files, books."""
