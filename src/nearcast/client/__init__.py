"""The client library: connections to a node, subscriptions, messages."""
