"""What a node decides for its clients and among other nodes, without clock or socket."""
