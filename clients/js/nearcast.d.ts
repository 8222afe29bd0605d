/** Types of nearcast.js. Areas, options and messages are those of docs/reference/wire.md. */

export type Value = boolean | number | string;
/** In a plane x, y and perhaps z; on Earth longitude and latitude. */
export type Place = [x: number, y: number] | [x: number, y: number, z: number];
export type Geometry = "plane" | "earth";

/** A geometry of GeoJSON, or a Feature of one: Polygon, MultiPolygon, LineString. */
export interface GeoJson {
  type: string;
  [name: string]: unknown;
}

/**
 * A point, a disc (r), a box (rx, ry, rz), a sector or a GeoJSON geometry, still, moving, on a path; a
 * formula; {} is everywhere. On Earth lon and lat instead of x and y, or bounds, in degrees and metres.
 */
export interface Area {
  geometry?: GeoJson;
  /** Of a corridor around a LineString. */
  half_width?: number;
  /** Direction and angle in degrees, of a sector with the apex x, y and the radius r. */
  sector?: [direction: number, angle: number];
  lon?: number;
  lat?: number;
  /** Of the centre of a ball. */
  alt?: number;
  /** Heights in metres: only publications with an altitude in between. */
  low?: number;
  high?: number;
  bounds?: [west: number, south: number, east: number, north: number];
  x?: number;
  y?: number;
  z?: number;
  r?: number;
  rx?: number;
  ry?: number;
  rz?: number;
  vx?: number;
  vy?: number;
  vz?: number;
  gx?: number;
  gy?: number;
  gz?: number;
  lasts?: number;
  to?: Place[];
  speed?: number;
  formula?: string;
}

/** Where something is published: a point, a disc or a box in a plane; a point or a disc on Earth. */
export interface Spot {
  /** In a plane. */
  x?: number;
  y?: number;
  z?: number;
  r?: number;
  rx?: number;
  ry?: number;
  rz?: number;
  /** On Earth: degrees, and metres above the ellipsoid. */
  lon?: number;
  lat?: number;
  alt?: number;
}

export interface Message extends Spot {
  /** The numbers of the subscriptions that it is for. */
  to: number[];
  /** Who published it: an entity. */
  from: number;
  publication: number;
  /** Microseconds of Unix time, by the node's clock. */
  t: number;
  z: number;
  payload: unknown;
  retain: boolean;
  attributes: Record<string, Value>;
  channel: string;
}

/** A message that an entity has sent to this client alone. */
export interface DirectMessage {
  /** Who sent it: an entity. */
  from: number;
  name: string;
  number: number;
  /** Microseconds of Unix time, by the node's clock. */
  t: number;
  payload: unknown;
  /** The entity of this client that it is for; "": the client itself. */
  to: string;
}

/** An entity and its retained state. */
export interface Entity {
  entity: number;
  t: number;
  /** In a plane. */
  x?: number;
  y?: number;
  z: number;
  /** On Earth. */
  lon?: number;
  lat?: number;
  alt?: number;
  name?: string;
  attributes: Record<string, Value>;
  payload: unknown;
}

export type Change = { enter: Entity } | { leave: Entity; gone: boolean };

export type FenceEventName = "enter" | "leave" | "cross" | "inside" | "outside" | "dwell";

/** A GeoJSON FeatureCollection; each feature is a fence. */
export interface FeatureCollection {
  type?: "FeatureCollection";
  features?: GeoJson[];
}

/** What an entity did at a fence. */
export interface FenceEvent {
  event: FenceEventName;
  /** Microseconds of Unix time by the node's clock; it may be between two publications. */
  t: number;
  entity: number;
  name: string;
  /** x, y and perhaps z; on Earth lon and lat. */
  place: Spot;
  /** Of the way, in degrees: in a plane counter-clockwise from +x, on Earth the bearing. */
  direction?: number;
  /** Of a leave. */
  reason?: "left" | "expired" | "gone" | "removed";
  /** Of a cross: when and where it ended. */
  t_out?: number;
  place_out?: Spot;
  /** Of an enter, and of who was inside at first. */
  state?: Entity;
  /** Of a set: the id of its feature. */
  fence?: string | number;
  /** With `near`: the other one of the pair, of which `entity` has moved. */
  other?: number;
  other_name?: string;
  other_state?: Entity;
}

export type Notice =
  | { is: "disconnected"; reason: string; /** As in ConnectionError. */ code: number }
  | { is: "reconnected"; refused: Subscription[] }
  | { is: "handed over"; node: string; url: string }
  | { is: "withheld"; subscription: number; rate?: number; closest?: number; budget?: number }
  | { is: "dropped"; messages: number; superseded?: number }
  | { is: "error"; reason: string };

export interface ConnectOptions {
  name?: string;
  /** A text, or a function that gives one each time the client joins: tokens expire. */
  token?: string | (() => string | Promise<string>);
  /** Reconnect by itself when the connection is lost (true). */
  reconnect?: boolean;
  /** A class like the browser's WebSocket, where there is none. */
  WebSocket?: unknown;
}

export interface SubscribeOptions {
  filter?: string;
  channel?: string;
  echo?: boolean;
  variables?: Record<string, number>;
  watch?: boolean;
  linger?: number;
  rates?: [beyond: number, perSecond: number][];
  closest?: number;
  budget?: number;
  /** The area is a fence: tell these events. */
  events?: FenceEventName[];
  /** Seconds inside after which the event "dwell" comes. */
  dwell?: number;
  /** Instead of an area: the set of fences of this name. */
  fences?: string;
  /** The area goes where the state of this entity is (a name or number); it is relative to it. */
  follow?: string | number;
  /** The channel of that state, if it is another one than that of the subscription. */
  follow_channel?: string;
  /** On Earth: metres east and north of the entity. */
  offset?: [east: number, north: number];
  /** Instead of an area: pairs of entities that come within this distance of each other. */
  near?: number;
  /** Of brokers, not of a node: how they follow an area that moves, or a formula. */
  evolve?: "periodic" | "lazy" | "cached" | "swept";
  /** With evolve "periodic": seconds between two versions. */
  interval?: number;
  /** With evolve "cached": seconds for which a value serves. */
  threshold?: number;
  /** How many messages may wait to be taken (10,000). */
  inbox?: number;
}

export interface PublishOptions {
  retain?: boolean;
  attributes?: Record<string, Value>;
  channel?: string;
  /** Publish as another entity of this client. */
  name?: string;
  /** With retain: seconds after which the state expires; it outlives the connection until then. */
  ttl?: number;
  /** Wait for the node's answer (true). */
  confirm?: boolean;
}

export class Refused extends Error {}
export class ConnectionError extends Error {
  /** The WebSocket close code: docs/reference/wire.md. 1006 if there was no close frame. */
  readonly code: number;
}

export class Inbox<Item> implements AsyncIterableIterator<Item> {
  readonly size: number;
  readonly dropped: number;
  readonly length: number;
  next(): Promise<IteratorResult<Item>>;
  [Symbol.asyncIterator](): Inbox<Item>;
}

export class Subscription implements AsyncIterable<Message> {
  readonly number: number;
  readonly messages: Inbox<Message>;
  readonly inside: Map<number, Entity>;
  /** With `near`: who is near whom, by "entity,entity", the lower number first. */
  readonly pairs: Map<string, [number, number]>;
  readonly dropped: number;
  [Symbol.asyncIterator](): Inbox<Message>;
  changes(): Inbox<Change>;
  events(): Inbox<FenceEvent>;
  move(area: Area): Promise<void>;
  tune(variables: Record<string, number>): Promise<void>;
  unsubscribe(): Promise<void>;
  where(t: number): Area;
}

export class Client {
  readonly entity: number;
  /** The node's name. */
  readonly node: string;
  /** Addresses of other nodes of the cluster, as far as they are known. */
  readonly nodes: string[];
  readonly limits: Record<string, number>;
  /** What coordinates are in the node's world. */
  readonly geometry: Geometry;
  subscribe(area?: Area, options?: SubscribeOptions): Promise<Subscription>;
  publish(place: Spot, payload?: unknown, options?: PublishOptions): Promise<number>;
  withdraw(options?: { channel?: string; name?: string }): Promise<void>;
  putFences(name: string, collection: FeatureCollection): Promise<void>;
  changeFences(
    name: string, collection?: FeatureCollection, remove?: (string | number)[],
  ): Promise<void>;
  send(to: string | number, payload?: unknown, options?: { name?: string }): Promise<number>;
  directMessages(): Inbox<DirectMessage>;
  nearby(area: Area, options?: { channel?: string; limit?: number }): Promise<Entity[]>;
  moveTo(place: Place, speed: number): Promise<number>;
  messages(inbox?: number): Inbox<Message>;
  notices(): Inbox<Notice>;
  now(): number;
  close(): void;
}

export function connect(url: string, options?: ConnectOptions): Promise<Client>;
export function areaAt(area: Area, seconds: number): Area;
export function walkingSeconds(area: Area): number;
