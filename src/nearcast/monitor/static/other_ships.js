// The other ships, from the updates that our peer receives: position, rotation, velocity and spin.
// Between two updates a ship is extrapolated (dead reckoning, [Lucas2011] 4.4). If the next update
// shows it elsewhere, it is moved there smoothly, so that it does not jump on the screen.

import { add, facing, size, sub, times } from "./vectors.js";

const FORGET_AFTER = 3e6; // microseconds without an update, after which a ship is not shown
const GLIDE_S = 0.25; // time constant with which the error on the screen decays
const LONGEST_S = 1.5; // for at most so long a ship is extrapolated

export class OtherShips {
  ships = new Map();
  deadReckoning = true;
  // Mean distance between the expected and the new position, without and with dead reckoning.
  differences = { plain: 0, reckoned: 0, count: 0 };

  // The payload of an update is twelve numbers.
  update({ from, t, payload }) {
    if (!Array.isArray(payload) || payload.length !== 12) return;
    const [place, turned, velocity, spin] = [0, 3, 6, 9].map((i) => payload.slice(i, i + 3));
    const known = this.ships.get(from);
    if (known && known.t >= t) return; // out of order
    const ship = { id: from, t, place, turned, velocity, spin, error: [0, 0, 0] };
    if (known) {
      const believed = this.#extrapolate(known, t);
      const jumped = size(sub(believed, place)) > 100; // it has respawned
      if (!jumped) {
        this.#compare(size(sub(known.place, place)), size(sub(believed, place)));
        ship.error = sub(this.place(known, t), place);
      }
      ship.hit = known.hit;
    }
    this.ships.set(from, ship);
  }

  remove(id) {
    this.ships.delete(id);
  }

  // The ships with a recent update.
  *current(t) {
    for (const ship of this.ships.values()) {
      if (t - ship.t > FORGET_AFTER) this.ships.delete(ship.id);
      else yield ship;
    }
  }

  place(ship, t) {
    const since = Math.max(0, (t - ship.t) / 1e6);
    return add(this.#extrapolate(ship, t), times(ship.error, Math.exp(-since / GLIDE_S)));
  }

  heading(ship, t) {
    const since = this.deadReckoning ? Math.min(0.5, Math.max(0, (t - ship.t) / 1e6)) : 0;
    return facing(ship.turned[0] + ship.spin[2] * since, ship.turned[1]);
  }

  #extrapolate(ship, t) {
    if (!this.deadReckoning) return ship.place;
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
