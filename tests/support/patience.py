"""How long tests wait for what comes at once on a machine with nothing else to do.

No test is about this time. It is so long that a machine ten times slower, which now and then stands
still for some seconds, does not fail a test.
"""

PATIENCE_S = 300.0
