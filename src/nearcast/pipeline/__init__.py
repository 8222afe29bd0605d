"""Counting, on Spark: from the traces that runs leave to truth, metrics, figures and reports."""
