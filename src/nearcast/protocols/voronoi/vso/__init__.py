"""[VSO]: matchers that own the regions of their Voronoi sites, and clients that publish to them."""
