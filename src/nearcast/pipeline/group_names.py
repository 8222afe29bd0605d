"""The words that `analyse --only` takes for several result tables; to read them takes no time."""

GROUP_NAMES = ("delivery", "traffic", "awareness", "overlay", "world", "fences", "direct")
