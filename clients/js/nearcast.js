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
// node refuses is rejected with Refused and the node's reason. docs/reference/wire.md has the rest.

const FIRST_PAUSE_MS = 100; // before a first and a later attempt to come back
const LONGEST_PAUSE_MS = 10_000;
const ANSWER_MS = 30_000; // a node that has not answered by then is given up
const SECOND = 1e6; // times are microseconds
const INBOX = 10_000; // messages that wait to be taken, unless told otherwise
const NO_WEBSOCKET =
  "there is no WebSocket here: use Node 22, or Node 20 with --experimental-websocket," +
  " or give one in the option WebSocket";

/** The node's reason. Nothing was changed. */
export class Refused extends Error { name = "Refused"; }

/** There is no connection, or there was none in the end. */
export class ConnectionError extends Error { name = "ConnectionError"; }

/** Connect and join. Only later losses of the connection are made good. */
export async function connect(url, options = {}) {
  const client = new Client(url, options);
  await client.join();
  return client;
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
  changes() { return this.#changes; }

  /** Its area is this one from now on; all else stays. */
  move(area) { return this.go(area, isStill(area)); }

  async go(area, walks) {
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

/** Whoever has joined a node. See `connect`. */
export class Client {
  #url;
  #options;
  #socket = null;
  #subscriptions = new Map();
  #asked = new Map(); // by id: who waits for the answer
  #numbers = 0;
  #ids = 0;
  #ahead = null; // of the node's clock over ours, in microseconds
  #ready = null; // a promise while we are coming back
  #ended = null; // why nothing can be asked for any more
  #bye = "";
  #all = null;
  #notices = new Inbox(1_000);

  constructor(url, options) {
    this.#url = url;
    this.#options = { reconnect: true, WebSocket: globalThis.WebSocket, ...options };
    this.entity = -1; // until the node has said who we are
    this.node = "";
    this.limits = {};
    if (!this.#options.WebSocket) throw new Error(NO_WEBSOCKET);
  }

  /** Listen to an area. Options as in docs/reference/wire.md, and `inbox`: how many may wait. */
  async subscribe(area = {}, options = {}) {
    await this.#connected();
    const { inbox = INBOX, ...rest } = options;
    this.#numbers += 1;
    const request = { do: "subscribe", ...rest, subscription: this.#numbers, area };
    const subscription = new Subscription(this, request, inbox);
    this.#subscriptions.set(subscription.number, subscription); // its messages may come first
    try {
      const done = await this.#request(request);
      subscription.placed(isStill(area), done.t);
      if (options.watch) await subscription.known;
    } catch (why) {
      this.forget(subscription);
      throw why;
    }
    return subscription;
  }

  /**
   * Say something to everyone whose area this point, disc or box touches. Resolves to the
   * publication's number; with `confirm: false` to 0, as soon as it is on its way.
   */
  async publish(place, payload, options = {}) {
    const { confirm = true, ...rest } = options;
    const request = { do: "publish", ...place, ...rest };
    if (payload !== undefined && payload !== null) request.payload = payload;
    await this.#connected();
    if (confirm) return (await this.#request(request)).publication ?? 0;
    this.#send(request);
    return 0;
  }

  /** Who is in this area now, the closest first. Options: channel, limit. */
  async nearby(area, options = {}) {
    const near = await this.ask({ do: "nearby", area, ...options });
    return near.entities.map(whole);
  }

  /**
   * Walk: every subscription to a still area goes there by itself, at `speed` units per second,
   * for one request each. Resolves to the seconds until the last one arrives.
   */
  async moveTo(place, speed) {
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

  /** Connection lost and back, messages withheld or dropped, refusals that nobody waits for. */
  notices() { return this.#notices; }

  /** The node's clock in microseconds, as well as we know it. */
  now() { return clock() + (this.#ahead ?? 0); }

  /** Leave. All iterations end. */
  close() {
    if (!this.#ended && this.#socket?.readyState === 1) {
      this.#socket.send(JSON.stringify({ do: "leave" }));
    }
    this.#end(null, new ConnectionError("this client has left"));
    this.#socket?.close();
  }

  async ask(request) {
    await this.#connected();
    return this.#request(request);
  }

  forget(subscription) {
    this.#subscriptions.delete(subscription.number);
  }

  async #connected() {
    if (this.#ready) await this.#ready;
    if (this.#ended) throw this.#ended;
  }

  #send(request) {
    if (this.#socket?.readyState !== 1) throw new ConnectionError("there is no connection");
    const frame = JSON.stringify(request);
    const most = this.limits.frame ?? Infinity; // beyond it the node cannot say what it refuses
    if (frame.length > most) throw new Refused(`a frame has at most ${most} bytes`);
    this.#socket.send(frame);
  }

  #request(request) {
    this.#ids += 1;
    const id = this.#ids;
    return new Promise((resolve, reject) => {
      const late = () => this.#answer(id, null, new ConnectionError("the node does not answer"));
      this.#send({ ...request, id });
      this.#asked.set(id, { resolve, reject, timer: setTimeout(late, ANSWER_MS) });
    });
  }

  #answer(id, word, why = null) {
    const waiting = this.#asked.get(id);
    if (!waiting) return;
    this.#asked.delete(id);
    clearTimeout(waiting.timer);
    why ? waiting.reject(why) : waiting.resolve(word);
  }

  async join() {
    this.#ahead = null;
    const socket = new this.#options.WebSocket(this.#url);
    this.#socket = socket;
    await new Promise((resolve, reject) => {
      socket.onopen = resolve;
      socket.onerror = socket.onclose = () => {
        reject(new ConnectionError(`cannot connect to ${this.#url}`)); // if it never opened
        this.#lost(socket);
      };
      socket.onmessage = (frame) => this.#receive(JSON.parse(frame.data));
    });
    const { name = "", token = "" } = this.#options;
    const welcome = await this.#request({ do: "join", name, token });
    this.entity = welcome.entity;
    this.node = welcome.node ?? "";
    this.limits = welcome.limits ?? {};
  }

  #lost(socket) {
    if (this.#ended || socket !== this.#socket) return;
    const why = new ConnectionError(this.#bye || "the connection is lost");
    this.#bye = "";
    for (const id of [...this.#asked.keys()]) this.#answer(id, null, why);
    if (this.#ready || this.entity < 0) return; // whoever is joining learns it from that request
    if (!this.#options.reconnect) {
      this.#end(why, why);
      return;
    }
    this.#notices.put({ is: "disconnected", reason: why.message });
    this.#ready = this.#return();
  }

  /** Come back: again and again, after growing pauses of random length (no stampede). */
  async #return() {
    for (let pause = FIRST_PAUSE_MS; !this.#ended; pause = Math.min(2 * pause, LONGEST_PAUSE_MS)) {
      await new Promise((resolve) => setTimeout(resolve, pause * (0.5 + Math.random() / 2)));
      if (this.#ended) return;
      try {
        await this.join();
        const refused = [];
        for (const subscription of [...this.#subscriptions.values()]) {
          if (!(await this.#again(subscription))) refused.push(subscription);
        }
        if (this.#socket.readyState !== 1) continue;
        this.#ready = null;
        this.#notices.put({ is: "reconnected", refused });
        return;
      } catch (why) {
        this.#socket.close();
        if (why instanceof Refused) this.#end(why, why); // to let us in
      }
    }
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
    for (const id of [...this.#asked.keys()]) this.#answer(id, null, later);
    for (const subscription of this.#subscriptions.values()) subscription.end(why);
    this.#all?.end(why);
    this.#notices.end(why);
  }

  #receive(word) {
    const subscription = this.#subscriptions.get(word.subscription);
    switch (word.is) {
      case "message":
        return this.#heard(word);
      case "done":
      case "welcome":
      case "nearby":
        if (word.t) this.#ahead = Math.max(this.#ahead ?? -Infinity, word.t - clock());
        return this.#answer(word.id, word);
      case "error":
        if (word.id === undefined) return this.#notices.put(word);
        return this.#answer(word.id, null, new Refused(word.reason));
      case "inside":
        return subscription?.found(word.entities.map(whole));
      case "enter":
        return subscription?.entered(whole(word.entity));
      case "leave":
        return subscription?.left(word.entity, word.gone ?? false);
      case "bye":
        return (this.#bye = word.reason);
      default: // withheld, dropped
        return this.#notices.put(word);
    }
  }

  #heard(word) {
    const message = { channel: "", retain: false, ...whole(word) };
    for (const number of message.to) this.#subscriptions.get(number)?.heard(message);
    this.#all?.put(message);
  }
}

/** With what a node need not say. */
const whole = (word) => ({ z: 0, attributes: {}, payload: null, ...word });
const clock = () => performance.now() * 1_000;
