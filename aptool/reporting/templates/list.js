// A virtual list: only the visible rows are in the page. It is a listbox, operated with the arrow keys.
class LongList {
  // `draw(item, row)` fills a row; `choose(item, pointed)` is called with the selected item and whether it
  // was clicked, `enter()` on Enter.
  constructor(box, draw, choose, enter) {
    Object.assign(this, { box, draw, choose, enter, items: [], selected: -1 });
    this.spread = element("div", "spread");
    this.spread.setAttribute("role", "presentation");
    box.replaceChildren(this.spread);
    const probe = this.spread.appendChild(element("div", "row"));
    this.height = probe.getBoundingClientRect().height;
    box.addEventListener("scroll", () => requestAnimationFrame(() => this.render()), { passive: true });
    box.addEventListener("keydown", (event) => this.key(event));
    this.spread.addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (row) this.select(Number(row.dataset.place), true);
    });
    new ResizeObserver(() => this.render()).observe(box);
  }

  show(items, keep) {
    this.items = items;
    this.spread.style.height = `${items.length * this.height}px`;
    this.selected = items.indexOf(keep);
    if (this.selected < 0) this.box.scrollTop = 0;
    else this.reveal();
    this.render();
  }

  select(place, pointed = false) {
    this.selected = Math.max(0, Math.min(this.items.length - 1, place));
    this.reveal();
    this.render();
    this.choose(this.items[this.selected], pointed);
  }

  reveal() {
    const top = this.selected * this.height;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    const lowest = top + this.height - this.box.clientHeight;
    if (lowest > this.box.scrollTop) this.box.scrollTop = lowest;
  }

  render() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / this.height) - 3);
    const last = Math.min(this.items.length, first + Math.ceil(this.box.clientHeight / this.height) + 7);
    const rows = [];
    for (let place = first; place < last; place++) rows.push(this.row(place));
    this.spread.replaceChildren(...rows);
    const inSight = first <= this.selected && this.selected < last;
    if (inSight) this.box.setAttribute("aria-activedescendant", `${this.box.id}-${this.selected}`);
    else this.box.removeAttribute("aria-activedescendant");
  }

  row(place) {
    const row = element("div", "row");
    row.id = `${this.box.id}-${place}`;
    row.dataset.place = place;
    row.style.top = `${place * this.height}px`;
    row.setAttribute("role", "option");
    row.setAttribute("aria-posinset", place + 1);
    row.setAttribute("aria-setsize", this.items.length);
    row.setAttribute("aria-selected", place === this.selected);
    this.draw(this.items[place], row);
    return row;
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.box.clientHeight / this.height) - 1);
    const from = this.selected;
    const to = { ArrowDown: from + 1, ArrowUp: from - 1, PageDown: from + page, PageUp: from - page, Home: 0, End: Infinity };
    if (event.key === "Enter") this.enter();
    else if (!(event.key in to) || !this.items.length || event.ctrlKey || event.metaKey || event.altKey) return;
    else this.select(to[event.key]);
    event.preventDefault();
  }
}
