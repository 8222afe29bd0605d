"""The live host: real sockets, a real clock. What is decided, `realm` and the nodes decide."""
