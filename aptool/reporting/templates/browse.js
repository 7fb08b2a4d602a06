// The browser of a collection's questions: filters, the list and the open question.
class Browser {
  constructor(root, listing) {
    this.root = root;
    this.listing = listing;
    this.open = -1;
    this.folded = listing.texts.map((text, i) => fold(`${text} ${listing.ids[i]}`));
    const controls = root.querySelector(".tools");
    [this.system, this.baseline, this.order] = ["system", "baseline", "order"].map((n) => controls.querySelector(`[name=${n}]`));
    this.search = controls.querySelector("[type=search]");
    this.pane = root.querySelector(".open");
    this.list = new LongList(
      root.querySelector(".list"),
      (question, row) => this.drawRow(question, row),
      (question, pointed) => this.show(question).then(() => pointed && this.scrollIntoView()),
      () => this.pane.focus(),
    );
    controls.addEventListener("input", () => this.update());
    controls.addEventListener("submit", (event) => event.preventDefault());
    this.pane.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.list.box.focus();
    });
    this.update();
    if (this.list.items.length) this.show(this.list.items[0], true);
  }

  get chosen() {
    return [Number(this.system.value), Number(this.baseline.value)];
  }

  // Whether a filter accepts a question, by the rank of its first relevant answer, 0 if there is none.
  passes(filter, question) {
    const [mine, other] = this.chosen.map((system) => this.listing.first[system][question] === 1);
    if (filter === "missed") return !mine;
    if (filter === "gained") return mine && !other;
    if (filter === "lost") return !mine && other;
    return true;
  }

  update() {
    const words = fold(this.search.value).split(/\s+/).filter(Boolean);
    const found = [...this.listing.ids.keys()].filter((i) => words.every((word) => this.folded[i].includes(word)));
    let chosen = "all";
    for (const input of this.root.querySelectorAll(".filters input")) {
      const count = found.filter((question) => this.passes(input.value, question)).length;
      input.parentElement.querySelector(".count").textContent = count.toLocaleString("en");
      if (input.checked) chosen = input.value;
    }
    const items = found.filter((question) => this.passes(chosen, question));
    const [mine, other] = this.chosen.map((system) => this.listing.first[system]);
    const gain = (question) => reciprocal(mine[question]) - reciprocal(other[question]);
    if (this.order.value === "rank") items.sort((a, b) => reciprocal(mine[a]) - reciprocal(mine[b]));
    if (this.order.value === "gain") items.sort((a, b) => gain(b) - gain(a));
    if (this.order.value === "loss") items.sort((a, b) => gain(a) - gain(b));
    const names = this.chosen.map((system) => this.listing.systems[system].name);
    const heads = this.root.querySelectorAll(".columns span");
    [heads[1].textContent, heads[2].textContent] = names;
    [heads[1].title, heads[2].title] = names;
    this.root.querySelector(".empty").hidden = items.length > 0;
    this.root.querySelector(".status").textContent = `${items.length.toLocaleString("en")} questions`;
    this.list.show(items, this.open);
    if (this.open >= 0) this.show(this.open, true);
  }

  drawRow(question, row) {
    const text = element("span", "text", this.listing.texts[question]);
    text.dir = "auto";
    const ranks = this.chosen.map((system, i) => {
      const rank = this.listing.first[system][question];
      const cell = element("span", i ? "rank other" : rank === 1 ? "rank first" : "rank", rank || "–");
      cell.setAttribute("aria-label", `${this.listing.systems[system].name}: ${rank ? `rank ${rank}` : "not found"}`);
      return cell;
    });
    row.append(text, ...ranks);
  }

  async show(question, staying = false) {
    this.open = question;
    const { prefix } = this.root.dataset;
    const { per_block: perBlock, per_text_block: perTextBlock } = this.listing;
    const records = await unpack(`${prefix}-questions-${Math.floor(question / perBlock)}`);
    const record = records[question % perBlock];
    const needed = [...new Set(record.answers.map(([, text]) => Math.floor(text / perTextBlock)))];
    const blocks = new Map();
    await Promise.all(needed.map(async (block) => blocks.set(block, await unpack(`${prefix}-texts-${block}`))));
    if (this.open !== question) return; // another question has been opened meanwhile
    const stored = (text) => blocks.get(Math.floor(text / perTextBlock))[text % perTextBlock];
    const answers = record.answers.map(([id, text]) => {
      const found = stored(text);
      return Array.isArray(found) ? { id, text: found[0], spans: found[1] } : { id, text: found };
    });
    this.pane.replaceChildren(...openQuestion(this.listing, question, record, answers, this.chosen));
    if (staying) return;
    this.pane.scrollTop = 0;
  }

  // If the panes are stacked, the question that was tapped may be out of view.
  scrollIntoView() {
    const below = this.pane.getBoundingClientRect().top >= this.list.box.getBoundingClientRect().bottom;
    if (below) this.pane.scrollIntoView({ block: "start" });
  }
}

function reciprocal(rank) {
  return rank ? 1 / rank : 0;
}

function fold(text) {
  return text.normalize("NFKD").replace(/\p{Mn}/gu, "").toLowerCase();
}
