// Small line charts of the last minute, from 0 up, with the present value as text.

import { colour, fitted, short } from "./palette.js";

export const MINUTE = 60;

export class Chart {
  #rows = []; // [second, value, value, …]

  // `lines`: [{colour, label}], `format` writes a value.
  constructor(canvas, lines, { format = short, seconds = MINUTE, title = "" } = {}) {
    this.canvas = canvas;
    this.lines = lines;
    this.format = format;
    this.seconds = seconds;
    this.title = title;
    this.cursor = null; // the second to mark, in a replay
    canvas.setAttribute("role", "img");
  }

  get rows() {
    return this.#rows;
  }

  add(second, values) {
    this.#rows.push([second, ...values]);
    while (this.#rows.length && this.#rows[0][0] < second - this.seconds - 2) this.#rows.shift();
    this.draw();
  }

  show(rows) {
    this.#rows = rows;
    this.draw();
  }

  draw() {
    const pen = fitted(this.canvas);
    const { clientWidth: width, clientHeight: height } = this.canvas;
    pen.clearRect(0, 0, width, height);
    const rows = this.#rows;
    const base = height - 2;
    pen.strokeStyle = colour("line");
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(0, base + 0.5);
    pen.lineTo(width, base + 0.5);
    pen.stroke();
    if (!rows.length) return;
    const last = rows[rows.length - 1][0];
    const first = this.cursor === null ? last - this.seconds : rows[0][0];
    const most = Math.max(...rows.map((row) => Math.max(...row.slice(1))));
    const top = most || 1;
    const x = (second) => ((second - first) / (last - first || 1)) * (width - 4) + 2;
    const y = (value) => base - (value / top) * (height - 18);
    this.lines.forEach((line, k) => this.#line(pen, rows, k, x, y, base, line.colour));
    if (this.cursor !== null) {
      pen.strokeStyle = colour("ink");
      pen.beginPath();
      pen.moveTo(x(this.cursor), 0);
      pen.lineTo(x(this.cursor), base);
      pen.stroke();
    }
    pen.fillStyle = colour("soft");
    pen.font = "10.5px system-ui, sans-serif";
    pen.fillText(this.format(most), 2, 10);
    const now = rows[rows.length - 1].slice(1);
    const values = this.lines.map((line, k) => `${line.label ?? ""} ${this.format(now[k])}`.trim());
    this.canvas.setAttribute("aria-label", `${this.title}: ${values.join(", ")}`);
  }

  #line(pen, rows, k, x, y, base, name) {
    pen.strokeStyle = pen.fillStyle = colour(name);
    pen.lineWidth = 1.6;
    pen.lineJoin = "round";
    pen.beginPath();
    rows.forEach((row, i) => (i ? pen.lineTo : pen.moveTo).call(pen, x(row[0]), y(row[k + 1])));
    pen.stroke();
    if (this.lines.length > 1) return;
    pen.lineTo(x(rows[rows.length - 1][0]), base);
    pen.lineTo(x(rows[0][0]), base);
    pen.globalAlpha = 0.12;
    pen.fill();
    pen.globalAlpha = 1;
  }
}

// A chart with its caption, added to `parent`. `add` takes the second and the values.
export function figure(parent, title, lines, options = {}) {
  const whole = document.createElement("figure");
  const caption = document.createElement("figcaption");
  const name = document.createElement("span");
  const present = document.createElement("b");
  const canvas = document.createElement("canvas");
  name.textContent = title;
  canvas.className = "chart";
  caption.append(name, present);
  whole.append(caption, canvas);
  parent.append(whole);
  const chart = new Chart(canvas, lines, { title, ...options });
  const words = options.words ?? ((values) => chart.format(values[0]));
  return {
    chart,
    add(second, values) {
      present.textContent = words(values);
      chart.add(second, values);
    },
    show(rows, cursor) {
      chart.cursor = cursor;
      const row = rows.findLast((one) => one[0] <= cursor) ?? rows[0];
      present.textContent = row ? words(row.slice(1)) : "";
      chart.show(rows);
    },
  };
}
