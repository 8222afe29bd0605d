// The page of a trace: its replay in the same world view.

import { figure } from "./charts.js";
import { ask, decode, repeatEvery } from "./snapshots.js";
import { short } from "./palette.js";

const SNAPSHOTS_MS = 180;
const element = (id) => document.getElementById(id);
const perSecond = (value) => `${short(value)}/s`;
const ms = (value) => `${value < 10 ? value.toFixed(1) : value.toFixed(0)} ms`;

export async function begin(about, world, status) {
  const replay = new Replay(about);
  element("comparison").hidden = element("accuracy").hidden = true;
  element("console").hidden = true;
  element("player").hidden = false;
  element("numbers-title").textContent = "This run";
  element("hint").textContent = "Space plays and pauses · ← → step · drag and wheel move the view";
  element("summary").textContent = about.title;
  document.title = `${about.name} · Nearcast`;
  repeatEvery(SNAPSHOTS_MS, async () => {
    const at = replay.now();
    if (world.snapshot && replay.asked === at) return; // paused
    world.snapshot = decode(await ask(`monitor/world?at=${Math.round(at)}`, "bytes"));
    replay.asked = at;
  }, (error) => status(error ? "bad" : "good", error ? error.message : "a recording"));
  const charts = new Charts();
  repeatEvery(1000, async () => {
    if (!charts.done) charts.take(await ask("monitor/seconds"));
  }, () => {});
  list(about);
  return { clock: replay, charts, replay, frame: () => {
    replay.show();
    charts.show((replay.now() - about.first) / 1e6);
  }, walk() {} };
}

class Replay {
  playing = true;
  asked = null;

  constructor(about) {
    this.first = about.first;
    this.last = about.last;
    this.at = about.first;
    this.since = performance.now();
    this.speed = 1;
    this.seek = element("seek");
    this.seek.max = String((this.last - this.first) / 1e6);
    this.seek.addEventListener("input", () => this.goTo(this.first + Number(this.seek.value) * 1e6));
    element("play").addEventListener("click", () => this.toggle());
    element("speed").addEventListener("change", (e) => {
      this.goTo(this.now());
      this.speed = Number(e.target.value);
    });
    addEventListener("keydown", (e) => {
      if (e.target.matches?.("input, select, button") || e.ctrlKey || e.metaKey || e.altKey) return;
      const step = { ArrowLeft: -1e6, ArrowRight: 1e6 }[e.key];
      if (e.key === " ") this.toggle();
      else if (e.key === "Home") this.goTo(this.first);
      else if (step) this.goTo(this.now() + step);
      else return;
      e.preventDefault();
    });
    this.show();
  }

  now() {
    if (!this.playing) return this.at;
    const t = this.at + (performance.now() - this.since) * 1000 * this.speed;
    return Math.min(t, this.last);
  }

  goTo(t) {
    this.at = Math.min(this.last, Math.max(this.first, t));
    this.since = performance.now();
  }

  toggle() {
    const ended = this.now() >= this.last;
    this.goTo(this.playing || !ended ? this.now() : this.first);
    this.playing = !this.playing;
  }

  show() {
    const t = this.now();
    if (this.playing && t >= this.last) {
      this.goTo(this.last);
      this.playing = false;
    }
    const seconds = (t - this.first) / 1e6;
    if (document.activeElement !== this.seek || this.playing) this.seek.value = String(seconds);
    element("moment").textContent = `${seconds.toFixed(1)} / ${((this.last - this.first) / 1e6).toFixed(1)} s`;
    const button = element("play");
    button.textContent = this.playing ? "❚❚" : "▶";
    button.setAttribute("aria-label", this.playing ? "Pause" : "Play");
  }
}

class Charts {
  done = false;
  #table = null;
  #shown = null;

  constructor() {
    const place = element("charts");
    this.figures = [
      ["deliveries", "deliveries", "c3", perSecond],
      ["publications", "publications", "c4", perSecond],
      ["interests", "interests", "c5", perSecond],
      ["messages", "messages", "c2", perSecond],
      ["bytes", "bytes", "c3", (value) => `${short(value)}B/s`],
    ].map(([name, title, colour, format]) => [[name], figure(place, title, [{ colour }], { format })]);
    this.figures.push([["p50_ms", "p99_ms"], figure(place, "latency p50, p99",
      [{ colour: "c4", label: "p50" }, { colour: "c1", label: "p99" }],
      { format: ms, words: ([p50, p99]) => `≤ ${ms(p50)} · ${ms(p99)}` })]);
  }

  take(table) {
    this.#table = table;
    this.#shown = null;
    this.done = table.done;
  }

  show(second) {
    const step = this.#table?.step_s;
    if (!step || this.#shown === Math.floor(second * 4)) return;
    this.#shown = Math.floor(second * 4);
    for (const [names, one] of this.figures) {
      const rows = this.#table[names[0]].map((_, k) => [k * step, ...names.map((name) => this.#table[name][k])]);
      one.show(rows, second);
    }
  }
}

// The tables of the trace and their numbers of rows.
function list(about) {
  const table = element("nodes");
  element("nodes-title").textContent = "The trace";
  const head = table.tHead.insertRow();
  for (const name of ["table", "rows"]) {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.textContent = name;
    head.append(cell);
  }
  for (const [name, count] of Object.entries(about.tables)) {
    const row = table.tBodies[0].insertRow();
    row.insertCell().textContent = name;
    row.insertCell().textContent = count.toLocaleString("en");
  }
}
