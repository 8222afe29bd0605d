// The ground of an Earth world: a map in the Mercator projection, with land, borders, graticule and
// scale. Its flat coordinates are degrees: of longitude, and as long ones northwards at each latitude.
// There is no end to the east or west: a place is drawn where it is nearest to the view's centre.
//
// `land.bin` has outlines of land and borders, as `land.md` says.

import { colour, label } from "./palette.js";
import { polygon } from "./plane.js";
import { DISC } from "./snapshots.js";

const TURN = 360;
const EDGE = 180; // the northern end of the map, 85.05 degrees north, in flat coordinates
const RADIAN = 180 / Math.PI;
const UNITS = 160; // of `land.bin` in a degree
// WGS84, in metres.
const EQUATOR_RADIUS = 6_378_137, POLAR_RADIUS = 6_356_752.314245, ECCENTRICITY2 = 0.00669437999014;
const METRES = 111_319.5; // of a degree on the equator
const CLOSEST = 5e5; // pixels for a degree: 0.2 m each
const SMALLEST = 0.03; // degrees that are shown around a single place, at least
const ROUND = 20; // pixels: a disc whose radius is smaller is drawn as a circle
const STEPS = [90, 60, 30, 20, 10, 5, 2, 1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0005, 0.0002, 0.0001];
const LONG = 1; // degrees: a longer edge or leg is drawn in pieces
const APART = 90; // pixels between meridians, at least
const PARALLELS = 30; // degrees between parallels, at most
const BUTTONS = 60; // pixels at the right border, where no label is
const WHOLE = [[-EDGE, -100], [EDGE, 135]];

const northing = (lat) => Math.max(-EDGE, Math.min(EDGE, RADIAN * Math.asinh(Math.tan(lat / RADIAN))));
const latitude = (y) => RADIAN * Math.atan(Math.sinh(y / RADIAN));

export class EarthMap {
  bounds = WHOLE; // until somebody is there
  dot = 4.5; // pixels: the radius of an entity
  resting = "walking"; // who publishes fixes stands still until the next, and is drawn as moving
  #land = []; // {places, line, west, south, east, north}
  #drawn = { canvas: document.createElement("canvas"), view: "" };

  constructor() {
    this.loaded = fetch("monitor/land.bin").then(async (answer) => {
      this.#land = decodeLand(await answer.arrayBuffer());
      this.#drawn.view = "";
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => (this.#drawn.view = ""));
  }

  project(lon, lat) {
    return [lon, northing(lat)];
  }

  unproject(x, y) {
    return [this.near(x, 0), latitude(y)];
  }

  near(lon, centre) {
    return lon + TURN * Math.round((centre - lon) / TURN);
  }

  label(lon, lat) {
    return `${degrees(lat, "N", "S", 5)}  ${degrees(this.near(lon, 0), "E", "W", 5)}`;
  }

  // Lengths, directions and ways, for areas that are drawn or dragged.

  // Metres along the surface, as the node counts them for a disc around the first place.
  distance([lon, lat], place) {
    const from = ecef(lon, lat), to = ecef(...place), radius = curvature(lat);
    const chord = Math.hypot(...from.map((value, axis) => value - to[axis]));
    return 2 * radius * Math.asin(Math.min(1, chord / 2 / radius));
  }

  // The half-extents of a disc with this radius, as snapshots have them: a chord.
  extent(metres, lat) {
    return 2 * curvature(lat) * Math.sin(metres / 2 / curvature(lat));
  }

  // As long as so many metres there, in flat coordinates.
  flatLength(metres, lat) {
    return metres / METRES / Math.cos(lat / RADIAN);
  }

  // The place so many metres away, in a direction clockwise from north.
  toward([lon, lat], bearing, metres) {
    const [across, up] = destination(lat, metres / curvature(lat), bearing / RADIAN);
    return [lon + across, up];
  }

  // A line along great circles, in short legs.
  way(line) {
    const found = line.slice(0, 1);
    for (const [k, end] of line.slice(1).entries()) {
      const from = ecef(...line[k]), to = ecef(...end);
      const dot = from.reduce((sum, value, axis) => sum + value * to[axis], 0);
      const angle = Math.acos(Math.min(1, dot / Math.hypot(...from) / Math.hypot(...to)));
      const legs = Math.max(1, Math.ceil((angle * RADIAN) / LONG));
      for (let i = 1; i < legs; i++) {
        const [x, y, z] = from.map((value, axis) =>
          value * Math.sin(angle * (1 - i / legs)) + to[axis] * Math.sin((angle * i) / legs));
        const lat = Math.atan2(z, (1 - ECCENTRICITY2) * Math.hypot(x, y));
        found.push([this.near(Math.atan2(y, x) * RADIAN, found.at(-1)[0]), lat * RADIAN]);
      }
      found.push([this.near(end[0], found.at(-1)[0]), end[1]]);
    }
    return found;
  }

  // Longitudes as the node takes them: those of a ring go on across the antimeridian.
  settle(positions, ring) {
    const lons = positions.map(([lon]) => lon), middle = (Math.min(...lons) + Math.max(...lons)) / 2;
    for (const one of positions) one[0] -= TURN * Math.round((ring ? middle : one[0]) / TURN);
  }

  // From the whole Earth once to very close.
  zooms(view) {
    return [Math.max(view.width, view.height) / TURN / view.scale, CLOSEST / view.scale];
  }

  limit({ x, y }, { height, scale }) {
    const most = Math.max(0, EDGE - height / 2 / scale);
    return { x: this.near(x, 0), y: Math.max(-most, Math.min(most, y)) };
  }

  // The bounds of all entities, the short way round; null if they are within those of now.
  around({ count, x, y }, now = WHOLE) {
    if (!count) return null;
    const ys = Array.from(y, northing);
    const [[west, low], [east, high]] = now, middle = (west + east) / 2;
    const inside = (lon, i) => Math.abs(this.near(lon, middle) - middle) <= (east - west) / 2
      && low <= ys[i] && ys[i] <= high;
    if (now !== WHOLE && x.every(inside)) return null;
    const lons = Array.from(x, (lon) => this.near(lon, 0)).sort((a, b) => a - b);
    let widest = lons[0] + TURN - lons[count - 1], first = 0; // the gap before the first one
    for (let i = 1; i < count; i++) {
      if (lons[i] - lons[i - 1] > widest) [widest, first] = [lons[i] - lons[i - 1], i];
    }
    const [south, north] = ys.reduce(([least, most], y) => [Math.min(least, y), Math.max(most, y)], [EDGE, -EDGE]);
    const margin = Math.max(SMALLEST, (TURN - widest) / 10, (north - south) / 10);
    const left = lons[first] - margin;
    return [[left, south - margin], [left + TURN - widest + 2 * margin, north + margin]];
  }

  // Begins the path of an area, if the view shows a part of it; round the Earth if it must.
  trace(pen, view, area) {
    const { rings, small } = this.#flat(area, view.scale);
    const xs = rings.flatMap((ring) => ring.map(([x]) => x)), ys = rings.flatMap((ring) => ring.map(([, y]) => y));
    const half = view.width / 2 / view.scale, tall = view.height / 2 / view.scale;
    const { x: cx, y: cy } = view.centre;
    const [west, east, south, north] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    if (north < cy - tall || south > cy + tall) return false;
    let begun = false;
    const first = Math.ceil((cx - half - east) / TURN), last = Math.floor((cx + half - west) / TURN);
    for (let turn = first; turn <= last; turn++) {
      if (!begun) pen.beginPath();
      begun = true;
      const toScreen = ([x, y]) => [
        view.width / 2 + (x + turn * TURN - cx) * view.scale, view.height / 2 - (y - cy) * view.scale,
      ];
      if (small) {
        const [px, py] = toScreen(small);
        pen.moveTo(px + small[2] * view.scale, py);
        pen.arc(px, py, small[2] * view.scale, 0, 2 * Math.PI);
      } else for (const ring of rings) polygon(pen, ring.map(toScreen));
    }
    return begun;
  }

  // Rings in flat coordinates. A disc that looks like a circle is also `small`: [x, y, radius].
  #flat({ kind, x, y, rx, ry, rings }, scale) {
    if (rings) {
      return { rings: rings.map((ring) => straight(ring).map(([dx, dy]) => this.project(x + dx, y + dy))) };
    }
    if (kind !== DISC) {
      const corners = [[-rx, -ry], [rx, -ry], [rx, ry], [-rx, ry]];
      return { rings: [corners.map(([dx, dy]) => this.project(x + dx, y + dy))] };
    }
    const angle = chordAngle(rx, y);
    const radius = (angle * RADIAN) / Math.cos(y / RADIAN);
    if (radius * scale > ROUND) return { rings: [circle(x, y, angle)] };
    const [, fy] = this.project(x, y);
    return { rings: [[[x - radius, fy - radius], [x + radius, fy + radius]]], small: [x, fy, radius] };
  }

  // Land and graticule change with the view alone, so they are drawn once for each.
  draw(pen, view) {
    const { width, height, centre, scale } = view;
    const { canvas } = this.#drawn;
    const { width: fine, height: high } = view.canvas;
    const now = [centre.x, centre.y, scale, fine, high].join();
    if (now !== this.#drawn.view) {
      this.#drawn.view = now;
      canvas.width = fine;
      canvas.height = high;
      const brush = canvas.getContext("2d");
      brush.scale(fine / width, high / height);
      brush.fillStyle = colour("sea");
      brush.fillRect(0, 0, width, height);
      this.#drawLand(brush, { width, height, centre, scale });
      drawGraticule(brush, { width, height, centre, scale });
      drawScale(brush, { width, height, centre, scale });
    }
    pen.drawImage(canvas, 0, 0, width, height);
  }

  #drawLand(pen, { width, height, centre, scale }) {
    const half = width / 2 / scale, tall = height / 2 / scale;
    const shores = new Path2D(), borders = new Path2D(), whole = new Path2D();
    for (const { places, line, west, south, east, north } of this.#land) {
      if (north < centre.y - tall || south > centre.y + tall) continue;
      const first = Math.ceil((centre.x - half - east) / TURN), last = Math.floor((centre.x + half - west) / TURN);
      for (let turn = first; turn <= last; turn++) {
        const left = width / 2 + (turn * TURN - centre.x) * scale, base = height / 2 + centre.y * scale;
        const at = (i) => [left + places[i] * scale, base - places[i + 1] * scale];
        if (!line) addLine(whole, places, at, false);
        addLine(line ? borders : shores, places, at, !line);
      }
    }
    pen.fillStyle = colour("land");
    pen.fill(whole, "evenodd");
    pen.lineJoin = "round";
    pen.lineWidth = 1;
    pen.strokeStyle = colour("border");
    pen.stroke(borders);
    pen.strokeStyle = colour("shore");
    pen.stroke(shores);
  }
}

// Adds a ring or a border; of a shore only what is one: some land is cut at longitude 180, but does
// not end there.
function addLine(path, places, at, shore) {
  const end = shore ? places.length + 2 : places.length;
  let lastX = NaN, lastY = NaN, cut = false;
  for (let k = 0; k < end; k += 2) {
    const i = k % places.length;
    const [px, py] = at(i), edge = shore && Math.abs(places[i]) === EDGE;
    if (!edge && k < end - 2 && Math.abs(px - lastX) + Math.abs(py - lastY) < 0.8) continue;
    if (k === 0 || (edge && cut)) path.moveTo(px, py);
    else path.lineTo(px, py);
    [lastX, lastY, cut] = [px, py, edge];
  }
}

// Rings of land have a positive number of vertices, borders a negative one; then longitude and latitude.
function decodeLand(buffer) {
  const numbers = new Int16Array(buffer);
  const found = [];
  for (let i = 0; i < numbers.length;) {
    const count = numbers[i++];
    const places = Float64Array.from(numbers.subarray(i, i + 2 * Math.abs(count)), (value, k) =>
      k % 2 ? northing(value / UNITS) : value / UNITS);
    const xs = places.filter((_, k) => k % 2 === 0), ys = places.filter((_, k) => k % 2 === 1);
    found.push({
      places, line: count < 0,
      west: Math.min(...xs), east: Math.max(...xs), south: Math.min(...ys), north: Math.max(...ys),
    });
    i += 2 * Math.abs(count);
  }
  return found;
}

// Edges are straight in longitude and latitude; on the map they are bent, so long ones are drawn in pieces.
function straight(ring) {
  return ring.flatMap(([x, y], k) => {
    const [toX, toY] = ring[(k + 1) % ring.length];
    const pieces = x === toX ? 1 : Math.max(1, Math.ceil(Math.abs(toY - y) / LONG));
    return Array.from({ length: pieces }, (_, i) => [x + ((toX - x) * i) / pieces, y + ((toY - y) * i) / pieces]);
  });
}

// The mean radius of curvature at a latitude.
function curvature(lat) {
  const sine = Math.sin(lat / RADIAN);
  return POLAR_RADIUS / (1 - ECCENTRICITY2 * sine * sine);
}

// The angle at the centre of the Earth of a chord in metres.
function chordAngle(metres, lat) {
  return 2 * Math.asin(Math.min(1, metres / 2 / curvature(lat)));
}

// A place on the ellipsoid, in metres from the centre of the Earth.
function ecef(lon, lat) {
  const sine = Math.sin(lat / RADIAN), cosine = Math.cos(lat / RADIAN);
  const radius = EQUATOR_RADIUS / Math.sqrt(1 - ECCENTRICITY2 * sine * sine), across = radius * cosine;
  return [across * Math.cos(lon / RADIAN), across * Math.sin(lon / RADIAN), radius * (1 - ECCENTRICITY2) * sine];
}

// Degrees to the east, and the latitude, of what is so far away in a direction; angles.
function destination(lat, angle, bearing) {
  const sine = Math.sin(lat / RADIAN), cosine = Math.cos(lat / RADIAN);
  const up = sine * Math.cos(angle) + cosine * Math.sin(angle) * Math.cos(bearing);
  const across = Math.atan2(Math.sin(bearing) * Math.sin(angle) * cosine, Math.cos(angle) - sine * up);
  return [across * RADIAN, Math.asin(Math.max(-1, Math.min(1, up))) * RADIAN];
}

// A disc on Earth as a ring in flat coordinates. One around a pole goes round the map, and is closed
// along its edge.
function circle(lon, lat, angle) {
  const ring = [];
  for (let k = 0; k <= 96; k++) {
    const [across, up] = destination(lat, angle, (k / 96) * 2 * Math.PI);
    const before = ring.length ? ring[ring.length - 1][0] : lon;
    const x = lon + across + TURN * Math.round((before - lon - across) / TURN);
    ring.push([x, northing(up)]);
  }
  if (Math.abs(ring[96][0] - ring[0][0]) > EDGE) {
    const edge = lat > 0 ? EDGE : -EDGE;
    ring.push([ring[96][0], edge], [ring[0][0], edge]);
  }
  return ring;
}

function degrees(value, plus, minus, digits) {
  const text = Math.abs(value).toFixed(digits);
  return `${text}°${Number(text) % 180 === 0 ? "" : value > 0 ? ` ${plus}` : ` ${minus}`}`;
}

// Meridians and parallels, with labels at the upper and the left border.
function drawGraticule(pen, { width, height, centre, scale }) {
  const step = STEPS.findLast((one) => one * scale >= APART) ?? STEPS[0];
  const digits = Math.max(0, Math.ceil(-Math.log10(step)));
  const half = width / 2 / scale, tall = height / 2 / scale;
  const labels = [];
  pen.strokeStyle = colour("graticule");
  pen.lineWidth = 1;
  pen.beginPath();
  for (let k = Math.ceil((centre.x - half) / step); k * step <= centre.x + half; k++) {
    const px = Math.round(width / 2 + (k * step - centre.x) * scale) + 0.5;
    pen.moveTo(px, 0);
    pen.lineTo(px, height);
    const lon = k * step - TURN * Math.round((k * step) / TURN);
    if (px < width - BUTTONS) labels.push([degrees(lon, "E", "W", digits), px + 4, 13]);
  }
  const [south, north] = [latitude(centre.y - tall), latitude(centre.y + tall)];
  const rise = Math.min(step, PARALLELS);
  for (let k = Math.ceil(south / rise); k * rise <= north; k++) {
    const py = Math.round(height / 2 - (northing(k * rise) - centre.y) * scale) + 0.5;
    pen.moveTo(0, py);
    pen.lineTo(width, py);
    if (py > 30) labels.push([degrees(k * rise, "N", "S", digits), 5, py - 4]);
  }
  pen.stroke();
  pen.font = "11px system-ui, sans-serif";
  for (const [text, px, py] of labels) label(pen, text, px, py);
}

// How long some metres are in the middle of the view.
function drawScale(pen, { width, height, centre, scale }) {
  const perPixel = (METRES * Math.cos(latitude(centre.y) / RADIAN)) / scale;
  const ten = 10 ** Math.floor(Math.log10(130 * perPixel));
  const metres = [5, 2, 1].map((n) => n * ten).find((one) => one <= 130 * perPixel);
  const long = metres / perPixel;
  const right = width - 14.5, base = Math.round(height - 14) + 0.5;
  for (const [wide, name] of [[4, "halo"], [1.5, "ink"]]) {
    pen.lineWidth = wide;
    pen.strokeStyle = colour(name);
    pen.beginPath();
    pen.moveTo(right - long, base - 6);
    pen.lineTo(right - long, base);
    pen.lineTo(right, base);
    pen.lineTo(right, base - 6);
    pen.stroke();
  }
  pen.textAlign = "center";
  pen.font = "11px system-ui, sans-serif";
  label(pen, metres >= 1000 ? `${(metres / 1000).toLocaleString("en")} km` : `${metres} m`, right - long / 2, base - 7);
  pen.textAlign = "start";
}
