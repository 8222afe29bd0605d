// A client of a Nearcast node, for browsers and Node: one plain ES module, nothing to build.
//
//   import { connect } from "./nearcast.js";
//
//   const me = await connect("ws://127.0.0.1:8470", { name: "alice" });
//   const here = await me.subscribe({ x: 0, y: 0, r: 50 }, { watch: true });
//   await me.publish({ x: 3, y: 4 }, { hello: "world" }, { retain: true });
//   for await (const message of here) console.log(message.payload);
//
// The client remembers its subscriptions and retained states. When its connection breaks, it
// reconnects, subscribes and publishes its states again; areas that move continue from where they are by
// then. A request under way when the connection breaks is rejected (ConnectionError); one made while
// there is no connection waits. What the node refuses is rejected with Refused and the node's reason;
// what is plainly wrong is refused here, before it is sent. In a cluster, the client is handed over to
// the node that is responsible for its part of the world, and reconnects to another node if its own is
// dead: the application sees this in notices() only. docs/reference/wire.md describes the protocol.

const FIRST_PAUSE_MS = 100; // before the first attempt to reconnect; it doubles …
const LONGEST_PAUSE_MS = 10_000; // … up to this
// A node that is started again within half a minute is found within a second, which leaves another one
// to subscribe and to publish states again. Thousands of clients do not storm it: each has one attempt
// under way at most, and random pauses have spread them over the second by then.
const RESTART_MS = 30_000;
const RESTART_PAUSE_MS = 1_000;
const STATES_AT_ONCE = 256; // that are published again before their answers are awaited
const ANSWER_MS = 30_000; // after which a request without an answer fails
const TRY_MS = 2_000; // plus the pause: for one of several nodes to answer
const HANDOVER_MS = 5_000; // for another node to welcome us; after that we stay with the present one
const FORMER_NODE_MS = 10_000; // for the former node to send what it still has for us
const HOLD_BACK_MS = 250; // that messages of the new node wait for those of the former
const REMEMBERED_PUBLICATIONS = 4_096; // to drop duplicates during a handover
const ABNORMAL = 1006; // what WebSockets report if a connection broke without a close frame
const NORMAL = 1000;
const BUSY = "the node is busy"; // so begins an error if the same may be accepted later
const SECOND = 1e6; // times are microseconds
const INBOX = 10_000; // messages that wait to be taken, by default
const NO_WEBSOCKET =
  "there is no WebSocket here: use Node 22, or Node 20 with --experimental-websocket," +
  " or give one in the option WebSocket";

/** A request was refused, by the node or before it was sent. Nothing was changed. */
export class Refused extends Error { name = "Refused"; }

/**
 * There is no connection, or it has ended. `code` is the WebSocket close code, ABNORMAL
 * if there was no close frame.
 */
export class ConnectionError extends Error {
  name = "ConnectionError";

  constructor(reason, code = ABNORMAL) {
    super(reason);
    this.code = code;
  }
}

/** Connect and join. Only later losses of the connection are repaired. */
export async function connect(url, options = {}) {
  checkNames("connect", options, ["name", "token", "reconnect", "WebSocket"]);
  const client = new Client(url, options);
  try {
    await client.join();
  } catch (why) {
    client.close();
    throw why;
  }
  return client;
}

// What is refused before it is sent: JSON would write null for NaN, and a node would take a disc
// with a misspelt radius for a point.

const PLACE_FIELDS = ["x", "y", "z", "r", "rx", "ry", "rz", "lon", "lat", "alt"];
const MOTION_FIELDS = ["vx", "vy", "vz", "gx", "gy", "gz", "lasts", "speed", "to"];
const OUTLINE_FIELDS = ["geometry", "half_width", "sector", "low", "high", "bounds"];
const SUBSCRIBE_OPTIONS = [
  "filter", "channel", "echo", "variables", "watch", "linger", "rates", "closest", "budget", "inbox",
  "events", "dwell", "fences", "follow", "follow_channel", "offset", "near",
  "evolve", "interval", "threshold",
];
const PUBLISH_OPTIONS = ["retain", "attributes", "channel", "name", "ttl", "confirm"];

function checkNames(what, object, known) {
  if (typeof object !== "object" || object === null || Array.isArray(object)) {
    throw new Refused(`${what}: an object with ${known.join(", ")} is needed`);
  }
  for (const name of Object.keys(object)) {
    if (!known.includes(name)) {
      throw new Refused(`${what}: there is no ${name}; there are ${known.join(", ")}`);
    }
  }
}

const isPlace = (place) =>
  Array.isArray(place) && (place.length === 2 || place.length === 3) && place.every(Number.isFinite);

/** Of a FeatureCollection. What only looks like none would end the set. */
function featureList(collection) {
  if (Array.isArray(collection?.features)) return collection.features;
  throw new Refused("fences are a GeoJSON FeatureCollection, an object with a list of features");
}

function checkNumbers(what, object) {
  for (const [name, value] of Object.entries(object)) {
    if (!Number.isFinite(value)) {
      throw new Refused(`${what}: ${name} must be a finite number, not ${value}`);
    }
  }
}

/** In a plane x and y are needed, on Earth lon and lat; the node knows which of them. */
function checkCentre(what, place) {
  const earth = place.lon !== undefined || place.lat !== undefined;
  const [first, second] = earth ? ["lon", "lat"] : ["x", "y"];
  if (place[first] === undefined || place[second] === undefined) {
    throw new Refused(`${what} needs ${first} and ${second}`);
  }
}

function checkPlace(place) {
  checkNames("a publication's place", place, PLACE_FIELDS);
  checkCentre("a place", place);
  checkNumbers("a publication's place", place);
}

function checkFinite(name, values, count) {
  if (values === undefined) return;
  if (!(Array.isArray(values) && values.length === count && values.every(Number.isFinite))) {
    throw new Refused(`an area: ${name} must be ${count} finite numbers`);
  }
}

/** One that follows an entity is relative to it, and needs no centre. */
function checkArea(area, follows = false) {
  checkNames("an area", area, [...PLACE_FIELDS, ...MOTION_FIELDS, ...OUTLINE_FIELDS, "formula"]);
  const { to, formula, geometry, sector, bounds, ...numbers } = area;
  checkFinite("sector", sector, 2);
  checkFinite("bounds", bounds, 4);
  if (geometry !== undefined && typeof geometry?.type !== "string") {
    throw new Refused("an area: geometry must be a GeoJSON object");
  }
  if (formula !== undefined && typeof formula !== "string") {
    throw new Refused("an area: formula must be a text");
  }
  if (to !== undefined && !(Array.isArray(to) && to.every(isPlace))) {
    throw new Refused("an area: to must be a list of places of two or three finite numbers");
  }
  checkNumbers("an area", numbers);
  const given = Object.keys(area).length > 0 && [formula, geometry, bounds].every((one) => !one);
  if (given && !follows) checkCentre("an area", area);
}

function checkAttributes(attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (!["boolean", "string"].includes(typeof value) && !Number.isFinite(value)) {
      throw new Refused(`attribute ${name} must be a boolean, a finite number or a text`);
    }
  }
}

/** For JSON.stringify: NaN and Infinity are refused, not turned into null. */
function refuseNotFinite(name, value) {
  if (typeof value === "number" && !Number.isFinite(value)) {
    throw new Refused(`${name || "the payload"} is ${value}, which JSON cannot express`);
  }
  return value;
}

/** An async iterator over what arrives. When it is full, it drops the oldest item and counts it. */
export class Inbox {
  #items = [];
  #waiting = [];
  #ended = false;
  #why = null;

  constructor(size = INBOX) {
    this.size = size;
    this.dropped = 0;
  }

  get length() { return this.#items.length; }

  put(item) {
    if (this.#ended) return;
    const waiting = this.#waiting.shift();
    if (waiting) {
      waiting.resolve({ value: item, done: false });
    } else if (this.#items.push(item) > this.size) {
      this.#items.shift();
      this.dropped += 1;
    }
  }

  end(why = null) {
    if (this.#ended) return;
    this.#ended = true;
    this.#why = why;
    for (const waiting of this.#waiting.splice(0)) {
      why ? waiting.reject(why) : waiting.resolve({ value: undefined, done: true });
    }
  }

  next() {
    if (this.length > 0) return Promise.resolve({ value: this.#items.shift(), done: false });
    if (this.#why) return Promise.reject(this.#why);
    if (this.#ended) return Promise.resolve({ value: undefined, done: true });
    return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }));
  }

  [Symbol.asyncIterator]() { return this; }
}

/** The area as it is after so many seconds, without its motion; a formula as it is. */
export const areaAt = (area, seconds) => onward(area, seconds, false);

/** The seconds that a path (to, speed) takes; 0 for all else. */
export const walkingSeconds = (area) => legs(area).reduce((sum, leg) => sum + leg.seconds, 0);

function legs(area) {
  if (area.lon !== undefined && area.to) return circleLegs(area);
  if (area.geometry && area.to) {
    const { x, y } = areaCentre(area);
    return legs({ ...area, geometry: undefined, x, y });
  }
  let [x, y, z] = [area.x, area.y, area.z ?? 0];
  return (area.to ?? []).map((place) => {
    const from = [x, y, z];
    [x, y, z] = [place[0], place[1], place[2] ?? area.z ?? 0];
    const way = Math.hypot(x - from[0], y - from[1], z - from[2]);
    // Rounded to microseconds, as the node does.
    return { from, to: [x, y, z], seconds: Math.round((way / area.speed) * SECOND) / SECOND };
  });
}

function onward(area, seconds, moving) {
  if (area.formula !== undefined && moving) return { formula: shiftTime(area.formula, seconds) };
  if (area.lon !== undefined) return area.to ? alongCircles(area, seconds, moving) : area;
  if (area.geometry && MOTION_FIELDS.some((name) => area[name] !== undefined)) {
    return movedGeometry(area, seconds, moving);
  }
  if (area.x === undefined) return area; // a formula, bounds, a still polygon, or everywhere
  return area.to ? alongPath(area, seconds, moving) : movedAndGrown(area, seconds, moving);
}

/** The middle of the bounds of a polygon or line. */
function areaCentre({ geometry }) {
  const positions = positionsOf((geometry.geometry ?? geometry).coordinates);
  const [x, y] = [0, 1].map((axis) => {
    const ends = positions.map((position) => position[axis]);
    return Math.min(...ends) / 2 + Math.max(...ends) / 2;
  });
  return { x, y };
}

/** A polygon or line in the plane goes where the middle of its bounds goes. */
function movedGeometry({ geometry, half_width: halfWidth, ...rest }, seconds, moving) {
  const { x, y } = areaCentre({ geometry });
  const { x: toX, y: toY, ...now } = onward({ ...rest, x, y }, seconds, moving);
  const shifted = shiftPositions(geometry, toX - x, toY - y);
  return { ...now, geometry: shifted, ...(halfWidth === undefined ? {} : { half_width: halfWidth }) };
}

const positionsOf = (nested) =>
  typeof nested[0] === "number" ? [nested] : nested.flatMap((inner) => positionsOf(inner));

function shiftPositions(geometry, dx, dy) {
  if (geometry.geometry) {
    return { ...geometry, geometry: shiftPositions(geometry.geometry, dx, dy) };
  }
  const shift = (nested) => {
    if (typeof nested[0] !== "number") return nested.map(shift);
    const [x, y, ...more] = nested;
    return [x + dx, y + dy, ...more];
  };
  return { ...geometry, coordinates: shift(geometry.coordinates) };
}

// On Earth (WGS84): places in ECEF metres, great circles in pieces of a kilometre, as the node has
// them.

const DEGREE = Math.PI / 180;
const EQUATORIAL_RADIUS = 6_378_137;
const FLATTENING = 1 / 298.257223563;
const POLAR_RADIUS = EQUATORIAL_RADIUS * (1 - FLATTENING);
const MEAN_RADIUS = (2 * EQUATORIAL_RADIUS + POLAR_RADIUS) / 3;
const ECCENTRICITY2 = FLATTENING * (2 - FLATTENING);
const PIECE_METRES = 1_000;
const MOST_PIECES = 1_000;

function ecef([lon, lat]) {
  const [sine, cosine] = [Math.sin(lat * DEGREE), Math.cos(lat * DEGREE)];
  const normal = EQUATORIAL_RADIUS / Math.sqrt(1 - ECCENTRICITY2 * sine * sine);
  const across = normal * cosine;
  return [
    across * Math.cos(lon * DEGREE), across * Math.sin(lon * DEGREE),
    normal * (1 - ECCENTRICITY2) * sine,
  ];
}

function lonLat([x, y, z]) {
  const across = (1 - ECCENTRICITY2) * Math.sqrt(x * x + y * y);
  return [Math.atan2(y, x) / DEGREE, Math.atan2(z, across) / DEGREE];
}

/** The places at which the pieces of a great circle begin and end. */
function greatCircle(from, to) {
  const [a, b] = [from, to].map((place) => place.map((c) => c / Math.hypot(...place)));
  const across = Math.hypot(
    a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]);
  const angle = Math.atan2(across, a[0] * b[0] + a[1] * b[1] + a[2] * b[2]);
  const pieces = Math.ceil((angle * EQUATORIAL_RADIUS) / PIECE_METRES);
  const count = Math.min(Math.max(pieces, 1), MOST_PIECES);
  const places = [from];
  for (let piece = 1; piece < count; piece++) {
    const [s, t] = [Math.sin((angle * (count - piece)) / count), Math.sin((angle * piece) / count)];
    const [x, y, z] = a.map((c, axis) => s * c + t * b[axis]);
    const depth = Math.sqrt((x * x + y * y) / EQUATORIAL_RADIUS ** 2 + (z * z) / POLAR_RADIUS ** 2);
    places.push([x / depth, y / depth, z / depth]);
  }
  return [...places, to];
}

function surfaceMetres(a, b) {
  const chord = Math.hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);
  return 2 * MEAN_RADIUS * Math.asin(chord / (2 * MEAN_RADIUS));
}

/** Of each way to a place of `to`: the places of its pieces, their lengths, and how long it takes. */
function circleLegs(area) {
  let at = ecef([area.lon, area.lat]);
  return area.to.map((place) => {
    const places = greatCircle(at, ecef(place));
    at = places.at(-1);
    const metres = places.slice(1).map((end, piece) => surfaceMetres(places[piece], end));
    const seconds = metres.reduce((sum, length) => sum + length, 0) / area.speed;
    return { places, metres, seconds: Math.round(seconds * SECOND) / SECOND };
  });
}

function alongCircles(area, seconds, moving) {
  const { to, speed, ...rest } = area;
  let left = Math.max(0, seconds) * speed;
  for (const [number, { places, metres }] of circleLegs(area).entries()) {
    for (const [piece, length] of metres.entries()) {
      if (left < length) {
        const share = left / length;
        const [lon, lat] = lonLat(
          places[piece].map((c, axis) => c + (places[piece + 1][axis] - c) * share));
        return { ...rest, lon, lat, ...(moving ? { to: to.slice(number), speed } : {}) };
      }
      left -= length;
    }
  }
  const [lon, lat] = to.at(-1) ?? [area.lon, area.lat];
  return { ...rest, lon, lat };
}

function alongPath(area, seconds, moving) {
  const { to, speed, ...rest } = area;
  let left = seconds;
  for (const [number, leg] of legs(area).entries()) {
    if (left < leg.seconds) {
      const share = left / leg.seconds;
      const [x, y, z] = leg.from.map((c, axis) => c + (leg.to[axis] - c) * share);
      return { ...rest, x, y, z, ...(moving ? { to: to.slice(number), speed } : {}) };
    }
    left -= leg.seconds;
  }
  const [x, y, z] = to.length ? legs(area).at(-1).to : [area.x, area.y, area.z ?? 0];
  return { ...rest, x, y, z };
}

function movedAndGrown(area, seconds, moving) {
  const { vx = 0, vy = 0, vz = 0, gx = 0, gy = 0, gz = 0, lasts = Infinity, ...still } = area;
  const passed = Math.min(Math.max(seconds, 0), lasts);
  still.x += vx * passed;
  still.y += vy * passed;
  still.z = (still.z ?? 0) + vz * passed;
  if (still.r !== undefined) still.r = Math.max(0, still.r + gx * passed);
  for (const [extent, growth] of [["rx", gx], ["ry", gy], ["rz", gz]]) {
    if (still[extent] !== undefined) still[extent] = Math.max(0, still[extent] + growth * passed);
  }
  if (!moving || lasts <= passed) return still;
  const left = lasts === Infinity ? {} : { lasts: lasts - passed };
  return { ...still, vx, vy, vz, gx, gy, gz, ...left };
}

/** The same formula or filter for a clock `t` that starts so many seconds later. */
function shiftTime(text, seconds) {
  if (!(seconds > 0)) return text;
  const tokens = /"[^"]*"|'[^']*'|[A-Za-z][A-Za-z0-9_.]*/g;
  return text.replace(tokens, (token) => (token === "t" ? `(t + ${seconds.toFixed(6)})` : token));
}

/** A subscription of a client. Iterate over it for its messages, the oldest first. */
export class Subscription {
  #client;
  #changes;
  #events;
  #visited = new Map(); // by entity: the fences of a set that it is in

  constructor(client, request, inbox) {
    this.#client = client;
    this.#changes = new Inbox(inbox);
    this.#events = new Inbox(inbox);
    this.request = request;
    this.number = request.subscription;
    this.messages = new Inbox(inbox);
    this.inside = new Map(); // the entities in its area, by number, if it watches or is a fence
    this.pairs = new Map(); // with `near`: by "entity,entity", the lower first: who is near whom
    this.followsClient = false; // does moveTo move it?
    this.areaSince = this.filterSince = 0; // when the clocks `t` of its area and its filter began
    // Resolved by the first `inside`.
    this.insideKnown = new Promise((resolve) => (this.resolveInside = resolve));
  }

  get dropped() { return this.messages.dropped; }

  [Symbol.asyncIterator]() { return this.messages; }

  /** Who enters ({ enter: entity }) and who leaves ({ leave: entity, gone }), if it watches. */
  changes() {
    if (!this.request.watch) throw new Refused("only a subscription with watch: true has changes");
    return this.#changes;
  }

  /**
   * What happens at its fence, if it has `events`: { event, t, entity, name, place, … }, in order for
   * each entity. Who is inside at first is told by the event "inside".
   */
  events() {
    if (!this.request.events?.length) {
      throw new Refused("only a subscription with events has events()");
    }
    return this.#events;
  }

  /** Give it this area from now on; all else stays. */
  move(area) { return this.changeArea(area, isStill(area) && this.request.follow === undefined); }

  async changeArea(area, followsClient) {
    checkArea(area, this.request.follow !== undefined);
    const done = await this.#client.ask({ do: "move", subscription: this.number, area });
    this.request = { ...this.request, area };
    this.areaAccepted(followsClient, done.t);
  }

  areaAccepted(followsClient, t) {
    this.followsClient = followsClient;
    this.areaSince = t;
    // A filter's clock goes on, unless a formula begins: they share one `t`.
    if (this.request.area?.formula !== undefined || this.filterSince === 0) this.filterSince = t;
  }

  /** New values for variables of its formula or filter; the others stay. */
  async tune(variables) {
    checkNumbers("variables", variables);
    await this.#client.ask({ do: "tune", subscription: this.number, variables });
    this.request = { ...this.request, variables: { ...this.request.variables, ...variables } };
  }

  async unsubscribe() {
    await this.#client.ask({ do: "unsubscribe", subscription: this.number });
    this.#client.forget(this);
    this.end();
  }

  /** The area as it is at the moment `t`: `here.where(me.now())`. With `follow`, as it was written. */
  where(t) {
    return areaAt(this.request.area ?? {}, (t - this.areaSince) / SECOND);
  }

  /** The request that continues it at `t` on a node that does not know it. */
  requestAt(t) {
    const request = { ...this.request };
    request.area = onward(request.area ?? {}, (t - this.areaSince) / SECOND, true);
    if (request.filter) request.filter = shiftTime(request.filter, (t - this.filterSince) / SECOND);
    return request;
  }

  end(why = null) {
    this.resolveInside();
    this.messages.end(why);
    this.#changes.end(why);
    this.#events.end(why);
  }

  deliver(message) {
    const known = this.inside.get(message.from);
    if (known && message.retain) {
      const { t, x, y, z, lon, lat, alt, attributes, payload } = message;
      const place = lon === undefined ? { x, y, z } : { lon, lat, alt };
      this.inside.set(message.from, { ...known, t, ...place, attributes, payload });
    }
    this.messages.put(message);
  }

  setInside(entities) {
    const present = new Set(entities.map((entity) => entity.entity));
    for (const number of [...this.inside.keys()]) {
      if (!present.has(number)) this.entityLeft(number, false);
    }
    for (const entity of entities) this.entityEntered(entity);
    this.resolveInside();
  }

  /** All entities inside of a fence, when it begins; what happened before is not known. */
  setInsideFence(entities, fences, now) {
    const before = this.#visited;
    const known = this.inside;
    this.pairs.clear(); // those that are near follow
    this.#visited = new Map();
    this.inside = new Map(entities.map((entity) => [entity.entity, entity]));
    entities.forEach((entity, place) => this.#visit(entity.entity, fences[place]));
    for (const [number, visited] of before) {
      const { name = "", ...state } = known.get(number);
      for (const fence of visited) {
        if (this.#visited.get(number)?.has(fence)) continue;
        const event = { event: "leave", t: now, entity: number, name, reason: "left" };
        this.#events.put({ ...event, place: placeOf(state), ...named(fence) });
      }
    }
    for (const [number, visited] of this.#visited) {
      const state = this.inside.get(number);
      for (const fence of visited) {
        if (before.get(number)?.has(fence)) continue;
        const event = { event: "inside", t: state.t, entity: number, name: state.name ?? "" };
        this.#events.put({ ...event, place: placeOf(state), state, ...named(fence) });
      }
    }
    this.resolveInside();
  }

  #visit(entity, fence) {
    if (!this.#visited.has(entity)) this.#visited.set(entity, new Set());
    this.#visited.get(entity).add(fence);
  }

  fenceEvent({ is: _, subscription: __, ...event }) {
    if (event.state) event.state = withDefaults(event.state);
    if (event.other !== undefined) return this.#pairEvent(event);
    const visited = this.#visited.get(event.entity);
    if (event.event === "leave") {
      visited?.delete(event.fence);
      if (!visited?.size) {
        this.#visited.delete(event.entity);
        this.inside.delete(event.entity);
      }
    } else if (event.state) {
      this.#visit(event.entity, event.fence);
      this.inside.set(event.entity, event.state);
    }
    this.#events.put({ name: "", ...event });
  }

  #pairEvent(event) {
    if (event.other_state) event.other_state = withDefaults(event.other_state);
    const pair = [event.entity, event.other].sort((a, b) => a - b);
    if (event.event === "leave") this.pairs.delete(String(pair));
    else if (event.event !== "cross") this.pairs.set(String(pair), pair);
    this.#events.put({ name: "", other_name: "", ...event });
  }

  entityEntered(entity) {
    if (!this.inside.has(entity.entity)) this.#changes.put({ enter: entity });
    this.inside.set(entity.entity, entity);
  }

  entityLeft(number, gone) {
    const known = this.inside.get(number);
    if (!known) return;
    this.inside.delete(number);
    this.#changes.put({ leave: known, gone });
  }
}

const named = (fence) => (fence === undefined ? {} : { fence });
const placeOf = ({ x, y, z, lon, lat }) => (lon === undefined ? { x, y, z } : { lon, lat });

const EVOLVING_FIELDS = ["vx", "vy", "vz", "gx", "gy", "gz", "to", "formula"];
const isStill = (area) =>
  [area.x, area.lon, area.geometry].some((one) => one !== undefined) &&
  EVOLVING_FIELDS.every((key) => !area[key]);

/** The last publications received, and for which subscriptions. */
class RecentPublications {
  #newer = new Map();
  #older = new Map();

  /** The subscriptions for which it is new, and whether it was received before. */
  add(publication, to) {
    const had = this.#newer.get(publication) ?? this.#older.get(publication);
    const fresh = had ? to.filter((number) => !had.includes(number)) : to;
    if (!had && this.#newer.size >= REMEMBERED_PUBLICATIONS) {
      [this.#older, this.#newer] = [this.#newer, new Map()];
    }
    if (fresh.length) this.#newer.set(publication, [...(had ?? []), ...fresh]);
    return { fresh, again: had !== undefined };
  }
}

/**
 * What a request changes of the retained states of an entity: `text` is a publication as it was asked
 * for, whatever becomes of its payload; a withdrawal has none. Null if it changes nothing.
 */
function stateChange(request) {
  const { name = "", channel } = request;
  if (request.do === "withdraw") return { name, channel };
  if (request.do !== "publish" || !request.retain) return null;
  return { name, channel: channel ?? "", text: JSON.stringify(request, refuseNotFinite) };
}

const stateKey = ({ name, channel }) => JSON.stringify([name, channel]);
const changes = (change, state) =>
  change.name === state.name && (change.channel === undefined || change.channel === state.channel);

/**
 * The retained states of a client, to publish them again to a node that does not know them: the last
 * of each entity on each channel. At most `channels` × (`entities` + 1) of the node's limits.
 */
class PublishedStates {
  #most = 0;
  #states = new Map(); // by key, with the number of the request
  #missing = new Map(); // those that the node has not been told again
  #unanswered = new Map(); // changes that were sent, by number

  setLimits({ channels = 64, entities = 1_000 }) { this.#most = channels * (entities + 1); }

  sent(number, change) { this.#unanswered.set(number, change); }

  /**
   * It was answered, or will not be: then it counts, because others may have seen its effect. So does
   * a withdrawal that was refused: there was nothing to end.
   */
  answered(number, refused) {
    const change = this.#unanswered.get(number);
    this.#unanswered.delete(number);
    if (change && !(refused && change.text)) this.tookEffect(number, change);
  }

  tookEffect(number, change) {
    if (change.text) return this.#remember({ ...change, number });
    for (const state of [...this.#states.values()]) {
      if (state.number < number && changes(change, state)) this.forget(state);
    }
    for (const [earlier, other] of [...this.#unanswered]) { // delivered, but no states
      if (earlier < number && other.text && changes(change, other)) this.#unanswered.delete(earlier);
    }
  }

  #remember(state) {
    const key = stateKey(state);
    const known = this.#states.get(key);
    if (known ? known.number > state.number : this.#states.size >= this.#most) return;
    this.#states.set(key, state);
    this.#missing.delete(key);
  }

  forget(state) {
    this.#states.delete(stateKey(state));
    this.#missing.delete(stateKey(state));
  }

  /** The node that has welcomed us knows none of them. */
  allMissing() { this.#missing = new Map(this.#states); }

  /** The node wants the state of this entity and channel later, or may not have got it. */
  isMissing(change) {
    const state = this.#states.get(stateKey(change));
    if (state) this.#missing.set(stateKey(state), state);
  }

  /** Those to publish next, besides what these changes replace that wait to be sent. */
  nextBatch(waiting) {
    const [replaced, withdrawn] = [new Set(), new Set()];
    for (const change of waiting) {
      // A withdrawal needs what it ends: a node refuses it for an entity that it does not know.
      if (!change.text) withdrawn.add(change.name);
      else if (!withdrawn.has(change.name)) replaced.add(stateKey(change));
    }
    const batch = [...this.#missing].filter(([key]) => !replaced.has(key)).slice(0, STATES_AT_ONCE);
    for (const [key] of batch) this.#missing.delete(key);
    return batch.map(([, state]) => state);
  }

  /** Those that no change may replace or end any more that waits, or was sent and has no answer. */
  takeMissing(waiting = []) {
    const unanswered = [...this.#unanswered.values(), ...waiting];
    const left = [...this.#missing].filter(
      ([, state]) => !unanswered.some((change) => changes(change, state)));
    for (const [key] of left) this.#missing.delete(key);
    return left.map(([, state]) => state);
  }
}

/**
 * Requests and answers over one connection to one node. A client that is handed over has two of these
 * for a while; a request is answered on the channel on which it was sent.
 */
class RequestChannel {
  #onNotice;
  #onLost;
  #socket;
  #pending = new Map(); // by id: the promise of the answer
  #bye = "";
  #tellEnded;
  #hasDecoded = false; // any notice yet?

  constructor(url, onNotice, onLost) {
    this.url = url;
    this.#onNotice = onNotice;
    this.#onLost = onLost;
    this.clockOffset = null; // the node's clock minus ours, in microseconds
    this.maxFrameBytes = Infinity; // beyond it the node cannot answer with the request's id
    this.closed = null; // why it has ended; null while it is open
    this.ended = new Promise((resolve) => (this.#tellEnded = resolve));
  }

  get open() { return !this.closed && this.#socket?.readyState === 1; }

  begin(WebSocket) {
    const socket = (this.#socket = new WebSocket(this.url));
    return new Promise((resolve, reject) => {
      let opened = false;
      const ended = ({ code = ABNORMAL, reason = "" }) => {
        reject(new ConnectionError(`cannot connect to ${this.url}`, code)); // if it never opened
        if (this.closed) return;
        this.#finish(new ConnectionError(this.#bye || reason || "the connection is lost", code));
        this.#onLost(this);
      };
      socket.onopen = () => resolve((opened = true));
      socket.onclose = ended;
      // Only the close event that follows has a code; Node has none if it could not connect.
      socket.onerror = () => opened || ended({});
      socket.onmessage = (frame) => this.#read(frame.data);
    });
  }

  send(request) {
    if (!this.open) throw new ConnectionError("there is no connection");
    const frame = JSON.stringify(request, refuseNotFinite);
    if (frame.length > this.maxFrameBytes) {
      throw new Refused(`a frame has at most ${this.maxFrameBytes} bytes`);
    }
    this.#socket.send(frame);
  }

  ask(id, request) {
    const answered = new Promise((resolve, reject) => {
      const late = () => this.#answer(id, null, new ConnectionError("the node does not answer"));
      this.send({ ...request, id });
      this.#pending.set(id, { resolve, reject, timer: setTimeout(late, ANSWER_MS) });
    });
    if (this.#pending.has(id)) this.#pending.get(id).answered = answered;
    return answered;
  }

  /** Resolves when all requests sent so far are answered. */
  allAnswered() {
    return Promise.allSettled([...this.#pending.values()].map(({ answered }) => answered));
  }

  close(why = new ConnectionError("closed", NORMAL)) {
    this.#finish(why);
    this.#socket?.close();
  }

  #finish(why) {
    if (this.closed) return;
    this.closed = why;
    for (const id of [...this.#pending.keys()]) this.#answer(id, null, this.closed);
    this.#tellEnded();
  }

  #answer(id, notice, why = null) {
    const waiting = this.#pending.get(id);
    if (!waiting) return;
    this.#pending.delete(id);
    clearTimeout(waiting.timer);
    why ? waiting.reject(why) : waiting.resolve(notice);
  }

  /** If nothing could be decoded yet, this is no Nearcast node; else ignore one notice. */
  #read(data) {
    try {
      this.#receive(JSON.parse(data));
      this.#hasDecoded = true;
    } catch (why) {
      const reason = `a notice of the node is unreadable: ${why.message}`;
      if (this.#hasDecoded) return this.#onNotice(this, { is: "error", reason });
      this.#bye = reason;
      this.#socket.close();
    }
  }

  #receive(notice) {
    if (this.closed) return;
    if (typeof notice?.is !== "string") throw new TypeError("it does not say what it is");
    if (notice.is === "bye") {
      this.#bye = notice.reason;
    } else if (notice.is === "error" && notice.id !== undefined) {
      this.#answer(notice.id, null, new Refused(notice.reason));
    } else {
      const answers = notice.is === "done" || notice.is === "welcome" || notice.is === "nearby";
      if (answers && notice.t) {
        this.clockOffset = Math.max(this.clockOffset ?? -Infinity, notice.t - clock());
      }
      this.#onNotice(this, notice);
      if (answers) this.#answer(notice.id, notice);
    }
  }
}

// Of a former node these are out of date.
const FROM_CURRENT_NODE = new Set(["inside", "enter", "leave", "fence", "moved", "nodes"]);

/** A connection to a Nearcast node. Made by `connect`. */
export class Client {
  #url;
  #options;
  #current = null; // to the node that serves us, or did last
  #channels = new Set(); // that are open
  #subscriptions = new Map();
  #numbers = 0;
  #ids = 0;
  #ready = null; // a promise while reconnecting or being handed over
  #handingOver = false;
  #former = null; // to the node that has just handed us over
  #heldBack = []; // messages to deliver after its last ones
  #onlyCurrent = Infinity; // from when on, in microseconds, no former node serves us
  #recent = null;
  #states = new PublishedStates();
  #waiting = new Set(); // changes of states, of requests that wait to be sent
  #ended = null; // the error of further requests
  #all = null;
  #notices = new Inbox(1_000);
  #directMessages = new Inbox(INBOX);

  constructor(url, options) {
    this.#url = url;
    this.#options = { reconnect: true, WebSocket: globalThis.WebSocket, ...options };
    this.entity = -1; // until the node has welcomed us
    this.node = "";
    this.nodes = []; // addresses of others in the cluster
    this.limits = {};
    this.geometry = "plane"; // or "earth": what coordinates are
    if (!this.#options.WebSocket) throw new Error(NO_WEBSOCKET);
  }

  /**
   * Receive what is published in an area. Options as in docs/reference/wire.md, and `inbox`: how many
   * messages may wait.
   */
  async subscribe(area = {}, options = {}) {
    checkArea(area, options.follow !== undefined);
    checkNames("subscribe", options, SUBSCRIBE_OPTIONS);
    checkNumbers("variables", options.variables ?? {});
    await this.#connected();
    const { inbox = INBOX, ...rest } = options;
    if (options.near !== undefined) rest.events ??= ["enter", "leave", "cross"];
    this.#numbers += 1;
    const request = { do: "subscribe", ...rest, subscription: this.#numbers, area };
    const subscription = new Subscription(this, request, inbox);
    this.#subscriptions.set(subscription.number, subscription); // its messages may come first
    try {
      const done = await this.#request(request);
      subscription.areaAccepted(isStill(area) && options.follow === undefined, done.t);
      if (options.watch || rest.events?.length) await within(ANSWER_MS, subscription.insideKnown);
    } catch (why) {
      this.forget(subscription);
      throw why;
    }
    return subscription;
  }

  /**
   * Publish to every subscription whose area this point, disc or box touches. Resolves to the
   * publication's number; with `confirm: false` to 0, as soon as it is on its way. With `name`,
   * publish as another entity of this client, which has states of its own.
   */
  async publish(place, payload, options = {}) {
    checkPlace(place);
    checkNames("publish", options, PUBLISH_OPTIONS);
    checkAttributes(options.attributes ?? {});
    const { confirm = true, ...rest } = options;
    const request = { do: "publish", ...place, ...rest };
    if (payload !== undefined && payload !== null) request.payload = payload;
    const change = this.#stateChange(request);
    await this.#connected(change);
    if (confirm) return (await this.#request(request, change)).publication ?? 0;
    this.#current.send(request);
    this.#ids += 1;
    if (change) this.#states.tookEffect(this.#ids, change);
    return 0;
  }

  /**
   * End the retained state on this channel, or on all channels. With `name`, that of another entity
   * of this client; without a channel the entity leaves.
   */
  async withdraw(options = {}) {
    checkNames("withdraw", options, ["channel", "name"]);
    await this.ask({ do: "withdraw", ...options });
  }

  /**
   * Send a message to one entity, by its name or number, wherever it is: all clients that are this
   * entity, or publish for it, find it in their `directMessages()`. With `name`, send it as another
   * entity of this client. Resolves to the message's number; Refused if there is no such entity.
   */
  async send(to, payload, options = {}) {
    checkNames("send", options, ["name"]);
    const request = { do: "send", to, ...options };
    if (payload !== undefined && payload !== null) request.payload = payload;
    return (await this.ask(request)).publication ?? 0;
  }

  /** Messages that others have sent to this client alone: { from, name, number, t, payload, to }. */
  directMessages() { return this.#directMessages; }

  /**
   * Make a set of fences have the features of this GeoJSON FeatureCollection and no others; without
   * any, it ends. It must fit into one frame; larger ones go by HTTP: PUT /fences/NAME.
   */
  async putFences(name, collection) {
    await this.ask({ do: "fences", name, features: featureList(collection), replace: true });
  }

  /** Put these features into a set of fences by their ids, and remove those with other ids. */
  async changeFences(name, collection = { features: [] }, remove = []) {
    await this.ask({ do: "fences", name, features: featureList(collection), remove });
  }

  /** The entities in this area now, the closest first. Options: channel, limit. */
  async nearby(area, options = {}) {
    checkArea(area);
    checkNames("nearby", options, ["channel", "limit"]);
    const near = await this.ask({ do: "nearby", area, ...options });
    return near.entities.map(withDefaults);
  }

  /**
   * Move the area of every subscription to a still area to this place, at `speed` units per second,
   * for one request each. On Earth discs go to a longitude and latitude along great circles, at metres
   * per second; polygons and sectors stay. Resolves to the seconds until the last one arrives.
   */
  async moveTo(place, speed) {
    if (!isPlace(place)) throw new Refused("a place to go to is two or three finite numbers");
    checkNumbers("moveTo", { speed });
    const now = this.now();
    const moves = ({ request: { area } }) =>
      this.geometry !== "earth" || (area.lon !== undefined && !area.sector);
    const walks = [...this.#subscriptions.values()]
      .filter((subscription) => subscription.followsClient && moves(subscription))
      .map((subscription) => [subscription, { ...subscription.where(now), to: [place], speed }]);
    await Promise.all(walks.map(([subscription, area]) => subscription.changeArea(area, true)));
    return Math.max(0, ...walks.map(([, area]) => walkingSeconds(area)));
  }

  /** The messages of all subscriptions, each once, from the first call of this on. */
  messages(inbox = INBOX) {
    this.#all ??= new Inbox(inbox);
    return this.#all;
  }

  /** Connection lost and back, handed over, messages withheld or dropped, other refusals. */
  notices() { return this.#notices; }

  /** The node's clock as estimated here, in microseconds. */
  now() { return clock() + (this.#current?.clockOffset ?? 0); }

  /** Leave the node. All iterations end. */
  close() {
    if (!this.#ended && this.#current?.open) this.#current.send({ do: "leave" });
    const why = new ConnectionError("this client has left", NORMAL);
    this.#end(null, why);
    for (const channel of [...this.#channels]) channel.close(why);
  }

  async ask(request) {
    const change = this.#stateChange(request);
    await this.#connected(change);
    return this.#request(request, change);
  }

  forget(subscription) {
    this.#subscriptions.delete(subscription.number);
  }

  #stateChange(request) { return this.#options.reconnect ? stateChange(request) : null; }

  async #connected(change = null) {
    if (change && this.#ready) this.#waiting.add(change);
    while (this.#ready && !this.#ended) await this.#ready;
    this.#waiting.delete(change);
    if (this.#ended) throw this.#ended;
  }

  async #request(request, change = null) {
    this.#ids += 1;
    const [number, channel] = [this.#ids, this.#current];
    if (change) this.#states.sent(number, change);
    try {
      const answer = await channel.ask(number, request);
      this.#states.answered(number, false);
      return answer;
    } catch (why) {
      this.#states.answered(number, why instanceof Refused);
      // A node that takes us over may not know it.
      if (change?.text && channel.closed) this.#states.isMissing(change);
      // What was not published again for the sake of this request.
      if (change && channel.open) this.#publishMissing(channel);
      throw why;
    }
  }

  #publishMissing(channel) {
    for (const state of this.#states.takeMissing(this.#waiting)) channel.send(JSON.parse(state.text));
  }

  // Joining, reconnecting, and handover to another node.

  join() { return this.#join(this.#newChannel(this.#url)); }

  #newChannel(url) {
    const onNotice = (channel, notice) => this.#receive(channel, notice);
    const channel = new RequestChannel(url, onNotice, (one) => this.#lost(one));
    this.#channels.add(channel);
    channel.ended.then(() => this.#channels.delete(channel));
    return channel;
  }

  /** Join through this channel; when the node welcomes us, it is the current one. */
  async #join(channel, ticket) {
    const { name = "", token: given = "", WebSocket } = this.#options;
    // First, as a connection must join within seconds; and each time, as tokens expire.
    const token = typeof given === "function" ? await given() : given;
    await within(ANSWER_MS, channel.begin(WebSocket));
    await this.#current?.allAnswered();
    this.#ids += 1;
    await channel.ask(this.#ids, { do: "join", name, token, ...(ticket ? { ticket } : {}) });
    if (channel.closed) throw channel.closed;
    if (channel !== this.#current) throw new ConnectionError("the node has welcomed another entity");
  }

  #welcomed(channel, notice) {
    if (this.#handingOver && notice.entity !== this.entity) return;
    if (this.#handingOver) {
      const former = this.#current; // it sends until it has nothing left for us
      this.#releaseHeldBack(this.#former);
      this.#former = former;
      within(HOLD_BACK_MS, former.ended).catch(() => {}).finally(() => this.#releaseHeldBack(former));
      within(FORMER_NODE_MS, former.ended).catch(() => {}).finally(() => former.close());
    }
    this.#onlyCurrent = this.#handingOver ? notice.t : Infinity;
    const known = [...this.nodes, ...(this.#current ? [this.#current.url] : [])];
    this.#current = channel;
    this.entity = notice.entity;
    this.node = notice.node ?? "";
    this.limits = notice.limits ?? {};
    this.geometry = notice.geometry ?? "plane";
    channel.maxFrameBytes = this.limits.frame ?? Infinity;
    this.#states.setLimits(this.limits);
    this.#setNodes(notice.nodes?.length ? notice.nodes : known.filter((url) => url !== channel.url));
  }

  /** The former node has sent everything: deliver what the new one sent in the meantime. */
  #releaseHeldBack(former) {
    if (former !== this.#former) return;
    const heldBack = this.#heldBack;
    this.#former = null;
    this.#heldBack = [];
    for (const notice of heldBack) this.#deliver(notice);
  }

  /**
   * A node that knows no others may be cut off from them, so what was known before stays. Only with
   * several nodes can a publication arrive twice.
   */
  #setNodes(nodes) {
    if (!nodes.length) return;
    this.nodes = [...new Set(nodes)];
    this.#recent ??= new RecentPublications();
  }

  /** Reconnect, if it was the current channel and no join or handover is under way. */
  #lost(channel) {
    if (this.#ended || !channel.closed || channel !== this.#current || this.#ready) return;
    if (!this.#options.reconnect) {
      this.#end(channel.closed, channel.closed);
      return;
    }
    const { message: reason, code } = channel.closed;
    this.#notices.put({ is: "disconnected", reason, code });
    this.#ready = this.#reconnect();
  }

  /** Try until a node welcomes us, with growing pauses of random length (no stampede). */
  async #reconnect() {
    const lostAt = performance.now();
    const longest = () =>
      performance.now() - lostAt < RESTART_MS ? RESTART_PAUSE_MS : LONGEST_PAUSE_MS;
    for (let pause = FIRST_PAUSE_MS; !this.#ended; pause = Math.min(2 * pause, longest())) {
      await new Promise((resolve) => setTimeout(resolve, pause * (0.5 + Math.random() / 2)));
      // The last one first, and the one that we were given: perhaps none of the others exists any more.
      const urls = [...new Set([this.#current.url, ...shuffled(this.nodes), this.#url])];
      const refusals = [];
      for (const url of urls) {
        if (this.#ended) return;
        const channel = this.#newChannel(url);
        try {
          const joining = this.#join(channel);
          await (urls.length > 1 ? within(TRY_MS + pause, joining) : joining);
          const refused = await this.#restore();
          if (channel.closed) continue;
          this.#ready = null;
          this.#notices.put({ is: "reconnected", refused });
          return;
        } catch (why) {
          channel.close();
          if (why instanceof Refused) refusals.push(why); // of the join
        }
      }
      if (refusals.length === urls.length) this.#end(refusals[0], refusals[0]);
    }
  }

  /**
   * Join the other node. Until it welcomes us, the present one serves us. Requests wait in the
   * meantime, so that they take effect in order.
   */
  async #handOver({ to, ticket }) {
    const channel = this.#newChannel(to);
    this.#handingOver = true;
    try {
      await within(HANDOVER_MS, this.#join(channel, ticket));
    } catch {
      if (channel !== this.#current) channel.close(); // and we stay
    }
    this.#handingOver = false;
    this.#ready = null;
    if (channel === this.#current) this.#notices.put({ is: "handed over", node: this.node, url: to });
    if (channel === this.#current && channel.open) this.#publishMissing(channel);
    this.#lost(this.#current); // if it was lost in the meantime
  }

  /** Subscribe again, then publish the states again. Resolves to the subscriptions refused. */
  async #restore() {
    const subscriptions = [...this.#subscriptions.values()];
    const accepted = await Promise.all(subscriptions.map((one) => this.#resubscribe(one)));
    this.#states.allMissing();
    let batch;
    while ((batch = this.#states.nextBatch(this.#waiting)).length) {
      await Promise.all(batch.map((state) => this.#republish(state)));
    }
    return subscriptions.filter((_, index) => !accepted[index]);
  }

  async #republish(state) {
    try {
      await this.#request(JSON.parse(state.text));
    } catch (why) {
      if (!(why instanceof Refused)) throw why;
      // Busy with states of this batch, which it makes first.
      if (why.message.startsWith(BUSY)) return this.#states.isMissing(state);
      this.#states.forget(state);
      const whose = `"${state.name || this.#options.name || ""}" on channel "${state.channel}"`;
      const reason = `the retained state of ${whose} is not accepted again: ${why.message}`;
      this.#notices.put({ is: "error", reason });
    }
  }

  async #resubscribe(subscription) {
    const request = subscription.requestAt(this.now());
    try {
      const done = await this.#request(request);
      if (request.area.formula === undefined) {
        subscription.request = { ...subscription.request, area: request.area };
        subscription.areaAccepted(subscription.followsClient, done.t);
      }
      return true;
    } catch (why) {
      if (!(why instanceof Refused)) throw why;
      this.forget(subscription);
      subscription.end(why);
      return false;
    }
  }

  #end(why, later) {
    if (this.#ended) return;
    this.#ended = later;
    for (const subscription of this.#subscriptions.values()) subscription.end(why);
    this.#all?.end(why);
    this.#notices.end(why);
    this.#directMessages.end(why);
  }

  #receive(channel, notice) {
    if (FROM_CURRENT_NODE.has(notice.is) && channel !== this.#current) return;
    const subscription = this.#subscriptions.get(notice.subscription);
    switch (notice.is) {
      case "message":
        // A former node that has not heard of the handover may have taken us back, with the areas that
        // we had then.
        if (channel !== this.#current && notice.t > this.#onlyCurrent) return;
        if (this.#former && channel !== this.#former) return this.#heldBack.push(notice);
        return this.#deliver(notice);
      case "direct":
        if (this.#former && channel !== this.#former) return this.#heldBack.push(notice);
        return this.#deliver(notice);
      case "welcome":
        return this.#welcomed(channel, notice);
      case "done":
      case "nearby":
        return; // #answer has them
      case "inside": {
        const entities = notice.entities.map(withDefaults);
        if (!subscription?.request.events?.length) return subscription?.setInside(entities);
        return subscription.setInsideFence(entities, notice.fences ?? [], this.now());
      }
      case "fence":
        return subscription?.fenceEvent(notice);
      case "enter":
        return subscription?.entityEntered(withDefaults(notice.entity));
      case "leave":
        return subscription?.entityLeft(notice.entity, notice.gone ?? false);
      case "nodes":
        return this.#setNodes(notice.nodes);
      case "moved":
        if (this.#ready) return; // out of date: we reconnect or are handed over
        this.#setNodes(this.nodes.length ? this.nodes : [notice.to]);
        return (this.#ready = this.#handOver(notice));
      default: // withheld, dropped, refusals that no call waits for
        return this.#notices.put(notice);
    }
  }

  #deliver(notice) {
    if (notice.is === "direct") return this.#deliverDirect(notice);
    const { publication, to } = notice;
    const { fresh, again } = this.#recent?.add(publication, to) ?? { fresh: to };
    if (!fresh.length) return;
    const message = { channel: "", retain: false, ...withDefaults(notice), to: fresh };
    for (const number of fresh) this.#subscriptions.get(number)?.deliver(message);
    if (!again) this.#all?.put(message);
  }

  /** Once, whichever nodes have it for us. */
  #deliverDirect({ is: _, ...notice }) {
    if (this.#recent?.add(notice.number, [-1]).again) return;
    this.#directMessages.put({ payload: null, name: "", to: "", ...notice });
  }
}

const shuffled = (items) =>
  items.map((item) => [Math.random(), item]).sort(([a], [b]) => a - b).map(([, item]) => item);

function within(milliseconds, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    const why = new ConnectionError("the node does not answer");
    timer = setTimeout(() => reject(why), milliseconds);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** With the defaults that a node leaves out. */
const withDefaults = (notice) => ({ z: 0, attributes: {}, payload: null, ...notice });
const clock = () => performance.now() * 1_000;
