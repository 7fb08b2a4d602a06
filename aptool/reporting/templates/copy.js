// Copies a table as the text that is in its button.
for (const place of document.querySelectorAll(".copies")) {
  const said = place.querySelector("[role=status]");
  for (const button of place.querySelectorAll("button")) {
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(button.dataset.copy);
        said.textContent = "Copied.";
      } catch {
        said.textContent = "The browser does not let this page copy.";
      }
    });
  }
  place.hidden = false;
}
