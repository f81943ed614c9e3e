// Since when? The nodes' own histories (`CLUSTER HISTORY`), as small plots beside the figures, with marks where something has
// happened. Where a node has none, or the user may not ask for it, the figures stand alone.

"use strict";

const RANGES = [[600, "10 min"], [3600, "1 h"], [86_400, "1 day"]];
/** Histories and events are asked for less often than the rest: they change slowly and are longer. */
const PAST_EVERY_MS = 6000;

const past = {
  seconds: RANGES[0][0],
  askedAt: -Infinity,
  /** When the histories were asked for. Those of a day need not be asked for as often as events. */
  readAt: -Infinity,
  /** The nodes' replies, by node. */
  nodes: new Map(),
  /** Why there is no history: the refusal of the first node that has answered so. */
  refused: null,
  /** What has happened, the newest first: `{ms, kind, text, prefixes}`. Without prefixes it concerns everything. */
  marks: [],
  leaderships: [],
  eventsRefused: null,
  untilMs: 0,
  stepMs: 1000,
  steps: 0,
};

/** Asks all nodes for their histories and events, if that is due. Returns whether there is something new. */
async function lookBack() {
  if (performance.now() - past.askedAt < PAST_EVERY_MS) return false;
  past.askedAt = performance.now();
  const { seconds } = past;
  const isDue = past.askedAt - past.readAt >= past.stepMs / 4;
  const [histories, events] = await Promise.all([
    isDue ? runEverywhere("CLUSTER", "HISTORY", String(seconds)).catch((error) => error) : null, runEverywhere("CLUSTER", "EVENTS").catch((error) => error)]);
  for (const answer of [histories, events]) {
    if (answer instanceof Error && (answer.status === 401 || !(answer instanceof Refused))) throw answer;
  }
  if (seconds !== past.seconds) return false;
  if (isDue) takeHistories(histories);
  past.eventsRefused = events instanceof Error ? events : null;
  if (!past.eventsRefused) takeEvents(events.map(([node, text]) => [node, JSON.parse(text)]));
  return true;
}

function takeHistories(histories) {
  past.readAt = past.askedAt;
  past.refused = histories instanceof Error ? histories : null;
  past.nodes = new Map(past.refused ? [] : histories.map(([node, text]) => [node, JSON.parse(text)]));
  const replies = [...past.nodes.values()];
  if (replies.length === 0) return;
  past.stepMs = replies[0].step_s * 1000;
  past.untilMs = Math.max(...replies.map((reply) => reply.until_ms));
  past.steps = replies[0].whole.commands.length;
}

function takeEvents(events) {
  past.leaderships = events.flatMap(([, of]) => of.leaderships).sort((one, other) => other.unix_ms - one.unix_ms);
  const moves = movesOf(past.leaderships).filter((move) => move[0].from !== 0).map((move) => ({
    ms: move.at(-1).unix_ms, kind: "moved", text: `node ${move[0].to} leads instead of node ${move[0].from}`, prefixes: move.map((it) => it.prefix),
  }));
  const lines = events.flatMap(([node, { lines }]) => lines.filter(isFailure)
    .map(({ unix_ms, text }) => ({ ms: unix_ms, kind: "failed", text: `node ${node}: ${text}`, prefixes: null })));
  const starts = [...past.nodes].map(([node, { started_ms }]) => ({ ms: started_ms, kind: "started", text: `node ${node} started`, prefixes: null }));
  past.marks = [...moves, ...lines, ...starts].sort((one, other) => other.ms - one.ms);
}

/** Lines that tell of a change of leader tell nothing new: the new leader reports it. */
const isFailure = ({ level, text }) => (level === "warning" || level === "error") && !/^group \d+ is led by/.test(text);

/** A node that crashes leaves all of its groups at once: those that move in the same way within seconds are one move. */
function movesOf(leaderships) {
  const moves = [];
  for (const it of leaderships) {
    const same = moves.find((move) => move[0].from === it.from && move[0].to === it.to && move.at(-1).unix_ms - it.unix_ms < 5000);
    if (same) same.push(it);
    else moves.push([it]);
  }
  return moves;
}

const add = (one, other) => one + other;
/** How the nodes' values of a figure become one: a cluster's rate is the sum, a time or a lag the worst. */
const JOINS = { commands: add, peak: add, p50_us: Math.max, p99_us: Math.max, lag_ms: Math.max, memory: Math.max, leader: Math.max };

/** The values of a figure, the oldest first: of one node or of all, of one keyspace or of all. Empty if there are none. */
function pastOf(figure, { node = null, prefix = null, join = JOINS[figure] } = {}) {
  const values = new Array(past.steps).fill(null);
  let any = false;
  for (const [id, reply] of past.nodes) {
    if (node !== null && id !== node) continue;
    const columns = prefix === null ? reply.whole : reply.keyspaces[prefix];
    if (!columns) continue;
    // The steps of two nodes need not end at the same moment.
    const shift = Math.round((past.untilMs - reply.until_ms) / past.stepMs);
    columns[figure].forEach((value, place) => {
      const at = place - shift;
      if (value === null || at < 0) return;
      any = true;
      values[at] = values[at] === null ? value : join(values[at], value);
    });
  }
  return any ? values : [];
}

const marksIn = (prefix) => past.marks.filter((mark) => mark.ms > past.untilMs - past.steps * past.stepMs && (prefix === null || mark.prefixes?.includes(prefix)));

/** The steps in which nobody led: no node knew of a leader all the time. None in a keyspace that needs no leader. */
function ledByNobody(prefix) {
  if (prefix !== null && !hasLeader(keyspaceOf(prefix)(state.standing) ?? {})) return [];
  return pastOf("leader", { prefix }).flatMap((leader, place) => (leader === 0 ? [place] : []));
}

/** A plot without words: a line over an area, with a gap where nothing is known, a mark where something has happened, and a dark
 * ground where nobody led. */
function plot(values, { className = "spark", prefix = null, withMarks = true, label = null } = {}) {
  if (values.filter((value) => value !== null).length < 2) return "";
  const most = Math.max(...values, 0) || 1;
  const x = (place) => ((place + 0.5) / values.length) * 100;
  const y = (value) => 24 - (value / most) * 22;
  const runs = [];
  values.forEach((value, place) => {
    if (value === null) return;
    if (place === 0 || values[place - 1] === null) runs.push([]);
    runs.at(-1).push([x(place), y(value)]);
  });
  const line = (run) => run.map(([across, down]) => `${across.toFixed(2)},${down.toFixed(2)}`).join(" ");
  const drawn = runs.flatMap((run) => [
    svg("polygon", { points: `${run[0][0].toFixed(2)},24 ${line(run)} ${run.at(-1)[0].toFixed(2)},24`, class: "area" }),
    // A single point is a short line.
    svg("polyline", { points: run.length > 1 ? line(run) : `${line(run)} ${(run[0][0] + 0.6).toFixed(2)},${run[0][1].toFixed(2)}`, class: "line" })]);
  const across = (mark) => Math.round(100 - ((past.untilMs - mark.ms) / (past.steps * past.stepMs)) * 100);
  // Marks of a kind that are too close to tell apart are one.
  const places = new Map(withMarks ? marksIn(prefix).map((mark) => [`${mark.kind} ${across(mark)}`, mark]) : []);
  const marks = [...places.values()].map((mark) => svg("line", { x1: across(mark), x2: across(mark), y1: 0, y2: 25, class: `mark ${mark.kind}` }));
  const grounds = withMarks ? ledByNobody(prefix).map((place) => svg("rect", { x: x(place - 0.5).toFixed(2), width: (100 / values.length).toFixed(2), y: 0, height: 25, class: "unled" })) : [];
  const named = label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" };
  return svg("svg", { viewBox: "0 0 100 25", preserveAspectRatio: "none", class: className, ...named }, ...grounds, ...drawn, ...marks);
}

const newest = (values) => values.findLast((value) => value !== null) ?? null;

/** A plot with its name, its newest and its highest value. The pointer shows the value and the marks of a moment. */
function chart(name, values, format) {
  const known = values.filter((value) => value !== null);
  if (known.length < 2) return h("figure", { class: "chart" }, h("figcaption", {}, h("b", {}, name)), h("p", { class: "small muted" }, "Nothing in this time."));
  const most = Math.max(...known);
  const words = `${format(newest(values))} in the last ${duration(past.stepMs / 1000)}, at most ${format(most)}`;
  const caption = h("span", {}, words);
  const drawn = plot(values, { className: "plot", label: `${name}: ${words}` });
  drawn.addEventListener("pointermove", (event) => {
    const { left, width } = drawn.getBoundingClientRect();
    const place = Math.min(values.length - 1, Math.max(0, Math.floor(((event.clientX - left) / width) * values.length)));
    const endMs = past.untilMs - (values.length - 1 - place) * past.stepMs;
    const near = marksIn(null).filter((mark) => mark.ms <= endMs + past.stepMs && mark.ms > endMs - 2 * past.stepMs);
    caption.replaceChildren(moment(endMs), `: ${values[place] === null ? "not known" : format(values[place])}`, near.length > 0 ? ` (${near[0].text})` : "");
  });
  drawn.addEventListener("pointerleave", () => caption.replaceChildren(words));
  return h("figure", { class: "chart" }, h("figcaption", {}, h("b", {}, name), " ", caption), drawn);
}

const MARKS_SHOWN = 6;

function drawPast() {
  if ($("past").matches(":hover") && $("past").querySelector(".plot:hover")) return undefined;
  const ranges = h("div", { class: "ranges", role: "group", "aria-label": "Range" }, RANGES.map(([seconds, name]) => h("button", {
    type: "button", "data-key": `range ${seconds}`, "aria-pressed": String(seconds === past.seconds),
    onclick: () => { Object.assign(past, { seconds, askedAt: -Infinity, readAt: -Infinity }); look(); },
  }, name)));
  const title = h("div", { class: "title-row" }, h("h2", {}, "Since when"), ranges);
  if (past.refused) return show("past", title, empty(`No history: ${past.refused.message}.`));
  if (past.steps === 0) return show("past", title, empty("Asking the nodes …"));
  const alike = new Map();
  for (const mark of marksIn(null)) alike.set(mark.text, { ...mark, ...alike.get(mark.text), count: (alike.get(mark.text)?.count ?? 0) + 1 });
  const marks = [...alike.values()];
  return show("past", title,
    h("div", { class: "charts" },
      chart("Commands", pastOf("commands"), rate), chart("p99", pastOf("p99_us"), time), chart("Lag of followers", pastOf("lag_ms"), (ms) => (ms === 0 ? "none" : time(ms * 1000))),
      chart("Memory of all processes", pastOf("memory", { join: add }), bytes)),
    h("ul", { class: "marks small" }, marks.slice(0, MARKS_SHOWN).map((mark) => h("li", {}, h("span", { class: `key ${mark.kind}`, "aria-hidden": "true" }), moment(mark.ms), ` ${mark.text}${mark.count > 1 ? `, ${mark.count} times` : ""}`)),
      marks.length > MARKS_SHOWN ? h("li", { class: "muted" }, `and ${marks.length - MARKS_SHOWN} others; the lines are under Events`) : null));
}
