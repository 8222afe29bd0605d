// All nodes of a cluster that this page can reach. The page requests a snapshot and the numbers of
// each, and draws them as one world. A single node is a cluster of one.

import { ask, decode, merged } from "./snapshots.js";

const GIVEN_UP_MS = 5000; // after which the page stops asking a node that does not answer
// Microseconds of the node's time over which rates are taken. A node adds up its bytes once a second,
// as often as the page asks: over one second a rate could read 0, or twice what it is.
const RATE_SPAN = 3e6;
const MARKS = ["c3", "c1", "c5", "c2", "c4"]; // colours; those next to each other in this list differ most

class Node {
  snapshot = null;
  numbers = null;
  #history = []; // the numbers of the last RATE_SPAN, oldest first
  failing = null; // since when it does not answer
  #asking = new Set();

  constructor(page) {
    this.page = page; // its address of this page; "" is this node
  }

  async fetchSnapshot() {
    await this.#ask("monitor/world", "bytes", (answer) => (this.snapshot = decode(answer)));
  }

  async fetchNumbers() {
    await this.#ask("monitor/numbers", "json", (answer) => {
      // A restarted node counts from 0 again.
      if (this.numbers?.counters.requests > answer.counters.requests) this.#history = [];
      this.numbers = answer;
      this.#history.push(answer);
      while (answer.t - this.#history[1]?.t >= RATE_SPAN) this.#history.shift();
    });
  }

  get id() { return this.numbers?.cluster?.node; }

  // The numbers of RATE_SPAN ago; null: the page has not known the node for so long.
  get before() {
    const [oldest] = this.#history;
    return oldest && this.numbers.t - oldest.t >= RATE_SPAN ? oldest : null;
  }

  // A counter's rate per second.
  rate(counter) {
    const { numbers, before } = this;
    if (!before) return 0;
    return (numbers.counters[counter] - before.counters[counter]) / ((numbers.t - before.t) / 1e6);
  }

  async #ask(path, form, take) {
    if (this.#asking.has(path)) return;
    this.#asking.add(path);
    try {
      take(await ask(path, form, this.page));
      this.failing = null;
    } catch (error) {
      this.failing ??= performance.now();
      this.snapshot = null; // its entities may be elsewhere by now
      throw error;
    } finally {
      this.#asking.delete(path);
    }
  }
}

export class Cluster {
  #own = new Node("");
  #others = new Map(); // by page

  // The nodes that answer, our own first.
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

  // The sites of the nodes in the Voronoi diagram; empty for a single node.
  get sites() {
    const several = this.nodes.filter((node) => node.numbers.cluster?.site);
    if (several.length < 2) return [];
    return several.map((node) => {
      const [x, y] = node.numbers.cluster.site;
      const { name, address } = node.numbers.nodes[0];
      return { x, y, name: name || address, mark: this.mark(node), own: node === this.#own };
    });
  }

  // The snapshots of all nodes as one; fails if no node answers.
  async fetchSnapshots() {
    for (const node of this.#others.values()) node.fetchSnapshot().catch(() => {});
    let failed = null;
    await this.#own.fetchSnapshot().catch((error) => (failed = error));
    const shown = this.nodes.filter((node) => node.snapshot);
    if (this.#own.snapshot && !shown.includes(this.#own)) shown.unshift(this.#own); // its numbers are not there yet
    if (!shown.length) throw failed ?? new Error("no node answers");
    return merged(shown.map((node) => node.snapshot), shown.map((node) => this.mark(node)));
  }

  // The numbers of all nodes. Each lists the other nodes of the cluster.
  async fetchNumbers() {
    for (const node of this.#others.values()) node.fetchNumbers().catch(() => {});
    await this.#own.fetchNumbers().catch(() => {});
    const known = new Set(this.nodes.flatMap((node) => node.numbers.cluster?.others ?? []));
    known.delete(`${location.origin}/`);
    for (const page of known) {
      if (!this.#others.has(page)) this.#others.set(page, new Node(page));
    }
    for (const [page, node] of this.#others) {
      const silent = node.failing && performance.now() - node.failing > GIVEN_UP_MS;
      if (silent && !known.has(page)) this.#others.delete(page);
    }
    return this.#own.failing ? null : this.#own;
  }
}
