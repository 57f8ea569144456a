"""Floor 0: the nouns that flow between stations, the files they live in, the errors that name a fault."""
