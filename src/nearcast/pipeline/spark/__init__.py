"""Spark sessions, and where the pipeline reads and writes."""
