// The node's sets of fences: asked for now and then, changed by single features.

import { ask, token } from "./snapshots.js";

const MOST = 2000; // fences of a set that a page shows

export class FenceSets {
  fences = []; // {set, id, feature}
  names = []; // of all sets
  large = []; // names of sets that are not shown
  change = null; // patterns of the sets that our token may change; null: not known yet
  #known = new Map(); // by name: {changed, features}
  #last = Promise.resolve();

  // One at a time, so that no older answer comes after a newer one.
  refresh() {
    this.#last = this.#last.catch(() => {}).then(() => this.#load());
    return this.#last;
  }

  async #load() {
    const { sets, change } = await ask("fences");
    const shown = sets.filter(({ fences }) => fences <= MOST);
    const known = new Map();
    for (const { name, changed } of shown) {
      const before = this.#known.get(name);
      const features = before?.changed === changed ? before.features : (await ask(address(name))).features;
      known.set(name, { changed, features });
    }
    this.#known = known;
    this.change = change;
    this.names = sets.map(({ name }) => name);
    this.large = sets.filter((one) => !shown.includes(one)).map(({ name }) => name);
    this.fences = [...known].flatMap(([set, { features }]) =>
      features.map((feature) => ({ set, id: feature.id, feature })));
  }

  put(set, feature) {
    return this.#send(set, { features: [feature] });
  }

  remove(set, id) {
    return this.#send(set, { remove: [id] });
  }

  // Fails with what the node says. Afterwards the set is known as it is.
  async #send(set, change) {
    const answer = await fetch(address(set), {
      method: "PATCH",
      headers: { "Content-Type": "application/geo+json", ...(token && { Authorization: `Bearer ${token}` }) },
      body: JSON.stringify({ type: "FeatureCollection", ...change }),
    }).catch(() => {
      throw new Error("the node does not answer");
    });
    if (!answer.ok) throw new Error((await answer.json()).error);
    await this.refresh().catch(() => {}); // it is asked again soon
  }
}

const address = (set) => `fences/${encodeURIComponent(set)}`;
