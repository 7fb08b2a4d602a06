// An open question: its text, each system's rank of the first relevant answer, and one system's ranking.
function openQuestion(listing, question, record, answers, [chosen, baseline]) {
  const system = listing.systems[chosen];
  const about = element("div", "about");
  const relevantCount = record.relevant.length + record.missing.length;
  about.append(element("span", "mono", listing.ids[question]), ` · ${listing.pool[question].toLocaleString("en")} candidates, ${relevantCount || "none"} relevant`);
  const title = element("h4", "question", listing.texts[question]);
  title.dir = "auto";
  const parts = [about, title, firstRanks(listing, question, chosen)];
  if (record.missing.length) parts.push(element("p", "note", `Relevant, but not among the candidates: ${record.missing.join(", ")}.`));
  const ranking = record.rankings[chosen];
  const others = new Map(record.rankings[baseline].map(([answer, , rank]) => [answer, rank]));
  const relevant = new Set(record.relevant);
  const maps = new Map((record.heat_maps[chosen] ?? []).map((map) => [map[0], map]));
  const list = element("ol", "answers");
  let before = 0;
  for (const [answer, score, rank] of ranking) {
    const item = element("li", relevant.has(answer) ? "relevant" : "");
    item.classList.toggle("after-gap", rank > before + 1);
    before = rank;
    const line = element("div", "line");
    if (relevant.has(answer)) line.append(element("span", "tag", "relevant"));
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

function firstRanks(listing, question, chosen) {
  const list = element("ul", "firsts");
  list.setAttribute("aria-label", "Rank of the first relevant answer");
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
        const ofQuestion = [listing.texts[question], record.spans, map[1]];
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
