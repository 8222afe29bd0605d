// The 3-D view from behind the ship, on a 2-D canvas: everything is sorted by distance and drawn from
// far to near. That is fast enough for a hundred asteroids and a few dozen ships.

import { colour, fitted } from "./palette.js";
import { add, clamp, cross, dot, facing, size, sub, times, unit } from "./vectors.js";

const NEAR = 1; // nearer than this to the eye nothing is drawn
const BEHIND = 34, ABOVE = 9; // units from the ship to the eye
const FADE = 700; // units beyond which things are pale
const BEAM_MS = 220, BLAST_MS = 1100;
const STARS = 240;
// A ship of length 1 that points along x.
const HULL = { nose: [1.5, 0, 0], left: [-1, 1.15, -0.1], right: [-1, -1.15, -0.1], tail: [-0.55, 0, 0.15], fin: [-1.05, 0, 0.75] };
const PLATES = [["nose", "left", "tail", 0.75], ["nose", "right", "tail", 1], ["nose", "tail", "fin", 0.55]];

export class SpaceView {
  drawn = 0; // frames
  #beams = []; // {from, to, at, name}
  #blasts = []; // {place, at}
  #stars = Array.from({ length: STARS }, (_, i) => {
    const up = 1 - (2 * (i + 0.5)) / STARS; // evenly over the sphere
    return [...facing(i * 2.399963, Math.asin(up)), 0.6 + ((i * 7919) % 100) / 90];
  });

  constructor(canvas, rules) {
    this.canvas = canvas;
    this.rules = rules;
  }

  beam(from, to, name) {
    this.#beams.push({ from, to, name, at: performance.now() });
  }

  blast(place) {
    this.#blasts.push({ place, at: performance.now() });
  }

  // `others`: {id, place, heading, team, hit}; `target`: one of them.
  draw(ship, others, target, team) {
    const pen = fitted(this.canvas);
    const { clientWidth: width, clientHeight: height } = this.canvas;
    pen.clearRect(0, 0, width, height);
    const eye = this.#eye(ship, width, height);
    this.#drawStars(pen, eye);
    this.#drawEdges(pen, eye);
    this.#drawThings(pen, eye, ship, others, team);
    this.#drawFading(pen, eye);
    if (ship.alive) {
      this.#drawAim(pen, eye, ship, target);
      this.#drawWay(pen, eye, ship, others.filter((other) => other.team !== team));
    }
    this.#drawRadar(pen, ship, others, team, width, height);
    this.drawn += 1;
  }

  #eye(ship, width, height) {
    const forward = ship.heading;
    const right = unit(cross(forward, [0, 0, 1]));
    const up = cross(right, forward);
    const place = add(sub(ship.place, times(forward, BEHIND)), times(up, ABOVE));
    const focus = Math.max(width, height) * 0.62;
    const see = (point) => {
      const gap = sub(point, place);
      const deep = dot(gap, forward);
      if (deep < NEAR) return null;
      const scale = focus / deep;
      return [width / 2 + dot(gap, right) * scale, height * 0.52 - dot(gap, up) * scale, scale, deep];
    };
    return { place, forward, right, up, focus, width, height, see };
  }

  #drawStars(pen, eye) {
    pen.fillStyle = colour("star");
    for (const [x, y, z, bright] of this.#stars) {
      const seen = eye.see(add(eye.place, times([x, y, z], 1e5)));
      if (!seen || seen[0] < 0 || seen[0] > eye.width || seen[1] < 0 || seen[1] > eye.height) continue;
      pen.globalAlpha = 0.25 * bright;
      pen.fillRect(seen[0], seen[1], bright, bright);
    }
    pen.globalAlpha = 1;
  }

  // The world is a cube; its faces are drawn as grids.
  #drawEdges(pen, eye) {
    const { size: side } = this.rules, parts = 5;
    pen.strokeStyle = colour("edge");
    pen.lineWidth = 1;
    pen.globalAlpha = 0.55;
    pen.beginPath();
    const line = (from, to) => {
      const steps = 8;
      let before = null;
      for (let i = 0; i <= steps; i++) {
        const seen = eye.see(add(from, times(sub(to, from), i / steps)));
        if (seen && before) pen.moveTo(before[0], before[1]), pen.lineTo(seen[0], seen[1]);
        before = seen;
      }
    };
    for (let axis = 0; axis < 3; axis++) {
      const [b, c] = [(axis + 1) % 3, (axis + 2) % 3];
      const point = (along, v, w) => {
        const p = [0, 0, 0];
        p[axis] = along, p[b] = v, p[c] = w;
        return p;
      };
      for (let i = 0; i <= parts; i++) {
        for (const end of [0, side]) {
          const at = (side * i) / parts;
          line(point(0, at, end), point(side, at, end));
          if (i > 0 && i < parts) line(point(0, end, at), point(side, end, at));
        }
      }
    }
    pen.stroke();
    pen.globalAlpha = 1;
  }

  #drawThings(pen, eye, ship, others, team) {
    const things = [];
    const put = (place, draw) => {
      const seen = eye.see(place);
      if (seen) things.push({ deep: seen[3], draw: () => draw(seen) });
    };
    for (const [x, y, z, r] of this.rules.zones) {
      if (size(sub(eye.place, [x, y, z])) < r) this.#tint(pen, eye);
      else put([x, y, z], (seen) => this.#zone(pen, eye, seen, r));
    }
    for (const rock of this.rules.asteroids) {
      const place = rock.slice(0, 3);
      const covers = size(sub(eye.place, place)) < rock[3] + BEHIND / 4; // between eye and ship
      if (!covers) put(place, (seen) => this.#rock(pen, eye, seen, rock));
    }
    for (const other of others) {
      const name = other.team === team ? "friend" : "foe";
      put(other.place, (seen) => this.#vessel(pen, eye, other, seen, name));
    }
    if (ship.alive) {
      const own = { place: ship.place, heading: ship.heading, boosting: ship.boosting };
      put(ship.place, (seen) => this.#vessel(pen, eye, own, seen, "me"));
    }
    things.sort((a, b) => b.deep - a.deep);
    for (const { draw } of things) draw();
    pen.globalAlpha = 1;
  }

  // Inside a repair zone everything is tinted green.
  #tint(pen, eye) {
    pen.fillStyle = colour("zone");
    pen.globalAlpha = 0.12;
    pen.fillRect(0, 0, eye.width, eye.height);
    pen.globalAlpha = 1;
  }

  #visible(eye, [x, y], r) {
    return x + r > 0 && x - r < eye.width && y + r > 0 && y - r < eye.height;
  }

  #rock(pen, eye, seen, [wx, , wz, radius]) {
    const [x, y, scale, deep] = seen, r = radius * scale;
    if (!this.#visible(eye, seen, r) || r < 0.4) return;
    pen.globalAlpha = clamp(1.25 - deep / FADE, 0.18, 1);
    const light = pen.createRadialGradient(x - r * 0.4, y - r * 0.45, r * 0.1, x, y, r);
    light.addColorStop(0, colour("rock"));
    light.addColorStop(1, colour("rock-dark"));
    pen.fillStyle = light;
    pen.beginPath();
    for (let i = 0; i < 20; i++) { // an irregular outline, the same in every frame
      const angle = (i / 20) * 2 * Math.PI;
      const rough = r * (0.93 + 0.07 * Math.sin(i * 2.7 + wx + wz));
      pen.lineTo(x + Math.cos(angle) * rough, y + Math.sin(angle) * rough);
    }
    pen.closePath();
    pen.fill();
  }

  #zone(pen, eye, seen, radius) {
    const [x, y, scale, deep] = seen, r = radius * scale;
    if (!this.#visible(eye, seen, r)) return;
    const fading = clamp(1.3 - deep / FADE, 0.25, 1);
    pen.fillStyle = pen.strokeStyle = colour("zone");
    pen.globalAlpha = 0.13 * fading;
    pen.beginPath();
    pen.arc(x, y, r, 0, 2 * Math.PI);
    pen.fill();
    pen.globalAlpha = 0.7 * fading;
    pen.lineWidth = 1.5;
    pen.stroke();
    if (r > 14) {
      pen.font = "600 12px system-ui, sans-serif";
      pen.textAlign = "center";
      pen.fillText("repair", x, y - r - 5);
      pen.textAlign = "start";
    }
  }

  #vessel(pen, eye, { place, heading, hit, boosting, name: called }, seen, name) {
    const [x, y, scale, deep] = seen;
    const length = this.rules.hull * (name === "me" ? 0.75 : 1.4);
    pen.globalAlpha = clamp(1.4 - deep / FADE, 0.5, 1);
    pen.fillStyle = pen.strokeStyle = colour(name);
    if (length * scale < 3) { // far away: a dot
      pen.beginPath();
      pen.arc(x, y, 2.2, 0, 2 * Math.PI);
      pen.fill();
      return;
    }
    const left = unit(cross([0, 0, 1], heading)), up = cross(heading, left);
    const corners = {};
    for (const [part, [a, b, c]] of Object.entries(HULL)) {
      const offset = add(add(times(heading, a * length), times(left, b * length)), times(up, c * length));
      const at = eye.see(add(place, offset));
      if (!at) return;
      corners[part] = at;
    }
    if (boosting) {
      const [tx, ty] = corners.tail;
      pen.fillStyle = colour("beam");
      pen.beginPath();
      pen.arc(tx, ty, length * scale * (0.35 + 0.1 * Math.random()), 0, 2 * Math.PI);
      pen.fill();
      pen.fillStyle = colour(name);
    }
    const alpha = pen.globalAlpha;
    for (const [a, b, c, shade] of PLATES) {
      pen.globalAlpha = alpha * shade;
      pen.beginPath();
      for (const part of [a, b, c]) pen.lineTo(corners[part][0], corners[part][1]);
      pen.closePath();
      pen.fill();
    }
    if (hit && performance.now() - hit < 300) {
      pen.globalAlpha = 0.8;
      pen.lineWidth = 2;
      pen.beginPath();
      pen.arc(x, y, length * scale * 1.8, 0, 2 * Math.PI);
      pen.stroke();
    }
    if (called) pen.fillText(called, x + 10, y - 10);
  }

  #drawFading(pen, eye) {
    const now = performance.now();
    this.#beams = this.#beams.filter(({ at }) => now - at < BEAM_MS);
    this.#blasts = this.#blasts.filter(({ at }) => now - at < BLAST_MS);
    for (const { from, to, at, name } of this.#beams) {
      const a = eye.see(from), b = eye.see(to);
      if (!a || !b) continue;
      pen.globalAlpha = 1 - (now - at) / BEAM_MS;
      pen.strokeStyle = colour(name);
      pen.lineWidth = 2.5;
      pen.beginPath();
      pen.moveTo(a[0], a[1]);
      pen.lineTo(b[0], b[1]);
      pen.stroke();
    }
    for (const { place, at } of this.#blasts) {
      const seen = eye.see(place);
      if (!seen) continue;
      const age = (now - at) / BLAST_MS;
      pen.globalAlpha = 0.8 * (1 - age);
      pen.fillStyle = colour(age < 0.35 ? "beam" : "foe");
      pen.beginPath();
      pen.arc(seen[0], seen[1], Math.min(400, (4 + 22 * Math.sqrt(age)) * seen[2]), 0, 2 * Math.PI);
      pen.fill();
    }
    pen.globalAlpha = 1;
  }

  #drawAim(pen, eye, ship, target) {
    const ahead = eye.see(add(ship.place, times(ship.heading, this.rules.sight / 2)));
    if (!ahead) return;
    pen.strokeStyle = colour(target ? "foe" : "soft");
    pen.lineWidth = 1.5;
    pen.beginPath();
    pen.arc(ahead[0], ahead[1], 9, 0, 2 * Math.PI);
    for (const [dx, dy] of [[1, 0], [-1, 0], [0, 1], [0, -1]]) {
      pen.moveTo(ahead[0] + dx * 6, ahead[1] + dy * 6);
      pen.lineTo(ahead[0] + dx * 14, ahead[1] + dy * 14);
    }
    pen.stroke();
    const seen = target && eye.see(target.place);
    if (!seen) return;
    const half = clamp(this.rules.hull * 2 * seen[2], 12, 90);
    pen.strokeStyle = pen.fillStyle = colour("foe");
    pen.lineWidth = 2;
    pen.strokeRect(seen[0] - half, seen[1] - half, 2 * half, 2 * half);
    pen.font = "600 12px system-ui, sans-serif";
    pen.fillText(`${Math.round(target.away)}`, seen[0] + half + 5, seen[1] + 4);
  }

  // An arrow towards the nearest foe, if it is not on the screen.
  #drawWay(pen, eye, ship, foes) {
    const away = (foe) => size(sub(foe.place, ship.place));
    const nearest = foes.reduce((best, foe) => (!best || away(foe) < away(best) ? foe : best), null);
    if (!nearest) return;
    const seen = eye.see(nearest.place);
    if (seen && this.#visible(eye, seen, -20)) return;
    const gap = sub(nearest.place, eye.place);
    const angle = Math.atan2(-dot(gap, eye.up), dot(gap, eye.right));
    const reach = Math.min(eye.width, eye.height) * 0.3;
    pen.save();
    pen.translate(eye.width / 2 + Math.cos(angle) * reach, eye.height / 2 + Math.sin(angle) * reach);
    pen.rotate(angle);
    pen.fillStyle = colour("foe");
    pen.globalAlpha = 0.85;
    pen.beginPath();
    pen.moveTo(12, 0), pen.lineTo(-6, 8), pen.lineTo(-2, 0), pen.lineTo(-6, -8);
    pen.fill();
    pen.rotate(-angle);
    pen.font = "12px system-ui, sans-serif";
    pen.textAlign = "center";
    pen.fillText(`${Math.round(away(nearest))}`, 0, 22);
    pen.restore();
  }

  // The radar: from above, the ship's heading upwards, as far as it sees.
  #drawRadar(pen, ship, others, team, width, height) {
    const r = Math.min(70, width / 8.5), x = r + 12, y = height - r - 12;
    const sight = this.rules.sight;
    pen.globalAlpha = 0.75;
    pen.fillStyle = colour("card");
    pen.beginPath();
    pen.arc(x, y, r, 0, 2 * Math.PI);
    pen.fill();
    pen.globalAlpha = 1;
    pen.strokeStyle = colour("line");
    pen.lineWidth = 1;
    pen.stroke();
    const [sin, cos] = [Math.sin(ship.yaw), Math.cos(ship.yaw)];
    const spot = (place, name, dot_) => {
      const gap = sub(place, ship.place);
      if (size(gap) > sight) return;
      const ahead = gap[0] * cos + gap[1] * sin, left = gap[1] * cos - gap[0] * sin;
      pen.fillStyle = colour(name);
      pen.beginPath();
      pen.arc(x - (left / sight) * r, y - (ahead / sight) * r, dot_, 0, 2 * Math.PI);
      pen.fill();
    };
    for (const [ax, ay, az] of this.rules.asteroids) spot([ax, ay, az], "resting", 1.2);
    for (const [zx, zy, zz] of this.rules.zones) spot([zx, zy, zz], "zone", 4);
    for (const other of others) spot(other.place, other.team === team ? "friend" : "foe", 3);
    pen.fillStyle = colour("me");
    pen.beginPath();
    pen.moveTo(x, y - 6), pen.lineTo(x + 4, y + 4), pen.lineTo(x - 4, y + 4);
    pen.fill();
  }
}
