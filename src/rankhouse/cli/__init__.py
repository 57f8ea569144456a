"""The ``rankhouse`` command."""
