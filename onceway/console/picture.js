// The routers on a circle, in the order of their names, and the trunks between them.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 640;

export class Picture {
  /** chosen: called with the name of the router that is clicked, or that Enter is pressed on. */
  constructor(svg, chosen) {
    this.svg = svg;
    this.chosen = chosen;
    this.drawn = "";
    this.nodes = new Map();
    this.trunks = new Map();
  }

  /** routers: {name: {look, state, clients}}; trunks: [{between: [a, b], cost, look, rate}], look up, down or unknown. */
  show(routers, trunks) {
    const shape = JSON.stringify([Object.keys(routers), trunks.map(({ between }) => between)]);
    if (shape !== this.drawn) this.#draw(Object.keys(routers), trunks);
    this.drawn = shape;
    for (const { between, cost, look, rate } of trunks) {
      const { line, text, title } = this.trunks.get(between.join("\n"));
      line.setAttribute("class", look);
      line.setAttribute("stroke-width", String(2 + Math.min(6, Math.log10(1 + rate) * 1.6)));
      say(text, look === "down" ? "down" : look === "unknown" ? `cost ${cost}` : `cost ${cost} · ${Math.round(rate)}/s`);
      say(title, `trunk ${between.join(" to ")}, cost ${cost}, ${look}, ${Math.round(rate)} packets a second`);
    }
    for (const [name, { look, state, clients }] of Object.entries(routers)) {
      const { group, below, clientsBelow } = this.nodes.get(name);
      group.setAttribute("class", look);
      group.setAttribute("aria-label", `router ${name}: ${state}, ${clients}`);
      say(below, state);
      say(clientsBelow, clients);
    }
  }

  #draw(names, trunks) {
    const few = names.length <= 2;
    const height = few ? 240 : 420;
    this.svg.setAttribute("viewBox", `0 0 ${WIDTH} ${height}`);
    const radius = names.length > 14 ? 13 : 22;
    const place = new Map(
      names.map((name, index) => {
        if (names.length === 1) return [name, [WIDTH / 2, height / 2 - 15]];
        if (few) return [name, [WIDTH * (index ? 0.75 : 0.25), height / 2 - 15]];
        const angle = (2 * Math.PI * index) / names.length - Math.PI / 2;
        return [name, [WIDTH / 2 + 230 * Math.cos(angle), height / 2 - 12 + 150 * Math.sin(angle)]];
      }),
    );
    this.nodes.clear();
    this.trunks.clear();
    const drawn = [];
    for (const { between } of trunks) {
      const [[x1, y1], [x2, y2]] = between.map((name) => place.get(name));
      const line = make("line", { x1, y1, x2, y2 });
      const title = make("title");
      line.append(title);
      const [x, y] = beside(x1, y1, x2, y2, WIDTH / 2, height / 2);
      const text = make("text", { x, y, class: "soft" });
      text.setAttribute("aria-hidden", "true");
      this.trunks.set(between.join("\n"), { line, text, title });
      drawn.push(line, text);
    }
    for (const name of names) {
      const [x, y] = place.get(name);
      const group = make("g", { role: "button", tabindex: 0, transform: `translate(${x} ${y})` });
      const inside = make("text", { y: 5 });
      say(inside, name.length > 8 ? `${name.slice(0, 7)}…` : name);
      const below = make("text", { y: radius + 16 });
      const clientsBelow = make("text", { y: radius + 31, class: "soft" });
      group.append(make("circle", { r: radius }), inside, below, clientsBelow);
      group.addEventListener("click", () => this.chosen(name));
      group.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          this.chosen(name);
        }
      });
      this.nodes.set(name, { group, below, clientsBelow });
      drawn.push(group);
    }
    this.svg.replaceChildren(...drawn);
  }
}

/** Beside the middle of a line, on the side that is away from the centre. */
function beside(x1, y1, x2, y2, centreX, centreY) {
  const [x, y, length] = [(x1 + x2) / 2, (y1 + y2) / 2, Math.hypot(x2 - x1, y2 - y1)];
  const [acrossX, acrossY] = [(y2 - y1) / length, (x1 - x2) / length];
  const side = (x - centreX) * acrossX + (y - centreY) * acrossY < 0 ? -1 : 1;
  return [x + side * acrossX * 42, y + side * acrossY * 16 + 4];
}

function make(kind, attributes = {}) {
  const made = document.createElementNS(SVG, kind);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  return made;
}

function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
