"""The DR-tree: peers form an R-tree of their own interests [DRtree]."""

from nearcast.protocols.drtree.deployment import KIND

__all__ = ["KIND"]
