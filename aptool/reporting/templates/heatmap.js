// Heat maps from packed weights, equal to those of `aptool explain`.
const LEAST_CONTRAST = 0.25;

// `packed`: [weights, indices of unknown words]; `spans`: gap, length, gap, length, ... of the words of `text`.
function heatOf(label, system, text, spans, packed) {
  const weights = weightsOf(packed[0]);
  const unknown = new Set(packed[1]);
  const [least, greatest] = [Math.min(...weights), Math.max(...weights)];
  const contrast = Math.max(greatest - least, LEAST_CONTRAST / weights.length);
  const heat = element("p", "heat");
  Object.assign(heat, { dir: "auto", tabIndex: 0 });
  heat.setAttribute("role", "group");
  heat.setAttribute("aria-label", `${label}, arrow keys show the weights`);
  const [left, right] = system.window;
  Object.assign(heat.dataset, { kind: system.kind, left: left ?? "", right: right ?? "" });
  let end = 0;
  for (let word = 0; 2 * word < spans.length; word++) {
    const begin = end + spans[2 * word];
    const stop = begin + spans[2 * word + 1];
    const span = element("span", word < weights.length ? "w" : "truncated", text.slice(begin, stop));
    if (word < weights.length) {
      span.style.setProperty("--s", ((weights[word] - least) / contrast).toFixed(3));
      span.dataset.weight = weights[word].toFixed(8);
      span.classList.toggle("unknown", unknown.has(word));
    }
    heat.append(text.slice(end, begin), span);
    end = stop;
  }
  heat.append(text.slice(end));
  const truncated = spans.length / 2 - weights.length;
  const range = element("span", "range");
  range.append(`${weights.length} words`, truncated ? `, ${truncated} more truncated` : "", "; ");
  range.append(least.toFixed(4), " ", element("span", "scale"), " ", greatest.toFixed(4));
  if (unknown.size) range.append("; dotted: not in the vocabulary");
  const head = element("div", "label", `${label} `);
  head.append(range);
  return [head, heat];
}

function heatMap(system, question, answer) {
  const map = element("div", "heat-map");
  const reading = element("p", "reading");
  reading.dataset.hint = "Point at a word, or step through a text with the arrow keys.";
  reading.textContent = reading.dataset.hint;
  reading.setAttribute("aria-live", "polite");
  map.append(...heatOf("question", system, ...question), ...heatOf("answer", system, ...answer), reading);
  for (const heat of map.querySelectorAll(".heat")) watchHeat(heat, reading);
  return map;
}

function element(name, kind, text) {
  const made = document.createElement(name);
  if (kind) made.className = kind;
  if (text !== undefined) made.textContent = text;
  return made;
}
