"""Relays: subscribers forward publications to each other where an uplink is too slow ([Lehn]).

`relays.Relays` is a part that other overlays use; `deployment.KIND` is a protocol of its own.
"""
