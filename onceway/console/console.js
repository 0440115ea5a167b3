// Shows what the stream says (onceway/console/__init__.py), once a second, and asks for one address where it is chosen.

import { Cell, Table, figure, span } from "./tables.js";
import { Picture } from "./picture.js";

const at = (id) => document.getElementById(id);
const QUIET_S = 5; // without an event: the page says that it has no contact
const SOON_DAYS = 21; // a certificate that ends before is named
const EVENTS = 300;

let now = null; // the last event, and the one before
let before = null;
let heardAt = Date.now();
let chosenAddress = null;
let chosenRouter = null;
const events = new Map(); // what happened, by router, time and name
const lookOf = { ready: "good", starting: "busy", recovering: "busy", draining: "busy", drained: "busy" };

const tables = {
  routers: new Table(at("routers"), ["Router", "State", "Up", "Trunks#", "Connections#", "Publishers#", "Subscribers#", "Certificate"], ""),
  addresses: new Table(at("addresses"), ["Address", "Publishers#", "Subscribers#", "In, per s#", "Out, per s#", "Not accepted by all#", "Held#", "In doubt#", "Owed#"], "No address yet."),
  lags: new Table(at("lags"), ["Address", "Subscription", "Kept at", "Not accepted#", "Oldest#"], "None has anything left to accept."),
  events: new Table(at("events"), ["Time", "Router", "What"], "Nothing yet."),
  publishers: new Table(at("publishers"), ["Publisher", "Router", "State", "Not accepted by all#", "Waits for", ""], "None is attached."),
  subscriptions: new Table(at("subscriptions"), ["Subscription", "Router", "Not accepted#", "In doubt#", "Oldest#", "Waited for", ""], "None."),
};
const picture = new Picture(at("picture"), chooseRouter);

// --- what is derived from an event

const answering = (view) => Object.entries(view.routers).filter(([, one]) => !("why" in one));

/** How many more a counter has than in the event before, per second; 0 where the router has been started anew. */
function rate(router, read) {
  const [new_, old] = [now.routers[router], before?.routers[router]];
  if (!old || old.incarnation !== new_.incarnation || now.at <= before.at) return 0;
  return Math.max(0, (read(new_) ?? 0) - (read(old) ?? 0)) / (now.at - before.at);
}

function names() {
  const found = new Set([...now.links.flatMap(([one, other]) => [one, other]), ...Object.keys(now.routers)]);
  for (const [, one] of answering(now)) for (const name of one.routers ?? []) found.add(name);
  return [...found].sort();
}

function shapes() {
  const found = {};
  for (const name of names()) {
    const one = now.routers[name];
    if (one && !("why" in one)) {
      const clients = `${one.publishers} pub, ${one.subscribers} sub`;
      found[name] = { look: lookOf[one.state] ?? "bad", state: one.state, clients };
    } else if (one) found[name] = { look: "bad", state: "no answer", clients: "" };
    else {
      const path = now.routers[now.seen_from]?.paths?.[name];
      const state = path ? `${path.hops} ${path.hops === 1 ? "hop" : "hops"} away` : "out of reach";
      found[name] = { look: path ? "unknown" : "bad", state, clients: "" };
    }
  }
  return found;
}

function trunks() {
  const links = new Map(now.links.map(([one, other, cost]) => [[one, other].sort().join("\n"), cost]));
  for (const [name, one] of answering(now)) {
    for (const [other, { cost }] of Object.entries(one.neighbours ?? {})) links.set([name, other].sort().join("\n"), cost);
  }
  return [...links].map(([key, cost]) => {
    const between = key.split("\n");
    const ends = [between, [...between].reverse()].filter(([name]) => now.routers[name]?.neighbours);
    const sides = ends.map(([name, other]) => now.routers[name].neighbours[other]).filter(Boolean);
    const look = !sides.length ? "unknown" : sides.every((side) => side.up) ? "up" : "down";
    const moved = (one, other) => {
      const trunk = one.neighbours?.[other]?.trunk;
      return trunk ? trunk.transfers_sent + trunk.transfers_received : 0;
    };
    const rates = ends.map(([name, other]) => rate(name, (one) => moved(one, other)));
    return { between, cost, look, rate: Math.max(0, ...rates) };
  });
}

function addresses() {
  const sums = new Map();
  for (const [router, one] of answering(now)) {
    for (const [label, row] of Object.entries(one.rows)) {
      const sum = sums.get(label) ?? { publishers: 0, subscribers: 0, in: 0, out: 0, undone: 0, held: 0, in_doubt: 0, owed: 0 };
      for (const key of ["publishers", "subscribers", "undone", "held", "in_doubt"]) sum[key] += row[key];
      sum.owed = Math.max(sum.owed, row.owed);
      sum.in += rate(router, (document) => document.rows?.[label]?.received);
      sum.out += rate(router, (document) => document.rows?.[label]?.delivered);
      sums.set(label, sum);
    }
  }
  return [...sums].sort(([one], [other]) => (one < other ? -1 : 1));
}

function lags() {
  const found = new Map();
  for (const [router, one] of answering(now)) {
    for (const [label, container, name, messages, oldest] of one.lags) {
      if (!messages) continue;
      const key = [label, container, name].join("\n");
      const known = found.get(key) ?? { label, who: `${container}/${name}`, at: [], messages: 0, oldest: 0 };
      known.at.push(router);
      known.messages += messages;
      known.oldest = Math.max(known.oldest, oldest);
      found.set(key, known);
    }
  }
  return [...found].sort(([, one], [, other]) => other.messages - one.messages);
}

/** What keeps deliveries from completing, each once, whoever says it. */
function waits() {
  const found = new Map();
  const add = (text, act) => found.set(text, act);
  const soon = [];
  for (const [name, one] of Object.entries(now.routers)) {
    if ("why" in one) {
      add(`router ${name} ${one.why}`, () => chooseRouter(name));
      continue;
    }
    if (one.reason) add(`router ${name}: ${one.reason}`, () => chooseRouter(name));
    for (const [other, { up }] of Object.entries(one.neighbours ?? {})) {
      if (!up) add(`trunk ${[name, other].sort().join(" - ")} is down`, null);
    }
    if (one.broken_file) add(`router ${name}: its topology file has errors, the one before is used: ${one.broken_file}`, null);
    for (const each of one.file_differences ?? []) add(`the topology file of ${each.router} has other ${each.what} than that of ${name}`, null);
    for (const each of one.without_credit?.first ?? []) {
      const why = String(each.no_credit).replaceAll("_", " ");
      add(`${each.address}: publisher ${each.container}/${each.name} gets no credit: ${why}`, () => chooseAddress(each.address));
    }
    for (const each of one.away?.first ?? []) {
      const until = each.timeout_s == null ? "without limit" : span(each.timeout_s);
      const who = `${each.address}: subscription ${each.container}/${each.name} is away, waited for: ${until}`;
      add(who, () => chooseAddress(each.address));
    }
    if (one.oldest_in_doubt_s != null) add(`router ${name}: deliveries in doubt, the oldest for ${span(one.oldest_in_doubt_s)}`, null);
    for (const { file, days } of one.certificates ?? []) {
      if (days < SOON_DAYS) soon.push(`router ${name}: certificate ${file} ends in ${Math.floor(days)} days`);
    }
  }
  for (const each of soon) add(each, null);
  return found;
}

function note(router, time, level, event, text) {
  const key = `${router} ${time} ${event}`;
  if (!events.has(key)) events.set(key, { router, time, level, text });
}

function noteEvents() {
  for (const [router, one] of answering(now)) for (const line of one.latest ?? []) note(router, ...line);
  for (const [router, one] of Object.entries(now.routers)) {
    const old = before?.routers[router];
    if (!old) continue;
    if ("why" in one && !("why" in old)) note(router, now.at, "error", "gone", `no answer: ${one.why}`);
    else if (!("why" in one) && "why" in old) note(router, now.at, "info", "back", `answers again, as process ${one.pid}`);
    else if (one.state !== old.state) note(router, now.at, one.state === "ready" ? "info" : "warning", "state", `${one.state} ${one.reason ?? ""}`);
  }
  if (events.size > 2 * EVENTS) for (const [key] of sorted().slice(EVENTS)) events.delete(key);
}

const sorted = () => [...events].sort(([, one], [, other]) => other.time - one.time);

// --- what is shown

function show() {
  const wanted = at("filter").value.trim().toLowerCase();
  const fits = (...texts) => !wanted || texts.some((text) => String(text).toLowerCase().includes(wanted));
  const drawn = shapes();
  const alive = answering(now);
  const ready = alive.filter(([, one]) => one.state === "ready").length;
  at("network").textContent = now.network || alive[0]?.[1].network || "";
  document.title = `${at("network").textContent}: ${ready} of ${Object.keys(now.routers).length} ready`;
  const state = now.seen_from ? drawn[now.seen_from].state : `${ready} of ${Object.keys(now.routers).length} routers ready`;
  if (at("state").textContent !== state) at("state").textContent = state;
  at("state").className = ready === Object.keys(now.routers).length ? "" : "bad";
  at("seen").hidden = !now.seen_from;
  at("seen").textContent = `as router ${now.seen_from} sees it; all routers: onceway console FILE`;
  picture.show(drawn, trunks());

  const rows = addresses();
  const total = (key) => rows.reduce((sum, [, row]) => sum + row[key], 0);
  figures({
    "Messages in, per s": total("in"), "Deliveries out, per s": total("out"), Publishers: total("publishers"),
    Subscribers: total("subscribers"), "Not accepted by all": total("undone"), "In doubt": total("in_doubt"),
  });
  list(at("waits").querySelector("ul"), waits());
  tables.routers.show(Object.entries(now.routers).filter(([name]) => fits(name)).map(routerRow));
  tables.addresses.show(
    rows.filter(([label]) => fits(label)).map(([label, row]) => [label, [
      new Cell(label, "name", () => chooseAddress(label)), row.publishers, row.subscribers, row.in, row.out, row.undone, row.held,
      row.in_doubt, row.owed]]),
  );
  tables.lags.show(
    lags().filter(([, lag]) => fits(lag.label, lag.who)).map(([key, lag]) => [key, [
      new Cell(lag.label, "name", () => chooseAddress(lag.label)), lag.who, lag.at.join(", "), lag.messages, span(lag.oldest)]]),
  );
  tables.events.show(
    sorted().filter(([, { router, text }]) => fits(router, text)).slice(0, EVENTS).map(([key, { router, time, level, text }]) => [key, [
      new Date(time * 1000).toLocaleTimeString("en-GB"), router,
      new Cell(text, { error: "bad", warning: "busy" }[level] ?? "")]]),
  );
  if (chosenRouter && at("router-dialog").open) showRouter();
}

function routerRow([name, one]) {
  if ("why" in one) return [name, [new Cell(name, "name", () => chooseRouter(name)), new Cell(one.why, "bad"), "", "", "", "", "", ""]];
  const near = Object.values(one.neighbours ?? {});
  const days = Math.min(...(one.certificates ?? []).map((each) => each.days));
  return [name, [
    new Cell(name, "name", () => chooseRouter(name)), new Cell(one.state, lookOf[one.state] ?? "bad"), span(one.uptime_s),
    `${near.filter((each) => each.up).length} of ${near.length}`, one.connections, one.publishers, one.subscribers,
    Number.isFinite(days) ? new Cell(`${Math.floor(days)} days`, days < SOON_DAYS ? "bad" : "") : ""]];
}

function figures(found) {
  const place = at("figures");
  if (!place.children.length) {
    for (const title of Object.keys(found)) {
      const box = document.createElement("div");
      box.append(document.createElement("dt"), document.createElement("dd"));
      box.firstChild.textContent = title;
      place.append(box);
    }
  }
  Object.values(found).forEach((value, index) => { place.children[index].lastChild.textContent = figure(value); });
}

function list(place, found) {
  const said = [...found.keys()].join("\n") || "Nothing: every delivery completes.";
  if (place.dataset.said === said) return;
  place.dataset.said = said;
  place.replaceChildren(...said.split("\n").map((text) => {
    const item = document.createElement("li");
    const act = found.get(text);
    if (act) item.append(new Cell(text, "name", act).element());
    else item.textContent = text;
    return item;
  }));
}

// --- one router, one address

function chooseRouter(name) {
  chosenRouter = name;
  showRouter();
  at("router-dialog").showModal();
}

function showRouter() {
  const one = now.routers[chosenRouter];
  at("router-title").textContent = `Router ${chosenRouter}`;
  const facts = !one ? { state: "not asked: it is seen from another router" } : "why" in one ? { state: one.why } : {
    state: `${one.state} ${one.reason ?? ""}`, "up for": span(one.uptime_s), process: one.pid, incarnation: one.incarnation,
    connections: one.connections, "addresses known": one.addresses_known, "topology file": one.file,
    trunks: Object.entries(one.neighbours ?? {}).map(([name, { up, cost }]) => `${name} (${up ? "up" : "down"}, cost ${cost})`).join(", "),
    paths: Object.entries(one.paths ?? {}).map(([name, { next, cost }]) => `${name} by ${next} (${cost})`).join(", "),
  };
  at("router-dialog").querySelector("dl").replaceChildren(...Object.entries(facts).flatMap(([title, text]) => {
    const [dt, dd] = [document.createElement("dt"), document.createElement("dd")];
    dt.textContent = title;
    dd.textContent = text;
    return [dt, dd];
  }));
  const place = at("router-dialog").querySelector(".acts");
  const act = one && !("why" in one) && now.acts.includes(chosenRouter) ? (one.drain ? "undrain" : "drain") : "";
  if (place.dataset.act === `${chosenRouter} ${act}`) return;
  place.dataset.act = `${chosenRouter} ${act}`;
  place.replaceChildren();
  const name = chosenRouter;
  if (act === "drain") {
    place.append(acting("Drain", () => ask(`Drain router ${name}?`, "Its clients are sent to the other routers. Nothing is lost or repeated.", "Drain", name, "/drain", {})));
  } else if (act === "undrain") {
    place.append(acting("Take clients again", () => ask(`Let router ${name} take clients again?`, "", "Take clients", name, "/undrain", {})));
  }
}

function chooseAddress(name) {
  chosenAddress = name;
  at("address-title").textContent = name;
  for (const each of ["publishers", "subscriptions"]) tables[each].show([]);
  at("address-dialog").showModal();
  askAddress();
}

async function askAddress() {
  const name = chosenAddress;
  if (!at("address-dialog").open || !name) return;
  const answer = await fetch(`address?${new URLSearchParams({ name })}`).catch(() => null);
  if (name !== chosenAddress) return;
  if (answer?.ok) showAddress(name, await answer.json());
  setTimeout(askAddress, 2000);
}

function showAddress(address, found) {
  const publishers = [], subscriptions = new Map();
  for (const [router, one] of Object.entries(found)) {
    for (const each of one.ingress?.publishers ?? []) {
      const waits = each.no_credit ? `no credit: ${each.no_credit.replaceAll("_", " ")}` : each.waits_for.join(", ");
      publishers.push([`${router} ${each.container} ${each.name}`, [`${each.container}/${each.name}`, router, each.state, each.undone, waits, closing(address, each, router)]]);
    }
    for (const each of one.subscriptions ?? []) {
      const key = `${each.container}/${each.name}`;
      const known = subscriptions.get(key) ?? { ...each, lag: 0, oldest: 0, doubt: 0 };
      if (!each.home) known.lag += each.owed;
      known.oldest = Math.max(known.oldest, each.oldest_s);
      known.home ??= each.home;
      subscriptions.set(key, known);
    }
  }
  for (const one of Object.values(found)) {
    for (const each of one.egress?.subscribers ?? []) {
      const known = subscriptions.get(`${each.container}/${each.name}`) ?? { ...each, lag: 0, oldest: 0, doubt: 0 };
      known.lag += each.not_accepted;
      known.doubt += each.in_doubt;
      known.oldest = Math.max(known.oldest, each.oldest_s);
      subscriptions.set(`${each.container}/${each.name}`, known);
    }
  }
  const fits = [...subscriptions].sort(([, one], [, other]) => other.lag - one.lag);
  tables.publishers.show(publishers);
  tables.subscriptions.show(fits.map(([key, each]) => {
    const away = each.home ? "" : `away for ${span(each.away_s)}, ${each.timeout_s == null ? "without limit" : `of ${span(each.timeout_s)}`}`;
    return [key, [key, each.home ?? new Cell("away", "busy"), each.lag, each.doubt, span(each.oldest), away, each.home ? closing(address, each, each.home) : dropping(address, each)]];
  }));
}

function closing(address, { container, name }, router) {
  if (!now.acts.includes(router)) return "";
  return new Cell("Close link", "", () => ask(`Close the link ${container}/${name}?`, "Nothing is lost or repeated: its client is told so, and may attach again.", "Close link", router, "/link/close", { address, container, name }));
}

function dropping(address, { container, name, declared }) {
  const [router] = now.acts;
  if (!router || declared) return "";
  const names = { address, container, name };
  return new Cell("Drop", "bad", async () => {
    const answer = await act(router, "/subscription/drop", { ...names, dry_run: true });
    if (answer) ask(`Drop subscription ${container}/${name}?`, `Router ${router} owes it ${answer.owed} messages, which it will never get. Nobody waits for it any more.`, "Drop", router, "/subscription/drop", names);
  });
}

// --- acts

const acting = (text, act) => new Cell(text, "", act).element();

function ask(title, text, label, router, page, values) {
  const dialog = at("ask");
  at("ask-title").textContent = title;
  dialog.querySelector("p").textContent = text;
  dialog.querySelector("[value=yes]").textContent = label;
  dialog.returnValue = "";
  dialog.onclose = () => { if (dialog.returnValue === "yes") act(router, page, values); };
  dialog.showModal();
}

async function act(router, page, values) {
  const answer = await fetch("act", {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ router, page, arguments: values }),
  }).catch((error) => ({ ok: false, json: async () => ({ error: String(error) }) }));
  const said = await answer.json().catch(() => ({ error: `HTTP ${answer.status}` }));
  if (answer.ok) return said;
  tell(`router ${router}: ${said.error}`);
  return null;
}

function tell(text) {
  at("lost").textContent = text;
  at("lost").hidden = !text;
}

// --- the stream, and the filter

at("filter").addEventListener("input", () => now && show());

const stream = new EventSource("events");
stream.addEventListener("message", ({ data }) => {
  if (Date.now() - heardAt > QUIET_S * 1000) tell("");
  heardAt = Date.now();
  [before, now] = [now, JSON.parse(data)];
  noteEvents();
  show();
});
setInterval(() => {
  const quiet = (Date.now() - heardAt) / 1000;
  if (quiet > QUIET_S) tell(`No contact for ${span(quiet)}: what is shown is from then. It is tried again.`);
}, 1000);
