"""The protocol between clients and nodes (docs/reference/wire.md), shared by both ends."""
