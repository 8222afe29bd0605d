"""A simulated cluster: the shipped service and client cores over a network that has every fault."""
