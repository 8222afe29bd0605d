"""pSense: peers that know those near them and a sensor in every direction beyond."""

from nearcast.protocols.psense.deployment import KIND

__all__ = ["KIND"]
