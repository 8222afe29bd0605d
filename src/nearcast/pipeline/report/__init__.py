"""Reports: self-contained pages with figures, from result tables."""
