// Where the page of a ship begins: our peer joins, the ship is flown here, and the peer says where
// it is and tells us what it hears.

import { connect } from "/nearcast.js";

import { ask, regularly } from "./feed.js";
import { controls, Ship, Stick } from "./flight.js";
import { Heard } from "./heard.js";
import { Sky } from "./sky.js";

const NEWS_MS = 4000;
const SLOWEST_S = 0.25; // a longer pause between two frames is no flight
const element = (id) => document.getElementById(id);

function status(kind, text) {
  const line = element("status");
  line.className = kind;
  if (line.lastElementChild.textContent !== text) line.lastElementChild.textContent = text;
}

function tell(text, kind = "") {
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
  heard = new Heard();
  stick = new Stick();
  teams = {};
  #shots = new Map(); // whom we have hit, and when

  constructor(rules, client) {
    this.rules = rules;
    this.client = client;
    this.sky = new Sky(element("sky"), rules);
    this.ship = new Ship(rules, {
      hit: (by, damage) => tell(`${by === "asteroid" ? "an asteroid" : by}: −${damage}`, "bad"),
      exploded: () => this.#explode(),
      born: () => tell("a new ship", "good"),
    });
  }

  get team() {
    return this.teams[this.client.entity];
  }

  async listen() {
    this.around = await this.client.subscribe(area(this.ship, this.rules.sight));
    await this.#listenForHits();
    this.#take(this.around, (message) => {
      if (message.attributes?.exploded) this.#sawExplode(message);
      else this.heard.see(message);
    });
    this.#take(this.client.notices(), ({ is, reason }) => {
      if (is === "disconnected") status("bad", `the connection is lost: ${reason}`);
      if (is === "reconnected") this.#beginAnew();
      if (is === "ended") status("bad", reason);
    });
  }

  // Another peer flies for us, by another name.
  async #beginAnew() {
    status("good", "flying again, with a new peer");
    await this.own.unsubscribe();
    await this.#listenForHits();
  }

  async #listenForHits() {
    const channel = `ship ${this.client.entity}`;
    this.own = await this.client.subscribe(area(this.ship, this.rules.sight / 2), { channel });
    this.#take(this.own, (message) => this.#wasHit(message));
  }

  async #take(source, act) {
    try {
      for await (const one of source) act(one);
    } catch (error) {
      status("bad", error.message);
    }
  }

  others(t) {
    const found = [];
    for (const ship of this.heard.around(t)) {
      if (ship.id === this.client.entity) continue;
      const place = this.heard.place(ship, t), heading = this.heard.heading(ship, t);
      found.push({ id: ship.id, place, heading, hit: ship.hit, team: this.teams[ship.id] });
    }
    return found;
  }

  // Several times a second: where we are, and what we want to hear.
  say() {
    const { ship } = this;
    if (!ship.alive) return;
    const quiet = () => {}; // there is no connection now; it comes back by itself
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
    this.sky.beam(from, to, "beam");
    if (!target) return;
    this.ship.score.hits += 1;
    const known = this.heard.ships.get(target.id);
    if (known) known.hit = performance.now();
    this.#shots.set(target.id, performance.now());
    const [x, y, z] = target.place;
    const attributes = { hit: "beam", damage: this.rules.beam.damage };
    this.client
      .publish({ x, y, z }, undefined, { channel: `ship ${target.id}`, attributes, confirm: false })
      .catch(() => {});
  }

  #wasHit({ from, attributes }) {
    const shooter = this.heard.ships.get(from);
    if (shooter && attributes.hit === "beam") {
      this.sky.beam(this.heard.place(shooter, this.client.now()), this.ship.place, "beam-foe");
    }
    this.ship.hurt(attributes.damage, attributes.hit === "beam" ? "hit by a beam" : "a collision");
  }

  #explode() {
    this.sky.blast(this.ship.place);
    tell("your ship has exploded", "bad");
    const [x, y, z] = this.ship.place;
    this.client
      .publish({ x, y, z }, undefined, { attributes: { exploded: true }, confirm: false })
      .catch(() => {});
  }

  #sawExplode({ from, x, y, z }) {
    this.heard.lose(from);
    this.sky.blast([x, y, z ?? 0]);
    if (performance.now() - (this.#shots.get(from) ?? -Infinity) < 3000) {
      this.ship.score.wins += 1;
      tell("you have won a fight", "good");
    }
    this.#shots.delete(from);
  }

  frame(seconds) {
    this.ship.fly(seconds, this.stick);
    if (this.stick.fire) this.fire();
    const others = this.others(this.client.now());
    const foes = others.filter(({ team }) => team !== this.team);
    this.sky.draw(this.ship, others, this.ship.alive ? this.ship.target(foes) : null, this.team);
    this.#gauge("shield", this.ship.shield);
    this.#gauge("energy", this.ship.energy);
    const { hits, wins, lost } = this.ship.score;
    element("score").textContent =
      `${Math.round(Math.hypot(...this.ship.velocity))} units/s · ${hits} hits · ${wins} won · ${lost} lost`
      + (this.ship.inZone ? " · under repair" : "");
    element("summary").textContent = `${others.length} ships in sight`;
  }

  #gauge(name, value) {
    element(name).value = value;
    element(`${name}-said`).textContent = Math.round(value);
  }

  async count() {
    const said = await ask("monitor/ships");
    this.teams = said.teams;
    const { plain, reckoned, count } = this.heard.differences;
    element("reckoning").textContent = count
      ? `When an update arrives, a ship is ${plain.toFixed(1)} units from where it last said it was, and `
        + `${reckoned.toFixed(2)} from where ${this.heard.reckons ? "dead reckoning had drawn it" : "it was drawn"}.`
      : "No ship has been heard twice yet.";
    element("fleet").textContent =
      `Everybody here is a peer of one ${this.rules.overlay} overlay: ${said.peers} of them, without any server. `
      + `Your own peer is ${this.client.entity}; all that you see, it has heard. `
      + `Bots know ${said.known.toFixed(1)} others each.`;
  }
}

async function begin() {
  const rules = await ask("monitor/about");
  const address = new URL("/ws", location.href.replace(/^http/, "ws")).href;
  const client = await connect(address, { name: "you" });
  const game = new Game(rules, client);
  await game.count();
  await game.listen();
  status("good", "flying");
  element("hint").textContent = matchMedia("(pointer: coarse)").matches
    ? "Drag to steer · tap or press fire"
    : "Arrows or WASD steer, or drag · space or click fires · shift boosts · Q brakes";
  const buttons = { brake: element("brake"), boost: element("boost"), fire: element("fire") };
  controls(game.stick, element("sky"), buttons, () => game.fire());
  const reckon = element("reckon");
  reckon.addEventListener("change", () => (game.heard.reckons = reckon.checked));
  addEventListener("keydown", (e) => {
    if (e.key === "r" && !e.ctrlKey && !e.metaKey) reckon.click();
  });
  setInterval(() => game.say(), 1000 / rules.rate);
  regularly(1000, () => game.count(), (error) => {
    if (error) status("bad", "the bots do not answer");
  });
  let before = performance.now();
  const frame = (now) => {
    game.frame(Math.min(SLOWEST_S, Math.max(0, now - before) / 1000));
    before = now;
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
  window.nearcast = { game, client }; // for whoever looks from the browser's own console
}

begin().catch((error) => status("bad", error.message));
