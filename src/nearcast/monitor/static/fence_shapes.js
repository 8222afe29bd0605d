// Features of GeoJSON as areas on the screen, and how they change when they are dragged. A feature
// itself is never changed: what is dragged is a new one.

import { DISC } from "./snapshots.js";

const DIGITS = 12; // of a coordinate
const ARC = 5; // degrees between the vertices of a sector's border

// As `ground.trace` wants it, with the size in flat coordinates; a LineString has its `line` and `wide`.
export function areaOf({ geometry, properties }, ground) {
  const { radius, direction, angle, half_width: half, width } = properties ?? {};
  const { type, coordinates } = geometry;
  if (type === "LineString") {
    const line = ground.way(coordinates), box = around([line]);
    return { ...box, line, wide: 2 * ground.flatLength(half ?? width / 2, box.y), size: sizeOf(box, ground) };
  }
  if (type !== "Point") {
    return outlined(type === "Polygon" ? coordinates : coordinates.flat(), ground);
  }
  const [x, y] = coordinates;
  if (typeof direction === "number" && typeof angle === "number") {
    const steps = Math.ceil(angle / ARC);
    const arc = Array.from({ length: steps + 1 }, (_, k) =>
      ground.toward([x, y], direction - angle / 2 + (angle * k) / steps, radius));
    return outlined([[[x, y], ...arc]], ground);
  }
  const reach = ground.extent(radius ?? 0, y);
  return { kind: DISC, x, y, rx: reach, ry: reach, size: 2 * ground.flatLength(radius ?? 0, y) };
}

function outlined(rings, ground) {
  const box = around(rings), { x, y } = box;
  const relative = rings.map((ring) => ring.map(([vx, vy]) => [vx - x, vy - y]));
  return { ...box, rings: relative, size: sizeOf(box, ground) };
}

// The box around all vertices: its middle and half-extents.
function around(rings) {
  const xs = rings.flatMap((ring) => ring.map(([x]) => x)), ys = rings.flatMap((ring) => ring.map(([, y]) => y));
  const [west, east] = [Math.min(...xs), Math.max(...xs)], [south, north] = [Math.min(...ys), Math.max(...ys)];
  return { x: (west + east) / 2, y: (south + north) / 2, rx: (east - west) / 2, ry: (north - south) / 2 };
}

function sizeOf({ x, y, rx, ry }, ground) {
  const [west, south] = ground.project(x - rx, y - ry), [east, north] = ground.project(x + rx, y + ry);
  return Math.max(east - west, north - south);
}

// Places by which a feature can be dragged: its corners, or a place on the border of a disc.
export function handles({ geometry, properties }, ground) {
  if (geometry.type !== "Point") {
    return [...new Map(positions(geometry).map((place) => [place.join(), place])).values()];
  }
  const { radius, direction } = properties ?? {};
  return radius ? [ground.toward(geometry.coordinates, direction ?? 45, radius)] : [];
}

// With the corner at `handle` elsewhere, or with another radius.
export function reshaped(feature, handle, place, ground) {
  const copy = structuredClone(feature);
  if (copy.geometry.type === "Point") {
    copy.properties.radius = Number(ground.distance(copy.geometry.coordinates, place).toPrecision(6));
    return copy;
  }
  const to = [tidy(ground.near(place[0], handle[0])), tidy(place[1])];
  for (const one of positions(copy.geometry)) if (isAt(one, handle)) [one[0], one[1]] = to;
  return settled(copy, ground);
}

// The edges of a polygon: {place, ends, ring, at}. A new corner is dragged out of the place, which is
// in the middle, and comes to `at` in its ring.
export function edges({ geometry }) {
  return rings(geometry).flatMap((corners, ring) => corners.slice(1).map((end, i) => {
    const ends = [corners[i], end];
    return { place: [0, 1].map((axis) => (ends[0][axis] + ends[1][axis]) / 2), ends, ring, at: i + 1 };
  }));
}

export function withCorner(feature, edge, place, ground) {
  const copy = structuredClone(feature), ring = rings(copy.geometry)[edge.ring];
  const more = ring[edge.at].slice(2); // a height
  ring.splice(edge.at, 0, [ground.near(place[0], edge.place[0]), place[1], ...more]);
  return settled(copy, ground);
}

// null if too few corners are left.
export function withoutCorner(feature, corner, ground) {
  const copy = structuredClone(feature);
  for (const ring of rings(copy.geometry)) {
    const kept = ring.slice(1).filter((one) => !isAt(one, corner));
    if (kept.length < 3) return null;
    ring.splice(0, ring.length, [...kept.at(-1)], ...kept);
  }
  return settled(copy, ground);
}

export function shifted(feature, dx, dy, ground) {
  const copy = structuredClone(feature);
  for (const one of positions(copy.geometry)) [one[0], one[1]] = [one[0] + dx, one[1] + dy];
  return settled(copy, ground);
}

export function polygonOf(corners, ground) {
  const ring = [[...corners[0]]];
  for (const [x, y] of corners.slice(1)) ring.push([ground.near(x, ring.at(-1)[0]), y]);
  ring.push([...ring[0]]);
  const geometry = { type: "Polygon", coordinates: [ring] };
  return settled({ type: "Feature", geometry, properties: {} }, ground);
}

export function circleOf(centre, place, ground) {
  const geometry = { type: "Point", coordinates: centre.map(tidy) };
  const radius = Number(ground.distance(geometry.coordinates, place).toPrecision(6));
  return { type: "Feature", geometry, properties: { radius } };
}

const isAt = (one, place) => one[0] === place[0] && one[1] === place[1];

// Those of a polygon, of one part or several: each ends where it begins.
function rings({ type, coordinates }) {
  return { Polygon: coordinates, MultiPolygon: coordinates.flat() }[type] ?? [];
}

function positions({ type, coordinates }) {
  return { Point: [coordinates], LineString: coordinates }[type] ?? coordinates.flat(type === "Polygon" ? 1 : 2);
}

function settled(feature, ground) {
  const { geometry } = feature, all = positions(geometry);
  ground.settle(all, geometry.type.endsWith("Polygon"));
  for (const one of all) [one[0], one[1]] = [tidy(one[0]), tidy(one[1])];
  return feature;
}

const tidy = (value) => Number(value.toPrecision(DIGITS));
