// The page of a node. It repeatedly asks this node for the state of the cluster, as the user who has logged in, and shows it.
// No text of the cluster ever becomes markup: everything is built from elements and text nodes.

"use strict";

const EVERY_MS = 2000;
/** Rates and times cover at most this window. */
const WINDOW_MS = 60_000;
const SESSION = "quorate.authorization";

// Elements.

const $ = (id) => document.getElementById(id);

/** Makes an element: attributes, listeners (`onclick`), and children, which are elements or texts. */
function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

function svg(name, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** Replaces an element's children. The focus stays where it was, and while text is selected nothing is replaced. */
function show(id, ...children) {
  const place = $(id);
  const selection = getSelection();
  if (!selection.isCollapsed && selection.anchorNode && place.contains(selection.anchorNode)) return;
  const focused = place.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  place.replaceChildren(...children.flat(3).filter(Boolean));
  if (focused !== undefined) {
    [...place.querySelectorAll("[data-key]")].find((element) => element.dataset.key === focused)?.focus({ preventScroll: true });
  }
}

/** A section that opens and closes, and keeps its state when it is drawn again. */
const opened = new Set();
function fold(key, title, ...children) {
  const details = h("details", { open: opened.has(key) }, h("summary", { "data-key": `fold ${key}` }, title), ...children);
  details.addEventListener("toggle", () => (details.open ? opened.add(key) : opened.delete(key)));
  return details;
}

/** A table whose rows become blocks on a narrow screen. Columns: a name, or a name and its class. */
function table(caption, columns, rows, className = "stack") {
  const names = columns.map((column) => (Array.isArray(column) ? column : [column, ""]));
  const head = h("tr", {}, names.map(([name, kind]) => h("th", { scope: "col", class: kind || null }, name)));
  const body = rows.map((cells) =>
    h("tr", {}, cells.map((cell, place) => {
      const [name, kind] = names[place];
      if (place === 0) return h("th", { scope: "row" }, cell);
      return h("td", { class: kind || null, "data-name": name || null }, cell === null ? "–" : h("span", {}, cell));
    })));
  return h("div", { class: "table" }, h("table", { class: className }, caption ? h("caption", {}, caption) : null,
    h("thead", {}, head), h("tbody", {}, body)));
}

const empty = (text) => h("p", { class: "empty" }, text);

// Words and numbers.

const plural = (count, what) => `${number(count)} ${what}${count === 1 ? "" : "s"}`;
const number = (value) => Math.round(value).toLocaleString("en");
const rate = (value) => (value === null ? "–" : `${value >= 10 || value === 0 ? number(value) : value.toFixed(1)}/s`);
const nameOf = (prefix) => (prefix === "" ? "default" : prefix);
/** The number of the database that a keyspace holds; 0 for a keyspace in database 0. */
const databaseOf = (prefix) => Number(prefix.match(/^@([1-9]|1[0-5])$/)?.[1] ?? 0);

function bytes(value) {
  const units = [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]];
  const unit = units.find(([, size]) => value >= size);
  if (!unit) return `${value} B`;
  const scaled = value / unit[1];
  return `${scaled < 10 ? scaled.toFixed(1) : scaled.toFixed(0)} ${unit[0]}`;
}

function duration(seconds) {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

/** Formats microseconds for people. */
function time(us) {
  if (us === null || us === undefined) return "–";
  if (us < 1) return "<1 µs";
  if (us < 1000) return `${us} µs`;
  if (us < 1_000_000) return `${us < 10_000 ? (us / 1000).toFixed(1) : Math.round(us / 1000)} ms`;
  return us < 60_000_000 ? `${(us / 1_000_000).toFixed(1)} s` : duration(us / 1_000_000);
}

function moment(unixMs) {
  const at = new Date(unixMs);
  const isToday = at.toDateString() === new Date().toDateString();
  const clock = at.toLocaleTimeString("en-GB");
  const text = isToday ? clock : `${at.toLocaleDateString("en-CA")} ${clock}`;
  return h("time", { datetime: at.toISOString(), title: at.toISOString() }, text);
}

/** Bytes of the cluster as text; bytes that are not valid text arrive as base64. */
function shown(word) {
  if (word === null || word === undefined) return "(none)";
  if (typeof word !== "object") return String(word);
  if ("error" in word) return word.error;
  const raw = atob(word.base64);
  return [...raw].map((letter) => (letter >= " " && letter <= "~" && letter !== "\\" ? letter
    : `\\x${letter.charCodeAt(0).toString(16).padStart(2, "0")}`)).join("");
}

/** The same bytes as a word of a command. */
const word = (value) => (typeof value === "object" ? { word_base64: value.base64 } : value);
const object = (pairs) => Object.fromEntries(pairs.map(([key, value]) => [shown(key), value]));

// Requests.

class Refused extends Error {
  constructor(status, code, text) {
    super(text);
    this.status = status;
    this.code = code;
  }
}

async function ask(path, method = "GET", body = undefined) {
  const headers = { "X-Quorate": "page", Accept: "application/json" };
  const authorization = sessionStorage.getItem(SESSION);
  if (authorization) headers.Authorization = authorization;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    // No cookies, and so no dialog of the browser that asks for a password.
    response = await fetch(path, {
      method, headers, body: body === undefined ? undefined : JSON.stringify(body), credentials: "omit", cache: "no-store",
      signal: AbortSignal.timeout(15_000),
    });
  } catch {
    throw new Refused(0, "SILENT", "this node does not answer");
  }
  let answer;
  try {
    answer = await response.json();
  } catch {
    throw new Refused(response.status, "SILENT", `this node's answer is not JSON (HTTP ${response.status})`);
  }
  if (response.ok) return answer;
  throw new Refused(response.status, answer.code, answer.error);
}

/** Runs a command of the Redis protocol. */
const run = (...words) => runIn(0, ...words);
const runIn = async (database, ...words) => (await ask(database === 0 ? "/command" : `/command?database=${database}`, "POST", { command: words })).reply;
const mayEach = async (commands) => (await ask("/may", "POST", { commands }));

/** Runs a command on every node that is up, and returns the answers of those that gave one, with their numbers. */
async function runEverywhere(...words) {
  const nodes = (state.standing?.nodes ?? []).filter((node) => node.reached).map((node) => node.node);
  const answers = await Promise.all(nodes.map(async (node) => {
    try {
      return [node, await run("CLUSTER", "ASK", String(node), ...words), null];
    } catch (error) {
      return [node, null, error];
    }
  }));
  if (answers.length > 0 && answers.every(([, , error]) => error)) throw answers[0][2];
  return answers.filter(([, , error]) => !error);
}

// State.

const state = {
  standing: null,
  /** Samples of the last minute, the oldest first: `{at, standing}`. */
  looks: [],
  /** Keyspaces that were made or changed on this page: they are not folded away. */
  touched: new Set(),
  may: {},
  user: "",
  view: "",
  failing: null,
  cannotSee: null,
};

const RIGHTS = {
  create: ["KEYSPACE", "CREATE", "x:"],
  change: ["KEYSPACE", "SET", "x:", "acks=all"],
  drop: ["KEYSPACE", "DROP", "x:"],
  drain: ["CLUSTER", "DRAIN", "1"],
  lead: ["CLUSTER", "LEAD", "1", "1"],
  replace: ["CLUSTER", "REPLACE", "1"],
  quarantine: ["CLUSTER", "QUARANTINE", "RETRY", "1"],
  users: ["ACL", "SETUSER", "x"],
  dropUser: ["ACL", "DELUSER", "x"],
};

/** The difference of two lists of `[microseconds, count]`: what was counted in between. `null` if the counts were reset. */
function between(before, now) {
  const old = new Map(before);
  const counts = now.map(([us, count]) => [us, count - (old.get(us) ?? 0)]);
  const fell = counts.some(([, count]) => count < 0) || before.some(([us]) => !now.some(([other]) => other === us));
  return fell ? null : counts.filter(([, count]) => count > 0);
}

const sum = (buckets) => buckets.reduce((total, [, count]) => total + count, 0);

/** The time that `percent` of these calls do not exceed. */
function percentile(buckets, percent) {
  const wanted = Math.ceil((sum(buckets) * percent) / 100);
  let seen = 0;
  for (const [us, count] of buckets) {
    seen += count;
    if (seen >= wanted && count > 0) return us;
  }
  return null;
}

/** Rates and times between two samples: `{perSecond, p50, p99}`; nulls if there is only one, or the counts were reset. */
function pace(pick, looks = state.looks) {
  const unknown = { perSecond: null, p50: null, p99: null, seconds: 0 };
  if (looks.length < 2) return unknown;
  const last = looks[looks.length - 1];
  const now = pick(last.standing);
  const first = looks.find((look) => pick(look.standing) && between(pick(look.standing).latency, now?.latency ?? []) !== null);
  if (!now || !first || first === last) return unknown;
  const seconds = (last.at - first.at) / 1000;
  const buckets = between(pick(first.standing).latency, now.latency);
  return { perSecond: sum(buckets) / seconds, p50: percentile(buckets, 50), p99: percentile(buckets, 99), seconds, first: pick(first.standing), now };
}

const keyspaceOf = (prefix) => (standing) => standing.keyspaces.find((keyspace) => keyspace.prefix === prefix);
const commandOf = (name) => (standing) => standing.commands.find((command) => command.name === name) ?? { name, latency: [], calls: 0, failed: 0, rejected: 0 };
const nodeOf = (id) => (standing) => standing.nodes.find((node) => node.node === id);

/** The growth of a count per second; `null` if that is not known. */
function perSecond(pick, field) {
  const { looks } = state;
  if (looks.length < 2) return null;
  const last = looks[looks.length - 1];
  const now = pick(last.standing);
  if (!now || field(now) === undefined) return null;
  // Samples from before a restart of the process do not count.
  const first = looks.find((look) => {
    const then = pick(look.standing);
    return then && field(then) !== undefined && field(then) <= field(now);
  });
  return first === last ? null : (field(now) - field(pick(first.standing))) / ((last.at - first.at) / 1000);
}

function take(standing) {
  const at = performance.now();
  state.standing = standing;
  state.looks = [...state.looks.filter((look) => at - look.at <= WINDOW_MS), { at, standing }];
}

// The session.

function logIn(event) {
  event.preventDefault();
  const pair = new TextEncoder().encode(`${$("user").value.trim() || "default"}:${$("password").value}`);
  sessionStorage.setItem(SESSION, `Basic ${btoa(String.fromCharCode(...pair))}`);
  $("password").value = "";
  begin();
}

function logOut() {
  sessionStorage.removeItem(SESSION);
  location.reload();
}

function askToLogIn(error) {
  stop();
  const tried = sessionStorage.getItem(SESSION) !== null;
  sessionStorage.removeItem(SESSION);
  $("app").hidden = true;
  $("session").hidden = true;
  $("login").hidden = false;
  $("login-error").hidden = !tried && error.status !== 429;
  $("login-error").textContent = error.status === 429 ? error.message
    : "This user and password do not match, or the user is disabled.";
  $(tried ? "password" : "user").focus();
}

let timer;
function stop() {
  clearTimeout(timer);
  timer = undefined;
}

async function begin() {
  stop();
  $("login-error").hidden = true;
  try {
    const { user, user_base64, may } = await mayEach(Object.values(RIGHTS));
    state.user = user ?? user_base64;
    Object.keys(RIGHTS).forEach((name, place) => (state.may[name] = may[place]));
  } catch (error) {
    if (error.status === 401 || error.status === 429) return askToLogIn(error);
    $("login").hidden = true;
    $("app").hidden = false;
    troubled(error);
    timer = setTimeout(begin, EVERY_MS);
    return;
  }
  $("login").hidden = true;
  $("app").hidden = false;
  $("session").hidden = false;
  $("leave").hidden = sessionStorage.getItem(SESSION) === null;
  const canChange = state.may.create || state.may.change || state.may.drop;
  $("who").textContent = canChange ? state.user : `${state.user} (may not change the cluster)`;
  $("who").title = $("who").textContent;
  $("new-keyspace").hidden = !state.may.create;
  turn();
  look();
}

/** Fetches the state of the cluster, again and again. */
async function look() {
  stop();
  try {
    take(await ask("/status"));
    state.failing = null;
    state.cannotSee = null;
    $("trouble").hidden = true;
    document.body.classList.remove("stale");
  } catch (error) {
    if (error.status === 401) return askToLogIn(error);
    if (error.code === "NOPERM") {
      // The earlier samples belong to another user.
      state.cannotSee = error.message;
      state.standing = null;
      state.looks = [];
    } else troubled(error);
  }
  await draw();
  await lookBackToo();
  if (!document.hidden) timer = setTimeout(look, EVERY_MS);
}

/** The page is of use without a history, too. */
async function lookBackToo() {
  if (!state.standing || !["overview", "keyspaces"].includes(state.view)) return undefined;
  try {
    if (await lookBack()) await draw();
  } catch (error) {
    if (error.status === 401) return askToLogIn(error);
    throw error;
  }
  return undefined;
}

function troubled(error) {
  state.failing ??= new Date();
  document.body.classList.add("stale");
  $("trouble").hidden = false;
  $("trouble").textContent = `${capital(error.message)}, since ${state.failing.toLocaleTimeString("en-GB")}. `
    + `${state.standing ? "The data shown is old. " : ""}Trying again; the other nodes have the same page on their own addresses.`;
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function done(text) {
  $("done").hidden = false;
  $("done").textContent = text;
  clearTimeout(done.timer);
  done.timer = setTimeout(() => ($("done").hidden = true), 10_000);
}

// Views.

const VIEWS = {
  overview: drawOverview, keyspaces: drawKeyspaces, commands: drawCommands, slow: drawSlow, locks: drawLocks, keys: drawDatabases,
  console: () => {}, users: drawUsers, events: drawEvents,
};

function turn() {
  const wanted = location.hash.slice(1);
  const view = wanted in VIEWS ? wanted : "overview";
  if (wanted === "main") return;
  state.view = view;
  for (const name of Object.keys(VIEWS)) $(`view-${name}`).hidden = name !== view;
  for (const link of document.querySelectorAll(".tabs a")) {
    if (link.hash === `#${view}`) {
      link.setAttribute("aria-current", "page");
      link.scrollIntoView({ block: "nearest", inline: "nearest" });
    } else link.removeAttribute("aria-current");
  }
  $("done").hidden = true;
  if (view === "console") $("line").focus();
  draw();
  lookBackToo();
}

async function draw() {
  const { standing } = state;
  if (standing) {
    $("cluster").textContent = standing.cluster || "Quorate";
    $("through").textContent = `through ${location.host}`;
    const word = { healthy: "healthy", "at-risk": "at risk", "cannot-serve": "CANNOT SERVE" }[standing.state];
    document.title = `${standing.cluster}: ${word}`;
  }
  try {
    await VIEWS[state.view]?.();
  } catch (error) {
    if (error.status === 401) return askToLogIn(error);
    if (!(error instanceof Refused)) throw error;
    const place = { slow: "slow", locks: "locks", users: "users", events: "events" }[state.view];
    if (place) show(place, refusal(error));
  }
}

function refusal(error) {
  const text = error.code === "NOPERM" ? `The user ${state.user} may not see this: ${error.message}.` : `${capital(error.message)}.`;
  return h("p", { class: "notice bad", role: "alert" }, text);
}

/** A placeholder while there is nothing to show; `null` if there is something. */
function lacking() {
  if (state.standing) return null;
  if (state.cannotSee) return empty(`The user ${state.user} may not see the state of the cluster: ${state.cannotSee}. An operator can allow it: ACL SETUSER … +cluster|map +cluster|report +cluster|ask.`);
  return empty(state.failing ? "No data yet." : "Asking the nodes …");
}

// Overview.

const STATES = {
  healthy: ["good", "Healthy"], "at-risk": ["warn", "At risk"], "cannot-serve": ["bad", "Cannot serve"],
};

const SHAPES = {
  good: () => [svg("circle", { cx: 12, cy: 12, r: 11, fill: "currentColor" }), svg("path", { d: "m7 12.5 3.4 3.4L17 9", fill: "none", stroke: "var(--panel)", "stroke-width": 2.4 })],
  warn: () => [svg("path", { d: "M12 1.5 23.5 22H.5z", fill: "currentColor" }), svg("path", { d: "M12 9v6m0 2.2v2", stroke: "var(--panel)", "stroke-width": 2.2 })],
  bad: () => [svg("rect", { x: 1, y: 1, width: 22, height: 22, rx: 4, fill: "currentColor" }), svg("path", { d: "m7.5 7.5 9 9m0-9-9 9", stroke: "var(--panel)", "stroke-width": 2.4 })],
};

const shape = (kind, className = "shape") => svg("svg", { viewBox: "0 0 24 24", class: className, "aria-hidden": "true" }, ...SHAPES[kind]());

/** The banner's text. Screen readers read it when it changes, and not at each sample. */
let announced = "";

function drawOverview() {
  const lacks = lacking();
  if (lacks) {
    ["risks", "quarantine", "past", "map", "nodes", "rates", "leaderships"].forEach((id) => show(id));
    $("banner").className = "";
    announced = "";
    return show("banner", lacks);
  }
  drawBanner();
  drawRisks();
  drawQuarantine();
  drawPast();
  drawMap();
  drawNodes();
  drawRates();
  return drawLeaderships();
}

function drawBanner() {
  const { state: name, nodes, keyspaces } = state.standing;
  const [kind, title] = STATES[name];
  const up = nodes.filter((node) => node.ready).length;
  const least = Math.min(...keyspaces.flatMap((keyspace) => keyspace.shards.map((shard) => shard.survives)));
  const cannot = keyspaces.filter((keyspace) => keyspace.shards.some((shard) => !shard.serves || shard.survives < 0)).length;
  const served = cannot === 0 ? `${plural(keyspaces.length, "keyspace")} served` : `${cannot} of ${plural(keyspaces.length, "keyspace")} not served`;
  const survives = cannot > 0 ? "" : least === 0 ? "; the next failure may stop something" : `; each survives ${plural(least, "more failure")}`;
  const text = `${up} of ${plural(nodes.length, "node")} up, ${served}${survives}.`;
  if (announced === name + text) return;
  announced = name + text;
  $("banner").className = `banner ${kind}`;
  show("banner", shape(kind), h("div", {}, h("h1", { id: "state" }, title), h("p", {}, text)));
}

// Risks that are alike are shown once, as quorate status does.
const NAMES = 8;
function drawRisks() {
  const kinds = { "cannot-serve": "bad", "at-risk": "warn", note: "" };
  const folded = [];
  for (const risk of state.standing.risks) {
    const isLike = ({ risk: other }) => other.severity === risk.severity && other.kind === risk.kind && other.do === risk.do;
    const known = folded.find(isLike);
    if (known) known.others.push(risk.about);
    else folded.push({ risk, others: [] });
  }
  const more = (abouts) => {
    const shown = abouts.length > NAMES + 1 ? abouts.slice(0, NAMES) : abouts;
    const rest = abouts.length - shown.length;
    return `and ${abouts.length} more like it: ${shown.join(", ")}${rest > 0 ? ` and ${rest} more` : ""}`;
  };
  const lines = folded.map(({ risk, others }) =>
    h("li", { class: kinds[risk.severity] }, h("b", {}, capital(risk.what)),
      others.length > 0 ? h("p", {}, more(others)) : null, h("p", { class: "do" }, risk.do)));
  show("risks", lines.length === 0 ? null : [h("h2", {}, "What to know"), h("ul", { class: "risks" }, lines)]);
}

const DOTS = {
  leads: () => svg("circle", { cx: 6, cy: 6, r: 5.5, fill: "currentColor" }),
  sound: () => svg("circle", { cx: 6, cy: 6, r: 4.6, fill: "none", stroke: "currentColor", "stroke-width": 1.8 }),
  late: () => svg("path", { d: "M6 .8 11.6 11H.4z", fill: "currentColor" }),
  lost: () => svg("path", { d: "m1.5 1.5 9 9m0-9-9 9", stroke: "currentColor", "stroke-width": 2.2 }),
};
const dot = (kind) => svg("svg", { viewBox: "0 0 12 12", class: "dot", "aria-hidden": "true" }, DOTS[kind]());
const mark = (kind, text) => h("span", { class: `replica ${kind}` }, dot(kind), h("span", { class: "word" }, text));

function replicaMark(keyspace, shard, replica) {
  if (!replica) return h("span", { class: "muted" }, "");
  if (replica.node === shard.leader) return mark("leads", "leads");
  if (!replica.sound) return mark("lost", replica.role === "away" ? "away" : replica.role);
  if (replica.lag_ms > 1000) return mark("late", `${duration(replica.lag_ms / 1000)} behind`);
  return mark("sound", replica.role === "replica" ? "replica" : "follows");
}

/** Further shards of a keyspace, and further keyspaces that are quiet, are folded away. */
const SHARDS = 6;
const KEYSPACES = 8;

/** Served, and without a command in the range that the plots show. */
function isQuiet(keyspace) {
  const isServed = keyspace.shards.every((shard) => shard.serves && shard.survives >= 0);
  return isServed && !state.touched.has(keyspace.prefix) && !pace(keyspaceOf(keyspace.prefix)).perSecond && !pastOf("commands", { prefix: keyspace.prefix }).some((value) => value > 0);
}

/** Keyspaces in two lists: those to show, and those to fold away. */
function byInterest(keyspaces) {
  const quiet = keyspaces.length > KEYSPACES ? keyspaces.filter(isQuiet) : [];
  return [keyspaces.filter((keyspace) => !quiet.includes(keyspace)), quiet];
}

/** What is folded away, in words: nobody should have to open it to learn that something is wrong. */
function foldQuiet(key, quiet, ...children) {
  if (quiet.length === 0) return null;
  const weak = quiet.filter((keyspace) => keyspace.shards.some((shard) => shard.survives === 0)).length;
  return fold(key, `${plural(quiet.length, "quiet keyspace")}${weak > 0 ? `, ${weak} with no failure left` : ""}`, ...children);
}

function groupRow(keyspace, shard, nodes) {
  const name = keyspace.shards.length === 1 ? nameOf(keyspace.prefix) : `${nameOf(keyspace.prefix)} · ${shard.shard}`;
  const replicas = nodes.map((node) => replicaMark(keyspace, shard, shard.replicas.find((replica) => replica.node === node.node)));
  return [[h("span", { class: "mono" }, name), " ", survives(shard)], ...replicas];
}

function survives(shard) {
  if (!shard.serves || shard.survives < 0) return h("span", { class: "tag bad" }, "does not serve");
  if (shard.survives === 0) return h("span", { class: "tag warn" }, "no failure left");
  return h("span", { class: "tag" }, `survives ${shard.survives}`);
}

function drawMap() {
  const { nodes, keyspaces, control } = state.standing;
  const columns = ["Group", ...nodes.map((node) => `Node ${node.node}`)];
  const controlRow = [
    [h("span", {}, "control group"), " ", survives({ serves: control.leader !== 0, survives: control.survives })],
    ...nodes.map((node) => {
      if (!control.members.includes(node.node)) return "";
      if (node.node === control.leader) return mark("leads", "leads");
      return node.alive ? mark("sound", "follows") : mark("lost", "away");
    }),
  ];
  const rowsOf = (some) => some.flatMap((keyspace) => keyspace.shards.slice(0, SHARDS).map((shard) => groupRow(keyspace, shard, nodes)));
  const [some, quiet] = byInterest(keyspaces);
  const rows = rowsOf(some);
  const rest = keyspaces.filter((keyspace) => keyspace.shards.length > SHARDS);
  show("map", table("", columns, [controlRow, ...rows], "groups"),
    h("p", { class: "legend small muted" }, mark("leads", "leads"), mark("sound", "holds everything"), mark("late", "behind"), mark("lost", "does not take part")),
    foldQuiet("map quiet", quiet, table("", columns, rowsOf(quiet), "groups")),
    rest.map((keyspace) => fold(`map ${keyspace.prefix}`, `${keyspace.shards.length - SHARDS} more shards of ${nameOf(keyspace.prefix)}`,
      table("", columns, keyspace.shards.slice(SHARDS).map((shard) => groupRow(keyspace, shard, nodes)), "groups"))));
}

function nodeState(node) {
  if (!node.reached) return node.alive ? ["warn", "not asked"] : ["bad", "down"];
  if (!node.admitted) return ["bad", "not admitted"];
  if (!node.ready) return ["warn", "not ready"];
  if (node.drained) return ["warn", "drained"];
  return node.leaving ? ["warn", "leaving"] : ["good", "up"];
}

function drawNodes() {
  show("nodes", state.standing.nodes.map((node) => {
    const [kind, text] = nodeState(node);
    const head = [h("header", {}, h("h3", {}, `Node ${node.node}`), h("span", { class: `tag ${kind}` }, text)),
      h("span", { class: "address" }, node.address, node.version ? ` · ${node.version}` : "")];
    if (!node.reached) return h("article", { class: "card down" }, head, h("p", { class: "small" }, node.error), nodeActions(node));
    const { memory, disk, links, counters, certificate } = node;
    const latest = newest(pastOf("commands", { node: node.node }));
    const small = (figure) => plot(pastOf(figure, { node: node.node }), { withMarks: false });
    const calls = perSecond(nodeOf(node.node), (it) => it.counters?.calls);
    const us = perSecond(nodeOf(node.node), (it) => it.counters?.calls_us);
    const down = links.filter((link) => !link.up).map((link) => link.node);
    return h("article", { class: "card" }, head, h("dl", { class: "facts" },
      h("dt", {}, "Commands"), h("dd", {}, small("commands"), " ", rate(calls ?? latest), calls ? `, mean ${time(Math.round(us / calls))}` : ""),
      h("dt", {}, "Clients"), h("dd", {}, number(counters.clients)),
      h("dt", {}, "Links"), h("dd", {}, down.length === 0 ? `${links.length} up` : `down to ${down.join(", ")}`),
      h("dt", {}, "Up for"), h("dd", {}, duration(node.uptime_s)),
      certificate ? [h("dt", {}, "Certificate"), h("dd", { class: certificate.left_s < 14 * 86400 || certificate.unusable ? "warned" : null },
        certificate.left_s < 0 ? "has expired" : `expires in ${duration(certificate.left_s)}`, certificate.unusable ? "; its new files cannot be used" : "")] : null,
      h("dt", {}, "Process"), h("dd", {}, small("memory"), " ", bytes(memory.resident)),
      h("dt", {}, "Data in memory"), h("dd", {}, `${bytes(memory.data)}${memory.data_max ? ` of ${bytes(memory.data_max)}` : ""}`),
      memory.data_max ? gauge(memory.data, memory.data_max, 0.8, 0.9, "data in memory") : null,
      h("dt", {}, "Disk"), h("dd", {}, disk.size ? `${bytes(disk.free)} free` : "not known"),
      disk.size ? gauge(disk.size - disk.free, disk.size, 0.9, 0.95, "disk used") : null), nodeActions(node));
  }));
}

/** Yellow and red from the limits at which `quorate status` reports it short, or nearly so. */
const gauge = (value, max, low, high, label) => h("meter", { min: 0, max, value, low: max * low, high: max * high, optimum: 0, "aria-label": label });

function lagOf(keyspace) {
  const late = keyspace.shards.flatMap((shard) => shard.replicas.filter((replica) => replica.sound));
  const ms = Math.max(0, ...late.map((replica) => replica.lag_ms));
  const records = Math.max(0, ...late.map((replica) => replica.lag_records));
  return records === 0 ? "none" : `${plural(records, "record")}${ms ? `, ${time(ms * 1000)}` : ""}`;
}

const hasLeader = (keyspace) => ["consensus", "leader-follower"].includes(keyspace.replication);

function backupOf({ backup }) {
  if (!backup) return "none";
  const age = backup.age_s === null ? "none holds it" : `${duration(backup.age_s)} old`;
  return backup.due_in_s < 0 ? `${age}, overdue` : age;
}

function leadersOf(keyspace) {
  if (!hasLeader(keyspace)) return "not needed";
  const leaders = [...new Set(keyspace.shards.map((shard) => shard.leader))].sort((one, other) => one - other);
  return leaders.map((leader) => leader || "none").join(", ");
}

function rateRow(keyspace) {
  const now = pace(keyspaceOf(keyspace.prefix));
  const beside = (figure, text) => [plot(pastOf(figure, { prefix: keyspace.prefix }), { prefix: keyspace.prefix }), " ", text];
  // Before the second sample there is only the history.
  const latest = (figure) => newest(pastOf(figure, { prefix: keyspace.prefix }));
  return [h("span", { class: "mono" }, nameOf(keyspace.prefix)), leadersOf(keyspace), beside("commands", rate(now.perSecond ?? latest("commands"))),
    time(now.p50 ?? latest("p50_us")), beside("p99_us", time(now.p99 ?? latest("p99_us"))), beside("lag_ms", lagOf(keyspace)), number(keyspace.keys), beside("memory", bytes(keyspace.memory))];
}

function drawRates() {
  const rows = (caption, keyspaces) => table(caption, ["Keyspace", "Led by", ["Commands", "number"], ["p50", "number"], ["p99", "number"], ["Lag", "number"],
    ["Keys", "number"], ["Memory", "number"]], keyspaces.map(rateRow));
  const [some, quiet] = byInterest(state.standing.keyspaces);
  show("rates", rows("Commands on keys, from request to reply, of the last minute. Lag: the follower that is furthest behind.", some),
    foldQuiet("rates quiet", quiet, rows("", quiet)));
}

/** How many changes of leaders are shown. */
const MOVES = 8;

function groupNames(move) {
  const shards = new Map();
  for (const { prefix, shard } of move) shards.set(prefix, [...(shards.get(prefix) ?? []), shard]);
  const names = [...shards].map(([prefix, list]) => {
    const isWhole = keyspaceOf(prefix)(state.standing)?.shards.length === 1;
    return isWhole ? nameOf(prefix) : `${nameOf(prefix)} · ${[...new Set(list)].sort((one, other) => one - other).join(", ")}`;
  });
  return h("span", { class: "mono" }, names.join("; "));
}

function drawLeaderships() {
  if (past.eventsRefused) return show("leaderships", refusal(past.eventsRefused));
  if (past.leaderships.length === 0) return show("leaderships", empty("No node has taken over a group since it has started."));
  const moves = movesOf(past.leaderships);
  const rows = moves.slice(0, MOVES).map((move) => {
    const [{ from, to }] = move;
    const silent = Math.max(...move.map((it) => it.silent_ms ?? 0));
    const how = from === 0 ? "the first leader that this node knows of" : silent < 150 ? "handed over: no node had been silent"
      : `node ${from} had been silent for ${time(silent * 1000)}`;
    const keyspaces = [...new Set(move.map((it) => it.prefix))].map((prefix) => keyspaceOf(prefix)(state.standing)).filter(Boolean);
    const total = (field) => number(keyspaces.reduce((count, keyspace) => count + keyspace[field], 0));
    return [moment(move[0].unix_ms), h("span", { class: "whole" }, from === 0 ? `node ${to} leads` : `node ${from} → node ${to}`), groupNames(move), how,
      `${total("lost_writes")} lost, ${total("unknown_writes")} unknown`];
  });
  return show("leaderships", table("Writes: acknowledged and lost, and without a known outcome, of these keyspaces since their replicas were made.",
    ["When", "Leader", ["Groups", "wide"], ["How", "wide"], "Writes"], rows));
}

// Keyspaces.

function drawKeyspaces() {
  const lacks = lacking();
  if (lacks) return show("keyspaces", lacks);
  const [some, quiet] = byInterest(state.standing.keyspaces);
  return show("keyspaces", some.map(keyspaceCard), foldQuiet("keyspaces quiet", quiet, quiet.map(keyspaceCard)));
}

function keyspaceCard(keyspace) {
  const { prefix } = keyspace;
  const now = pace(keyspaceOf(prefix));
  const fact = (name, text, figure = null) => h("span", {}, `${name} `, figure ? [plot(pastOf(figure, { prefix }), { prefix }), " "] : null, h("b", {}, text));
  const shards = keyspace.shards.map((shard) => [
    `Shard ${shard.shard}`, shard.leader ? `node ${shard.leader}` : "–", shard.members.join(", "),
    shard.replicas.map((replica) => (replica.node === shard.leader ? null
      : `node ${replica.node}: ${replica.sound ? (replica.lag_records ? `${number(replica.lag_records)} records` : "none") : replica.role}`)).filter(Boolean).join("; ") || "–",
    [survives(shard), state.may.lead && keyspace.shards.length > 0 && shard.members.length > 1 && hasLeader(keyspace)
      ? [" ", h("button", { type: "button", class: "small", "data-key": `lead ${shard.group}`, onclick: () => moveLeader(keyspace, shard) }, "Move leader")] : null],
  ]);
  return h("article", { class: "panel keyspace" },
    h("header", {}, h("h2", {}, h("span", { class: "mono" }, nameOf(prefix)), prefix === "" ? " keyspace" : ""),
      h("div", { class: "actions" },
        h("button", { type: "button", "data-key": `browse ${prefix}`, onclick: () => browse(prefix) }, "Keys"),
        state.may.change ? h("button", { type: "button", "data-key": `change ${prefix}`, onclick: () => changeKeyspace(prefix) }, "Change") : null,
        state.may.drop && prefix !== "" ? h("button", { type: "button", class: "danger", "data-key": `drop ${prefix}`, onclick: () => dropKeyspace(keyspace) }, "Drop") : null)),
    h("p", { class: "promise" }, `${keyspace.promise}.`),
    h("div", { class: "line" }, fact("keys", number(keyspace.keys)),
      fact("memory", bytes(keyspace.memory) + (keyspace.memory_max ? ` of ${bytes(keyspace.memory_max)}` : ""), "memory"),
      fact("commands", rate(now.perSecond), "commands"), fact("p99", time(now.p99), "p99_us"), fact("lag", lagOf(keyspace), "lag_ms"), fact("backup", backupOf(keyspace)),
      keyspace.evicted ? fact("evicted", number(keyspace.evicted)) : null, keyspace.locks ? fact("locks", number(keyspace.locks)) : null,
      keyspace.lost_writes ? fact("lost writes", number(keyspace.lost_writes)) : null,
      keyspace.unknown_writes ? fact("unknown writes", number(keyspace.unknown_writes)) : null),
    fold(`shards ${prefix}`, plural(keyspace.shards.length, "shard"),
      table("", ["Shard", "Leader", "Nodes", "Lag of followers", "Survives"], shards)));
}

/** While a dialog is open the browser's history has one more entry, so that Back closes the dialog and nothing else. */
let goesBack = false;
function noteDialog() {
  if (!goesBack && !history.state?.dialog) history.pushState({ dialog: true }, "");
}

function dialogClosed() {
  if ($("dialog").open || goesBack || !history.state?.dialog) return;
  goesBack = true;
  history.back();
}

function wentBack() {
  const isOwn = goesBack;
  goesBack = false;
  // The next dialog may be open before the entry of the last one is gone.
  if ($("dialog").open && isOwn) noteDialog();
  else if ($("dialog").open && !history.state?.dialog) $("dialog").close();
}

/** A dialog with fields; `act` gets their values, and throws an error if it fails. */
function dialog({ title, body, go, isDanger = false, act }) {
  $("dialog-title").textContent = title;
  $("dialog-body").replaceChildren(...body.flat().filter(Boolean));
  $("dialog-error").hidden = true;
  $("dialog-go").textContent = go;
  $("dialog-go").disabled = false;
  $("dialog-go").className = isDanger ? "primary danger" : "primary";
  $("dialog-form").onsubmit = async (event) => {
    event.preventDefault();
    $("dialog-go").disabled = true;
    try {
      const words = await act(new FormData($("dialog-form")));
      if (words) done(words);
      $("dialog").close();
      look();
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      $("dialog-error").hidden = false;
      $("dialog-error").textContent = `${capital(error.message)}.`;
    } finally {
      $("dialog-go").disabled = false;
    }
  };
  $("dialog").showModal();
  noteDialog();
  $("dialog-body").querySelector("input, select, textarea")?.focus();
}

function field(name, label, control, help) {
  control.id = `field-${name}`;
  control.setAttribute("name", name);
  if (help) control.setAttribute("aria-describedby", `help-${name}`);
  return h("div", { class: "field" }, h("label", { for: control.id }, label), control, help ? h("p", { class: "help", id: `help-${name}` }, help) : null);
}

const input = (value = "", attributes = {}) => h("input", { value, autocomplete: "off", autocapitalize: "none", spellcheck: "false", ...attributes });
const choice = (options, chosen) => h("select", {}, options.map(([value, text]) => h("option", { value, selected: value === chosen }, text ?? value)));

const PROTOCOLS = [
  ["", "consensus, unless the default is another"], ["consensus", "consensus: no acknowledged write is lost, reads see every one"],
  ["leader-follower", "leader-follower: you choose how many followers wait"], ["abd", "abd: registers without a leader"], ["blocking", "blocking: registers with locks"],
];
const ACKS = [["", "default"], ["majority"], ["all"], ["none", "none: fastest; a failover may lose writes"], ["1"], ["2"]];
const DURABILITIES = [["", "default"], ["fsync", "fsync: on the disk before the answer"], ["os", "os: in the system's buffers"], ["none", "none: in memory only"]];
const READS = [["", "default"], ["latest", "latest: see every acknowledged write"], ["any", "any: at any replica, perhaps older"]];
const EVICTIONS = ["", "none", "lru", "lfu", "lrm", "random", "ttl", "volatile-lru", "volatile-lfu", "volatile-lrm", "volatile-random"].map((name) => [name, name || "default"]);

/** The settings that were filled in, as the node accepts them. */
function given(form, names) {
  const settings = {};
  for (const name of names) {
    const value = String(form.get(name) ?? "").trim();
    if (value !== "") settings[name] = value;
  }
  return settings;
}

function newKeyspace() {
  dialog({
    title: "New keyspace", go: "Create",
    body: [
      field("prefix", "Prefix of its keys", input("", { required: true, placeholder: "cart:", class: "mono" }), "All keys with this prefix belong to it from then on."),
      field("replication", "Replication", choice(PROTOCOLS, "")),
      h("div", { class: "fields" },
        field("acks", "Acknowledged when held by", choice(ACKS, ""), "leader-follower only"),
        field("durability", "Durability", choice(DURABILITIES, "")),
        field("reads", "Reads", choice(READS, "")),
        field("shards", "Shards", input("", { inputmode: "numeric", placeholder: "1" })),
        field("memory_max", "Most memory", input("", { placeholder: "no bound, or 2gb" })),
        field("eviction", "When it is full", choice(EVICTIONS, ""))),
    ],
    act: async (form) => {
      const prefix = String(form.get("prefix"));
      await ask("/keyspaces", "POST", { prefix, ...given(form, ["replication", "acks", "durability", "reads", "shards", "memory_max", "eviction"]) });
      state.touched.add(prefix);
      done(`The keyspace ${prefix} was made. Its promise is in the list.`);
    },
  });
}

async function changeKeyspace(prefix) {
  let settings;
  try {
    settings = object(await run("KEYSPACE", "GET", prefix));
  } catch (error) {
    return dialog({ title: `Change ${nameOf(prefix)}`, go: "Close", body: [refusal(error)], act: async () => {} });
  }
  const fixed = Object.entries(settings).filter(([name]) => name !== "prefix");
  dialog({
    title: `Change ${nameOf(prefix)}`, go: "Change",
    body: [
      h("p", { class: "muted" }, "It stays in use during the change. What cannot be changed is refused, with the reason."),
      field("setting", "Setting", choice(fixed.map(([name, value]) => [name, `${name} (now ${shown(value) === "" ? "empty" : shown(value)})`]), "acks")),
      field("value", "New value", input("", { required: true, class: "mono" })),
    ],
    act: async (form) => {
      const name = String(form.get("setting"));
      await run("KEYSPACE", "SET", prefix, `${name}=${String(form.get("value")).trim()}`);
      state.touched.add(prefix);
      done(`${nameOf(prefix)}: ${name} is ${form.get("value")} now.`);
    },
  });
}

function dropKeyspace({ prefix, keys }) {
  dialog({
    title: `Drop ${prefix}`, go: "Drop with all keys", isDanger: true,
    body: [
      h("p", {}, `This removes the keyspace and its ${plural(keys, "key")} from all nodes. There is no way back.`),
      field("again", "Type the prefix", input("", { required: true, class: "mono", placeholder: prefix })),
    ],
    act: async (form) => {
      if (form.get("again") !== prefix) throw new Refused(0, "TYPED", "that is not the prefix");
      await ask(`/keyspaces/${encodeURIComponent(prefix)}`, "DELETE");
      done(`The keyspace ${prefix} was dropped.`);
    },
  });
}

// Commands.

/** What this page itself asks for, every few seconds; `quorate status`, `top` and other pages do, too. */
const LOOKS = new Set(["cluster|map", "cluster|report", "cluster|events", "cluster|history", "cluster|ask", "slowlog|get", "lock.list", "acl|list", "acl|dryrun"]);

function drawCommands() {
  const lacks = lacking();
  if (lacks) return show("commands", lacks);
  const rows = state.standing.commands.map((command) => {
    const now = pace(commandOf(command.name));
    const failed = now.now ? (now.now.failed - now.first.failed) / now.seconds : null;
    return { command, now, failed };
  });
  rows.sort((one, other) => (other.now.perSecond ?? 0) - (one.now.perSecond ?? 0) || other.command.calls - one.command.calls);
  const seconds = state.looks.length < 2 ? 0 : (state.looks.at(-1).at - state.looks[0].at) / 1000;
  $("commands-note").textContent = `Of the clients of all nodes, in the last ${duration(Math.max(2, seconds))}. A time goes from the request to its reply, replication `
    + "included; what is answered within one turn of the node counts as less than 1 µs. Percentiles are at most an eighth too high.";
  if (rows.length === 0) return show("commands", empty("No command was given yet."));
  const shown = (some) => table("", ["Command", ["Rate", "number"], ["p50", "number"], ["p99", "number"], ["Failed", "number"], ["Calls", "number"], ["Failed in all", "number"], ["Refused", "number"]],
    some.map(({ command, now, failed }) => [h("span", { class: "mono" }, command.name.replace("|", " ")), rate(now.perSecond), time(now.p50), time(now.p99), rate(failed),
      number(command.calls), number(command.failed), number(command.rejected)]));
  const [looks, others] = [true, false].map((isLook) => rows.filter(({ command }) => LOOKS.has(command.name) === isLook));
  return show("commands", others.length === 0 ? empty("Only tools that look at the cluster have given commands.") : shown(others),
    looks.length > 0 ? fold("looks", `${plural(looks.length, "command")} of this page and of other tools that look at the cluster`, shown(looks)) : null);
}

// Slow commands.

async function drawSlow() {
  const lacks = lacking();
  if (lacks) return show("slow", lacks);
  const answers = await runEverywhere("SLOWLOG", "GET", "50");
  const entries = answers.flatMap(([node, list]) => list.map((entry) => [node, entry])).sort(([, one], [, other]) => other[1] - one[1] || other[2] - one[2]).slice(0, 100);
  if (entries.length === 0) return show("slow", empty("No command was slower than slowlog-log-slower-than (10 ms, if it was not changed)."));
  return show("slow", table("", ["When", ["Took", "number"], "Node", ["Command", "wide"], "Client"], entries.map(([node, [, at, us, words, address, name]]) => [
    moment(at * 1000), time(us), String(node), h("code", {}, words.map(shown).join(" ")),
    [shown(address) || "HTTP", shown(name) ? h("span", { class: "sub" }, shown(name)) : null],
  ])));
}

// Locks.

async function drawLocks() {
  const lacks = lacking();
  if (lacks) return show("locks", lacks);
  const answers = await runEverywhere("LOCK.LIST", "COUNT", "500");
  const locks = new Map();
  for (const [node, list] of answers) {
    for (const pairs of list) {
      const entry = object(pairs);
      entry.lock = object(entry.lock ?? []);
      const leader = keyspaceOf(entry.keyspace)(state.standing)?.shards.find((shard) => shard.shard === entry.shard)?.leader;
      const key = JSON.stringify([entry.keyspace, entry.name]);
      // The leader's entry counts; entries that only followers have are slightly out of date.
      if (node === leader || !locks.has(key)) locks.set(key, entry);
    }
  }
  if (locks.size === 0) return show("locks", empty("Nobody holds a lock."));
  const rows = [...locks.values()].map(({ keyspace, name, lock, waiting }) => {
    const more = lock.waiters - waiting.length;
    const queue = waiting.length === 0 ? "nobody" : h("span", {}, waiting.map(shown).join(", "), more > 0 ? ` and ${number(more)} more` : "");
    const key = JSON.stringify([keyspace, name]);
    return [h("span", { class: "mono" }, shown(name), h("span", { class: "sub" }, nameOf(keyspace))), h("span", { class: "mono" }, shown(lock.owner)), queue,
      lock.session ? "a session" : `a lease of ${time(lock["lease-ms"] * 1000)}`, String(lock.token),
      h("button", { type: "button", "data-key": `lock ${key}`, onclick: () => describeLock(name) }, "Look")];
  });
  return show("locks", table("", ["Lock", "Owner", "Waiting, in order", "Held by", ["Token", "number"], ""], rows));
}

async function describeLock(name) {
  let lock, mayUnlock;
  try {
    const info = await run("LOCK.INFO", word(name));
    lock = info && object(info);
    [mayUnlock] = (await mayEach([["UNLOCK", word(name), "1"]])).may;
  } catch (error) {
    return dialog({ title: shown(name), go: "Close", body: [refusal(error)], act: async () => {} });
  }
  if (!lock) return dialog({ title: shown(name), go: "Close", body: [h("p", {}, "Nobody holds it any more.")], act: async () => {} });
  const facts = Object.entries(lock).map(([key, value]) => [h("dt", {}, key), h("dd", { class: "mono" }, shown(value))]);
  return dialog({
    title: shown(name), go: mayUnlock ? "Release it" : "Close", isDanger: mayUnlock,
    body: [h("dl", { class: "facts" }, facts), mayUnlock ? h("p", { class: "help" }, "Releasing gives it to the next that waits. Its owner does not notice until it asks; "
      + "fenced writes of the owner are refused from then on.") : null],
    act: async () => {
      if (!mayUnlock) return;
      const released = await run("UNLOCK", word(name), String(lock.token));
      done(released ? `The lock ${shown(name)} was released.` : `The lock ${shown(name)} was not held with that token any more.`);
    },
  });
}

// Events.

async function drawEvents() {
  const lacks = lacking();
  if (lacks) return show("events", lacks);
  const wanted = $("level").value;
  const answers = await runEverywhere("CLUSTER", "EVENTS");
  const isWanted = ({ level }) => wanted === "all" || (wanted === "audit" ? level === "audit" : level === "warning" || level === "error");
  const lines = answers.flatMap(([node, text]) => JSON.parse(text).lines.filter(isWanted).map((line) => [node, line]))
    .sort(([, one], [, other]) => other.unix_ms - one.unix_ms).slice(0, 200);
  if (lines.length === 0) return show("events", empty("There are no such lines."));
  const tags = { error: "bad", warning: "warn", audit: "good", info: "" };
  return show("events", table("", ["When", "Node", "Kind", ["What", "wide"]], lines.map(([node, line]) => [
    moment(line.unix_ms), String(node), h("span", { class: `tag ${tags[line.level]}` }, line.level), line.text.replace(/^audit: /, "")])));
}

// Keys.

const scan = { cursor: "0", pattern: "*", type: "", database: 0, seen: new Set(), key: null };
/** Runs a command in the database whose keys are shown. */
const runThere = (...words) => runIn(scan.database, ...words);
/** At most this many steps of a scan are made per press of the button while nothing is found. */
const STEPS = 20;

/** Fills the list of databases with those that exist. */
function drawDatabases() {
  const numbers = [0, ...new Set((state.standing?.keyspaces ?? []).map(({ prefix }) => databaseOf(prefix)).filter((it) => it > 0))].sort((one, other) => one - other);
  const chosen = $("database").value || "0";
  if (numbers.join() === [...$("database").options].map(({ value }) => value).join()) return;
  $("database").replaceChildren(...numbers.map((it) => h("option", { value: it, selected: String(it) === chosen }, it)));
  $("database-field").hidden = numbers.length === 1;
}

/** What was typed is a prefix, unless it has characters with a meaning in patterns. */
const patternOf = (text) => (/[*?[]/.test(text) ? text : `${escaped(text)}*`);
const escaped = (text) => text.replace(/[*?[\]\\^]/g, "\\$&");

function browse(prefix) {
  const database = databaseOf(prefix);
  drawDatabases();
  $("database").value = String(database);
  $("pattern").value = database > 0 ? "" : /[*?[]/.test(prefix) ? `${escaped(prefix)}*` : prefix;
  location.hash = "#keys";
  find();
}

function find(event) {
  event?.preventDefault();
  Object.assign(scan, { cursor: "0", pattern: patternOf($("pattern").value), type: $("type").value, database: Number($("database").value || 0), seen: new Set(), key: null });
  $("key-list").replaceChildren();
  $("key").replaceChildren();
  return findMore();
}

async function findMore() {
  const { pattern, type, seen } = scan;
  $("more").hidden = true;
  $("found").textContent = "Looking …";
  let found = 0;
  try {
    for (let step = 0; step < STEPS && found < 100; step += 1) {
      const words = ["SCAN", scan.cursor, "MATCH", pattern, "COUNT", "500", ...(type ? ["TYPE", type] : [])];
      const [cursor, keys] = await runThere(...words);
      if (seen !== scan.seen) return;
      scan.cursor = shown(cursor);
      for (const key of keys) {
        const name = shown(key);
        if (seen.has(name)) continue;
        seen.add(name);
        found += 1;
        $("key-list").append(h("li", {}, h("button", { type: "button", onclick: (press) => openKey(key, press.currentTarget) }, name)));
      }
      if (scan.cursor === "0") break;
    }
  } catch (error) {
    if (error.status === 401) return askToLogIn(error);
    $("found").textContent = "";
    $("key").replaceChildren(refusal(error));
    return;
  }
  const isAll = scan.cursor === "0";
  $("found").textContent = seen.size === 0 ? (isAll ? "No key matches." : "No key of those looked at so far matches.") : `${plural(seen.size, "key")}${isAll ? "" : " so far"}`;
  $("more").hidden = isAll;
}

/** How many elements of a value are shown. */
const SHOWN = 200;
const VALUE_BYTES = 64 * 1024;

/** A text as it is; JSON also with its parts on lines of their own. */
function valueView(text) {
  const box = (value) => h("pre", { class: "value", tabindex: "0", "aria-label": "value" }, value);
  const pretty = prettyJson(text);
  return pretty === null ? box(text) : [h("p", { class: "small muted" }, "JSON, laid out for reading:"), box(pretty), h("details", {}, h("summary", {}, "As it is stored"), box(text))];
}

/** `null` if the text is not an object or a list, or if JavaScript would change its numbers. */
function prettyJson(text) {
  if (!/^\s*[{[]/.test(text) || /\d{16}/.test(text)) return null;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return null;
  }
}

const READERS = {
  string: async (key) => {
    const length = await runThere("STRLEN", key);
    const text = length > VALUE_BYTES ? await runThere("GETRANGE", key, "0", String(VALUE_BYTES - 1)) : await runThere("GET", key);
    return { size: bytes(length), whole: length <= VALUE_BYTES ? text : null, body: [valueView(shown(text)),
      length > VALUE_BYTES ? h("p", { class: "small muted" }, `The first ${bytes(VALUE_BYTES)} are shown.`) : null] };
  },
  hash: async (key) => elements(await runThere("HLEN", key), "field", ["Field", "Value"], pairsOf(shownOf(await runThere("HSCAN", key, "0", "COUNT", String(SHOWN))))),
  set: async (key) => elements(await runThere("SCARD", key), "member", ["Member"], shownOf(await runThere("SSCAN", key, "0", "COUNT", String(SHOWN))).map((member) => [member])),
  list: async (key) => elements(await runThere("LLEN", key), "element", ["Place", "Element"], (await runThere("LRANGE", key, "0", String(SHOWN - 1))).map((element, place) => [place, element])),
  zset: async (key) => elements(await runThere("ZCARD", key), "member", ["Member", "Score"], flatPairs(await runThere("ZRANGE", key, "0", String(SHOWN - 1), "WITHSCORES"))),
  stream: async (key) => elements(await runThere("XLEN", key), "entry", ["Id", "Fields"], (await runThere("XREVRANGE", key, "+", "-", "COUNT", String(SHOWN)))
    .map(([id, fields]) => [id, fields ? pairsOf(fields).map(([name, value]) => `${shown(name)} = ${shown(value)}`).join("\n") : ""])),
};
const shownOf = ([, list]) => list;
const pairsOf = (list) => Array.from({ length: list.length / 2 }, (_, place) => [list[2 * place], list[2 * place + 1]]);
const flatPairs = (list) => (Array.isArray(list[0]) ? list : pairsOf(list));

function elements(count, what, columns, rows) {
  const few = rows.slice(0, SHOWN);
  return { size: count === 1 ? `1 ${what}` : `${number(count)} ${what === "entry" ? "entries" : `${what}s`}`,
    body: [table(count > few.length ? `${few.length} of ${number(count)} are shown.` : "", columns, few.map((row) => row.map(shown)), "")] };
}

async function openKey(key, button) {
  scan.key = key;
  document.querySelectorAll("#key-list [aria-current]").forEach((other) => other.removeAttribute("aria-current"));
  button?.setAttribute("aria-current", "true");
  const name = word(key);
  const isNarrow = matchMedia("(max-width: 44rem)").matches;
  const view = (...children) => scan.key === key && $("key").replaceChildren(h("article", { class: "panel" }, ...children.flat(2).filter(Boolean)));
  const title = h("h2", {}, shown(key));
  try {
    const type = await runThere("TYPE", name);
    if (type === "none") return view(h("header", {}, title), h("p", { class: "muted" }, "It does not exist any more."));
    const optional = (...words) => runThere(...words).catch((error) => { if (error.status === 401) throw error; return null; });
    const [ttl, memory, { may }, read] = await Promise.all([
      optional("PTTL", name), optional("MEMORY", "USAGE", name),
      mayEach([["DEL", name], ["SET", name, "x"], ["PEXPIRE", name, "1"]]),
      READERS[type] ? READERS[type](name) : { size: "", body: [h("p", {}, "Values of this type are not shown.")] }]);
    const [mayDelete, maySet, mayExpire] = may;
    const again = () => openKey(key, button);
    view(
      h("header", {}, title, h("div", { class: "actions" },
        maySet && typeof read.whole === "string" ? h("button", { type: "button", onclick: () => editKey(key, read.whole, again) }, "Edit") : null,
        mayExpire ? h("button", { type: "button", onclick: () => expireKey(key, ttl, again) }, "Expiry") : null,
        mayDelete ? h("button", { type: "button", class: "danger", onclick: () => deleteKey(key, button) }, "Delete") : null)),
      h("div", { class: "line muted small" }, [type, read.size, memory === null ? null : `${bytes(memory)} of memory`,
        ttl === null ? null : ttl < 0 ? "does not expire" : `expires in ${time(ttl * 1000)}`].filter(Boolean).join(" · ")),
      read.body);
    if (isNarrow) $("key").scrollIntoView({ block: "start" });
    return undefined;
  } catch (error) {
    if (error.status === 401) return askToLogIn(error);
    if (!(error instanceof Refused)) throw error;
    return view(h("header", {}, title), refusal(error));
  }
}

function editKey(key, value, again) {
  const text = h("textarea", { spellcheck: "false", rows: 8 });
  text.value = value;
  dialog({
    title: `Edit ${shown(key)}`, go: "Store", body: [field("value", "Value", text, "Its expiry stays. Refused if the value has changed since it was shown.")],
    act: async () => {
      const stored = await runThere("SET", word(key), text.value, "IFEQ", value, "KEEPTTL");
      if (stored === null) throw new Refused(0, "CHANGED", "another client has changed it in the meantime; close this and open the key again");
      done(`${shown(key)} was stored.`);
      again();
    },
  });
}

function expireKey(key, ttl, again) {
  dialog({
    title: `Expiry of ${shown(key)}`, go: "Set",
    body: [field("seconds", "Seconds from now", input(ttl > 0 ? String(Math.ceil(ttl / 1000)) : "", { inputmode: "numeric", pattern: "[0-9]*" }), "Empty: it does not expire.")],
    act: async (form) => {
      const seconds = String(form.get("seconds")).trim();
      await (seconds === "" ? runThere("PERSIST", word(key)) : runThere("EXPIRE", word(key), seconds));
      done(`The expiry of ${shown(key)} was set.`);
      again();
    },
  });
}

function deleteKey(key, button) {
  dialog({
    title: `Delete ${shown(key)}`, go: "Delete", isDanger: true, body: [h("p", {}, "The key and its value are removed from all replicas. There is no way back.")],
    act: async () => {
      await runThere("DEL", word(key));
      button?.closest("li")?.remove();
      $("key").replaceChildren();
      done(`${shown(key)} was deleted.`);
    },
  });
}

// Start.

$("login-form").addEventListener("submit", logIn);
$("leave").addEventListener("click", logOut);
$("new-keyspace").addEventListener("click", newKeyspace);
$("scan-form").addEventListener("submit", find);
$("new-user").addEventListener("click", () => changeUser(null));
$("console-form").addEventListener("submit", send);
$("line").addEventListener("keydown", recall);
$("more").addEventListener("click", findMore);
$("level").addEventListener("change", draw);
$("dialog-cancel").addEventListener("click", () => $("dialog").close());
$("dialog").addEventListener("close", dialogClosed);
addEventListener("popstate", wentBack);
addEventListener("hashchange", () => {
  // No dialog stays over another view.
  if ($("dialog").open) $("dialog").close();
  if (!$("app").hidden) turn();
});
document.addEventListener("visibilitychange", () => !document.hidden && !$("app").hidden && timer === undefined && look());
begin();
