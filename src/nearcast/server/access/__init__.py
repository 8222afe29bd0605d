"""Who may do what: tokens, JWTs, grants, quotas."""
