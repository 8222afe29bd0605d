"""Any overlay live: one node per process, peer to peer."""
