// The ground of a plane: its coordinates are those of the view. `map.js` has the same for the Earth.

import { DISC } from "./snapshots.js";
import { colour } from "./palette.js";

export class Plane {
  resting = "resting"; // the colour of an entity that stands

  // The bounds of the view: the server says them.
  constructor(bounds) {
    this.bounds = bounds;
  }

  project(x, y) {
    return [x, y];
  }

  unproject(x, y) {
    return [x, y];
  }

  near(x) {
    return x;
  }

  label(x, y) {
    return `${x.toFixed(0)}, ${y.toFixed(0)}`;
  }

  zooms() {
    return [0.5, 60];
  }

  limit(centre) {
    return centre;
  }

  // Bounds for these entities, on a map: those of now do not suffice, or are not given.
  around() {
    return null;
  }

  // Lengths, directions and ways, for areas that are drawn or dragged.

  distance([x, y], [toX, toY]) {
    return Math.hypot(toX - x, toY - y);
  }

  // The half-extents of a disc with this radius, as snapshots have them.
  extent(length) {
    return length;
  }

  flatLength(length) {
    return length;
  }

  // The place so far away, in a direction counter-clockwise from the x axis.
  toward([x, y], degrees, length) {
    const angle = (degrees * Math.PI) / 180;
    return [x + Math.cos(angle) * length, y + Math.sin(angle) * length];
  }

  way(line) {
    return line;
  }

  settle() {}

  // Begins the path of an area, if the view shows a part of it.
  trace(pen, view, { kind, x, y, rx, ry, rings }) {
    const [px, py] = view.toScreen(x, y);
    const wide = rx * view.scale, high = ry * view.scale;
    if (px + wide < 0 || px - wide > view.width || py + high < 0 || py - high > view.height) return false;
    pen.beginPath();
    if (rings) {
      for (const ring of rings) polygon(pen, ring.map(([dx, dy]) => view.toScreen(x + dx, y + dy)));
    } else if (kind === DISC) pen.arc(px, py, wide, 0, 2 * Math.PI);
    else pen.rect(px - wide, py - high, 2 * wide, 2 * high);
    return true;
  }

  draw(pen, view) {
    const { width, height } = view;
    const [[x0, y0], [x1, y1]] = view.bounds;
    const [left, bottom] = view.toScreen(x0, y0);
    const [right, top] = view.toScreen(x1, y1);
    const step = roundUp((x1 - x0) / view.zoom / 8 || 1); // about eight lines across
    pen.strokeStyle = colour("grid");
    pen.fillStyle = colour("soft");
    pen.font = "11px system-ui, sans-serif";
    pen.lineWidth = 1;
    pen.beginPath();
    for (let x = Math.ceil(x0 / step) * step; x <= x1; x += step) {
      const px = Math.round(view.toScreen(x, 0)[0]) + 0.5;
      if (px < 0 || px > width) continue;
      pen.moveTo(px, Math.max(0, top));
      pen.lineTo(px, Math.min(height, bottom));
      pen.fillText(String(Math.round(x * 100) / 100), px + 3, Math.min(height - 4, bottom - 4));
    }
    for (let y = Math.ceil(y0 / step) * step; y <= y1; y += step) {
      const py = Math.round(view.toScreen(0, y)[1]) + 0.5;
      if (py < 0 || py > height) continue;
      pen.moveTo(Math.max(0, left), py);
      pen.lineTo(Math.min(width, right), py);
      if (y > y0) pen.fillText(String(Math.round(y * 100) / 100), Math.max(3, left + 3), py - 3);
    }
    pen.stroke();
    pen.strokeStyle = colour("line");
    pen.strokeRect(left, top, right - left, bottom - top);
  }
}

// 2, 5 or 10 times a power of ten.
export function roundUp(wide) {
  const ten = 10 ** Math.floor(Math.log10(wide));
  return ten * (wide / ten < 2 ? 2 : wide / ten < 5 ? 5 : 10);
}

// Adds a closed ring of pixels to the path.
export function polygon(pen, places) {
  places.forEach(([px, py], i) => (i ? pen.lineTo(px, py) : pen.moveTo(px, py)));
  pen.closePath();
}
