"""Analysis on Spark: from the traces of runs to ground truth, metrics, figures and reports."""
