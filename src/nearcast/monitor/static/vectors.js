// Vectors in space, as [x, y, z].

export const add = (a, b) => [a[0] + b[0], a[1] + b[1], a[2] + b[2]];
export const sub = (a, b) => [a[0] - b[0], a[1] - b[1], a[2] - b[2]];
export const times = (a, k) => [a[0] * k, a[1] * k, a[2] * k];
export const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
export const size = (a) => Math.hypot(a[0], a[1], a[2]);
export const cross = (a, b) => [
  a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0],
];

// Normalised to length 1; the zero vector stays.
export function unit(a) {
  const length = size(a);
  return length > 0 ? times(a, 1 / length) : a;
}

export const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

// The direction of a yaw (to the left) and a pitch (up).
export const facing = (yaw, pitch) => [
  Math.cos(yaw) * Math.cos(pitch), Math.sin(yaw) * Math.cos(pitch), Math.sin(pitch),
];
