// Fences in the world view: they are drawn, and a person draws, drags and removes them. Every change
// is a request that anybody could make; what the node refuses stays as it was.

import {
  areaOf, circleOf, edges, handles, polygonOf, reshaped, shifted, withCorner, withoutCorner,
} from "./fence_shapes.js";
import { FenceSets } from "./fence_sets.js";
import { colour, label } from "./palette.js";
import { repeatEvery } from "./snapshots.js";

const ASKED_MS = 1000; // between two looks at what has changed
const TOUCH = matchMedia("(pointer: coarse)").matches;
const REACH = TOUCH ? 20 : 12; // pixels: how near to a corner or a small fence a pointer must be
const HANDLE = TOUCH ? 8 : 5; // pixels: the radius of a dot by which a fence is dragged
const LONG = 3 * REACH; // pixels: a shorter edge has no handle in its middle
const NAMED = 34; // pixels: a fence that is smaller is shown without its id
const SMALL = 6; // pixels: a fence that is smaller is drawn as a dot
const STEP = 8; // pixels that an arrow key moves a fence
const STEPS = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };
const USUAL = "fences"; // the name of a set, where there is none yet
const HELP = "Click or tap a fence to select it; then drag it or its corners, or remove it.";
const HELP_POLYGON = TOUCH
  ? "Tap the corners; tap the last one again to end."
  : "Click the corners; a double click or Enter ends, Escape gives up.";
const HELP_CORNERS = `${HELP} Drag the middle of an edge for a further corner.`;
const HELP_CORNER = "Click or tap this corner once more to remove it.";
const FEW_CORNERS = "A polygon has three corners or more.";
const HELP_CIRCLE = "Press where its centre is, and drag.";
const REFUSED = "Your token does not allow you to change fences here.";

const element = (id) => document.getElementById(id);
const same = (a, b) => a?.set === b?.set && a?.id === b?.id;

export class FenceEditor {
  editing = false;
  sets = new FenceSets();
  selected = null; // {set, id}
  tool = null; // "polygon" or "circle", while one is drawn
  #corners = []; // of the polygon that is being drawn
  #corner = null; // the corner of the selected polygon that was clicked
  #pointer = null; // where the pointer is: [px, py]
  #drag = null; // (place) => the fence that is dragged, as it is when the pointer is there
  #draft = null; // {set, id, feature}: what is being dragged, or has been sent and is not confirmed
  sending = false; // a change, which the node has not answered
  #areas = new WeakMap(); // by feature
  #brush = document.createElement("canvas").getContext("2d"); // for paths that are only asked about
  #listed = ""; // what the lists show

  constructor(world) {
    this.world = world;
    element("fence-mode").hidden = false;
    element("fence-mode").addEventListener("click", () => this.#open(!this.editing));
    element("draw-polygon").addEventListener("click", () => this.#choose("polygon"));
    element("draw-circle").addEventListener("click", () => this.#choose("circle"));
    element("remove-fence").addEventListener("click", () => this.#remove());
    element("fence-list").addEventListener("change", (e) => this.#select(JSON.parse(e.target.value)));
    element("fences").addEventListener("submit", (e) => e.preventDefault());
    addEventListener("keydown", (e) => this.#key(e), true); // before keys that walk
    addEventListener("keyup", (e) => STEPS[e.key] && this.#draft && !this.#drag && this.#send());
    // That the node does not answer is shown by the requests for snapshots.
    repeatEvery(ASKED_MS, () => this.sets.refresh(), () => this.#list());
  }

  // What is there, with the fence that is being dragged in place of the one on the node.
  get #fences() {
    const { fences } = this.sets;
    return this.#draft ? [...fences.filter((one) => !same(one, this.#draft)), this.#draft] : fences;
  }

  get #chosen() {
    return this.selected && this.#fences.find((one) => same(one, this.selected));
  }

  // A fence as it is drawn.
  shown(set, id) {
    return this.#fences.find((one) => same(one, { set, id }))?.feature;
  }

  #area(feature) {
    if (!this.#areas.has(feature)) this.#areas.set(feature, areaOf(feature, this.world.ground));
    return this.#areas.get(feature);
  }

  // The bar and its lists.

  #open(editing) {
    this.editing = editing;
    element("fences").hidden = element("fence-message").hidden = !editing;
    element("fence-mode").setAttribute("aria-pressed", String(editing));
    this.world.canvas.classList.remove("moves");
    this.tool = null;
    this.giveUp();
    this.#select(null);
  }

  #choose(tool) {
    this.giveUp();
    if (tool !== this.tool) this.#select(null);
    this.tool = tool === this.tool ? null : tool;
    this.#say(this.tool === "polygon" ? HELP_POLYGON : this.tool === "circle" ? HELP_CIRCLE : HELP);
    this.world.canvas.focus();
  }

  #select(fence) {
    this.selected = fence && { set: fence.set, id: fence.id };
    this.#corner = null;
    if (fence) this.tool = null;
    this.#say(this.#help);
    this.#list();
  }

  get #help() {
    return this.#chosen && edges(this.#chosen.feature).length ? HELP_CORNERS : HELP;
  }

  #say(text, kind = "") {
    const { large, change } = this.sets, line = element("fence-message");
    const omitted = large.length ? ` Not shown, because too large: ${large.join(", ")}.` : "";
    line.textContent = change?.length === 0 ? REFUSED : kind ? text : text + omitted;
    line.className = kind;
    for (const name of ["polygon", "circle"]) {
      element(`draw-${name}`).setAttribute("aria-pressed", String(this.tool === name));
    }
  }

  // Shows what is known of the sets, if it has changed.
  #list() {
    if (!this.#chosen) this.selected = null;
    const corners = this.#corner && this.selected ? handles(this.#chosen.feature, this.world.ground) : [];
    if (!corners.some((one) => one.join() === this.#corner.join())) this.#corner = null; // somebody moved it
    const { names, fences, change } = this.sets, known = fences.map(({ set, id }) => ({ set, id }));
    const now = JSON.stringify([names, known, change, this.selected]);
    if (now === this.#listed) return;
    this.#listed = now;
    const list = element("fence-list");
    const none = new Option(known.length ? `${known.length} in all` : "none yet", "null");
    list.replaceChildren(none, ...known.map((one) => new Option(`${one.set}: ${one.id}`, JSON.stringify(one))));
    list.value = JSON.stringify(this.selected);
    const plain = (change ?? []).filter((name) => !/[*?[]/.test(name));
    const proposed = [...new Set([...plain, ...names])];
    element("fence-sets").replaceChildren(...proposed.map((name) => new Option("", name)));
    if (change?.includes("*")) proposed.push(USUAL);
    if (document.activeElement !== element("fence-set")) element("fence-set").value ||= proposed[0] ?? "";
    const may = change?.length > 0;
    for (const id of ["draw-polygon", "draw-circle", "fence-set", "fence-name"]) element(id).disabled = !may;
    element("remove-fence").disabled = !may || !this.selected;
    if (!may) this.#say(HELP);
  }

  // The pointer, in pixels of the view.

  hover(px, py) {
    this.#pointer = [px, py];
    this.world.canvas.classList.toggle("moves", !this.tool && Boolean(this.#hold(px, py)));
  }

  // Whether a drag from here is ours.
  press(px, py) {
    if (this.sending || !this.sets.change?.length) return false;
    this.#drag = this.tool === "circle" ? this.#newCircle(px, py) : this.tool ? null : this.#hold(px, py);
    return this.#drag !== null;
  }

  drag(px, py) {
    if (!this.#drag) return; // it was given up
    this.#corner = null;
    this.#draft = this.#drag(this.world.placeAt(px, py));
  }

  drop() {
    this.#drag = null;
    if (this.#draft) this.#send();
  }

  click(px, py) {
    this.#drag = null;
    if (this.sending) return; // the second click of two
    if (this.tool === "polygon") this.#addCorner(px, py);
    else if (!this.tool) this.#clickCorner(px, py) || this.#select(this.#find(px, py));
  }

  // Whether a corner of the selected polygon is here: the second click on it removes it.
  #clickCorner(px, py) {
    const fence = this.#chosen, corner = fence && this.#handleAt(fence, px, py);
    if (!corner || !edges(fence.feature).length || !this.sets.change?.length) return false;
    if (this.#corner?.join() === corner.join()) this.#removeCorner();
    else {
      this.#corner = corner;
      this.#say(HELP_CORNER);
    }
    return true;
  }

  #removeCorner() {
    const fence = this.#chosen, feature = withoutCorner(fence.feature, this.#corner, this.world.ground);
    this.#corner = null;
    if (!feature) {
      this.#say(FEW_CORNERS, "wrong");
      return;
    }
    this.#draft = { ...fence, feature };
    this.#send();
  }

  giveUp() {
    this.#drag = this.#corner = null;
    this.#corners = [];
    if (!this.sending) this.#draft = null;
  }

  #newCircle(px, py) {
    const { world } = this, centre = world.placeAt(px, py), fence = this.#named();
    return fence && ((place) => ({ ...fence, feature: { ...circleOf(centre, place, world.ground), id: fence.id } }));
  }

  // What dragging the selected fence from here does: null, if it is not here.
  #hold(px, py) {
    const fence = this.#chosen, { ground } = this.world;
    if (!fence) return null;
    const { feature } = fence, corner = this.#handleAt(fence, px, py);
    if (corner) return (place) => ({ ...fence, feature: reshaped(feature, corner, place, ground) });
    const edge = this.#nearest(this.#longEdges(feature), ({ place }) => place, this.#area(feature), px, py);
    if (edge) return (place) => ({ ...fence, feature: withCorner(feature, edge, place, ground) });
    if (!this.#contains(fence, px, py)) return null;
    const [x0, y0] = this.world.placeAt(px, py);
    return ([x, y]) => ({ ...fence, feature: shifted(feature, ground.near(x, x0) - x0, y - y0, ground) });
  }

  #handleAt({ feature }, px, py) {
    return this.#nearest(handles(feature, this.world.ground), (place) => place, this.#area(feature), px, py);
  }

  // What the pointer is at, of things that have a place in an area; undefined: none.
  #nearest(things, placeOf, area, px, py) {
    const away = (one) => {
      const [hx, hy] = this.#spot(placeOf(one), area);
      return Math.hypot(hx - px, hy - py);
    };
    return things.filter((one) => away(one) <= REACH).sort((a, b) => away(a) - away(b))[0];
  }

  #longEdges(feature) {
    const area = this.#area(feature);
    return edges(feature).filter(({ ends }) => {
      const [[ax, ay], [bx, by]] = ends.map((end) => this.#spot(end, area));
      return Math.hypot(ax - bx, ay - by) >= LONG;
    });
  }

  // Of the fences that are here, the smallest.
  #find(px, py) {
    const size = ({ feature }) => this.#area(feature).size;
    return this.#fences.filter((one) => this.#contains(one, px, py)).sort((a, b) => size(a) - size(b))[0] ?? null;
  }

  #contains({ feature }, px, py) {
    const area = this.#area(feature), brush = this.#brush;
    const [mx, my] = this.world.toScreen(area.x, area.y);
    if (!area.line && Math.hypot(mx - px, my - py) <= REACH && area.size * this.world.scale < REACH) return true;
    if (!this.#trace(brush, area)) return false;
    brush.lineWidth = Math.max(REACH, this.#wide(area));
    return area.line ? brush.isPointInStroke(px, py) : brush.isPointInPath(px, py, "evenodd");
  }

  // A corner next to the last or the first one ends the polygon; so does a double click.
  #addCorner(px, py) {
    const at = (corner) => corner && this.world.toScreen(...corner);
    const again = [this.#corners.at(-1), this.#corners[0]].map(at)
      .some((known) => known && Math.hypot(known[0] - px, known[1] - py) <= REACH);
    if (again) this.#endPolygon();
    else this.#corners.push(this.world.placeAt(px, py));
  }

  #endPolygon() {
    const fence = this.#corners.length < 3 ? null : this.#named();
    if (this.#corners.length < 3) this.#say(FEW_CORNERS, "wrong");
    if (!fence) return;
    this.#draft = { ...fence, feature: { ...polygonOf(this.#corners, this.world.ground), id: fence.id } };
    this.#corners = [];
    this.#send();
  }

  // Where a new fence goes, and how it is called; null if that cannot be.
  #named() {
    const set = element("fence-set").value.trim(), name = element("fence-name").value.trim();
    const id = name || `fence-${Math.random().toString(36).slice(2, 8)}`;
    if (!set) this.#say("Which set is it for? Give it a name.", "wrong");
    else if (this.sets.fences.some((one) => same(one, { set, id }))) {
      this.#say(`There is a fence ${id} in ${set} already.`, "wrong");
    } else return { set, id };
    return null;
  }

  // Keys.

  #key(e) {
    if (document.activeElement?.matches("input, select") || e.ctrlKey || e.metaKey || e.altKey) return;
    const press = this.editing ? this.#action(e) : e.key === "f" ? () => this.#open(true) : null;
    if (!press) return;
    press();
    e.preventDefault();
    e.stopImmediatePropagation();
  }

  #action(e) {
    const drawing = this.tool || this.#drag || this.#draft;
    if (e.key === "f") return () => this.#open(false);
    if (e.key === "Escape") {
      if (drawing) return () => (this.giveUp(), this.tool && this.#choose(this.tool));
      return () => (this.selected ? this.#select(null) : this.#open(false));
    }
    const erases = e.key === "Delete" || e.key === "Backspace";
    if (erases && this.#corners.length) return () => this.#corners.pop();
    if (e.key === "Enter" && this.#corners.length) return () => this.#endPolygon();
    if (this.sending || this.#drag || !this.selected || !this.sets.change?.length) return null;
    if (erases) return () => (this.#corner ? this.#removeCorner() : this.#remove());
    return STEPS[e.key] ? () => this.#nudge(STEPS[e.key]) : null;
  }

  #nudge([right, down]) {
    const { world } = this, fence = this.#chosen, { x, y } = this.#area(fence.feature);
    const [px, py] = world.toScreen(x, y);
    const [toX, toY] = world.placeAt(px + right * STEP, py + down * STEP);
    const feature = shifted(fence.feature, world.ground.near(toX, x) - x, toY - y, world.ground);
    this.#corner = null;
    this.#draft = { ...fence, feature };
  }

  // Requests.

  async #send() {
    const { set, id, feature } = this.#draft, name = element("fence-name");
    await this.#request(async () => {
      await this.sets.put(set, feature);
      this.selected = { set, id };
      if (name.value.trim() === id) name.value = "";
    });
  }

  async #remove() {
    const fence = this.#chosen;
    if (fence) await this.#request(() => this.sets.remove(fence.set, fence.id));
  }

  // What is refused is said, and nothing has changed.
  async #request(act) {
    if (this.sending) return;
    this.sending = true;
    const refused = await act().then(() => null, (error) => error);
    this.sending = false;
    this.#draft = this.tool = null;
    this.#list();
    this.#say(refused?.message ?? this.#help, refused ? "wrong" : "");
  }

  // Drawing.

  draw(pen) {
    const { world } = this, { centre, scale, width, height, ground } = world;
    const view = { ground, centre, scale, width, height, toScreen: world.toScreen }; // measured once
    pen.font = "600 12px system-ui, sans-serif";
    pen.textAlign = "center";
    const names = [];
    for (const { set, id, feature } of this.#fences) {
      const area = this.#area(feature), chosen = same(this.selected, { set, id });
      if (!this.#trace(pen, area, view)) continue;
      pen.strokeStyle = pen.fillStyle = colour("fence");
      this.#paint(pen, area, chosen);
      if (chosen || area.size * scale > NAMED) names.push([String(id), ...world.toScreen(area.x, area.y)]);
    }
    for (const [name, px, py] of names) label(pen, name, px, py + 4, "fence");
    pen.textAlign = "start";
    if (!this.editing) return;
    const feature = this.#chosen?.feature;
    if (feature) {
      const area = this.#area(feature);
      this.#drawHandles(pen, this.#longEdges(feature).map(({ place }) => place), area, HANDLE * 0.6);
      this.#drawHandles(pen, handles(feature, ground), area);
      if (this.#corner) this.#drawHandles(pen, [this.#corner], area, HANDLE, "fence");
    }
    if (this.#corners.length) this.#drawCorners(pen);
  }

  // Pixels across a line.
  #wide(area) {
    return area.line ? Math.max(2, area.wide * this.world.scale) : 0;
  }

  // Where a place of this area is: on a map, beside its middle.
  #spot([x, y], area) {
    const { world } = this;
    return world.toScreen(x, y, world.ground.near(area.x, world.centre.x));
  }

  #trace(pen, area, view = this.world) {
    if (!area.line && area.size * view.scale >= SMALL) return view.ground.trace(pen, view, area);
    pen.beginPath();
    if (area.line) for (const place of area.line) pen.lineTo(...this.#spot(place, area));
    else pen.arc(...this.#spot([area.x, area.y], area), SMALL / 2, 0, 2 * Math.PI);
    return true;
  }

  #paint(pen, area, chosen) {
    pen.lineWidth = chosen ? 2.5 : 1.5;
    if (area.line) {
      pen.lineCap = pen.lineJoin = "round";
      pen.globalAlpha = chosen ? 0.35 : 0.2;
      pen.lineWidth = this.#wide(area);
      pen.stroke();
      pen.lineWidth = 1.5;
    } else {
      pen.globalAlpha = chosen ? 0.2 : 0.1;
      pen.fill("evenodd");
    }
    pen.globalAlpha = chosen ? 1 : 0.8;
    pen.stroke();
    pen.lineCap = "butt";
    pen.globalAlpha = 1;
  }

  #drawHandles(pen, places, area, size = HANDLE, filled = "card") {
    pen.fillStyle = colour(filled);
    pen.strokeStyle = colour("fence");
    pen.lineWidth = 2;
    for (const place of places) {
      const [px, py] = this.#spot(place, area ?? { x: place[0] });
      pen.beginPath();
      pen.arc(px, py, size, 0, 2 * Math.PI);
      pen.fill();
      pen.stroke();
    }
  }

  #drawCorners(pen) {
    pen.strokeStyle = colour("fence");
    pen.lineWidth = 2;
    pen.setLineDash([5, 4]);
    pen.beginPath();
    for (const [x, y] of this.#corners) pen.lineTo(...this.world.toScreen(x, y));
    if (this.#pointer) pen.lineTo(...this.#pointer);
    pen.stroke();
    pen.setLineDash([]);
    this.#drawHandles(pen, this.#corners);
  }
}
