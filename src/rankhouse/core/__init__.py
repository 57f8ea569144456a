"""The nouns that flow from step to step, their files, and the errors that name a fault."""
