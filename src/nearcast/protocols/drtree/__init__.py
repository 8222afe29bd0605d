"""The DR-tree: peers form an R-tree of their own interests (seed 000)."""

from nearcast.protocols.drtree.peer import KIND

__all__ = ["KIND"]
