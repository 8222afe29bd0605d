// The world view on a canvas: areas, entities, deliveries, and the pointer.

import { elapsed, placeOf } from "./snapshots.js";
import { colour, fitted } from "./palette.js";
import { cells } from "./voronoi.js";

const FADING = 450; // milliseconds for which a delivery is shown
const MOST_FADING = 400;
const CROWDED = 400; // areas
const LAYER_MS = 90;
const DRAG = 6; // pixels that a pointer may move during a click
const REACH = 14; // pixels from an entity within which a pointer selects it

export class World {
  snapshot = null;
  me = null; // {entity, place(t), half: {rx, ry}, target}
  marked = null; // the entity that `find` or `follow` names
  areas = true;
  fences = null; // a FenceEditor: draws fences, and takes the pointer while they are edited
  sites = []; // of a cluster's nodes: {x, y, name, mark, own}
  drawn = 0; // frames, for tests
  #received = []; // {x, y, at, apple}
  #lastReceived = new Map(); // entity: when its last publication was delivered to us
  #pointers = new Map();
  #layer = { canvas: document.createElement("canvas"), view: "", at: 0 };
  #hover = null;
  #moved = false; // by the user, so it stays where it is
  #framed = null; // the snapshot that is known to be in view

  // `ground`: a Plane or an EarthMap. Bounds and the centre of the view are in its flat coordinates.
  constructor(canvas, tip, walk, ground) {
    this.canvas = canvas;
    this.tip = tip;
    this.walk = walk;
    this.ground = ground;
    this.bounds = ground.bounds;
    this.fit();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.#layer.view = "";
    });
    canvas.addEventListener("pointerdown", (e) => this.#down(e));
    canvas.addEventListener("pointermove", (e) => this.#move(e));
    canvas.addEventListener("pointerup", (e) => this.#up(e));
    canvas.addEventListener("pointercancel", (e) => this.#cancel(e));
    canvas.addEventListener("pointerleave", () => (this.#hover = null));
    canvas.addEventListener("wheel", (e) => {
      e.preventDefault();
      this.closer(Math.exp(-e.deltaY / 400), e.offsetX, e.offsetY);
    }, { passive: false });
  }

  // The view.

  // Extends the bounds so that these places are inside.
  stretch(places) {
    const [[x0, y0], [x1, y1]] = this.bounds;
    const xs = places.map(({ x }) => x), ys = places.map(({ y }) => y);
    const [left, low] = [Math.min(x0, ...xs), Math.min(y0, ...ys)];
    const [right, high] = [Math.max(x1, ...xs), Math.max(y1, ...ys)];
    if (left === x0 && low === y0 && right === x1 && high === y1) return;
    const margin = Math.max(right - left, high - low) / 20;
    this.bounds = [[left - margin, low - margin], [right + margin, high + margin]];
    if (this.zoom === 1) this.#frame();
  }

  fit() {
    if (this.snapshot) this.bounds = this.ground.around(this.snapshot.entities) ?? this.bounds;
    this.#frame();
  }

  #frame() {
    const [[x0, y0], [x1, y1]] = this.bounds;
    this.centre = { x: (x0 + x1) / 2, y: (y0 + y1) / 2 };
    this.#zoomTo(1);
    this.centre = this.ground.limit(this.centre, this);
    this.#moved = false;
  }

  closer(factor, px = this.width / 2, py = this.height / 2) {
    const before = this.#toFlat(px, py);
    this.#zoomTo(this.zoom * factor);
    const after = this.#toFlat(px, py);
    this.#look(this.centre.x + before.x - after.x, this.centre.y + before.y - after.y);
  }

  #zoomTo(zoom) {
    this.zoom = 1;
    const [least, most] = this.ground.zooms(this);
    this.zoom = Math.min(most, Math.max(least, zoom));
  }

  #look(x, y) {
    this.#moved = true;
    this.centre = this.ground.limit({ x, y }, this);
  }

  // On a map: until the user moves it or draws on it, all entities are in view.
  #keepInView() {
    if (this.#moved || this.#editing || this.#framed === this.snapshot) return;
    const bounds = this.ground.around(this.snapshot.entities, this.bounds);
    if (bounds) {
      this.bounds = bounds;
      this.#frame();
    }
    this.#framed = this.snapshot;
  }

  get width() { return this.canvas.clientWidth; }

  get height() { return this.canvas.clientHeight; }

  // Pixels for one unit of the flat coordinates.
  get scale() {
    const [[x0, y0], [x1, y1]] = this.bounds;
    return Math.min(this.width / (x1 - x0 || 1), this.height / (y1 - y0 || 1)) * 0.9 * this.zoom;
  }

  #toFlat(px, py) {
    const { width, height, scale } = this;
    return {
      x: this.centre.x + (px - width / 2) / scale,
      y: this.centre.y - (py - height / 2) / scale,
    };
  }

  // The place at a pixel, in the world's coordinates: on a map, degrees.
  placeAt(px, py) {
    const { x, y } = this.#toFlat(px, py);
    return this.ground.unproject(x, y);
  }

  // On a map a place appears once for each turn around the Earth: here, next to `near`.
  toScreen(x, y, near = this.centre.x) {
    const { width, height, scale } = this;
    const [fx, fy] = this.ground.project(this.ground.near(x, near), y);
    return [width / 2 + (fx - this.centre.x) * scale, height / 2 - (fy - this.centre.y) * scale];
  }

  // Pointing: a click walks, a drag moves the view, two fingers zoom. While fences are edited, a
  // click is theirs, and so is a drag that begins at something that can be dragged.

  #down(e) {
    this.canvas.setPointerCapture(e.pointerId);
    for (const pointer of this.#pointers.values()) {
      if (pointer.drags) this.fences.giveUp();
      pointer.drags = false;
    }
    const drags = this.#editing && this.#pointers.size === 0 && this.fences.press(e.offsetX, e.offsetY);
    this.#pointers.set(e.pointerId, { x: e.offsetX, y: e.offsetY, slipped: 0, drags });
  }

  get #editing() { return this.fences?.editing ?? false; }

  #cancel(e) {
    if (this.#pointers.get(e.pointerId)?.drags) this.fences.giveUp();
    this.#pointers.delete(e.pointerId);
  }

  #move(e) {
    this.#hover = { x: e.offsetX, y: e.offsetY };
    if (this.#editing) this.fences.hover(e.offsetX, e.offsetY);
    const pointer = this.#pointers.get(e.pointerId);
    if (!pointer) return;
    const dx = e.offsetX - pointer.x, dy = e.offsetY - pointer.y;
    pointer.slipped += Math.hypot(dx, dy);
    if (this.#pointers.size === 2) {
      const [a, b] = this.#pointers.values();
      const before = Math.hypot(a.x - b.x, a.y - b.y);
      pointer.x = e.offsetX;
      pointer.y = e.offsetY;
      const after = Math.hypot(a.x - b.x, a.y - b.y);
      this.closer(after / (before || 1), (a.x + b.x) / 2, (a.y + b.y) / 2);
      return;
    }
    pointer.x = e.offsetX;
    pointer.y = e.offsetY;
    if (pointer.slipped <= DRAG) return;
    if (pointer.drags) {
      this.fences.drag(e.offsetX, e.offsetY);
    } else {
      this.#look(this.centre.x - dx / this.scale, this.centre.y + dy / this.scale);
    }
  }

  #up(e) {
    const pointer = this.#pointers.get(e.pointerId);
    this.#pointers.delete(e.pointerId);
    if (!pointer || this.#pointers.size) return;
    if (pointer.slipped > DRAG) {
      if (pointer.drags) this.fences.drop();
    } else if (this.#editing) {
      this.fences.click(e.offsetX, e.offsetY);
    } else {
      this.walk(this.#toFlat(e.offsetX, e.offsetY));
    }
  }

  // Deliveries.

  showDelivery(entity, x, y, apple = false) {
    const at = performance.now();
    this.#lastReceived.set(entity, at);
    this.#received.push({ x, y, at, apple });
    if (this.#received.length > MOST_FADING) this.#received.splice(0, this.#received.length - MOST_FADING);
  }

  // Drawing.

  draw(t) {
    const pen = fitted(this.canvas);
    const { clientWidth: width, clientHeight: height } = this.canvas;
    pen.clearRect(0, 0, width, height);
    if (this.snapshot) this.#keepInView();
    this.ground.draw(pen, this);
    this.#drawRegions(pen);
    const seconds = this.snapshot ? (t - this.snapshot.t) / 1e6 : 0;
    if (this.snapshot && this.areas) this.#drawAreas(pen, seconds, width);
    if (this.areas || this.#editing) this.fences?.draw(pen);
    if (this.snapshot) {
      this.#drawReceived(pen, t);
      this.#drawEntities(pen, seconds, width, height);
      this.#drawHover(pen, t);
    }
    if (this.me) this.#drawMe(pen, t);
    this.drawn += 1;
  }

  // The cell and the site of each node.
  #drawRegions(pen) {
    for (const [k, corners] of cells(this.sites, this.bounds).entries()) {
      const { x, y, name, mark, own } = this.sites[k];
      pen.fillStyle = pen.strokeStyle = colour(mark);
      pen.beginPath();
      for (const [cx, cy] of corners) pen.lineTo(...this.toScreen(cx, cy));
      pen.closePath();
      pen.globalAlpha = 0.07;
      pen.fill();
      pen.globalAlpha = 0.6;
      pen.lineWidth = 1.5;
      pen.stroke();
      pen.globalAlpha = 1;
      const [px, py] = this.toScreen(x, y);
      pen.beginPath();
      for (const [dx, dy] of [[0, -8], [8, 0], [0, 8], [-8, 0]]) pen.lineTo(px + dx, py + dy);
      pen.closePath();
      if (own) pen.fill();
      else pen.stroke();
      pen.font = "600 12px system-ui, sans-serif";
      pen.fillText(name, px + 12, py + 4);
    }
  }

  // More than CROWDED areas are drawn a few times a second on a layer of their own, which is copied
  // into each frame.
  #drawAreas(pen, seconds, width) {
    if (this.snapshot.areas.count <= CROWDED) {
      this.#drawOutlines(pen, seconds);
      return;
    }
    const { canvas } = this;
    const view = [this.centre.x, this.centre.y, this.zoom, canvas.width, canvas.height].join();
    const now = performance.now();
    if (view !== this.#layer.view || now - this.#layer.at > LAYER_MS) {
      const copy = this.#layer.canvas;
      copy.width = canvas.width;
      copy.height = canvas.height;
      const ratio = canvas.width / width;
      const brush = copy.getContext("2d");
      brush.setTransform(ratio, 0, 0, ratio, 0, 0);
      this.#drawOutlines(brush, seconds);
      this.#layer.view = view;
      this.#layer.at = now;
    }
    pen.drawImage(this.#layer.canvas, 0, 0, width, this.height);
  }

  #drawOutlines(pen, seconds) {
    const areas = this.snapshot.areas;
    const mine = this.me?.entity;
    pen.strokeStyle = pen.fillStyle = colour("area");
    const crowded = areas.count > CROWDED;
    const { centre, scale, width, height, toScreen } = this;
    const view = { ground: this.ground, centre, scale, width, height, toScreen }; // measured once
    for (let i = 0; i < areas.count; i++) {
      if (areas.owner[i] === mine) continue;
      const area = this.#area(areas, i, seconds);
      if (!this.ground.trace(pen, view, area)) continue;
      const alone = areas.owner[i] === this.marked;
      const fence = area.rings !== undefined;
      pen.globalAlpha = alone ? 0.9 : crowded ? Math.max(0.06, 120 / areas.count) : fence ? 0.6 : 0.2;
      pen.lineWidth = alone ? 2 : 1;
      pen.stroke();
      if (crowded && !alone) continue;
      pen.globalAlpha = alone ? 0.15 : fence ? 0.06 : 0.022;
      pen.fill("evenodd");
    }
    pen.globalAlpha = 1;
  }

  #area(areas, i, seconds) {
    const dt = elapsed(areas, i, seconds);
    return {
      kind: areas.kind[i],
      x: areas.x[i] + areas.vx[i] * dt,
      y: areas.y[i] + areas.vy[i] * dt,
      rx: Math.max(0, areas.rx[i] + areas.gx[i] * dt),
      ry: Math.max(0, areas.ry[i] + areas.gy[i] * dt),
      rings: areas.rings.get(i),
    };
  }

  #drawEntities(pen, seconds, width, height) {
    const { count, id, x, y, vx, vy, left: lasts } = this.snapshot.entities;
    const size = this.ground.dot ?? Math.min(9, Math.max(2.4, (count > CROWDED ? 2.6 : 4) * Math.sqrt(this.zoom)));
    const { ground, scale } = this;
    const left = width / 2 - this.centre.x * scale, base = height / 2 + this.centre.y * scale;
    const since = performance.now() - 1500;
    const dots = {};
    const received = [];
    const home = this.sites.length ? this.snapshot.home : null;
    for (let i = 0; i < count; i++) {
      if (id[i] === this.me?.entity) continue;
      const dt = elapsed(this.snapshot.entities, i, seconds);
      const [fx, fy] = ground.project(ground.near(x[i] + vx[i] * dt, this.centre.x), y[i] + vy[i] * dt);
      const px = left + fx * scale, py = base - fy * scale;
      if (px < -9 || px > width + 9 || py < -9 || py > height + 9) continue;
      const walks = lasts[i] > seconds && (vx[i] || vy[i]);
      const recent = this.#lastReceived.get(id[i]) > since;
      const group = recent ? received : (dots[home?.[i] ?? (walks ? "walking" : ground.resting)] ??= []);
      group.push(px, py);
    }
    for (const [name, places] of [...Object.entries(dots), ["received", received]]) {
      pen.fillStyle = colour(name);
      const radius = name === "received" ? size * 1.25 : size;
      if (count > CROWDED && size < 5) squares(pen, places, radius);
      else circles(pen, places, radius);
    }
  }

  #drawReceived(pen, t) {
    pen.lineWidth = 1.2;
    if (this.snapshot.deliveries.count) this.#drawDeliveries(pen, t);
    if (!this.me) return;
    const here = this.me.place(t);
    const [mx, my] = this.toScreen(here.x, here.y);
    const now = performance.now();
    this.#received = this.#received.filter((one) => now - one.at < FADING);
    for (const { x, y, at, apple } of this.#received) {
      const age = (now - at) / FADING;
      const [px, py] = this.toScreen(x, y);
      pen.globalAlpha = 0.55 * (1 - age);
      pen.strokeStyle = colour(apple ? "alarm" : "received");
      pen.beginPath();
      pen.moveTo(px, py);
      pen.lineTo(mx, my);
      pen.stroke();
      pen.beginPath();
      pen.arc(px, py, (apple ? 16 : 10) * age + 3, 0, 2 * Math.PI);
      pen.stroke();
    }
    pen.globalAlpha = 1;
  }

  // In a replay: lines from publishers to subscribers.
  #drawDeliveries(pen, t) {
    const { count, from, to } = this.snapshot.deliveries;
    pen.strokeStyle = colour("received");
    pen.globalAlpha = Math.max(0.08, Math.min(0.5, 40 / count));
    pen.beginPath();
    for (let i = 0; i < count; i++) {
      const source = placeOf(this.snapshot, from[i], t), target = placeOf(this.snapshot, to[i], t);
      if (!source || !target) continue;
      pen.moveTo(...this.toScreen(source.x, source.y));
      pen.lineTo(...this.toScreen(target.x, target.y, this.ground.near(source.x, this.centre.x)));
    }
    pen.stroke();
    pen.globalAlpha = 1;
  }

  #drawMe(pen, t) {
    const { half, target } = this.me;
    const here = this.me.place(t);
    const [px, py] = this.toScreen(here.x, here.y);
    const { scale } = this;
    pen.strokeStyle = pen.fillStyle = colour("me");
    pen.lineWidth = 2;
    pen.globalAlpha = 0.09;
    pen.fillRect(px - half.rx * scale, py - half.ry * scale, 2 * half.rx * scale, 2 * half.ry * scale);
    pen.globalAlpha = 0.9;
    pen.strokeRect(px - half.rx * scale, py - half.ry * scale, 2 * half.rx * scale, 2 * half.ry * scale);
    if (target) {
      const [tx, ty] = this.toScreen(target.x, target.y);
      pen.setLineDash([5, 5]);
      pen.beginPath();
      pen.moveTo(px, py);
      pen.lineTo(tx, ty);
      pen.stroke();
      pen.setLineDash([]);
      pen.beginPath();
      pen.arc(tx, ty, 6, 0, 2 * Math.PI);
      pen.stroke();
    }
    pen.globalAlpha = 1;
    pen.beginPath();
    pen.arc(px, py, 7, 0, 2 * Math.PI);
    pen.fill();
    pen.strokeStyle = colour("ground");
    pen.stroke();
    pen.font = "600 12px system-ui, sans-serif";
    pen.fillText("you", px + 11, py - 9);
  }

  #drawHover(pen, t) {
    const found = this.#hover && this.#pointers.size === 0 ? this.#nearest(t) : null;
    const shown = found?.entity ?? this.marked;
    this.tip.hidden = !found;
    if (shown === null || shown === undefined) return;
    const place = placeOf(this.snapshot, shown, t);
    if (!place) return;
    const [px, py] = this.toScreen(place.x, place.y);
    pen.strokeStyle = colour("ink");
    pen.lineWidth = 1.5;
    pen.beginPath();
    pen.arc(px, py, 10, 0, 2 * Math.PI);
    pen.stroke();
    if (!found) return;
    this.tip.textContent = `${found.entity} · ${this.ground.label(place.x, place.y)}`;
    const room = this.canvas.clientWidth - this.tip.offsetWidth - 16;
    this.tip.style.left = `${Math.min(px + 14, room)}px`;
    this.tip.style.top = `${Math.max(4, py - 30)}px`;
  }

  #nearest(t) {
    const { count, id } = this.snapshot.entities;
    let best = null, least = REACH * REACH;
    for (let i = 0; i < count; i++) {
      if (id[i] === this.me?.entity) continue;
      const place = placeOf(this.snapshot, id[i], t);
      const [px, py] = this.toScreen(place.x, place.y);
      const distance = (px - this.#hover.x) ** 2 + (py - this.#hover.y) ** 2;
      if (distance < least) {
        least = distance;
        best = { entity: id[i] };
      }
    }
    return best;
  }
}

function circles(pen, places, radius) {
  pen.strokeStyle = colour("ground");
  pen.lineWidth = 1;
  for (let i = 0; i < places.length; i += 2) {
    pen.beginPath();
    pen.arc(places[i], places[i + 1], radius, 0, 2 * Math.PI);
    pen.fill();
    pen.stroke();
  }
}

// Two crossed rectangles: nearly round when small, and several times faster than circles.
function squares(pen, places, radius) {
  for (let i = 0; i < places.length; i += 2) {
    const px = places[i], py = places[i + 1];
    pen.fillRect(px - radius, py - radius / 2, 2 * radius, radius);
    pen.fillRect(px - radius / 2, py - radius, radius, 2 * radius);
  }
}
