// The Voronoi diagram of a cluster's sites: each node owns what is nearest to its site.

// For each site the corners of its cell, cut off at the box.
export function cells(sites, [[x0, y0], [x1, y1]]) {
  const box = [[x0, y0], [x1, y0], [x1, y1], [x0, y1]];
  return sites.map((site) =>
    sites.reduce((cell, other) => (other === site ? cell : nearer(cell, site, other)), box));
}

// The part of a convex cell that is nearer to `site` than to `other`.
function nearer(cell, site, other) {
  const nx = other.x - site.x, ny = other.y - site.y;
  const limit = (other.x ** 2 + other.y ** 2 - site.x ** 2 - site.y ** 2) / 2;
  const beyond = ([x, y]) => x * nx + y * ny - limit;
  return cell.flatMap((corner, k) => {
    const next = cell[(k + 1) % cell.length];
    const here = beyond(corner), there = beyond(next);
    const kept = here <= 0 ? [corner] : [];
    if (here < 0 !== there < 0 && here !== there) {
      const share = here / (here - there);
      kept.push([corner[0] + (next[0] - corner[0]) * share, corner[1] + (next[1] - corner[1]) * share]);
    }
    return kept;
  });
}
