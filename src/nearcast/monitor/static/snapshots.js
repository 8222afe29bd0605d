// Snapshots of the world as the node encodes them (`nearcast/monitor/snapshots.py`), and requests.
//
// A snapshot has the position, velocity and duration of every motion, so a few snapshots a second are
// enough: the page computes what is between them.

const HEAD = 5; // t in microseconds, then how many entities, areas, deliveries and vertices follow
const PLACE = ["x", "y"];
const ENTITY = ["vx", "vy", "left"];
const AREA = ["kind", "rx", "ry", "vx", "vy", "gx", "gy", "left"];
export const DISC = 1;

export function decode(buffer) {
  const [t, entities, areas, deliveries, vertices] = new Float64Array(buffer, 0, HEAD);
  let offset = HEAD * 8;
  const take = (Column, count) => {
    const column = new Column(buffer, offset, count);
    offset += column.byteLength;
    return column;
  };
  const snapshot = {
    t,
    entities: { count: entities, id: take(Float64Array, entities) },
    areas: { count: areas, owner: take(Float64Array, areas) },
    deliveries: { count: deliveries, from: take(Float64Array, deliveries), to: take(Float64Array, deliveries) },
  };
  for (const name of PLACE) snapshot.entities[name] = take(Float64Array, entities);
  for (const name of PLACE) snapshot.areas[name] = take(Float64Array, areas);
  for (const name of ENTITY) snapshot.entities[name] = take(Float32Array, entities);
  for (const name of AREA) snapshot.areas[name] = take(Float32Array, areas);
  snapshot.areas.rings = rings(["area", "ring", "dx", "dy"].map(() => take(Float32Array, vertices)));
  snapshot.places = new Map();
  for (let i = 0; i < entities; i++) snapshot.places.set(snapshot.entities.id[i], i);
  return snapshot;
}

// By the number of an area: its rings, as [dx, dy] from its place.
function rings([areas, numbers, dx, dy]) {
  const found = new Map();
  areas.forEach((area, i) => {
    if (!found.has(area)) found.set(area, []);
    (found.get(area)[numbers[i]] ??= []).push([dx[i], dy[i]]);
  });
  return found;
}

// Snapshots of several nodes as one, at the time of the first. `home` has the colour of each
// entity's node.
export function merged([first, ...others], [mark, ...marks]) {
  if (!others.length) return first;
  const all = [first, ...others];
  const joined = (part, name) => {
    const columns = all.map((snapshot) => snapshot[part][name]);
    const whole = new columns[0].constructor(columns.reduce((sum, { length }) => sum + length, 0));
    columns.reduce((offset, column) => (whole.set(column, offset), offset + column.length), 0);
    return whole;
  };
  const table = (part, names) => {
    const count = all.reduce((sum, snapshot) => sum + snapshot[part].count, 0);
    return { count, ...Object.fromEntries(names.map((name) => [name, joined(part, name)])) };
  };
  const snapshot = {
    t: first.t,
    entities: table("entities", ["id", ...PLACE, ...ENTITY]),
    areas: { ...table("areas", ["owner", ...PLACE, ...AREA]), rings: new Map() },
    deliveries: first.deliveries,
    home: all.flatMap(({ entities }, k) => Array(entities.count).fill(k ? marks[k - 1] : mark)),
    places: new Map(),
  };
  let before = 0;
  for (const { areas } of all) {
    for (const [area, known] of areas.rings) snapshot.areas.rings.set(before + area, known);
    before += areas.count;
  }
  for (const part of ["entities", "areas"]) {
    let i = first[part].count; // those of the first snapshot need no correction
    for (const other of others) {
      const seconds = (first.t - other.t) / 1e6;
      for (const end = i + other[part].count; i < end; i++) advance(snapshot[part], i, seconds);
    }
  }
  snapshot.entities.id.forEach((id, i) => snapshot.places.set(id, i));
  return snapshot;
}

function advance(columns, i, seconds) {
  const dt = elapsed(columns, i, seconds);
  for (const [place, speed] of [["x", "vx"], ["y", "vy"], ["rx", "gx"], ["ry", "gy"]]) {
    if (columns[place]) columns[place][i] += columns[speed][i] * dt;
  }
  columns.left[i] = Math.max(0, columns.left[i] - seconds);
}

// Seconds of motion since the snapshot, at most until the motion ends.
export function elapsed(columns, i, seconds) {
  return Math.min(seconds, columns.left[i]);
}

export function placeOf(snapshot, entity, t) {
  const i = snapshot?.places.get(entity);
  if (i === undefined) return null;
  const { x, y, vx, vy } = snapshot.entities;
  const dt = elapsed(snapshot.entities, i, (t - snapshot.t) / 1e6);
  return { x: x[i] + vx[i] * dt, y: y[i] + vy[i] * dt };
}

// An estimate of the node's clock. All that arrives was sent earlier, so the largest difference seen is
// the best estimate. It decays slowly, in case a clock is set back.
export class Clock {
  #offset = -Infinity;

  observe(t) {
    this.#offset = Math.max(this.#offset - 200, t - performance.now() * 1000);
  }

  now() {
    return performance.now() * 1000 + this.#offset;
  }
}

// The access token, from the page's address /#token=…. Browsers do not send this part to the server.
export const token = new URLSearchParams(location.hash.slice(1)).get("token") ?? "";

// `page`: the address of another node. The token is then in the query, because a header would need a
// CORS preflight.
export async function ask(path, form = "json", page = "") {
  const headers = token && !page ? { Authorization: `Bearer ${token}` } : {};
  const query = token && page ? `?token=${encodeURIComponent(token)}` : "";
  const signal = page ? AbortSignal.timeout(3000) : undefined;
  const answer = await fetch(`${page}${path}${query}`, { cache: "no-store", headers, signal });
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
  return form === "json" ? answer.json() : answer.arrayBuffer();
}

// Calls `act` so many milliseconds after it last ended. `failed` gets the error, or null for none.
export function repeatEvery(milliseconds, act, failed) {
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
