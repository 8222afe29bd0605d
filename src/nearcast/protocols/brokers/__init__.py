"""A network of brokers in the manner of PADRES, for subscriptions that evolve [Evolving]."""

from nearcast.protocols.brokers.deployment import KIND

__all__ = ["KIND"]
