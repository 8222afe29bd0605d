"""Fences and watches of a realm, live: who enters and leaves which areas, and who receives it."""
