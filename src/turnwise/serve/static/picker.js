// The entry picker: a text field with a list under it, grouped by maker and narrowed by what is typed.
import { el } from "./dom.js";
import { t } from "./i18n.js";
import { groupByMaker } from "./makers.js";

export function makePicker({ value, entries, served, onPick }) {
  const input = el("input", {
    id: "entry", role: "combobox", "aria-expanded": "false", "aria-controls": "entry-list", "aria-autocomplete": "list",
    placeholder: t("search"), autocomplete: "off", spellcheck: "false",
  });
  input.value = value;
  const list = el("ul", { id: "entry-list", class: "list", role: "listbox", "aria-label": t("entry"), hidden: true });
  const groups = [...(served.length ? [[t("served"), served.map((name) => ({ name }))]] : []), ...groupByMaker(entries, t("others"))];
  let at = -1; // of the marked option

  function options() {
    return [...list.querySelectorAll("[role=option]")];
  }

  function open(typed) {
    const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = groups.flatMap(([maker, members]) => {
      const found = members.filter(({ name }) => words.every((word) => `${name} ${maker}`.toLowerCase().includes(word)));
      return found.length ? [el("li", { class: "maker", role: "presentation" }, maker), ...found.map(drawOption)] : [];
    });
    list.replaceChildren(...(rows.length ? rows : [el("li", { class: "maker", role: "presentation" }, t("noEntry", { name: typed }))]));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    mark(-1);
    list.querySelector(".chosen")?.scrollIntoView({ block: "nearest" });
  }

  function drawOption({ name, dialect }, index) {
    const option = el("li", { role: "option", id: `entry-${name.replace(/[^\w.-]/g, "_")}`, "data-name": name, "aria-selected": "false", class: name === value ? "chosen" : null },
      el("span", {}, name), dialect && dialect !== "jinja" ? el("span", { class: "tag" }, dialect) : null);
    option.addEventListener("pointerdown", (event) => { event.preventDefault(); choose(name); });
    return option;
  }

  function mark(index) {
    const all = options();
    all[at]?.setAttribute("aria-selected", "false");
    at = Math.max(-1, Math.min(index, all.length - 1));
    all[at]?.setAttribute("aria-selected", "true");
    all[at]?.scrollIntoView({ block: "nearest" });
    if (all[at]) input.setAttribute("aria-activedescendant", all[at].id);
    else input.removeAttribute("aria-activedescendant");
  }

  function close() {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  function choose(name) {
    close();
    value = name;
    input.value = name;
    onPick(name);
  }

  input.addEventListener("focus", () => { input.select(); open(""); });
  input.addEventListener("click", () => { if (list.hidden) open(""); });
  input.addEventListener("input", () => open(input.value));
  input.addEventListener("blur", () => { close(); if (!input.value) input.value = value; });
  input.addEventListener("change", () => { if (input.value.trim() && input.value.trim() !== value) choose(input.value.trim()); });
  input.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 }[event.key];
    if (step) {
      event.preventDefault();
      if (list.hidden) open("");
      mark(at < 0 && step > 0 ? step - 1 : at + step);
    } else if (event.key === "Enter") {
      event.preventDefault();
      const marked = options()[at] ?? (options().length === 1 ? options()[0] : null);
      const name = marked?.dataset.name ?? input.value.trim();
      if (name) choose(name);
    } else if (event.key === "Escape") {
      close();
    }
  });
  return {
    node: el("div", { class: "picker" }, input, list),
    setValue(name) { value = name; input.value = name; },
  };
}
