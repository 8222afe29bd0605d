// The person's own ship. It obeys the same rules as the bots and publishes the same updates.
// Keys, pointer and buttons set a `Stick`.

import { add, clamp, dot, facing, size, sub, times, unit } from "./vectors.js";

const TURN = 1.6; // radians a second at full deflection
const STEEPEST = 1.35; // radians up or down
const SOFT_S = 0.15; // time constant of a turn

export class Stick {
  yaw = 0; // to the left, -1 to 1
  pitch = 0; // up
  boost = false;
  brake = false;
  fire = false;
}

export class Ship {
  score = { hits: 0, wins: 0, lost: 0 };
  #turning = [0, 0];
  #ready = 0; // seconds until it may fire again
  #safe = 0; // seconds for which it cannot crash
  #back = 0; // seconds until it respawns

  // `hooks`: hit(kind), exploded(), born().
  constructor(rules, hooks) {
    this.rules = rules;
    this.hooks = hooks;
    this.#begin();
  }

  get alive() {
    return this.#back <= 0;
  }

  get heading() {
    return facing(this.yaw, this.pitch);
  }

  get spin() {
    return [0, 0, this.#turning[0]];
  }

  #begin() {
    const { size: world, asteroids, shield, energy, speed } = this.rules;
    do {
      this.place = [0, 0, 0].map(() => world * (0.2 + 0.6 * Math.random()));
    } while (asteroids.some(([x, y, z, r]) => size(sub(this.place, [x, y, z])) < r + 40));
    const middle = sub([world / 2, world / 2, world / 2], this.place);
    this.yaw = Math.atan2(middle[1], middle[0]);
    this.pitch = 0;
    this.velocity = times(this.heading, speed);
    this.shield = shield;
    this.energy = energy;
    this.boosting = false;
    this.#safe = 2; // no crash directly after a respawn
  }

  fly(seconds, stick) {
    if (!this.alive) {
      this.#back -= seconds;
      if (this.alive) {
        this.#begin();
        this.hooks.born();
      }
      return;
    }
    const { rules } = this;
    this.#turn(seconds, stick);
    const needed = rules.booster * seconds;
    this.boosting = stick.boost && !stick.brake && this.energy >= needed;
    if (this.boosting) this.energy -= needed;
    this.energy = Math.min(rules.energy, this.energy + rules.recharge * seconds);
    const wanted = stick.brake ? 0 : rules.speed * (this.boosting ? rules.boost : 1);
    const change = sub(times(this.heading, wanted), this.velocity);
    const most = rules.thrust * rules.speed * seconds * 1.5;
    this.velocity = add(this.velocity, times(change, Math.min(1, most / (size(change) || 1))));
    const there = add(this.place, times(this.velocity, seconds));
    this.place = there.map((c) => clamp(c, 0, rules.size)); // the edge of the world
    this.velocity = this.velocity.map((v, axis) => (there[axis] === this.place[axis] ? v : 0));
    this.#ready -= seconds;
    this.#safe -= seconds;
    if (this.inZone) this.shield = Math.min(rules.shield, this.shield + rules.repair * seconds);
    this.#crash();
  }

  #turn(seconds, stick) {
    const share = Math.min(1, seconds / SOFT_S);
    const [yaw, pitch] = this.#turning;
    this.#turning = [
      yaw + (clamp(stick.yaw, -1, 1) * TURN - yaw) * share,
      pitch + (clamp(stick.pitch, -1, 1) * TURN - pitch) * share,
    ];
    this.yaw += this.#turning[0] * seconds;
    this.pitch = clamp(this.pitch + this.#turning[1] * seconds, -STEEPEST, STEEPEST);
  }

  get inZone() {
    return this.rules.zones.some(([x, y, z, r]) => size(sub(this.place, [x, y, z])) <= r);
  }

  #crash() {
    if (this.#safe > 0) return;
    const { asteroids, hull, crash } = this.rules;
    const rock = asteroids.find(([x, y, z, r]) => size(sub(this.place, [x, y, z])) <= r + hull);
    if (!rock) return;
    const away = unit(sub(this.place, rock.slice(0, 3)));
    this.velocity = times(away, size(this.velocity) / 2);
    this.yaw = Math.atan2(away[1], away[0]);
    this.pitch = clamp(Math.asin(clamp(away[2], -1, 1)), -STEEPEST, STEEPEST);
    this.#safe = crash.grace;
    this.hurt(crash.damage, "asteroid");
  }

  // Damage by a beam, a ship or an asteroid.
  hurt(damage, by) {
    if (!this.alive || !(damage > 0)) return;
    this.shield -= damage;
    this.hooks.hit(by, damage);
    if (this.shield > 0) return;
    this.shield = 0;
    this.velocity = [0, 0, 0];
    this.score.lost += 1;
    this.#back = Math.max(2, this.rules.respawn);
    this.hooks.exploded();
  }

  // Fires a beam if that is possible now; returns whether it did.
  fires() {
    const { beam } = this.rules;
    if (!this.alive || this.#ready > 0 || this.energy < beam.cost) return false;
    this.energy -= beam.cost;
    this.#ready = beam.pause;
    return true;
  }

  // The ship that a beam would hit: the nearest of these within the aim.
  target(others) {
    const reach = this.rules.sight / 2, heading = this.heading;
    let best = null;
    for (const other of others) {
      const gap = sub(other.place, this.place), away = size(gap);
      if (away > reach || dot(unit(gap), heading) < this.rules.aim) continue;
      if (!best || away < best.away) best = { ...other, away };
    }
    return best;
  }

  // The payload of an update: position, rotation, velocity and spin.
  update() {
    return [...this.place, this.yaw, this.pitch, 0, ...this.velocity, ...this.spin];
  }
}

const KEYS = {
  arrowleft: ["yaw", 1], arrowright: ["yaw", -1], arrowup: ["pitch", 1], arrowdown: ["pitch", -1],
  a: ["yaw", 1], d: ["yaw", -1], w: ["pitch", 1], s: ["pitch", -1],
};
const HELD = { shift: "boost", q: "brake", " ": "fire" };
const REACH = 110; // pixels of dragging for full deflection
const TAP_MS = 220;

// Keys, buttons, and a pointer that is dragged as a stick; a tap or click fires once.
export function controls(stick, canvas, buttons, tapped) {
  const held = new Set();
  const steer = () => {
    let yaw = 0, pitch = 0;
    for (const key of held) {
      const [axis, sign] = KEYS[key] ?? [];
      if (axis === "yaw") yaw += sign;
      if (axis === "pitch") pitch += sign;
    }
    stick.yaw = clamp(yaw, -1, 1);
    stick.pitch = clamp(pitch, -1, 1);
    for (const [key, name] of Object.entries(HELD)) stick[name] = held.has(key);
  };
  const press = (e, down) => {
    const key = e.key.toLowerCase();
    if (!(key in KEYS || key in HELD) || e.ctrlKey || e.metaKey || e.altKey) return;
    if (document.activeElement?.matches("input, summary, button") && key === " ") return;
    down ? held.add(key) : held.delete(key);
    steer();
    if (down) e.preventDefault();
  };
  addEventListener("keydown", (e) => press(e, true));
  addEventListener("keyup", (e) => press(e, false));
  addEventListener("blur", () => (held.clear(), steer())); // a key released elsewhere sends no keyup
  for (const [name, button] of Object.entries(buttons)) {
    const set = (on) => (e) => (e.preventDefault(), (stick[name] = on));
    button.addEventListener("pointerdown", set(true));
    for (const end of ["pointerup", "pointercancel", "pointerleave"]) button.addEventListener(end, set(false));
  }
  let drag = null;
  canvas.addEventListener("pointerdown", (e) => {
    if (drag) return;
    canvas.setPointerCapture(e.pointerId);
    canvas.focus({ preventScroll: true });
    drag = { id: e.pointerId, x: e.offsetX, y: e.offsetY, at: performance.now(), far: 0 };
  });
  canvas.addEventListener("pointermove", (e) => {
    if (e.pointerId !== drag?.id) return;
    const dx = e.offsetX - drag.x, dy = e.offsetY - drag.y;
    drag.far = Math.max(drag.far, Math.hypot(dx, dy));
    stick.yaw = clamp(-dx / REACH, -1, 1);
    stick.pitch = clamp(-dy / REACH, -1, 1);
  });
  const end = (e) => {
    if (e.pointerId !== drag?.id) return;
    if (e.type === "pointerup" && drag.far < 8 && performance.now() - drag.at < TAP_MS) tapped();
    drag = null;
    steer();
  };
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
}
