// Entry point of the monitor page: it shows a live node or the replay of a trace.

import { EarthMap } from "./map.js";
import { Plane } from "./plane.js";
import { ask } from "./snapshots.js";
import { World } from "./world.js";

const element = (id) => document.getElementById(id);

function status(kind, text) {
  const line = element("status");
  line.className = kind;
  if (line.lastElementChild.textContent !== text) line.lastElementChild.textContent = text;
}

async function begin() {
  const about = await ask("monitor/about");
  let mode = null;
  const earth = about.geometry === "earth";
  element("stage").classList.toggle("map", earth);
  const ground = earth ? new EarthMap() : new Plane(about.bounds);
  const world = new World(element("world"), element("tip"), (place) => mode?.walk(place), ground);
  view(world);
  const { begin: start } = await import(about.mode === "live" ? "./live.js" : "./replay.js");
  mode = await start(about, world, status);
  const frame = () => {
    world.draw(mode.clock.now());
    mode.frame?.();
    requestAnimationFrame(frame);
  };
  frame();
  // For the browser's console and tests.
  window.nearcast = { world, ...mode };
}

function view(world) {
  const toggle = () => {
    world.areas = !world.areas;
    element("areas").setAttribute("aria-pressed", String(world.areas));
  };
  element("closer").addEventListener("click", () => world.closer(1.5));
  element("farther").addEventListener("click", () => world.closer(1 / 1.5));
  element("whole").addEventListener("click", () => world.fit());
  element("areas").addEventListener("click", toggle);
  addEventListener("keydown", (e) => {
    if (document.activeElement?.matches("input, select") || e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.key === "+" || e.key === "=") world.closer(1.25);
    else if (e.key === "-") world.closer(0.8);
    else if (e.key === "0") world.fit();
    else if (e.key === "i") toggle();
  });
}

begin().catch((error) => status("bad", error.message));
