"""Fence events over history, on Spark: by the very engine that a live service has.

`packed_fences` reads fences, packs them into columns and sends them to workers once;
`fence_history` finds the events of fixes, entity by entity; `fix_sources` makes fixes of traces and
files; `event_files` writes events and counts them.
"""
