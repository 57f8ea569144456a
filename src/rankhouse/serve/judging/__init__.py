"""Judging through the service: what people said is on disk before they are answered; what follows from it."""
