"""Fence events: who enters, leaves, crosses or dwells in which area, and when exactly.

A *fix* says where an entity is at a moment. Between two fixes the entity stands at the first; at
the second it is taken to have moved there on a straight way, and everything that the way touches
is reported, at its own time. Areas are closed: touching is being inside.

`events` has the columns of events, `areas` those of fences, `crossings` the visits of one way to
one area, `moving_fences` the moments at which an area that moves reaches somebody who stands,
`fence_index` finds the fences near many ways, and `fence_state` is the state machine: fixes and
moments in, events out. A live service and a job over history use the very same code.
"""
