// The other ships, as our peer hears of them: an update says where a ship is, how it is turned and
// how fast both change. Between two updates it flies on here (dead reckoning, seed 002, 4.4). Where
// the next update finds it elsewhere, the picture glides there: no jump in what is seen.

import { add, facing, size, sub, times } from "./vectors.js";

const FORGOTTEN = 3e6; // microseconds without a word, after which a ship is not shown any more
const GLIDE_S = 0.25; // in which most of a difference is made good
const LONGEST_S = 1.5; // that a ship is believed to fly straight on

export class Heard {
  ships = new Map();
  reckons = true;
  // How far from where it was a ship is found, on average: without reckoning and with.
  differences = { plain: 0, reckoned: 0, count: 0 };

  // A message with an update: twelve numbers.
  see({ from, t, payload }) {
    if (!Array.isArray(payload) || payload.length !== 12) return;
    const [place, turned, velocity, spin] = [0, 3, 6, 9].map((i) => payload.slice(i, i + 3));
    const known = this.ships.get(from);
    if (known && known.t >= t) return; // an older one came later
    const ship = { id: from, t, place, turned, velocity, spin, off: [0, 0, 0] };
    if (known) {
      const believed = this.#straight(known, t);
      const jumped = size(sub(believed, place)) > 100; // into a new life
      if (!jumped) {
        this.#compare(size(sub(known.place, place)), size(sub(believed, place)));
        ship.off = sub(this.place(known, t), place);
      }
      ship.hit = known.hit;
    }
    this.ships.set(from, ship);
  }

  lose(id) {
    this.ships.delete(id);
  }

  // All who were heard lately.
  *around(t) {
    for (const ship of this.ships.values()) {
      if (t - ship.t > FORGOTTEN) this.ships.delete(ship.id);
      else yield ship;
    }
  }

  place(ship, t) {
    const since = Math.max(0, (t - ship.t) / 1e6);
    return add(this.#straight(ship, t), times(ship.off, Math.exp(-since / GLIDE_S)));
  }

  heading(ship, t) {
    const since = this.reckons ? Math.min(0.5, Math.max(0, (t - ship.t) / 1e6)) : 0;
    return facing(ship.turned[0] + ship.spin[2] * since, ship.turned[1]);
  }

  #straight(ship, t) {
    if (!this.reckons) return ship.place;
    const since = Math.min(LONGEST_S, Math.max(0, (t - ship.t) / 1e6));
    return add(ship.place, times(ship.velocity, since));
  }

  #compare(plain, reckoned) {
    const all = this.differences;
    all.count += 1;
    const share = 1 / Math.min(all.count, 200);
    all.plain += (plain - all.plain) * share;
    all.reckoned += (reckoned - all.reckoned) * share;
  }
}
