"""Overlays of sites that divide the plane by a Voronoi diagram: VON, VoroCast and [VSO]."""
