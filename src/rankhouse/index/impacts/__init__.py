"""Impacts of learned sparse encoders: one score a posting, searched by the kernel of the lexical index."""
