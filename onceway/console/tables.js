// Tables whose rows stay in place while their cells change: a screen reader keeps its place, and little is drawn.

const MOST = 200; // rows that are shown; a line says how many more there are

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 }); // toLocaleString makes one each time

/** A cell is a text, a number (shown with few digits), or an element. */
export class Table {
  /** columns: [title, ...]; one that ends in # has numbers. nothing: what is said where there is no row. */
  constructor(table, columns, nothing) {
    this.rows = new Map(); // by key: its tr and what its cells show
    this.nothing = nothing;
    this.numbers = columns.map((title) => title.endsWith("#"));
    const head = table.createTHead().insertRow();
    columns.forEach((title, index) => {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.textContent = title.replace("#", "");
      if (this.numbers[index]) cell.className = "number";
      head.append(cell);
    });
    this.body = table.createTBody();
    this.caption = table.createCaption();
  }

  /** rows: [key, [cell, ...]], in the order in which they are shown. */
  show(rows) {
    const shown = rows.slice(0, MOST);
    const keys = new Set(shown.map(([key]) => key));
    for (const [key, { row }] of this.rows) {
      if (!keys.has(key)) {
        row.remove();
        this.rows.delete(key);
      }
    }
    let place = this.body.firstElementChild;
    for (const [key, cells] of shown) {
      let known = this.rows.get(key);
      if (!known) {
        known = { row: document.createElement("tr"), said: [] };
        cells.forEach((_, index) => {
          const cell = known.row.insertCell();
          if (this.numbers[index]) cell.className = "number";
        });
        this.rows.set(key, known);
      }
      if (known.row !== place) this.body.insertBefore(known.row, place);
      else place = place.nextElementSibling;
      cells.forEach((cell, index) => this.#say(known, index, cell));
    }
    const more = rows.length - shown.length;
    this.caption.textContent = more ? `and ${more} more; the filter finds them` : rows.length ? "" : this.nothing;
  }

  #say(known, index, cell) {
    const said = cell instanceof Cell ? `${cell.text}\n${cell.look}` : figure(cell);
    if (known.said[index] === said) return;
    known.said[index] = said;
    const place = known.row.cells[index];
    if (!(cell instanceof Cell)) place.textContent = said;
    else place.replaceChildren(cell.element());
  }
}

/** A cell with a look (good, busy, bad), or with an act: then it is a button. */
export class Cell {
  constructor(text, look = "", act = null) {
    Object.assign(this, { text, look, act });
  }

  element() {
    const made = document.createElement(this.act ? "button" : "span");
    if (this.act) {
      made.type = "button";
      made.addEventListener("click", this.act);
    }
    made.className = this.look;
    made.textContent = this.text;
    return made;
  }
}

export function figure(value) {
  if (typeof value !== "number") return value ?? "";
  if (value >= 100 || Number.isInteger(value)) return WHOLE.format(value);
  return value.toFixed(value < 10 ? 2 : 1);
}

export function span(seconds) {
  if (seconds == null) return "";
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const units = [[86400, "d"], [3600, "h"], [60, "min"]];
  const [size, unit] = units.find(([size]) => seconds >= size);
  return `${Math.floor(seconds / size)} ${unit}`;
}
