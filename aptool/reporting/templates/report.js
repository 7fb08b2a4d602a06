// Marks wide tables, and sets up a browser for each collection.
// A table that its frame cuts off is marked; one in a closed fold is measured when it opens.
const mark = () => {
  for (const frame of document.querySelectorAll(".frame")) {
    frame.classList.toggle("wide", frame.scrollWidth > frame.clientWidth + 1);
  }
};
addEventListener("resize", mark);
document.addEventListener("toggle", mark, true);
mark();

for (const root of document.querySelectorAll(".browser")) {
  const waiting = root.querySelector(".waiting");
  waiting.textContent = "Unpacking the questions …";
  if (typeof DecompressionStream === "undefined") {
    waiting.textContent = "This browser is too old to unpack the questions; a browser of 2023 or later is needed.";
    continue;
  }
  unpack(`${root.dataset.prefix}-listing`).then((listing) => {
    waiting.remove();
    for (const part of root.querySelectorAll("[hidden].ready")) part.hidden = false;
    new Browser(root, listing);
    root.dataset.ready = "true";
  });
}
