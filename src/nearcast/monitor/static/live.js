// The page of a live node: its world, the person's character, the command line and the node's numbers.

import { figure } from "./charts.js";
import { Cluster } from "./cluster.js";
import { Console } from "./console.js";
import { EngineComparison } from "./engine_comparison.js";
import { FenceEditor } from "./fence_editor.js";
import { Clock, placeOf, repeatEvery, token } from "./snapshots.js";
import { short } from "./palette.js";
import { enter } from "./person.js";

const SNAPSHOTS_MS = 200;
const NUMBERS_MS = 1000;
const BEYOND = 2001; // milliseconds: above the node's last bucket
const ms = (value) => {
  if (value === 0) return "–"; // nothing was delivered
  return value < BEYOND ? `≤ ${Math.round(value * 10) / 10} ms` : "> 2 s";
};
const bytes = (value) => `${short(value)}${/[kMG]$/.test(short(value)) ? "B" : " B"}/s`;
const perSecond = (value) => `${short(value)}/s`;

const element = (id) => document.getElementById(id);

export async function begin(about, world, status) {
  const clock = new Clock();
  const cluster = new Cluster();
  const earth = about.geometry === "earth";
  world.fences = new FenceEditor(world);
  repeatEvery(SNAPSHOTS_MS, async () => {
    world.snapshot = await cluster.fetchSnapshots();
    if (!earth) world.sites = cluster.sites;
    clock.observe(world.snapshot.t);
  }, (error) => status(error ? "bad" : "good", error ? "the node does not answer" : "live"));
  return earth ? watch(world, clock, cluster) : play(about, world, clock, cluster);
}

// A world on Earth: a map, on which nobody walks.
function watch(world, clock, cluster) {
  element("comparison").hidden = element("console").hidden = true;
  element("hint").textContent = "Drag and wheel move the map · point at somebody to see who and where it is";
  element("world").ariaLabel = "A map. Plus and minus zoom, 0 shows everybody, f draws fences.";
  const numbers = new Numbers();
  repeatEvery(NUMBERS_MS, async () => {
    numbers.show(await cluster.fetchNumbers(), cluster);
    const count = world.snapshot?.entities.count ?? 0;
    element("summary").textContent = `${count.toLocaleString("en")} ${count === 1 ? "entity" : "entities"}`;
  }, () => {}); // the requests for snapshots show whether the node answers
  return { clock, walk() {} };
}

// A plane, with the person's character in it.
async function play(about, world, clock, cluster) {
  const engines = new EngineComparison(
    element("engines"), element("saving-chart"), element("saving"), element("comparison-note"),
  );
  element("hint").textContent = matchMedia("(pointer: coarse)").matches
    ? "Tap to walk there · drag and pinch move the view"
    : "Click to walk there · arrows or WASD · drag and wheel move the view · / for commands";
  if (!about.game) {
    element("comparison").hidden = true;
    element("orders").hidden = true;
    element("line").placeholder = "goto 300 200 · follow 12 · find 12 · help";
  }
  const person = await enter(about.bounds, {
    delivered: ({ from, x, y, attributes }) => world.showDelivery(from, x, y, attributes.action === "pick-up"),
    news: (payload) => takeNews(payload),
    notice: (notice) => {
      if (notice.is === "disconnected") line.print(`the connection is lost: ${notice.reason}`, "wrong");
      if (notice.is === "reconnected") line.print("connected again, and subscribed as before");
      if (notice.is === "handed over") line.print(`another node serves you now: ${notice.node || notice.url}`);
      if (notice.is === "ended") line.print(notice.reason, "wrong");
    },
  });
  world.me = person;
  const line = new Console(element("console"), actions(person, world, clock));
  let characters = 0;
  function takeNews(payload) {
    if (payload.answer !== undefined) {
      if (payload.to === person.entity) line.print(payload.answer);
      return;
    }
    characters = payload.characters;
    engines.update(payload);
  }
  const numbers = new Numbers();
  repeatEvery(NUMBERS_MS, async () => {
    numbers.show(await cluster.fetchNumbers(), cluster);
    if (world.sites.length && !about.game) {
      world.stretch([...world.sites, ...positions(world.snapshot)]);
      person.bounds = world.bounds;
    }
    const others = Math.max(0, (world.snapshot?.entities.count ?? 0) - 1);
    element("summary").textContent =
      `${others.toLocaleString("en")} others${characters ? ` (${characters} bots)` : ""} · you are ${person.entity}, `
      + `${person.here.inside.size} in your area · your walks took ${person.requests} request${person.requests === 1 ? "" : "s"}`;
  }, () => {}); // the requests for snapshots show whether the node answers
  keys(person);
  return { clock, person, line, walk: (place) => {
    person.forgetFollowing();
    world.marked = null;
    element("hint").hidden = true;
    return person.walkTo(place).catch((error) => line.print(error.message, "wrong"));
  } };
}

function* positions({ entities: { count, x, y } }) {
  for (let i = 0; i < count; i++) yield { x: x[i], y: y[i] };
}

function actions(person, world, clock) {
  const mark = (entity) => {
    if (!placeOf(world.snapshot, entity, clock.now())) throw new Error(`there is no entity ${entity} here`);
    world.marked = entity;
  };
  return {
    async goto(x, y) {
      person.forgetFollowing();
      const seconds = await person.walkTo({ x, y });
      return `on the way; ${seconds.toFixed(1)} s, one request`;
    },
    follow(entity) {
      mark(entity);
      person.follow(() => placeOf(world.snapshot, entity, clock.now()));
      return `following ${entity}, until you walk elsewhere`;
    },
    find(entity) {
      mark(entity);
      return "";
    },
    async stop() {
      world.marked = null;
      await person.stop();
      return "standing still";
    },
    spawn: (number) => person.order("spawn", Math.round(number)),
    gather: (number) => person.order("gather", Math.round(number)),
    scatter: () => person.order("scatter"),
    storm: () => person.order("storm"),
  };
}

function keys(person) {
  const typing = () => document.activeElement?.matches("input, select, textarea");
  addEventListener("keydown", (e) => {
    if (typing() || e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.key === "/") element("line").focus();
    else if (!person.press(e.key, true)) return;
    e.preventDefault();
  });
  addEventListener("keyup", (e) => person.press(e.key, false));
  addEventListener("blur", () => person.letGo()); // a key released elsewhere sends no keyup
}

// The node's counters as rates, its latency as percentiles, and the accuracy that Spark computes.
class Numbers {
  #judged = null; // the last second that was shown

  constructor() {
    const place = element("charts");
    this.deliveries = figure(place, "deliveries", [{ colour: "c3" }], { format: perSecond });
    this.interests = figure(place, "subscription messages", [{ colour: "c5" }], { format: perSecond });
    this.bytes = figure(place, "bytes out and in",
      [{ colour: "c3", label: "out" }, { colour: "c4", label: "in" }],
      { format: bytes, words: ([out, inward]) => `${bytes(out)} · ${bytes(inward)}` });
    this.latency = figure(place, "latency p50, p99",
      [{ colour: "c4", label: "p50" }, { colour: "c1", label: "p99" }],
      { format: ms, words: ([p50, p99]) => `${ms(p50)} · ${ms(p99).replace("≤ ", "")}` });
    const judged = element("accuracy-charts");
    this.wrong = figure(judged, "missed, spurious",
      [{ colour: "c1", label: "missed" }, { colour: "c2", label: "spurious" }],
      { format: perSecond, words: ([missed, spurious]) => `${short(missed)} · ${short(spurious)}` });
    this.expected = figure(judged, "expected, delivered",
      [{ colour: "soft", label: "expected" }, { colour: "c5", label: "delivered" }],
      { format: perSecond, words: ([expected, delivered]) => `${short(expected)} · ${short(delivered)}` });
  }

  // Charts of our own node, if it answers, and the table of all nodes.
  show(node, cluster) {
    this.#list(cluster);
    if (!node) return;
    const { numbers, before } = node;
    this.#judge(numbers.judged, numbers.trace);
    if (!before) return;
    const rate = (name) => node.rate(name);
    const t = numbers.t / 1e6;
    this.deliveries.add(t, [rate("deliveries")]);
    this.interests.add(t, [rate("interests")]);
    this.bytes.add(t, [rate("bytes_out"), rate("bytes_in")]);
    const late = numbers.latency.counts.map((count, k) => count - before.latency.counts[k]);
    const share = (part) => percentile(numbers.latency.bounds, late, part);
    this.latency.add(t, [share(0.5), share(0.99)]);
  }

  #list(cluster) {
    const table = element("nodes");
    const heads = ["node", "clients", "subscrip\u00adtions", "deliv\u00aderies/s", "rows kept", "state", "load"];
    if (!table.tHead.rows.length) {
      const row = table.tHead.insertRow();
      for (const name of heads) {
        const head = document.createElement("th");
        head.scope = "col";
        head.textContent = name;
        row.append(head);
      }
    }
    table.tBodies[0].replaceChildren();
    const nodes = cluster.nodes;
    for (const node of nodes) {
      const info = node.numbers.nodes[0];
      const row = table.tBodies[0].insertRow();
      const head = document.createElement("th");
      head.scope = "row";
      row.append(head);
      const title = `${info.name} ${info.address}`.trim();
      if (nodes.length > 1) {
        const mark = document.createElement("i");
        mark.style.setProperty("--mark", `var(--${cluster.mark(node)})`);
        head.append(mark, node.page ? link(node.page, title) : `${title} (this page)`);
      } else {
        head.textContent = title;
      }
      const cells = [
        info.clients, info.subscriptions, short(node.rate("deliveries")),
        info.recording ? short(info.rows) : "off",
      ];
      // A node's load is a share of its capacity. A node alone is in no cluster, and has neither.
      const member = node.numbers.cluster?.members?.find((one) => one.own);
      cells.push(member?.state ?? "", member ? `${Math.round(100 * member.load)} %` : "");
      for (const text of cells) row.insertCell().textContent = text;
      if (member) row.title = `capacity: ${member.capacity} subscriptions${member.reason && "; "}${member.reason}`;
    }
  }

  #judge(judged, trace) {
    element("accuracy").hidden = !trace;
    element("accuracy-charts").hidden = !judged?.windows.length;
    if (judged && !judged.windows.length) {
      element("accuracy-note").textContent = "Spark is counting; the first seconds will appear soon.";
      return;
    }
    if (!judged) {
      const command = document.createElement("code");
      command.textContent = `nearcast analyse --follow ${trace}`;
      element("accuracy-note").replaceChildren(
        "To compare all deliveries with the exact truth, run in another terminal: ", command,
      );
      return;
    }
    const windows = judged.windows.filter((one) => this.#judged === null || one.second > this.#judged);
    for (const one of windows) {
      this.#judged = one.second;
      this.wrong.add(one.second, [one.missed ?? 0, one.spurious ?? 0]);
      this.expected.add(one.second, [one.expected ?? 0, one.delivered ?? 0]);
    }
    const sum = (name) => judged.windows.reduce((total, one) => total + (one[name] ?? 0), 0);
    element("accuracy-note").textContent =
      `Of ${sum("expected").toLocaleString("en")} expected deliveries in the last ${judged.windows.length} counted seconds, ${sum("missed")} were missed; ${sum("spurious")} further deliveries were spurious.`;
  }
}

// A link to the same page on another node.
function link(page, text) {
  const anchor = document.createElement("a");
  anchor.href = token ? `${page}#token=${encodeURIComponent(token)}` : page;
  anchor.textContent = text;
  return anchor;
}

// A percentile, in milliseconds, as the upper bound of its bucket.
function percentile(bounds, counts, share) {
  const total = counts.reduce((sum, count) => sum + count, 0);
  let sum = 0;
  for (const [k, count] of counts.entries()) {
    sum += count;
    if (total && sum >= share * total) return k < bounds.length ? bounds[k] * 1000 : BEYOND;
  }
  return 0;
}
