"""Overlays of sites that divide the plane among them by nearness (seed 003)."""
