"""Following a trace that still grows, by Structured Streaming."""
