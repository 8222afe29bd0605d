"""What a client may do, as values: grants, quotas, rates."""
