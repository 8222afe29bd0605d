// The comparison of [Evolving]: several designs on the same movement, side by side.

import { Chart } from "./charts.js";
import { short } from "./palette.js";

const WINDOW = 2e6; // microseconds over which rates are taken
const MARKS = {
  resubscribe: "c1", tile: "c6", object: "c7", periodic: "c2", lazy: "c3", cached: "c4", swept: "c5",
};
const LINES = { resubscribe: "re-subscribe", tile: "tiles", object: "objects", swept: "evolving" };

export class EngineComparison {
  #news = []; // the reports of the last seconds
  #rows = new Map();

  constructor(table, chart, saving, note) {
    this.body = table.tBodies[0];
    this.saving = saving;
    this.note = note;
    this.chart = new Chart(
      chart, Object.entries(LINES).map(([name, label]) => ({ colour: MARKS[name], label })),
      { title: "subscription messages per second", format: (n) => `${short(n)} msg/s` });
  }

  update(news) {
    if (this.#news.at(-1)?.publications > news.publications) this.#news = []; // the game was restarted
    this.#news.push(news);
    while (this.#news.length > 2 && news.t - this.#news[1].t >= WINDOW) this.#news.shift();
    const before = this.#news[0];
    const seconds = (news.t - before.t) / 1e6;
    if (seconds <= 0 || !news.engines.length) return;
    const rates = news.engines.map((engine, k) => {
      const rate = (name) => (engine[name] - before.engines[k][name]) / seconds;
      return {
        name: engine.name, title: engine.title, messages: rate("subscriptions"),
        bytes: rate("bytes"), evaluations: rate("evaluations"),
        missed: rate("missed"), spurious: rate("spurious"),
      };
    });
    this.#show(rates);
    this.#conclude(rates, news);
  }

  #show(rates) {
    const most = (name) => Math.max(...rates.map((rate) => rate[name]), 1e-9);
    const tops = { messages: most("messages"), bytes: most("bytes"), evaluations: most("evaluations") };
    for (const rate of rates) {
      if (!this.#rows.has(rate.name)) this.#rows.set(rate.name, this.#newRow(rate, MARKS[rate.name]));
      const cells = this.#rows.get(rate.name);
      for (const name of ["messages", "bytes", "evaluations"]) {
        const unit = name === "bytes" ? "B" : "";
        cells[name].firstChild.data = short(rate[name]) + (unit && (/[kMG]$/.test(short(rate[name])) ? unit : ` ${unit}`));
        cells[name].querySelector("i").style.width = `${(100 * rate[name]) / tops[name]}%`;
      }
      const exact = rate.missed + rate.spurious === 0;
      cells.wrong.textContent = exact ? "exact" : `${short(rate.missed)} · ${short(rate.spurious)}`;
      cells.wrong.className = exact ? "zero" : "";
    }
  }

  #newRow(rate, mark) {
    const row = this.body.insertRow();
    row.style.setProperty("--mark", `var(--${mark})`);
    const head = document.createElement("th");
    head.scope = "row";
    const [name, design = ""] = rate.title.split(/(?= \()/);
    const more = document.createElement("small");
    more.textContent = design;
    head.append(document.createElement("i"), name, more);
    row.append(head);
    const cells = {};
    for (const name of ["messages", "bytes", "evaluations"]) {
      cells[name] = row.insertCell();
      const bar = document.createElement("span");
      bar.className = "bar";
      bar.append(document.createElement("i"));
      cells[name].append("0", bar);
    }
    cells.wrong = row.insertCell();
    return cells;
  }

  #conclude(rates, news) {
    const rate = Object.fromEntries(rates.map((one) => [one.name, one]));
    const { resubscribe, swept } = rate;
    this.chart.add(news.t / 1e6, Object.keys(LINES).map((name) => rate[name].messages));
    const storm = news.storm_s > 0 ? ` The storm lasts another ${news.storm_s.toFixed(0)} s.` : "";
    if (resubscribe.messages > 0) {
      const messages = 100 * (1 - swept.messages / resubscribe.messages);
      const load = 100 * (1 - swept.bytes / resubscribe.bytes);
      const share = document.createElement("b");
      share.textContent = `${messages.toFixed(1)} %`;
      const wrong = swept.missed + swept.spurious;
      const exactly = wrong ? `${short(wrong)} deliveries a second are wrong` : "nothing is missed";
      this.saving.replaceChildren(
        share,
        ` of the subscription messages and ${load.toFixed(0)} % of the network load are saved now, and ${exactly}.${storm}`,
      );
    }
    this.note.textContent =
      `Lines: subscription messages of clients that re-subscribe, of topics and of evolving clients. All ${news.engines.length} designs really run, on the movement of ${news.compared} of ${news.characters} characters. `
      + "Tiles: a topic for each tile that an area touches. Objects: a topic for each entity that a client has found around its area. Clients filter what topics bring. "
      + "Brokers with evolving subscriptions get the formula once: PES (periodic) replaces each by a fixed one at every interval, LEES (lazy) evaluates it for each publication, CLEES (cached) does so and keeps the result for an interval. "
      + `Re-subscribing clients, topics, PES and the cache of CLEES renew every ${news.interval_ms} ms. `
      + "Bytes are those of the brokers' own messages; missed and spurious deliveries are counted against LEES, which is exact. Type storm to make all characters move at once.";
  }
}
