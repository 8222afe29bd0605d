// Entry point of the game page. A peer of our own joins the overlay; it publishes the position of the
// ship that is flown here and delivers the updates of the others.

import { connect } from "/nearcast.js";

import { ask, repeatEvery } from "./snapshots.js";
import { controls, Ship, Stick } from "./own_ship.js";
import { OtherShips } from "./other_ships.js";
import { SpaceView } from "./space_view.js";

const NEWS_MS = 4000;
const SLOWEST_S = 0.25; // longer pauses between two frames count as this
const element = (id) => document.getElementById(id);

function status(kind, text) {
  const line = element("status");
  line.className = kind;
  if (line.lastElementChild.textContent !== text) line.lastElementChild.textContent = text;
}

function showNews(text, kind = "") {
  const line = document.createElement("li");
  line.className = kind;
  line.textContent = text;
  element("news").prepend(line);
  while (element("news").children.length > 4) element("news").lastElementChild.remove();
  setTimeout(() => line.remove(), NEWS_MS);
}

const area = (ship, r) => {
  const [[x, y, z], [vx, vy, vz]] = [ship.place, ship.velocity];
  return { x, y, z, r, vx, vy, vz };
};

class Game {
  otherShips = new OtherShips();
  stick = new Stick();
  teams = {};
  accuracy = ""; // of what is in sight, as text
  #shots = new Map(); // entity: when we hit it

  constructor(rules, client) {
    this.rules = rules;
    this.client = client;
    this.view = new SpaceView(element("space"), rules);
    this.ship = new Ship(rules, {
      hit: (by, damage) => showNews(`${by === "asteroid" ? "an asteroid" : by}: −${damage}`, "bad"),
      exploded: () => this.#explode(),
      born: () => showNews("a new ship", "good"),
    });
  }

  get team() {
    return this.teams[this.client.entity];
  }

  async subscribe() {
    this.around = await this.client.subscribe(area(this.ship, this.rules.sight));
    await this.#subscribeToHits();
    this.#forEach(this.around, (message) => {
      if (message.attributes?.exploded) this.#onExplosion(message);
      else this.otherShips.update(message);
    });
    this.#forEach(this.client.notices(), ({ is, reason }) => {
      if (is === "disconnected") status("bad", `the connection is lost: ${reason}`);
      if (is === "reconnected") this.#onNewPeer();
      if (is === "ended") status("bad", reason);
    });
  }

  // Our session continues on another peer, with another entity number.
  async #onNewPeer() {
    status("good", "flying again, with a new peer");
    await this.own.unsubscribe();
    await this.#subscribeToHits();
  }

  async #subscribeToHits() {
    const channel = `ship ${this.client.entity}`;
    this.own = await this.client.subscribe(area(this.ship, this.rules.sight / 2), { channel });
    this.#forEach(this.own, (message) => this.#onHit(message));
  }

  async #forEach(source, act) {
    try {
      for await (const one of source) act(one);
    } catch (error) {
      status("bad", error.message);
    }
  }

  others(t) {
    const found = [];
    for (const ship of this.otherShips.current(t)) {
      if (ship.id === this.client.entity) continue;
      const place = this.otherShips.place(ship, t), heading = this.otherShips.heading(ship, t);
      found.push({ id: ship.id, place, heading, hit: ship.hit, team: this.teams[ship.id] });
    }
    return found;
  }

  // Several times a second: publish the position and move both subscriptions.
  publishPosition() {
    const { ship } = this;
    if (!ship.alive) return;
    const quiet = () => {}; // not connected now; the client reconnects by itself
    this.around.move(area(ship, this.rules.sight)).catch(quiet);
    this.own.move(area(ship, this.rules.sight / 2)).catch(quiet);
    const [x, y, z] = ship.place;
    this.client.publish({ x, y, z }, ship.update(), { confirm: false }).catch(quiet);
  }

  fire() {
    if (!this.ship.fires()) return;
    const t = this.client.now();
    const foes = this.others(t).filter(({ team }) => team !== this.team);
    const target = this.ship.target(foes), from = this.ship.place;
    const far = this.rules.sight / 2;
    const to = target ? target.place : from.map((c, axis) => c + this.ship.heading[axis] * far);
    this.view.beam(from, to, "beam");
    if (!target) return;
    this.ship.score.hits += 1;
    const known = this.otherShips.ships.get(target.id);
    if (known) known.hit = performance.now();
    this.#shots.set(target.id, performance.now());
    const [x, y, z] = target.place;
    const attributes = { hit: "beam", damage: this.rules.beam.damage };
    this.client
      .publish({ x, y, z }, undefined, { channel: `ship ${target.id}`, attributes, confirm: false })
      .catch(() => {});
  }

  #onHit({ from, attributes }) {
    const shooter = this.otherShips.ships.get(from);
    if (shooter && attributes.hit === "beam") {
      this.view.beam(this.otherShips.place(shooter, this.client.now()), this.ship.place, "beam-foe");
    }
    this.ship.hurt(attributes.damage, attributes.hit === "beam" ? "hit by a beam" : "a collision");
  }

  #explode() {
    this.view.blast(this.ship.place);
    showNews("your ship has exploded", "bad");
    const [x, y, z] = this.ship.place;
    this.client
      .publish({ x, y, z }, undefined, { attributes: { exploded: true }, confirm: false })
      .catch(() => {});
  }

  #onExplosion({ from, x, y, z }) {
    this.otherShips.remove(from);
    this.view.blast([x, y, z ?? 0]);
    if (performance.now() - (this.#shots.get(from) ?? -Infinity) < 3000) {
      this.ship.score.wins += 1;
      showNews("you have won a fight", "good");
    }
    this.#shots.delete(from);
  }

  frame(seconds) {
    this.ship.fly(seconds, this.stick);
    if (this.stick.fire) this.fire();
    const others = this.others(this.client.now());
    const foes = others.filter(({ team }) => team !== this.team);
    this.view.draw(this.ship, others, this.ship.alive ? this.ship.target(foes) : null, this.team);
    this.#gauge("shield", this.ship.shield);
    this.#gauge("energy", this.ship.energy);
    const { hits, wins, lost } = this.ship.score;
    element("score").textContent =
      `${Math.round(Math.hypot(...this.ship.velocity))} units/s · ${hits} hits · ${wins} won · ${lost} lost`
      + (this.ship.inZone ? " · under repair" : "");
    element("summary").textContent = `${others.length} ships in sight${this.accuracy}`;
  }

  #gauge(name, value) {
    element(name).value = value;
    element(`${name}-value`).textContent = Math.round(value);
  }

  async count() {
    const answer = await ask("monitor/ships");
    this.teams = answer.teams;
    const [known, inSight, wrong] = answer.awareness[this.client.entity] ?? [0, 0, 0];
    const percent = (share) => `${(100 * share).toFixed(1)} %`;
    this.accuracy = (inSight ? ` · your peer knows ${known} of ${inSight}` : "")
      + (wrong ? `${inSight ? "," : " · your peer knows"} ${wrong} out of sight` : "")
      + (answer.aware === null ? "" : ` · all peers know ${percent(answer.aware)}`)
      + (answer.accuracy === null ? "" : ` · accuracy ${percent(answer.accuracy)}`);
    const { plain, reckoned, count } = this.otherShips.differences;
    element("reckoning").textContent = count
      ? `When an update arrives, a ship is on average ${plain.toFixed(1)} units from its last published position `
        + `and ${reckoned.toFixed(2)} from where ${this.otherShips.deadReckoning ? "dead reckoning had drawn it" : "it was drawn"}.`
      : "No ship has sent two updates yet.";
    element("fleet").textContent =
      `All ships are peers of one ${this.rules.overlay} overlay: ${answer.peers - this.rules.servers} peers and `
      + `${this.rules.servers || "no"} server. `
      + `Your own peer is ${this.client.entity}; all that you see was delivered to it. `
      + `A bot knows ${answer.known.toFixed(1)} others on average. A peer knows a ship in its sight if it `
      + "was delivered an update of it within the last second. Accuracy is the share of all pairs of a peer and "
      + "another ship where it knows the ship exactly if that is in its sight.";
  }
}

async function begin() {
  const rules = await ask("monitor/about");
  const address = new URL("/ws", location.href.replace(/^http/, "ws")).href;
  const client = await connect(address, { name: "you" });
  const game = new Game(rules, client);
  await game.count();
  await game.subscribe();
  status("good", "flying");
  element("hint").textContent = matchMedia("(pointer: coarse)").matches
    ? "Drag to steer · tap or press fire"
    : "Arrows or WASD steer, or drag · space or click fires · shift boosts · Q brakes";
  const buttons = { brake: element("brake"), boost: element("boost"), fire: element("fire") };
  controls(game.stick, element("space"), buttons, () => game.fire());
  const reckon = element("reckon");
  reckon.addEventListener("change", () => (game.otherShips.deadReckoning = reckon.checked));
  addEventListener("keydown", (e) => {
    if (e.key === "r" && !e.ctrlKey && !e.metaKey) reckon.click();
  });
  setInterval(() => game.publishPosition(), 1000 / rules.rate);
  repeatEvery(1000, () => game.count(), (error) => {
    if (error) status("bad", "the bots do not answer");
  });
  let before = performance.now();
  const frame = (now) => {
    game.frame(Math.min(SLOWEST_S, Math.max(0, now - before) / 1000));
    before = now;
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
  window.nearcast = { game, client }; // for the browser's console and tests
}

begin().catch((error) => status("bad", error.message));
