// What an operator does: nodes, leaders, quarantine, users, and the console. All of it is a command of the Redis protocol with the
// rights of the user who has logged in. What is refused is shown with the node's error as it is.

"use strict";

/** Asks before a command is given. */
function askFirst({ title, words, body, go, isDanger = false, fields = [], tell }) {
  dialog({
    title, go, isDanger, body: [h("p", {}, body), ...fields],
    act: async (form) => {
      await run(...words(form));
      return tell(form);
    },
  });
}

// Nodes and leaders.

function nodeActions(node) {
  const { node: id, drained, reached, ready } = node;
  const button = (key, text, onclick, className = null) => h("button", { type: "button", class: className, "data-key": `${key} ${id}`, onclick }, text);
  const buttons = [
    state.may.drain && reached && !drained ? button("drain", "Drain", () => askFirst({
      title: `Drain node ${id}`, go: "Drain", words: () => ["CLUSTER", "DRAIN", String(id)],
      body: `Other nodes lead what node ${id} leads, until the end of that: for maintenance. It stays a replica. Requests wait for some milliseconds.`,
      tell: () => `Node ${id} is being drained.`,
    })) : null,
    state.may.drain && drained ? button("undrain", "End the drain", () => askFirst({
      title: `End the drain of node ${id}`, go: "End it", words: () => ["CLUSTER", "DRAIN", String(id), "END"],
      body: `Node ${id} may lead again, and gets back what it is preferred to lead.`, tell: () => `Node ${id} may lead again.`,
    })) : null,
    state.may.replace && !(reached && ready) ? button("replace", "Replace", () => askFirst({
      title: `Replace node ${id}`, go: "Replace", isDanger: true, words: () => ["CLUSTER", "REPLACE", String(id)],
      body: `Only if its disk is lost, or its folder is from a backup: node ${id} becomes a new member everywhere, and gets everything from the others. `
        + "Start it with its file and an empty folder. If its disk is whole, start it instead.",
      tell: () => `Node ${id} is taken in again as a new member.`,
    }), "danger") : null,
  ].filter(Boolean);
  return buttons.length > 0 ? h("div", { class: "actions" }, buttons) : null;
}

function moveLeader(keyspace, shard) {
  const name = keyspace.shards.length === 1 ? nameOf(keyspace.prefix) : `${nameOf(keyspace.prefix)} · ${shard.shard}`;
  const members = shard.members.filter((node) => node !== shard.leader).map((node) => [String(node), `node ${node}`]);
  askFirst({
    title: `Move the leader of ${name}`, go: "Move", words: (form) => ["CLUSTER", "LEAD", String(shard.group), ...[form.get("to")].filter(Boolean)],
    body: `${shard.leader ? `Node ${shard.leader}` : "No node"} leads now. The chosen node leads from now on, and whenever it can. Requests wait for some milliseconds.`,
    fields: [field("to", "New leader", choice([["", "the member that leads fewest"], ...members], ""))],
    tell: (form) => `${name} is led by ${form.get("to") ? `node ${form.get("to")}` : "another node"} soon.`,
  });
}

// Quarantine.

async function drawQuarantine() {
  if (!state.standing.risks.some((risk) => risk.kind === "quarantine")) return show("quarantine");
  let standing;
  try {
    standing = JSON.parse(await run("CLUSTER", "MAP")).quarantine?.standing ?? {};
  } catch (error) {
    return show("quarantine", refusal(error));
  }
  const rows = Object.entries(standing).map(([group, nodes]) => {
    const keyspace = state.standing.keyspaces.find(({ shards }) => shards.some((shard) => shard.group === Number(group)));
    const offset = Math.min(...Object.values(nodes).map((record) => record.offset));
    return [h("span", { class: "mono" }, keyspace ? nameOf(keyspace.prefix) : `group ${group}`), String(offset), Object.keys(nodes).join(", "), state.may.quarantine ? h("div", { class: "actions" },
      h("button", { type: "button", "data-key": `retry ${group}`, onclick: () => askFirst({
        title: `Try record ${offset} again`, go: "Try again", isDanger: true, words: () => ["CLUSTER", "QUARANTINE", "RETRY", group],
        body: "All stopped replicas carry the record out again. It may end their processes again.", tell: () => "The stopped replicas try again.",
      }) }, "Retry"),
      h("button", { type: "button", class: "danger", "data-key": `skip ${group}`, onclick: () => askFirst({
        title: `Skip record ${offset}`, go: "Skip", isDanger: true, words: () => ["CLUSTER", "QUARANTINE", "SKIP", group, String(offset)],
        body: "The record changes nothing, on any replica, ever. There is no way back.", tell: () => `Record ${offset} is skipped.`,
      }) }, "Skip")) : null];
  });
  return show("quarantine", rows.length === 0 ? null : [h("h2", {}, "Quarantine"),
    table("Records that have ended processes; the replicas of these nodes stand still before them.", ["Keyspace", ["Record", "number"], "Nodes", ""], rows)]);
}

// Users.

async function drawUsers() {
  const lines = await run("ACL", "LIST");
  $("new-user").hidden = !state.may.users;
  show("users", table("", ["User", "State", "Passwords", ["Rules", "wide"], ""], lines.map((line) => {
    const [, name, ...rules] = shown(line).split(" ");
    const passwords = rules.filter((rule) => rule.startsWith("#")).length;
    const isOn = rules.includes("on");
    const plain = rules.filter((rule) => !rule.startsWith("#") && !["on", "off", "nopass", "sanitize-payload"].includes(rule));
    return [h("span", { class: "mono" }, name), h("span", { class: `tag ${isOn ? "good" : ""}` }, isOn ? "on" : "off"),
      rules.includes("nopass") ? h("span", { class: "tag warn" }, "needs none") : number(passwords), h("code", {}, plain.join(" ")),
      h("div", { class: "actions" },
        state.may.users ? h("button", { type: "button", "data-key": `user ${name}`, onclick: () => changeUser(name) }, "Change") : null,
        state.may.dropUser && name !== "default" ? h("button", { type: "button", class: "danger", "data-key": `drop user ${name}`, onclick: () => askFirst({
          title: `Drop the user ${name}`, go: "Drop", isDanger: true, words: () => ["ACL", "DELUSER", name], body: "Its connections are closed, on all nodes.", tell: () => `The user ${name} was dropped.`,
        }) }, "Drop") : null)];
  })));
}

/** Makes a user, or changes the one of this name. */
function changeUser(known) {
  askFirst({
    title: known ? `Change the user ${known}` : "New user", go: known ? "Change" : "Create",
    body: known ? "Rules are added to those that the user has; reset before them takes all of those away, the passwords too."
      : "quorate user create --role gives the rights of a role.",
    fields: [
      known ? null : field("name", "Name", input("", { required: true, class: "mono" })),
      field("secret", known ? "A further password" : "Password", input("", { type: "password", autocomplete: "new-password", required: !known })),
      field("rules", "Rules", input("", { class: "mono", placeholder: "~shop:* +@read +@write" }), "~ keys, & channels, + and - commands; on, off, reset"),
    ].filter(Boolean),
    words: (form) => ["ACL", "SETUSER", known ?? String(form.get("name")), ...(known ? [] : ["on"]), ...String(form.get("rules")).split(/\s+/).filter(Boolean),
      ...(form.get("secret") ? [`>${form.get("secret")}`] : [])],
    tell: (form) => `The user ${known ?? form.get("name")} was ${known ? "changed" : "made"}.`,
  });
}

// The console.

const typed = { lines: [], place: 0, database: 0 };
/** The most replies that stay on the page. */
const REPLIES = 100;
const ESCAPES = { n: 10, r: 13, t: 9, a: 7, b: 8 };

/** The words of a line, with the quotes and escapes of redis-cli. Bytes that are no text become base64. */
function wordsOf(line) {
  const words = [];
  for (const [whole, double, single, plain, rest] of line.matchAll(/"((?:[^"\\]|\\.)*)"(?!\S)|'((?:[^'\\]|\\.)*)'(?!\S)|([^\s"']\S*)|(\S+)/g)) {
    if (rest !== undefined) throw new Refused(0, "TYPED", `a quote is not closed, or not followed by a space: ${whole}`);
    if (plain !== undefined) words.push(plain);
    else if (single !== undefined) words.push(single.replace(/\\'/g, "'"));
    else words.push(unescaped(double));
  }
  return words;
}

function unescaped(text) {
  const out = [];
  for (const [part, hex, letter] of text.matchAll(/\\x([0-9a-fA-F]{2})|\\(.)|[^\\]+/gs)) {
    if (hex !== undefined) out.push(parseInt(hex, 16));
    else if (letter !== undefined) out.push(...(letter in ESCAPES ? [ESCAPES[letter]] : new TextEncoder().encode(letter)));
    else out.push(...new TextEncoder().encode(part));
  }
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Uint8Array.from(out));
  } catch {
    return { word_base64: btoa(String.fromCharCode(...out)) };
  }
}

/** A reply as redis-cli shows it. */
function replyText(reply, indent = "") {
  if (reply === null) return "(nil)";
  if (typeof reply === "number") return `(integer) ${reply}`;
  if (typeof reply === "object" && "error" in reply) return `(error) ${reply.error}`;
  if (!Array.isArray(reply)) return indent === "" ? shown(reply) : JSON.stringify(shown(reply));
  if (reply.length === 0) return "(empty)";
  return reply.map((element, place) => {
    const head = `${place + 1}) `;
    return (place === 0 ? "" : indent) + head + replyText(element, indent + " ".repeat(head.length));
  }).join("\n");
}

async function send(event) {
  event.preventDefault();
  const line = $("line").value.trim();
  if (line === "") return undefined;
  typed.lines = [...typed.lines.filter((other) => other !== line), line];
  typed.place = typed.lines.length;
  $("line").value = "";
  const reply = h("pre", {}, "…");
  $("replies").append(h("div", {}, h("p", { class: "mono" }, `${prompt()} ${line}`), reply));
  while ($("replies").children.length > REPLIES) $("replies").firstChild.remove();
  try {
    reply.textContent = replyText(await give(wordsOf(line)));
  } catch (error) {
    if (error.status === 401) return askToLogIn(error);
    if (!(error instanceof Refused)) throw error;
    reply.className = "failed";
    reply.textContent = `(error) ${error.code === "TYPED" ? "" : `${error.code} `}${error.message}`;
  }
  $("replies").scrollTop = $("replies").scrollHeight;
  return undefined;
}

/** Each command has a session of its own, so the page remembers the database. */
async function give(words) {
  const isSelect = String(words[0]).toLowerCase() === "select" && /^\d+$/.test(words[1] ?? "") && words.length === 2;
  if (!isSelect) return runIn(typed.database, ...words);
  await runIn(Number(words[1]), "PING");
  typed.database = Number(words[1]);
  $("line-label").textContent = prompt();
  return "OK";
}

const prompt = () => (typed.database === 0 ? ">" : `[${typed.database}]>`);

function recall(event) {
  const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  if (!step) return;
  event.preventDefault();
  typed.place = Math.min(typed.lines.length, Math.max(0, typed.place + step));
  $("line").value = typed.lines[typed.place] ?? "";
}
