"""Pairs -> labels: rules of judges and teachers, and how well they agree. No torch."""
