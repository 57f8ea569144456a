"""Layers: attention, encoders, match matrices, convolutions."""
