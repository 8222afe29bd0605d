"""Who should have heard what: the exact join of publications and interests."""
