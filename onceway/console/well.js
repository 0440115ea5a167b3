// Shows the alerts as `well` says them (onceway/operate/well.py), each as a card whose texts change in place.

import { span } from "./tables.js";

const at = (id) => document.getElementById(id);
const EVERY_MS = 5000;
const LOOK = { firing: "bad", pending: "busy", unknown: "soft", well: "good" };
const cards = new Map(); // by the alert's name

class Card {
  constructor(alert) {
    this.element = document.createElement("article");
    this.title = document.createElement("h3");
    this.state = document.createElement("span");
    this.facts = document.createElement("dl");
    this.title.append(`${alert.name} `, this.state);
    this.element.append(this.title, this.facts);
    this.said = "";
  }

  show(alert) {
    const said = JSON.stringify(alert);
    if (said === this.said) return;
    this.said = said;
    this.state.textContent = alert.state;
    this.state.className = LOOK[alert.state];
    const facts = alert.findings.flatMap((each) => [
      [each.state, each.summary], ["value", `${each.value}, for ${each.held}`], ["at", each.places.join(", ")],
    ]);
    if (alert.more) facts.push(["and", `${alert.more} more`]);
    if (alert.findings.length) facts.push(["threshold", alert.threshold]);
    for (const why of alert.why) facts.push(["unknown", why]);
    facts.push(["means", alert.means]);
    if (alert.state !== "well") facts.push(["remedy", alert.remedy], ["see", alert.docs]);
    facts.push(["rule", alert.condition]);
    this.facts.replaceChildren(...facts.filter(([, text]) => text).flatMap(([title, text]) => {
      const [dt, dd] = [document.createElement("dt"), document.createElement("dd")];
      dt.textContent = title;
      for (const part of text.split(/(?<=[/#])/)) dd.append(part, document.createElement("wbr")); // a path may be long
      return [dt, dd];
    }));
  }
}

function show({ network, seen_from, verdicts }) {
  const count = (state) => verdicts.filter((each) => each.state === state).length;
  const [firing, pending, unknown] = ["firing", "pending", "unknown"].map(count);
  const state = firing ? `no: ${firing} firing`
    : pending ? `perhaps not: ${pending} pending`
    : unknown ? `yes, as far as is known: ${unknown} unknown` : "yes";
  at("state").textContent = state;
  at("state").className = firing || pending ? "bad" : "";
  at("network").textContent = network ? `network ${network}` : "my network";
  document.title = `Is ${at("network").textContent} well? ${state}`;
  at("seen").hidden = !seen_from;
  at("seen").textContent = `as router ${seen_from} sees it; all routers: onceway console FILE`;
  for (const alert of verdicts) {
    if (!cards.has(alert.name)) cards.set(alert.name, new Card(alert));
    const card = cards.get(alert.name);
    card.show(alert);
    const place = at(alert.state === "pending" ? "firing" : alert.state);
    if (card.element.parentNode !== place) place.append(card.element);
  }
  for (const place of document.querySelectorAll("section")) place.hidden = !place.querySelector("article");
}

let heardAt = Date.now();

async function ask() {
  const answer = await fetch("well").catch(() => null);
  if (answer?.ok) {
    heardAt = Date.now();
    show(await answer.json());
  }
  at("lost").hidden = Boolean(answer?.ok);
  at("lost").textContent = answer?.ok ? "" : `No contact for ${span((Date.now() - heardAt) / 1000)}: what is shown is from then. It is tried again.`;
  setTimeout(ask, EVERY_MS);
}

ask();
