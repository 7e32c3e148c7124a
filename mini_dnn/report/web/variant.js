/* A variant's sources. */

function lines(text, isDiff) {
  const kinds = { "+": "add", "-": "remove", "@": "hunk" };
  return make("pre", { tabindex: "0" }, ...text.split("\n").map(line =>
    make("span", isDiff && kinds[line[0]] ? { class: kinds[line[0]] } : {}, line)));
}

function openVariant(name) {
  const variant = data.variants[name];
  if (!variant) return;
  tip.hidden = true;
  const panels = Object.entries(variant.files).map(([file, text]) => [file, lines(text, false)]);
  if (variant.diff) panels.push([`changes in ${variant.parent}`, lines(variant.diff, true)]);
  const lesson = data.root ? make("a", { href: `${data.root}/${variant.lesson}` }, variant.lesson) : variant.lesson;
  const close = make("button", { class: "close", type: "button" }, "Close");
  close.addEventListener("click", () => dialog.close());
  const tabs = make("div", { role: "tablist" }), panel = make("div", { role: "tabpanel", id: "variant-panel" });
  for (const [label, content] of panels) {
    const tab = make("button", { role: "tab", type: "button", class: "tab", "aria-controls": "variant-panel" }, label);
    const select = () => {
      for (const other of tabs.children) {
        other.setAttribute("aria-selected", String(other === tab));
        other.tabIndex = other === tab ? 0 : -1;
      }
      panel.replaceChildren(content);
    };
    tab.addEventListener("click", select);
    tab.addEventListener("focus", select);
    tab.addEventListener("keydown", event => moveFocus(event, tab, select));
    tabs.append(tab);
  }
  const about = make("p", {}, `${variant.idea}. `, make("span", { class: "count" }, "Lesson: ", lesson, "; ", make("code", {}, `python run.py show ${name}`)));
  dialog.replaceChildren(make("header", {}, make("h2", { id: "variant-name" }, name), about, tabs, close), panel);
  tabs.firstChild.click();
  dialog.showModal();
}

for (const code of document.querySelectorAll("code[data-variant]")) {
  if (code.closest("thead")) continue; // a click there sorts
  const button = make("button", { type: "button", class: "variant", "aria-haspopup": "dialog" });
  code.replaceWith(button);
  const [mark] = /^[,.;:)]+/.exec(button.nextSibling?.textContent ?? "") ?? [];
  if (mark) { // the comma stays with the name
    button.nextSibling.textContent = button.nextSibling.textContent.slice(mark.length);
    const together = make("span", { class: "together" }, mark);
    button.replaceWith(together);
    together.prepend(button);
  }
  button.append(code);
  button.addEventListener("click", () => openVariant(code.dataset.variant));
}
dialog.addEventListener("click", event => { if (event.target === dialog) dialog.close(); });
