"""HTTP/1.1 on the clients' port, and the way from there to a WebSocket."""
