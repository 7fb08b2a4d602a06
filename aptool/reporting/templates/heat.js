// Heat maps: the weight and the receptive field of the word under the pointer, or selected with the arrow keys.
const KINDS = { attention: "attention weight", max_pooling: "share of the features", matches: "share of the matches" };

// `heat` contains the words of one text as .w elements; data-left and data-right give their receptive field.
function watchHeat(heat, reading) {
  const words = [...heat.querySelectorAll(".w")];
  let current = -1;

  function show(place) {
    for (const word of heat.querySelectorAll(".on, .field")) word.classList.remove("on", "field");
    current = place;
    if (place < 0) {
      reading.textContent = reading.dataset.hint;
      return;
    }
    const [first, last] = receptiveField(heat, place, words.length);
    for (let i = first; i <= last && heat.dataset.left !== ""; i++) words[i].classList.add("field");
    words[place].classList.add("on");
    describe(reading, heat, words, place, first, last);
  }

  heat.addEventListener("pointerover", (event) => show(words.indexOf(event.target.closest(".w"))));
  heat.addEventListener("pointerleave", () => show(-1));
  heat.addEventListener("blur", () => show(-1));
  heat.addEventListener("keydown", (event) => {
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10, Home: -words.length, End: words.length };
    if (!(event.key in steps)) return;
    event.preventDefault();
    const next = current < 0 && steps[event.key] < words.length ? 0 : current + steps[event.key];
    show(Math.min(words.length - 1, Math.max(0, next)));
  });
}

// The first and the last word in the receptive field of a word's state.
function receptiveField(heat, place, count) {
  if (heat.dataset.left === "") return [place, place];
  const [left, right] = [Number(heat.dataset.left), Number(heat.dataset.right)];
  return [Math.max(0, place - left), Math.min(count - 1, place + right)];
}

function describe(reading, heat, words, place, first, last) {
  const word = document.createElement("b");
  word.textContent = `“${words[place].textContent}”`;
  word.dir = "auto";
  const kind = KINDS[heat.dataset.kind];
  const share = Number(words[place].dataset.weight);
  let rest = `  ${kind} ${share.toFixed(4)}, ${(share * words.length).toFixed(2)} times a uniform weight`;
  if (heat.dataset.left === "") rest += "; receptive field: the whole text";
  else if (last > first) {
    const window = words.slice(first, last + 1).map((one) => one.textContent);
    rest += `; receptive field: ${window.join(" ")}`;
  }
  if (words[place].classList.contains("unknown")) rest += "; not in the vocabulary";
  reading.replaceChildren(word, rest);
}
