"""Hosts of the service: WebSocket, HTTP, in-process; settings, metrics and access."""
