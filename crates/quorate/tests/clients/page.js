// Uses the page as people do, in a real browser. Each run executes one phase of the test: `node page.js PHASE
// HTTP_PORT`. Prints `ok` if everything was right.

"use strict";

const assert = require("node:assert/strict");
const http = require("node:http");
const { chromium } = require("playwright-core");

const [phase, port] = process.argv.slice(2);
const base = `http://127.0.0.1:${port}/`;
const patience = 30_000;
const complaints = [];

/** Opens the page as a new visitor, and notes what the browser complains of. */
async function visit(browser, options = {}) {
  const context = await browser.newContext(options);
  context.setDefaultTimeout(patience);
  const page = await context.newPage();
  page.on("pageerror", (error) => complaints.push(error.stack));
  page.on("console", (message) => {
    // A refusal by the node is expected here, and shown on the page.
    const isRefusal = message.text().includes("Failed to load resource");
    if (message.type() === "error" && !isRefusal) complaints.push(message.text());
  });
  page.on("dialog", (dialog) => complaints.push(`a dialog of the browser: ${dialog.message()}`));
  await page.goto(base);
  return page;
}

const until = (page, holds, argument) => page.waitForFunction(holds, argument, { timeout: patience });
const says = (page, id, text) =>
  until(page, ([id, text]) => document.getElementById(id).textContent.includes(text), [id, text]);
const turnTo = (page, view) => page.click(`.tabs a[href="#${view}"]`);

/** Gives a command as the page does. */
const run = (page, ...command) => runIn(page, 0, ...command);
const runIn = (page, database, ...command) =>
  page.evaluate(async ([database, command]) => {
    const headers = { "Content-Type": "application/json", "X-Quorate": "test" };
    const authorization = sessionStorage.getItem("quorate.authorization");
    if (authorization) headers.Authorization = authorization;
    const answer = await fetch(`/command?database=${database}`, { method: "POST", headers, body: JSON.stringify({ command }), credentials: "omit" });
    return { status: answer.status, ...(await answer.json()) };
  }, [database, command]);

const phases = {
  /** No password is set: every visitor is an operator. */
  async operator(browser) {
    const page = await visit(browser);
    await says(page, "banner", "Healthy");
    await says(page, "banner", "3 of 3 nodes up");
    for (const id of [1, 2, 3]) await says(page, "nodes", `Node ${id}`);
    await says(page, "map", "leads");
    await says(page, "leaderships", "node ");

    // A keyspace is made, changed and dropped; its promise is in words.
    await turnTo(page, "keyspaces");
    await says(page, "keyspaces", "a write is acknowledged when 2 of 3 replicas have it");
    await page.click("#new-keyspace");
    await page.fill("#field-prefix", "made:");
    await page.selectOption("#field-replication", "leader-follower");
    await page.selectOption("#field-acks", "none");
    await page.click("#dialog-go");
    await says(page, "keyspaces", "when its leader has it, so a failover may lose it");
    await page.click('[data-key="change made:"]');
    await page.selectOption("#field-setting", "acks");
    await page.fill("#field-value", "nonsense");
    await page.click("#dialog-go");
    await says(page, "dialog-error", "acks");
    await page.fill("#field-value", "all");
    await page.click("#dialog-go");
    await says(page, "keyspaces", "when all replicas that are in sync have it");
    await page.click('[data-key="drop made:"]');
    await page.fill("#field-again", "other");
    await page.click("#dialog-go");
    await says(page, "dialog-error", "not the prefix");
    await page.fill("#field-again", "made:");
    await page.click("#dialog-go");
    await until(page, () => !document.querySelector('[data-key="drop made:"]'));

    // Keys of all types, one whose name would be markup, and one whose name is not valid text.
    const markup = "k:<img src=x onerror=document.title='hurt'>";
    await run(page, "SET", markup, "<b>value</b>");
    await run(page, "HSET", "k:hash", "field", "of the hash");
    await run(page, "RPUSH", "k:list", "first", "second");
    await run(page, "ZADD", "k:zset", "1.5", "member");
    await run(page, "SADD", "k:set", "member");
    await run(page, "XADD", "k:stream", "*", "what", "happened");
    await run(page, "SET", { word_base64: "azr/" }, "of bytes");
    await turnTo(page, "keys");
    await page.fill("#pattern", "k:*");
    await page.click("#scan-form button");
    await says(page, "found", "7 keys");
    const open = (name) => page.locator("#key-list button", { hasText: name }).click();
    for (const [name, text] of [["k:hash", "of the hash"], ["k:list", "second"], ["k:zset", "1.5"], ["k:set", "member"],
      ["k:stream", "what = happened"], ["\\xff", "of bytes"], ["<img", "<b>value</b>"]]) {
      await open(name);
      await says(page, "key", text);
    }
    assert.notEqual(await page.title(), "hurt", "a key's name is text");
    await page.click('#key button:has-text("Edit")');
    await page.fill("#field-value", "changed");
    await page.click("#dialog-go");
    await says(page, "key", "changed");
    assert.equal((await run(page, "GET", markup)).reply, "changed");
    await page.click('#key button:has-text("Delete")');
    await page.click("#dialog-go");
    await until(page, () => document.querySelectorAll("#key-list button").length === 6);
    assert.equal((await run(page, "EXISTS", markup)).reply, 0);

    // Keys of another database.
    await run(page, "KEYSPACE", "CREATE", "@3");
    await runIn(page, 3, "SET", "there", "in database three");
    await turnTo(page, "keyspaces");
    await page.click('[data-key="browse @3"]');
    await says(page, "found", "1 key");
    await open("there");
    await says(page, "key", "in database three");
    await page.selectOption("#database", "0");
    await page.click("#scan-form button");
    await says(page, "found", "keys");
    assert.equal(await page.locator("#key-list button", { hasText: "there" }).count(), 0);

    // Locks, with owner and waiting clients (the test holds them), and slow commands.
    await turnTo(page, "locks");
    for (const text of ["job", "ann", "bob"]) await says(page, "locks", text);
    await page.click('#locks button:has-text("Look")');
    await says(page, "dialog-body", "ann");
    await page.click("#dialog-cancel");
    await turnTo(page, "slow");
    await says(page, "slow", "slow:key");
    await turnTo(page, "commands");
    for (const text of ["set", "hset", "cluster ask"]) await says(page, "commands", text);
    await says(page, "commands", "of this page and of other tools");
    assert.doesNotMatch(await page.textContent("#commands > .table"), /cluster/, "what the page itself asks for comes last");
    await turnTo(page, "events");
    await says(page, "events", "made:");
  },

  /** What an operator does, and sees to have been done. */
  async actions(browser) {
    const page = await visit(browser);
    const isOpen = () => page.evaluate(() => document.getElementById("dialog").open);
    // Plots, and a mark where a leader was moved.
    await page.waitForSelector("#past .plot .line");
    await page.waitForSelector("#nodes .spark .line");
    await page.click('[data-key="range 86400"]');
    await page.waitForSelector('[data-key="range 86400"][aria-pressed="true"]');
    await page.click('[data-key="range 600"]');
    const from = await page.evaluate(() => state.standing.keyspaces.find(({ prefix }) => prefix === "cart:").shards[0].leader);
    const to = (from % 3) + 1;
    await turnTo(page, "keyspaces");
    const card = page.locator("#view-keyspaces .keyspace", { hasText: "cart:" });
    await card.locator("summary").click();
    await card.locator('button:has-text("Move leader")').click();
    await page.selectOption("#field-to", String(to));
    await page.click("#dialog-go");
    await says(page, "done", `led by node ${to} soon`);
    await turnTo(page, "overview");
    await says(page, "past", `node ${to} leads instead of node ${from}`);
    await page.waitForSelector("#past .plot .mark.moved", { state: "attached" });
    await says(page, "leaderships", `node ${from} → node ${to}`);

    // Back closes a dialog and nothing else, and none stays over another view.
    const url = page.url();
    await page.click('[data-key="drain 2"]');
    assert.equal(await isOpen(), true);
    await page.goBack();
    await until(page, () => !document.getElementById("dialog").open);
    assert.equal(page.url(), url);
    assert.equal(await page.isVisible("#view-overview"), true);
    await page.click('[data-key="drain 2"]');
    await page.evaluate(() => (location.hash = "#locks"));
    await page.waitForSelector("#view-locks", { state: "visible" });
    await until(page, () => !document.getElementById("dialog").open);
    await turnTo(page, "overview");

    // A drain, and its end.
    await page.click('[data-key="drain 2"]');
    await page.click("#dialog-go");
    await page.waitForSelector('[data-key="undrain 2"]');
    await says(page, "nodes", "drained");
    await page.click('[data-key="undrain 2"]');
    await page.click("#dialog-go");
    await page.waitForSelector('[data-key="drain 2"]');

    // The console: replies, errors as they are, and earlier lines.
    await turnTo(page, "console");
    const gives = async (line, text) => {
      await page.fill("#line", line);
      await page.press("#line", "Enter");
      await says(page, "replies", text);
    };
    await gives('SET "said key" "a \\"b\\" \\x41"', "OK");
    await gives("GET 'said key'", 'a "b" A');
    await gives("RPUSH said:list 1 two", "(integer) 2");
    await gives("LRANGE said:list 0 -1", '2) "two"');
    await gives("GET said:list", "(error) WRONGTYPE Operation against a key");
    await gives("SET open \"quote", "a quote is not closed");
    await gives("GET <b>", "(nil)");
    assert.equal(await page.locator("#replies b").count(), 0, "what was typed is text");
    await page.press("#line", "ArrowUp");
    await page.press("#line", "ArrowUp");
    assert.equal(await page.inputValue("#line"), 'SET open "quote');

    // Keys by their prefix, and JSON to read.
    await run(page, "SET", "said:json", '{"a":[1,{"b":null}]}');
    await turnTo(page, "keys");
    await page.fill("#pattern", "said:");
    await page.click("#scan-form button");
    await says(page, "found", "2 keys");
    await page.locator("#key-list button", { hasText: "said:json" }).click();
    await says(page, "key", '"b": null');
    await page.click('#key button:has-text("Edit")');
    assert.equal(await page.inputValue("#field-value"), '{"a":[1,{"b":null}]}', "it is edited as it is stored");
    await run(page, "SET", "said:json", "[]");
    await page.fill("#field-value", "{}");
    await page.click("#dialog-go");
    await says(page, "dialog-error", "Another client has changed it");
    await page.click("#dialog-cancel");

    // Users.
    await turnTo(page, "users");
    await page.click("#new-user");
    await page.fill("#field-name", "made");
    await page.fill("#field-secret", "a password");
    await page.fill("#field-rules", "~said:* +nonsense");
    await page.click("#dialog-go");
    await says(page, "dialog-error", "nonsense");
    await page.fill("#field-rules", "~said:* +get");
    await page.click("#dialog-go");
    await page.waitForSelector('[data-key="drop user made"]');
    await says(page, "users", "~said:*");
    await page.click('[data-key="drop user made"]');
    await page.click("#dialog-go");
    await until(page, () => !document.querySelector('[data-key="drop user made"]'));
  },

  /** Users with a password: only what they may do is offered, and what they may not is refused. */
  async users(browser) {
    const page = await visit(browser);
    await page.waitForSelector("#login-form", { state: "visible" });
    await page.fill("#user", "reader");
    await page.fill("#password", "wrong");
    await page.click("#login-form button");
    await says(page, "login-error", "do not match");
    await page.fill("#password", "of-the-reader");
    await page.click("#login-form button");
    await says(page, "banner", "nodes up");
    await says(page, "who", "may not change the cluster");
    await turnTo(page, "keyspaces");
    await says(page, "keyspaces", "a write is acknowledged");
    assert.equal(await page.isVisible("#new-keyspace"), false);
    assert.equal(await page.locator('[data-key^="drop"], [data-key^="change"]').count(), 0);
    await turnTo(page, "keys");
    await page.fill("#pattern", "read:*");
    await page.click("#scan-form button");
    await page.locator("#key-list button", { hasText: "read:key" }).click();
    await says(page, "key", "the-value");
    assert.equal(await page.locator("#key .actions button").count(), 0);
    for (const command of [["SET", "read:key", "v"], ["KEYSPACE", "DROP", "cart:"], ["FLUSHALL"], ["CLUSTER", "ASK", "2", "SLOWLOG", "GET"]]) {
      const refused = await run(page, ...command);
      assert.deepEqual([refused.status, refused.code], [403, "NOPERM"], command.join(" "));
    }
    await turnTo(page, "slow");
    await says(page, "slow", "may not see this");
    await turnTo(page, "users");
    await says(page, "users", "may not see this");
    // Without the right to the history the rest is there; what is not offered is refused to those who type it.
    await turnTo(page, "overview");
    await says(page, "past", "No history: ");
    await says(page, "nodes", "Node 3");
    assert.equal(await page.locator('[data-key^="drain"], [data-key^="replace"]').count(), 0);
    await turnTo(page, "console");
    await page.fill("#line", "CLUSTER DRAIN 1");
    await page.press("#line", "Enter");
    await says(page, "replies", "(error) NOPERM");
    assert.deepEqual(await page.context().cookies(), [], "nothing is kept in cookies");
    await page.click("#leave");
    await page.waitForSelector("#login-form", { state: "visible" });
    assert.equal((await run(page, "GET", "read:key")).status, 401);
  },

  /** A page of another site can neither ask nor show this one. */
  async foreign(browser) {
    const site = http.createServer((_, answer) => {
      answer.setHeader("Content-Type", "text/html");
      answer.end(`<iframe src="${base}"></iframe>`);
    });
    await new Promise((resolve) => site.listen(0, "127.0.0.1", resolve));
    const context = await browser.newContext();
    const page = await context.newPage();
    await page.goto(`http://localhost:${site.address().port}/`);
    const attempts = await page.evaluate(async (base) => {
      const body = JSON.stringify({ command: ["SET", "hurt", "1"] });
      const attempt = (headers, mode) => fetch(`${base}command`, { method: "POST", headers, body, mode }).then((answer) => answer.type, () => "refused");
      return [
        await attempt({ "Content-Type": "application/json", "X-Quorate": "1" }, "cors"),
        await attempt({ "Content-Type": "text/plain" }, "cors"),
        // The browser sends the request, and does not show its answer.
        await attempt({ "Content-Type": "text/plain" }, "no-cors"),
        await fetch(`${base}status`).then(() => "read", () => "refused"),
      ];
    }, base);
    assert.deepEqual(attempts, ["refused", "refused", "opaque", "refused"]);
    await page.waitForTimeout(500);
    const inside = page.frames().find((frame) => frame !== page.mainFrame());
    assert.equal(await inside.locator("#app, #login").count(), 0, "it is shown in a frame of another site");
    site.close();
    const own = await visit(browser);
    await says(own, "banner", "nodes up");
    assert.equal((await run(own, "EXISTS", "hurt")).reply, 0);
    const bare = await own.evaluate(() => fetch("/command", { method: "POST", headers: { "Content-Type": "application/json" },
      body: '{"command":["PING"]}' }).then((answer) => answer.status));
    assert.equal(bare, 403, "the header is required");
  },

  /** Every view in light and dark, on a phone and on a tablet. */
  async looks(browser) {
    const views = ["overview", "keyspaces", "commands", "slow", "locks", "keys", "console", "users", "events"];
    const grounds = new Set();
    for (const [colorScheme, width] of [["light", 375], ["light", 820], ["dark", 390]]) {
      const page = await visit(browser, { colorScheme, viewport: { width, height: 812 } });
      await says(page, "banner", "nodes up");
      for (const view of views) {
        await turnTo(page, view);
        const { beyond, unnamed, cut } = await page.evaluate(() => ({
          cut: [...document.querySelectorAll(".tabs a")].filter((tab) => tab.getBoundingClientRect().right > innerWidth).length,
          beyond: document.documentElement.scrollWidth - document.documentElement.clientWidth,
          unnamed: [...document.querySelectorAll("input, select, textarea, button, a, meter")].filter((element) =>
            element.offsetParent && !(element.textContent.trim() || element.labels?.length || element.getAttribute("aria-label"))).length,
        }));
        assert.equal(beyond, 0, `${view} is wider than ${width} px`);
        assert.equal(cut, 0, `tabs are cut at ${width} px`);
        assert.equal(unnamed, 0, `${view} has controls without a name`);
      }
      grounds.add(await page.evaluate(() => getComputedStyle(document.body).backgroundColor));
    }
    assert.equal(grounds.size, 2, "dark and light look alike");
  },

  /** A node is dead. */
  async down(browser) {
    const page = await visit(browser);
    await says(page, "banner", "At risk");
    await says(page, "risks", "cannot be reached");
    await says(page, "risks", "on its machine");
    await says(page, "nodes", "down");
    await says(page, "map", "away");
    await says(page, "leaderships", "had been silent for");
  },

  /** The node of this page dies while somebody looks. */
  async gone(browser) {
    const page = await visit(browser);
    await says(page, "banner", "nodes up");
    console.log("seen");
    await says(page, "trouble", "This node does not answer");
    await says(page, "trouble", "The data shown is old");
  },
};

(async () => {
  const executablePath = process.env.QUORATE_CHROMIUM ?? "/usr/bin/chromium";
  // Tests run as root in containers, where the browser's own sandbox is not available.
  const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
  try {
    await phases[phase](browser);
    assert.deepEqual(complaints, []);
    console.log("ok");
  } finally {
    await browser.close();
  }
})().catch((error) => {
  console.error(error.stack, complaints);
  process.exit(1);
});
