// All nodes of a cluster as far as this page reaches them. Each is asked for its own world and its
// own numbers; what they answer is drawn as one world. A single node is a cluster of one.

import { ask, decode, merged } from "./feed.js";

const GIVEN_UP_MS = 5000; // after which a node that does not answer is not asked any more
const MARKS = ["c3", "c1", "c5", "c2", "c4"]; // colours, of which neighbours in this list differ most

class Node {
  picture = null;
  numbers = null;
  before = null; // the numbers of a second ago
  failing = null; // since when it does not answer
  #asking = new Set();

  constructor(page) {
    this.page = page; // where it serves this page; "" is where we are
  }

  async look() {
    await this.#ask("monitor/world", "bytes", (answer) => (this.picture = decode(answer)));
  }

  async count() {
    await this.#ask("monitor/numbers", "json", (answer) => {
      const before = this.numbers;
      // A node that has started anew counts from 0 again.
      this.before = before?.counters.requests > answer.counters.requests ? null : before;
      this.numbers = answer;
    });
  }

  get id() { return this.numbers?.cluster?.node; }

  // What it counts of this, per second.
  rate(counter) {
    const { numbers, before } = this;
    const seconds = before ? (numbers.t - before.t) / 1e6 : 0;
    return seconds > 0 ? (numbers.counters[counter] - before.counters[counter]) / seconds : 0;
  }

  async #ask(path, form, take) {
    if (this.#asking.has(path)) return;
    this.#asking.add(path);
    try {
      take(await ask(path, form, this.page));
      this.failing = null;
    } catch (error) {
      this.failing ??= performance.now();
      this.picture = null; // who was there is not there any more, or may have gone anywhere
      throw error;
    } finally {
      this.#asking.delete(path);
    }
  }
}

export class Cluster {
  #own = new Node("");
  #others = new Map(); // by page

  // Those that answer, our own first.
  get nodes() {
    const found = new Map();
    for (const node of [this.#own, ...this.#others.values()]) {
      if (!node.failing && node.numbers && !found.has(node.id)) found.set(node.id, node);
    }
    return [...found.values()];
  }

  // The colour of each node, the same on every page.
  mark(node) {
    const ids = this.nodes.map(({ id }) => id).sort();
    return MARKS[Math.max(0, ids.indexOf(node.id)) % MARKS.length];
  }

  // Where the nodes stand for the parts of the world that they have; empty for a single one.
  get sites() {
    const several = this.nodes.filter((node) => node.numbers.cluster?.site);
    if (several.length < 2) return [];
    return several.map((node) => {
      const [x, y] = node.numbers.cluster.site;
      const { name, address } = node.numbers.nodes[0];
      return { x, y, name: name || address, mark: this.mark(node), own: node === this.#own };
    });
  }

  // Pictures of all; fails if nobody answers.
  async look() {
    for (const node of this.#others.values()) node.look().catch(() => {});
    let failed = null;
    await this.#own.look().catch((error) => (failed = error));
    const shown = this.nodes.filter((node) => node.picture);
    if (this.#own.picture && !shown.includes(this.#own)) shown.unshift(this.#own); // not counted yet
    if (!shown.length) throw failed ?? new Error("no node answers");
    return merged(shown.map((node) => node.picture), shown.map((node) => this.mark(node)));
  }

  // Numbers of all; who else there is, they tell themselves.
  async count() {
    for (const node of this.#others.values()) node.count().catch(() => {});
    await this.#own.count().catch(() => {});
    const told = new Set(this.nodes.flatMap((node) => node.numbers.cluster?.others ?? []));
    told.delete(`${location.origin}/`);
    for (const page of told) {
      if (!this.#others.has(page)) this.#others.set(page, new Node(page));
    }
    for (const [page, node] of this.#others) {
      const silent = node.failing && performance.now() - node.failing > GIVEN_UP_MS;
      if (silent && !told.has(page)) this.#others.delete(page);
    }
    return this.#own.failing ? null : this.#own;
  }
}
