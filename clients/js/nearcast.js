// A client of a Nearcast node, for browsers and Node: one plain ES module, nothing to build.
//
//   import { connect } from "./nearcast.js";
//
//   const me = await connect("ws://127.0.0.1:8470", { name: "alice" });
//   const here = await me.subscribe({ x: 0, y: 0, r: 50 }, { watch: true });
//   await me.publish({ x: 3, y: 4 }, { hello: "world" }, { retain: true });
//   for await (const message of here) console.log(message.payload);
//
// What was asked for is kept, so that a client whose connection breaks comes back by itself and
// subscribes again: areas that move go on from where they are by then. A request under way when the
// connection breaks is rejected (ConnectionError); one made while there is none waits. Whatever the
// node refuses is rejected with Refused and the node's reason; what is plainly wrong is refused here
// before it is sent. In a cluster, a client is handed over
// to the node in whose part of the world it has gone, and comes back to another when its own is dead:
// only the notices tell. docs/reference/wire.md has the rest.

const FIRST_PAUSE_MS = 100; // before a first and a later attempt to come back
const LONGEST_PAUSE_MS = 10_000;
const ANSWER_MS = 30_000; // a node that has not answered by then is given up
const TRY_MS = 2_000; // and the pause: for one of several nodes to let us in
const HANDOVER_MS = 5_000; // for another node to let us in; after that we stay where we are
const FAREWELL_MS = 10_000; // for a node that we have left to pass on what it still has for us
const HELD_MS = 250; // for what the new node says to wait for what the former one had said before
const LATELY = 4_096; // publications, of which we know that we had them
const ABNORMAL = 1006; // what WebSockets report if a connection broke without a close frame
const NORMAL = 1000;
const SECOND = 1e6; // times are microseconds
const INBOX = 10_000; // messages that wait to be taken, unless told otherwise
const NO_WEBSOCKET =
  "there is no WebSocket here: use Node 22, or Node 20 with --experimental-websocket," +
  " or give one in the option WebSocket";

/** The node's reason, or ours not to ask it. Nothing was changed. */
export class Refused extends Error { name = "Refused"; }

/**
 * There is no connection, or there was none in the end. `code` is the WebSocket close code, ABNORMAL
 * if there was no close frame.
 */
export class ConnectionError extends Error {
  name = "ConnectionError";

  constructor(reason, code = ABNORMAL) {
    super(reason);
    this.code = code;
  }
}

/** Connect and join. Only later losses of the connection are made good. */
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

const SPOT = ["x", "y", "z", "r", "rx", "ry", "rz"];
const MOVES = ["vx", "vy", "vz", "gx", "gy", "gz", "lasts", "speed", "to"];
const SUBSCRIBING = [
  "filter", "channel", "echo", "variables", "watch", "linger", "rates", "closest", "budget", "inbox",
];
const PUBLISHING = ["retain", "attributes", "channel", "name", "confirm"];

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

function checkNumbers(what, object) {
  for (const [name, value] of Object.entries(object)) {
    if (!Number.isFinite(value)) {
      throw new Refused(`${what}: ${name} must be a finite number, not ${value}`);
    }
  }
}

function checkSpot(place) {
  checkNames("a publication's place", place, SPOT);
  if (place.x === undefined || place.y === undefined) throw new Refused("a place needs x and y");
  checkNumbers("a publication's place", place);
}

function checkArea(area) {
  checkNames("an area", area, [...SPOT, ...MOVES, "formula"]);
  const { to, formula, ...numbers } = area;
  if (formula !== undefined && typeof formula !== "string") {
    throw new Refused("an area: formula must be a text");
  }
  if (to !== undefined && !(Array.isArray(to) && to.every(isPlace))) {
    throw new Refused("an area: to must be a list of places of two or three finite numbers");
  }
  checkNumbers("an area", numbers);
  const given = Object.keys(area).length > 0 && formula === undefined;
  if (given && (area.x === undefined || area.y === undefined)) {
    throw new Refused("an area needs x and y");
  }
}

function checkAttributes(attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (!["boolean", "string"].includes(typeof value) && !Number.isFinite(value)) {
      throw new Refused(`attribute ${name} must be a boolean, a finite number or a text`);
    }
  }
}

/** For JSON.stringify: NaN and Infinity are refused, not turned into null. */
function finite(name, value) {
  if (typeof value === "number" && !Number.isFinite(value)) {
    throw new Refused(`${name || "the payload"} is ${value}, which JSON cannot express`);
  }
  return value;
}

/** What has arrived and waits to be taken. When it is full, the oldest goes and is counted. */
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

/** The seconds that a walk takes; 0 for all else. */
export const walkingSeconds = (area) => legs(area).reduce((sum, leg) => sum + leg.seconds, 0);

function legs(area) {
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
  if (area.formula !== undefined && moving) return { formula: later(area.formula, seconds) };
  if (area.x === undefined) return area; // a formula, or everywhere
  return area.to ? walked(area, seconds, moving) : grown(area, seconds, moving);
}

function walked(area, seconds, moving) {
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

function grown(area, seconds, moving) {
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

/** A formula or filter as it goes on when its `t` begins anew after so many seconds. */
function later(text, seconds) {
  if (!(seconds > 0)) return text;
  const tokens = /"[^"]*"|'[^']*'|[A-Za-z][A-Za-z0-9_.]*/g;
  return text.replace(tokens, (token) => (token === "t" ? `(t + ${seconds.toFixed(6)})` : token));
}

/** One interest of a client. Iterate over it for its messages, from the oldest kept. */
export class Subscription {
  #client;
  #changes;

  constructor(client, request, inbox) {
    this.#client = client;
    this.#changes = new Inbox(inbox);
    this.request = request;
    this.number = request.subscription;
    this.messages = new Inbox(inbox);
    this.inside = new Map(); // whom it watches, by entity, kept up to date
    this.walks = false; // does it go where the client goes?
    this.since = this.filtered = 0; // when its area's and its filter's time began
    this.known = new Promise((resolve) => (this.tellKnown = resolve)); // who is inside
  }

  get dropped() { return this.messages.dropped; }

  [Symbol.asyncIterator]() { return this.messages; }

  /** Who came ({ enter: entity }) and who went ({ leave: entity, gone }), if it watches. */
  changes() {
    if (!this.request.watch) throw new Refused("only a subscription with watch: true has changes");
    return this.#changes;
  }

  /** Its area is this one from now on; all else stays. */
  move(area) { return this.go(area, isStill(area)); }

  async go(area, walks) {
    checkArea(area);
    const done = await this.#client.ask({ do: "move", subscription: this.number, area });
    this.request = { ...this.request, area };
    this.placed(walks, done.t);
  }

  placed(walks, t) {
    this.walks = walks;
    this.since = t;
    // A filter's time goes on, unless a formula begins: the two share one `t`.
    if (this.request.area?.formula !== undefined || this.filtered === 0) this.filtered = t;
  }

  /** New numbers for variables of its formula or filter; the others stay. */
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

  /** The area as it is at the moment `t`: `here.where(me.now())`. */
  where(t) {
    return areaAt(this.request.area ?? {}, (t - this.since) / SECOND);
  }

  /** How to ask for the same again at `t`, if the node has forgotten. */
  resumed(t) {
    const request = { ...this.request };
    request.area = onward(request.area ?? {}, (t - this.since) / SECOND, true);
    if (request.filter) request.filter = later(request.filter, (t - this.filtered) / SECOND);
    return request;
  }

  end(why = null) {
    this.tellKnown();
    this.messages.end(why);
    this.#changes.end(why);
  }

  heard(message) {
    const known = this.inside.get(message.from);
    if (known && message.retain) {
      const { t, x, y, z, attributes, payload } = message;
      this.inside.set(message.from, { ...known, t, x, y, z, attributes, payload });
    }
    this.messages.put(message);
  }

  found(entities) {
    const present = new Set(entities.map((entity) => entity.entity));
    for (const number of [...this.inside.keys()]) {
      if (!present.has(number)) this.left(number, false);
    }
    for (const entity of entities) this.entered(entity);
    this.tellKnown();
  }

  entered(entity) {
    if (!this.inside.has(entity.entity)) this.#changes.put({ enter: entity });
    this.inside.set(entity.entity, entity);
  }

  left(number, gone) {
    const known = this.inside.get(number);
    if (!known) return;
    this.inside.delete(number);
    this.#changes.put({ leave: known, gone });
  }
}

const MOTION = ["vx", "vy", "vz", "gx", "gy", "gz", "to", "formula"];
const isStill = (area) => area.x !== undefined && MOTION.every((key) => !area[key]);

/** What was heard lately, and for whom: the last so many publications, and up to as many more. */
class Lately {
  #young = new Map();
  #old = new Map();

  /** For whom it is new, and whether it was heard at all. */
  hear(publication, to) {
    const had = this.#young.get(publication) ?? this.#old.get(publication);
    const fresh = had ? to.filter((number) => !had.includes(number)) : to;
    if (!had && this.#young.size >= LATELY) [this.#old, this.#young] = [this.#young, new Map()];
    if (fresh.length) this.#young.set(publication, [...(had ?? []), ...fresh]);
    return { fresh, again: had !== undefined };
  }
}

/**
 * With one node, over one connection. A client that is handed over has two of these for a while:
 * what was asked for is answered by the node that was asked.
 */
class Conversation {
  #hear;
  #lost;
  #socket;
  #asked = new Map(); // by id: who waits for the answer
  #bye = "";
  #tellEnded;
  #understood = false; // has it said anything that we could read?

  constructor(url, hear, lost) {
    this.url = url;
    this.#hear = hear;
    this.#lost = lost;
    this.ahead = null; // the node's clock over ours, in microseconds
    this.most = Infinity; // of a frame: beyond it the node cannot say what it refuses
    this.over = null; // why nothing more comes
    this.ended = new Promise((resolve) => (this.#tellEnded = resolve));
  }

  get open() { return !this.over && this.#socket?.readyState === 1; }

  begin(WebSocket) {
    const socket = (this.#socket = new WebSocket(this.url));
    return new Promise((resolve, reject) => {
      let opened = false;
      const ended = ({ code = ABNORMAL, reason = "" }) => {
        reject(new ConnectionError(`cannot connect to ${this.url}`, code)); // if it never opened
        if (this.over) return;
        this.#finish(new ConnectionError(this.#bye || reason || "the connection is lost", code));
        this.#lost(this);
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
    const frame = JSON.stringify(request, finite);
    if (frame.length > this.most) throw new Refused(`a frame has at most ${this.most} bytes`);
    this.#socket.send(frame);
  }

  ask(id, request) {
    const answered = new Promise((resolve, reject) => {
      const late = () => this.#answer(id, null, new ConnectionError("the node does not answer"));
      this.send({ ...request, id });
      this.#asked.set(id, { resolve, reject, timer: setTimeout(late, ANSWER_MS) });
    });
    if (this.#asked.has(id)) this.#asked.get(id).answered = answered;
    return answered;
  }

  /** When all that was asked so far is answered. */
  settled() {
    return Promise.allSettled([...this.#asked.values()].map(({ answered }) => answered));
  }

  close(why = new ConnectionError("closed", NORMAL)) {
    this.#finish(why);
    this.#socket?.close();
  }

  #finish(why) {
    if (this.over) return;
    this.over = why;
    for (const id of [...this.#asked.keys()]) this.#answer(id, null, this.over);
    this.#tellEnded();
  }

  #answer(id, word, why = null) {
    const waiting = this.#asked.get(id);
    if (!waiting) return;
    this.#asked.delete(id);
    clearTimeout(waiting.timer);
    why ? waiting.reject(why) : waiting.resolve(word);
  }

  /** Who never said anything readable is no node of ours; else one notice is passed over. */
  #read(data) {
    try {
      this.#receive(JSON.parse(data));
      this.#understood = true;
    } catch (why) {
      const reason = `a notice of the node is unreadable: ${why.message}`;
      if (this.#understood) return this.#hear(this, { is: "error", reason });
      this.#bye = reason;
      this.#socket.close();
    }
  }

  #receive(word) {
    if (this.over) return;
    if (typeof word?.is !== "string") throw new TypeError("it does not say what it is");
    if (word.is === "bye") {
      this.#bye = word.reason;
    } else if (word.is === "error" && word.id !== undefined) {
      this.#answer(word.id, null, new Refused(word.reason));
    } else {
      const answers = word.is === "done" || word.is === "welcome" || word.is === "nearby";
      if (answers && word.t) this.ahead = Math.max(this.ahead ?? -Infinity, word.t - clock());
      this.#hear(this, word);
      if (answers) this.#answer(word.id, word);
    }
  }
}

// What only the node that serves us knows.
const LEARNT = new Set(["inside", "enter", "leave", "moved", "nodes"]);

/** Whoever has joined a node. See `connect`. */
export class Client {
  #url;
  #options;
  #talk = null; // with the node that serves us, or did last
  #talks = new Set(); // that are not over
  #subscriptions = new Map();
  #numbers = 0;
  #ids = 0;
  #ready = null; // a promise while we are coming back, or handed over
  #moving = false;
  #former = null; // with the node that we have just left
  #held = []; // messages that are to come after its own
  #lately = null;
  #ended = null; // why nothing can be asked for any more
  #all = null;
  #notices = new Inbox(1_000);

  constructor(url, options) {
    this.#url = url;
    this.#options = { reconnect: true, WebSocket: globalThis.WebSocket, ...options };
    this.entity = -1; // until the node has said who we are
    this.node = "";
    this.nodes = []; // addresses of others in the cluster
    this.limits = {};
    if (!this.#options.WebSocket) throw new Error(NO_WEBSOCKET);
  }

  /** Listen to an area. Options as in docs/reference/wire.md, and `inbox`: how many may wait. */
  async subscribe(area = {}, options = {}) {
    checkArea(area);
    checkNames("subscribe", options, SUBSCRIBING);
    checkNumbers("variables", options.variables ?? {});
    await this.#connected();
    const { inbox = INBOX, ...rest } = options;
    this.#numbers += 1;
    const request = { do: "subscribe", ...rest, subscription: this.#numbers, area };
    const subscription = new Subscription(this, request, inbox);
    this.#subscriptions.set(subscription.number, subscription); // its messages may come first
    try {
      const done = await this.#request(request);
      subscription.placed(isStill(area), done.t);
      if (options.watch) await within(ANSWER_MS, subscription.known);
    } catch (why) {
      this.forget(subscription);
      throw why;
    }
    return subscription;
  }

  /**
   * Say something to everyone whose area this point, disc or box touches. Resolves to the
   * publication's number; with `confirm: false` to 0, as soon as it is on its way. With `name`,
   * another entity says it, for which this client speaks: it has states of its own.
   */
  async publish(place, payload, options = {}) {
    checkSpot(place);
    checkNames("publish", options, PUBLISHING);
    checkAttributes(options.attributes ?? {});
    const { confirm = true, ...rest } = options;
    const request = { do: "publish", ...place, ...rest };
    if (payload !== undefined && payload !== null) request.payload = payload;
    await this.#connected();
    if (confirm) return (await this.#request(request)).publication ?? 0;
    this.#talk.send(request);
    return 0;
  }

  /**
   * Take back the retained state on this channel, or on all channels. With `name`, that of an entity
   * for which this client speaks; without a channel it leaves.
   */
  async withdraw(options = {}) {
    checkNames("withdraw", options, ["channel", "name"]);
    await this.ask({ do: "withdraw", ...options });
  }

  /** Who is in this area now, the closest first. Options: channel, limit. */
  async nearby(area, options = {}) {
    checkArea(area);
    checkNames("nearby", options, ["channel", "limit"]);
    const near = await this.ask({ do: "nearby", area, ...options });
    return near.entities.map(whole);
  }

  /**
   * Walk: every subscription to a still area goes there by itself, at `speed` units per second,
   * for one request each. Resolves to the seconds until the last one arrives.
   */
  async moveTo(place, speed) {
    if (!isPlace(place)) throw new Refused("a place to go to is two or three finite numbers");
    checkNumbers("moveTo", { speed });
    const now = this.now();
    const walks = [...this.#subscriptions.values()]
      .filter((subscription) => subscription.walks)
      .map((subscription) => [subscription, { ...subscription.where(now), to: [place], speed }]);
    await Promise.all(walks.map(([subscription, area]) => subscription.go(area, true)));
    return Math.max(0, ...walks.map(([, area]) => walkingSeconds(area)));
  }

  /** All messages of all subscriptions, each once, from the first time this is called. */
  messages(inbox = INBOX) {
    this.#all ??= new Inbox(inbox);
    return this.#all;
  }

  /** Connection lost and back, handed over, messages withheld or dropped, other refusals. */
  notices() { return this.#notices; }

  /** The node's clock in microseconds, as well as we know it. */
  now() { return clock() + (this.#talk?.ahead ?? 0); }

  /** Leave. All iterations end. */
  close() {
    if (!this.#ended && this.#talk?.open) this.#talk.send({ do: "leave" });
    const why = new ConnectionError("this client has left", NORMAL);
    this.#end(null, why);
    for (const talk of [...this.#talks]) talk.close(why);
  }

  async ask(request) {
    await this.#connected();
    return this.#request(request);
  }

  forget(subscription) {
    this.#subscriptions.delete(subscription.number);
  }

  async #connected() {
    while (this.#ready && !this.#ended) await this.#ready;
    if (this.#ended) throw this.#ended;
  }

  #request(request) {
    this.#ids += 1;
    return this.#talk.ask(this.#ids, request);
  }

  // Coming, coming back, and going on to another node.

  join() { return this.#join(this.#conversation(this.#url)); }

  #conversation(url) {
    const hear = (talk, word) => this.#receive(talk, word);
    const talk = new Conversation(url, hear, (one) => this.#lost(one));
    this.#talks.add(talk);
    talk.ended.then(() => this.#talks.delete(talk));
    return talk;
  }

  /** When it is welcomed, this is the conversation with the node that serves us. */
  async #join(talk, ticket) {
    const { name = "", token: given = "", WebSocket } = this.#options;
    // First, as a connection must join within seconds; and each time, as tokens expire.
    const token = typeof given === "function" ? await given() : given;
    await within(ANSWER_MS, talk.begin(WebSocket));
    await this.#talk?.settled();
    this.#ids += 1;
    await talk.ask(this.#ids, { do: "join", name, token, ...(ticket ? { ticket } : {}) });
    if (talk.over) throw talk.over;
    if (talk !== this.#talk) throw new ConnectionError("the node takes us for somebody else");
  }

  #welcomed(talk, word) {
    if (this.#moving && word.entity !== this.entity) return;
    if (this.#moving) {
      const former = this.#talk; // it goes on until it has nothing left for us
      this.#release(this.#former);
      this.#former = former;
      within(HELD_MS, former.ended).catch(() => {}).finally(() => this.#release(former));
      within(FAREWELL_MS, former.ended).catch(() => {}).finally(() => former.close());
    }
    this.#talk = talk;
    this.entity = word.entity;
    this.node = word.node ?? "";
    this.limits = word.limits ?? {};
    talk.most = this.limits.frame ?? Infinity;
    this.#know(word.nodes ?? []);
  }

  /** It has said what it had to say: now comes what the other one said meanwhile. */
  #release(former) {
    if (former !== this.#former) return;
    const held = this.#held;
    this.#former = null;
    this.#held = [];
    for (const word of held) this.#heard(word);
  }

  /** A single node never says anything twice: only in a cluster need we remember. */
  #know(nodes) {
    this.nodes = nodes;
    if (nodes.length) this.#lately ??= new Lately();
  }

  /** If it was not ours, or we are about to leave it, whoever cares looks by himself. */
  #lost(talk) {
    if (this.#ended || !talk.over || talk !== this.#talk || this.#ready) return;
    if (!this.#options.reconnect) {
      this.#end(talk.over, talk.over);
      return;
    }
    const { message: reason, code } = talk.over;
    this.#notices.put({ is: "disconnected", reason, code });
    this.#ready = this.#return();
  }

  /** Come back: again and again, after growing pauses of random length (no stampede). */
  async #return() {
    for (let pause = FIRST_PAUSE_MS; !this.#ended; pause = Math.min(2 * pause, LONGEST_PAUSE_MS)) {
      await new Promise((resolve) => setTimeout(resolve, pause * (0.5 + Math.random() / 2)));
      const urls = [this.#talk.url, ...shuffled(this.nodes)]; // the last one first
      const refusals = [];
      for (const url of urls) {
        if (this.#ended) return;
        const talk = this.#conversation(url);
        try {
          const joining = this.#join(talk);
          await (urls.length > 1 ? within(TRY_MS + pause, joining) : joining);
          const refused = [];
          for (const subscription of [...this.#subscriptions.values()]) {
            if (!(await this.#again(subscription))) refused.push(subscription);
          }
          if (talk.over) continue;
          this.#ready = null;
          this.#notices.put({ is: "reconnected", refused });
          return;
        } catch (why) {
          talk.close();
          if (why instanceof Refused) refusals.push(why); // to let us in
        }
      }
      if (refusals.length === urls.length) this.#end(refusals[0], refusals[0]);
    }
  }

  /**
   * Join the other node; until it has welcomed us, nothing has changed. Requests wait meanwhile, so
   * that no node obeys a later one before an earlier one.
   */
  async #handOver({ to, ticket }) {
    const talk = this.#conversation(to);
    this.#moving = true;
    try {
      await within(HANDOVER_MS, this.#join(talk, ticket));
    } catch {
      if (talk !== this.#talk) talk.close(); // and we stay
    }
    this.#moving = false;
    this.#ready = null;
    if (talk === this.#talk) this.#notices.put({ is: "handed over", node: this.node, url: to });
    this.#lost(this.#talk); // if it was, meanwhile
  }

  async #again(subscription) {
    const request = subscription.resumed(this.now());
    try {
      const done = await this.#request(request);
      if (request.area.formula === undefined) {
        subscription.request = { ...subscription.request, area: request.area };
        subscription.placed(subscription.walks, done.t);
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
  }

  #receive(talk, word) {
    if (LEARNT.has(word.is) && talk !== this.#talk) return;
    const subscription = this.#subscriptions.get(word.subscription);
    switch (word.is) {
      case "message":
        if (this.#former && talk !== this.#former) return this.#held.push(word);
        return this.#heard(word);
      case "welcome":
        return this.#welcomed(talk, word);
      case "done":
      case "nearby":
        return; // whoever has asked is told
      case "inside":
        return subscription?.found(word.entities.map(whole));
      case "enter":
        return subscription?.entered(whole(word.entity));
      case "leave":
        return subscription?.left(word.entity, word.gone ?? false);
      case "nodes":
        return this.#know(word.nodes);
      case "moved":
        if (this.#ready) return; // we are not where we were when this was said
        this.#know(this.nodes.length ? this.nodes : [word.to]);
        return (this.#ready = this.#handOver(word));
      default: // withheld, dropped, refusals that nobody waits for
        return this.#notices.put(word);
    }
  }

  #heard(word) {
    const { fresh, again } = this.#lately?.hear(word.publication, word.to) ?? { fresh: word.to };
    if (!fresh.length) return;
    const message = { channel: "", retain: false, ...whole(word), to: fresh };
    for (const number of fresh) this.#subscriptions.get(number)?.heard(message);
    if (!again) this.#all?.put(message);
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

/** With what a node need not say. */
const whole = (word) => ({ z: 0, attributes: {}, payload: null, ...word });
const clock = () => performance.now() * 1_000;
