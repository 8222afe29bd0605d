"""The page on which a person watches a world: live, or as a trace has kept it."""
