// Heat maps: the word under the pointer, or reached with the arrow keys, tells its weight and its window.
const ATTENTION_OF = { attention: "attention weight", maxima: "share of the features won" };

// `heat` holds the words of one text as .w elements; data-left and data-right say how far their states see.
function watchHeat(heat, reading) {
  const words = [...heat.querySelectorAll(".w")];
  let current = -1;

  function show(place) {
    for (const word of heat.querySelectorAll(".on, .seen")) word.classList.remove("on", "seen");
    current = place;
    if (place < 0) {
      reading.textContent = reading.dataset.hint;
      return;
    }
    const [first, last] = seen(heat, place, words.length);
    for (let i = first; i <= last && heat.dataset.left !== ""; i++) words[i].classList.add("seen");
    words[place].classList.add("on");
    tell(reading, heat, words, place, first, last);
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

// The first and the last word in the window of a word's state.
function seen(heat, place, count) {
  if (heat.dataset.left === "") return [place, place];
  const [left, right] = [Number(heat.dataset.left), Number(heat.dataset.right)];
  return [Math.max(0, place - left), Math.min(count - 1, place + right)];
}

function tell(reading, heat, words, place, first, last) {
  const word = document.createElement("b");
  word.textContent = `“${words[place].textContent}”`;
  word.dir = "auto";
  const kind = ATTENTION_OF[heat.dataset.kind];
  const share = Number(words[place].dataset.weight);
  let rest = `  ${kind} ${share.toFixed(4)}, ${(share * words.length).toFixed(2)} times an even share`;
  if (heat.dataset.left === "") rest += "; its state has read the whole text";
  else if (last > first) {
    const window = words.slice(first, last + 1).map((one) => one.textContent);
    rest += `; its window: ${window.join(" ")}`;
  }
  if (words[place].classList.contains("unknown")) rest += "; not in the vocabulary";
  reading.replaceChildren(word, rest);
}
