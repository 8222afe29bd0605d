"""The ground truth: which subscriptions each publication should have reached, computed exactly."""
