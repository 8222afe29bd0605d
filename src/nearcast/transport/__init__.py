"""Encrypted links between processes: TLS, QUIC, loopback; identities and addresses of nodes."""
