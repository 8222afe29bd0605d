"use strict";

// Tables: a click on a column head sorts by it, numbers from the highest; empty cells come last.
for (const table of document.querySelectorAll("table.sortable")) {
  table.tHead.addEventListener("click", (press) => {
    const head = press.target.closest("th");
    if (!head) return;
    const isNumber = head.classList.contains("number");
    const before = head.getAttribute("aria-sort");
    const first = isNumber ? "descending" : "ascending";
    const other = isNumber ? "ascending" : "descending";
    const order = before === first ? other : first;
    for (const each of head.parentElement.cells) each.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    const body = table.tBodies[0];
    const keyed = Array.from(body.rows, (row) => [row.cells[head.cellIndex].dataset.value, row]);
    keyed.sort(([a], [b]) => {
      if (a === "" || b === "") return (a === "") - (b === "");
      return sign * (isNumber ? Number(a) - Number(b) : a < b ? -1 : a > b ? 1 : 0);
    });
    body.append(...keyed.map(([, row]) => row));
  });
}

// Misses: a click on one shows its story.
for (const card of document.querySelectorAll("[data-stories]")) {
  const stories = JSON.parse(card.querySelector("script").textContent);
  const shown = card.querySelector("pre");
  card.querySelector("tbody").addEventListener("click", (press) => {
    const row = press.target.closest("tr");
    if (!row) return;
    for (const each of row.parentElement.rows) each.classList.toggle("chosen", each === row);
    shown.textContent = stories[row.dataset.story];
    shown.hidden = false;
  });
}

// Frames: one slider moves all plots of its group.
const groups = {};
for (const figure of document.querySelectorAll("figure[data-group]")) {
  const frames = JSON.parse(figure.querySelector("script").textContent);
  const paths = figure.querySelectorAll("g.now > path, g.above > path");
  const slider = figure.querySelector("input[type=range]");
  const label = figure.querySelector("output");
  const play = figure.querySelector("button");
  const group = (groups[figure.dataset.group] ??= []);
  let playing = 0;
  group.push((place) => {
    slider.value = place;
    label.textContent = frames[place][0];
    frames[place][1].forEach((drawn, i) => paths[i].setAttribute("d", drawn));
  });
  const go = (place) => group.forEach((show) => show(place));
  slider.addEventListener("input", () => go(Number(slider.value)));
  play.addEventListener("click", () => {
    if (playing) clearInterval(playing);
    playing = playing ? 0 : setInterval(() => go((Number(slider.value) + 1) % frames.length), 400);
    play.textContent = playing ? "Stop" : "Play";
  });
  figure.querySelector("input[type=checkbox]")?.addEventListener("change", (change) => {
    figure.querySelector("g.above").style.display = change.target.checked ? "" : "none";
  });
}

// Hover: the values of a chart where the pointer is.
const tip = document.getElementById("tip");
for (const chart of document.querySelectorAll("svg[data-hover]")) {
  const { axis, at, labels, names, styles, values, frame } = JSON.parse(chart.dataset.hover);
  if (!at.length) continue;
  const [left, top, right, bottom] = frame;
  const hair = document.createElementNS(chart.namespaceURI, "path");
  for (const [name, value] of Object.entries({ class: "soft", stroke: "currentColor", "stroke-width": 1 }))
    hair.setAttribute(name, value);
  chart.addEventListener("pointermove", (move) => {
    const point = new DOMPoint(move.clientX, move.clientY).matrixTransform(chart.getScreenCTM().inverse());
    let near = 0;
    for (let i = 1; i < at.length; i++)
      if (Math.abs(at[i] - point[axis]) < Math.abs(at[near] - point[axis])) near = i;
    hair.setAttribute("d", axis === "x" ? `M${at[near]} ${top}V${bottom}` : `M${left} ${at[near]}H${right}`);
    chart.append(hair);
    const head = document.createElement("b");
    head.textContent = labels[near];
    const rows = names.map((name, i) => {
      const row = document.createElement("div");
      const [chip, what, value] = [0, 0, 0].map(() => row.appendChild(document.createElement("span")));
      row.className = "plot";
      chip.className = `chip ${styles[i]}`;
      what.textContent = name;
      value.textContent = values[i][near];
      return row;
    });
    tip.replaceChildren(head, ...rows);
    tip.hidden = false;
    const beyond = move.clientX + 16 + tip.offsetWidth > innerWidth;
    tip.style.left = `${beyond ? move.clientX - 16 - tip.offsetWidth : move.clientX + 16}px`;
    tip.style.top = `${Math.max(4, Math.min(move.clientY + 12, innerHeight - tip.offsetHeight - 4))}px`;
  });
  chart.addEventListener("pointerleave", () => { tip.hidden = true; hair.remove(); });
}
