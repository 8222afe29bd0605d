// Pictures of the world as the node sends them: columns of numbers, with motion.
//
// Everything evolves: a picture says where somebody is, how fast it goes and for how long. So a few
// pictures a second are enough, and the page draws all that lies between them by itself.

const HEAD = 4; // t in microseconds, then how many entities, areas and deliveries follow
const ENTITY = ["x", "y", "vx", "vy", "left"];
const AREA = ["kind", "x", "y", "rx", "ry", "vx", "vy", "gx", "gy", "left"];
export const DISC = 1;

export function decode(buffer) {
  const [t, entities, areas, heard] = new Float64Array(buffer, 0, HEAD);
  let offset = HEAD * 8;
  const take = (Column, count) => {
    const column = new Column(buffer, offset, count);
    offset += column.byteLength;
    return column;
  };
  const picture = {
    t,
    entities: { count: entities, id: take(Float64Array, entities) },
    areas: { count: areas, owner: take(Float64Array, areas) },
    heard: { count: heard, from: take(Float64Array, heard), to: take(Float64Array, heard) },
  };
  for (const name of ENTITY) picture.entities[name] = take(Float32Array, entities);
  for (const name of AREA) picture.areas[name] = take(Float32Array, areas);
  picture.places = new Map();
  for (let i = 0; i < entities; i++) picture.places.set(picture.entities.id[i], i);
  return picture;
}

// Pictures of several nodes as one, at the moment of the first. `home` has a mark for each entity:
// that of the node whose it is.
export function merged([first, ...others], [mark, ...marks]) {
  if (!others.length) return first;
  const all = [first, ...others];
  const joined = (part, name) => {
    const columns = all.map((picture) => picture[part][name]);
    const whole = new columns[0].constructor(columns.reduce((sum, { length }) => sum + length, 0));
    columns.reduce((offset, column) => (whole.set(column, offset), offset + column.length), 0);
    return whole;
  };
  const table = (part, names) => {
    const count = all.reduce((sum, picture) => sum + picture[part].count, 0);
    return { count, ...Object.fromEntries(names.map((name) => [name, joined(part, name)])) };
  };
  const picture = {
    t: first.t,
    entities: table("entities", ["id", ...ENTITY]),
    areas: table("areas", ["owner", ...AREA]),
    heard: first.heard,
    home: all.flatMap(({ entities }, k) => Array(entities.count).fill(k ? marks[k - 1] : mark)),
    places: new Map(),
  };
  for (const part of ["entities", "areas"]) {
    let i = first[part].count; // those are where they are at that moment
    for (const other of others) {
      const seconds = (first.t - other.t) / 1e6;
      for (const end = i + other[part].count; i < end; i++) advance(picture[part], i, seconds);
    }
  }
  picture.entities.id.forEach((id, i) => picture.places.set(id, i));
  return picture;
}

function advance(columns, i, seconds) {
  const dt = elapsed(columns, i, seconds);
  for (const [place, speed] of [["x", "vx"], ["y", "vy"], ["rx", "gx"], ["ry", "gy"]]) {
    if (columns[place]) columns[place][i] += columns[speed][i] * dt;
  }
  columns.left[i] = Math.max(0, columns.left[i] - seconds);
}

// Seconds of motion between the picture and the moment that is drawn; it may not run past its end.
export function elapsed(columns, i, seconds) {
  return Math.min(seconds, columns.left[i]);
}

export function placeOf(picture, entity, t) {
  const i = picture?.places.get(entity);
  if (i === undefined) return null;
  const { x, y, vx, vy } = picture.entities;
  const dt = elapsed(picture.entities, i, (t - picture.t) / 1e6);
  return { x: x[i] + vx[i] * dt, y: y[i] + vy[i] * dt };
}

// The node's clock as far as it can be told from here: whatever arrives was sent earlier, so the
// latest time it can be is the best guess, slowly given up again should a clock be put back.
export class Clock {
  #offset = -Infinity;

  hear(t) {
    this.#offset = Math.max(this.#offset - 200, t - performance.now() * 1000);
  }

  now() {
    return performance.now() * 1000 + this.#offset;
  }
}

// A node that knows tokens wants one: it is in the page's address, /#token=…, which is never sent.
export const token = new URLSearchParams(location.hash.slice(1)).get("token") ?? "";

// `page`: of another node. A token goes with the address there: a header would have to be asked for.
export async function ask(path, form = "json", page = "") {
  const headers = token && !page ? { Authorization: `Bearer ${token}` } : {};
  const query = token && page ? `?token=${encodeURIComponent(token)}` : "";
  const signal = page ? AbortSignal.timeout(3000) : undefined;
  const answer = await fetch(`${page}${path}${query}`, { cache: "no-store", headers, signal });
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
  return form === "json" ? answer.json() : answer.arrayBuffer();
}

// Do this again and again, so many milliseconds after the last time was done. `failed` is told
// what went wrong, or null when it works again.
export function regularly(milliseconds, act, failed) {
  const again = async () => {
    try {
      await act();
      failed(null);
    } catch (error) {
      failed(error);
    }
    setTimeout(again, document.hidden ? Math.max(1000, milliseconds) : milliseconds);
  };
  again();
}
