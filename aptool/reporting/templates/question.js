// An open question: its text, where each system has the first right answer, and one system's ranking.
function openQuestion(listing, question, record, answers, [chosen, baseline]) {
  const system = listing.systems[chosen];
  const about = element("div", "about");
  const rights = record.g.length + record.x.length;
  about.append(element("span", "mono", listing.ids[question]), ` · ${listing.pool[question].toLocaleString("en")} candidates, ${rights || "none"} right`);
  const title = element("h4", "question", listing.texts[question]);
  title.dir = "auto";
  const parts = [about, title, firstRights(listing, question, chosen)];
  if (record.x.length) parts.push(element("p", "note", `Right, but not among the candidates: ${record.x.join(", ")}.`));
  const ranking = record.r[chosen];
  const others = new Map(record.r[baseline].map(([answer, , rank]) => [answer, rank]));
  const gold = new Set(record.g);
  const maps = new Map((record.h[chosen] ?? []).map((map) => [map[0], map]));
  const list = element("ol", "answers");
  let before = 0;
  for (const [answer, score, rank] of ranking) {
    const item = element("li", gold.has(answer) ? "gold" : "");
    item.classList.toggle("after-gap", rank > before + 1);
    before = rank;
    const line = element("div", "line");
    if (gold.has(answer)) line.append(element("span", "tag", "right"));
    line.append(element("span", "", score.toFixed(4)));
    if (baseline !== chosen) {
      const there = others.get(answer) ?? `below ${listing.depth}`;
      line.append(element("span", "", `${listing.systems[baseline].name}: ${there}`));
    }
    line.append(element("span", "mono", answers[answer].id));
    const body = element("div", "body");
    body.append(line, ...answerText(listing, system, question, record, answers[answer], maps.get(answer)));
    item.append(element("span", "place", rank), body);
    list.append(item);
  }
  list.setAttribute("aria-label", `Ranked by ${system.name}`);
  parts.push(element("div", "label", `Ranked by ${system.name}`), list);
  return parts;
}

function firstRights(listing, question, chosen) {
  const list = element("ul", "firsts");
  list.setAttribute("aria-label", "Rank of the first right answer");
  listing.systems.forEach((system, i) => {
    const rank = listing.first[i][question];
    const item = element("li", rank === 1 ? "hit" : "", `${system.name} `);
    item.classList.toggle("chosen", i === chosen);
    item.append(element("b", "", rank || "–"));
    list.append(item);
  });
  return list;
}

function answerText(listing, system, question, record, answer, map) {
  const text = element("p", "text", answer.text);
  text.dir = "auto";
  const acts = element("div", "acts");
  const shown = [text, acts];
  if (answer.text.length > 320) {
    text.classList.add("long");
    acts.append(toggle("Whole text", (on) => text.classList.toggle("whole", on)));
  }
  if (map) {
    let heat = null;
    acts.append(
      toggle("Heat map", (on) => {
        const ofQuestion = [listing.texts[question], record.s, map[1]];
        if (on && !heat) acts.after((heat = heatMap(system, ofQuestion, [answer.text, answer.spans, map[2]])));
        heat.hidden = !on;
        text.hidden = on;
      }),
    );
  }
  return shown;
}

function toggle(label, change) {
  const button = element("button", "plain", label);
  button.type = "button";
  button.setAttribute("aria-pressed", "false");
  button.addEventListener("click", () => {
    const on = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", on);
    change(on);
  });
  return button;
}
