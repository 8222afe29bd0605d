// The person's own character, an ordinary client. It sends one request for each walk; the node then
// computes where its area of interest is at any moment.

import { connect } from "/nearcast.js";

import { token } from "./snapshots.js";

const HALF = { rx: 60, ry: 40 }; // half-extents of the area of interest, the same as the bots'
const SPEED = 60; // units per second
const PUBLISH_MS = 200; // between two publications of its position while it walks

const KEYS = {
  ArrowUp: [0, 1], ArrowDown: [0, -1], ArrowLeft: [-1, 0], ArrowRight: [1, 0],
  w: [0, 1], s: [0, -1], a: [-1, 0], d: [1, 0],
};

export async function enter(bounds, hooks) {
  const address = location.href.replace(/^http/, "ws").replace(/[#?].*$/, "").replace(/\/[^/]*$/, "/ws");
  const client = await connect(address, { name: "you", token });
  const [[x0, y0], [x1, y1]] = bounds;
  const area = { x: (x0 + x1) / 2, y: (y0 + y1) / 2, ...HALF };
  const here = await client.subscribe(area, { watch: true });
  const news = await client.subscribe({}, { channel: "news" });
  return new Person(client, here, news, bounds, hooks);
}

export class Person {
  half = HALF;
  target = null;
  requests = 0; // about its area of interest, since the page was opened
  #pressed = new Set();
  #following = null;
  #arrives = 0;

  constructor(client, here, news, bounds, hooks) {
    this.client = client;
    this.here = here;
    this.bounds = bounds;
    this.hooks = hooks;
    this.#forEach(here, (message) => hooks.delivered(message));
    this.#forEach(news, (message) => hooks.news(message.payload));
    this.#forEach(here.changes(), (change) => hooks.presence?.(change));
    this.#forEach(client.notices(), (notice) => {
      hooks.notice(notice);
      if (notice.is === "reconnected") this.publishPosition();
    });
    this.publishPosition();
    setInterval(() => this.#continueWalk(), PUBLISH_MS);
  }

  get entity() {
    return this.client.entity;
  }

  place(t) {
    const { x, y } = this.here.where(t);
    return { x, y };
  }

  now() {
    return this.client.now();
  }

  async order(order, number = 0) {
    const { x, y } = this.place(this.now());
    await this.client.publish({ x, y }, { order, number }, { channel: "orders" });
  }

  // One request for the whole walk.
  async walkTo({ x, y }) {
    const [[x0, y0], [x1, y1]] = this.bounds;
    const to = { x: Math.min(x1, Math.max(x0, x)), y: Math.min(y1, Math.max(y0, y)) };
    this.requests += 1;
    this.target = to;
    const seconds = await this.client.moveTo([to.x, to.y], SPEED);
    this.#arrives = this.now() + seconds * 1e6;
    this.publishPosition();
    return seconds;
  }

  async stop() {
    this.#following = null;
    this.target = null;
    this.#arrives = 0;
    this.requests += 1;
    await this.here.move(this.here.where(this.now()));
    this.publishPosition();
  }

  // `place()` returns where the followed entity is; it is called repeatedly.
  follow(place) {
    this.#following = place;
    this.#continueWalk();
  }

  forgetFollowing() {
    this.#following = null;
  }

  publishPosition() {
    const place = this.place(this.now());
    this.client
      .publish(place, undefined, { retain: true, confirm: false, attributes: { person: true } })
      .catch(() => {}); // not connected now; after the reconnect it is published again
  }

  // A held key walks towards the border. Returns whether the key is one of ours.
  press(key, down) {
    const name = key.length === 1 ? key.toLowerCase() : key;
    if (!Object.hasOwn(KEYS, name)) return false;
    if (down === this.#pressed.has(name)) return true; // key repeat
    if (down) this.#pressed.add(name);
    else this.#pressed.delete(name);
    const [dx, dy] = [...this.#pressed]
      .map((pressed) => KEYS[pressed])
      .reduce(([ax, ay], [bx, by]) => [ax + bx, ay + by], [0, 0]);
    this.forgetFollowing();
    if (dx || dy) this.walkTo(this.#border(dx, dy)).catch(() => {});
    else this.stop().catch(() => {});
    return true;
  }

  letGo() {
    for (const key of [...this.#pressed]) this.press(key, false);
  }

  #border(dx, dy) {
    const { x, y } = this.place(this.now());
    const [[x0, y0], [x1, y1]] = this.bounds;
    const room = [
      dx > 0 ? (x1 - x) / dx : dx < 0 ? (x0 - x) / dx : Infinity,
      dy > 0 ? (y1 - y) / dy : dy < 0 ? (y0 - y) / dy : Infinity,
    ];
    const way = Math.min(...room);
    return { x: x + dx * way, y: y + dy * way };
  }

  #continueWalk() {
    const now = this.now();
    if (this.#following) {
      const goal = this.#following();
      const far = goal && (!this.target || Math.hypot(goal.x - this.target.x, goal.y - this.target.y) > 15);
      if (far) this.walkTo(goal).catch(() => {});
    }
    if (!this.#arrives) return;
    this.publishPosition();
    if (now >= this.#arrives) {
      this.#arrives = 0;
      this.target = null;
    }
  }

  async #forEach(source, act) {
    try {
      for await (const one of source) act(one);
    } catch (error) {
      this.hooks.notice({ is: "ended", reason: error.message });
    }
  }
}
