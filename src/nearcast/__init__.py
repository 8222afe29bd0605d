"""Nearcast: spatial publish/subscribe that runs, simulates and counts."""

__version__ = "0.1.0"
