// Colours of the style sheet for canvases, in the light and the dark scheme.

const known = new Map();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => known.clear());

export function colour(name) {
  if (!known.has(name)) {
    const style = getComputedStyle(document.documentElement);
    known.set(name, style.getPropertyValue(`--${name}`).trim());
  }
  return known.get(name);
}

// Sets the canvas to its size in device pixels. Returns its drawing context, in CSS pixels.
export function fitted(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const width = Math.round(canvas.clientWidth * ratio);
  const height = Math.round(canvas.clientHeight * ratio);
  if (canvas.width !== width || canvas.height !== height) {
    canvas.width = width;
    canvas.height = height;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  return pen;
}

// Text with a halo, so that it can be read on land and on lines.
export function label(pen, text, px, py, name = "soft") {
  pen.lineJoin = "round";
  pen.lineWidth = 3;
  pen.strokeStyle = colour("halo");
  pen.strokeText(text, px, py);
  pen.fillStyle = colour(name);
  pen.fillText(text, px, py);
}

// A number in a few characters: 1234567 as 1.2 M.
export function short(number) {
  const size = Math.abs(number);
  for (const [unit, name] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= unit * 0.9995) {
      const scaled = number / unit;
      return `${scaled.toFixed(Math.abs(scaled) < 9.95 ? 1 : 0)} ${name}`;
    }
  }
  return size >= 9.95 || Number.isInteger(number) ? number.toFixed(0) : number.toFixed(1);
}
