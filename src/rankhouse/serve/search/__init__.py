"""Searching through the service: indexes and rankers by name, systems made of them, answers."""
