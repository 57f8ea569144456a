"""The contracts that clients already speak: bodies, answers, errors, and their description as OpenAPI."""
