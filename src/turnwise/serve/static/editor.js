// A text area with line numbers and the colours of Jinja, which can mark a line: that of an error, or one that is shown. And one for JSON, which says when it is not JSON.
import { el, replaceChildren } from "./dom.js";
import { t } from "./i18n.js";
import { paintJinja } from "./jinja.js";

export function makeEditor({ value, label, rows, onInput }) {
  const gutter = el("div", { class: "gutter", "aria-hidden": "true" });
  const area = el("textarea", { class: "code", wrap: "off", spellcheck: "false", autocapitalize: "off", rows, "aria-label": label });
  const paint = el("pre", { class: "paint", "aria-hidden": "true" }); // the same text under the field, in colours
  area.value = value;
  let marked = null; // the number of a line
  let mark = "bad"; // how it is marked

  function drawGutter() {
    const count = area.value.split("\n").length;
    gutter.replaceChildren(...Array.from({ length: count }, (_, index) => el("span", { class: index + 1 === marked ? mark : null }, index + 1)));
    replaceChildren(paint, paintJinja(area.value), "\n");
    follow();
  }
  function follow() {
    gutter.scrollTop = area.scrollTop;
    paint.scrollTop = area.scrollTop;
    paint.scrollLeft = area.scrollLeft;
  }
  area.addEventListener("input", () => { marked = null; drawGutter(); onInput(area.value); });
  area.addEventListener("scroll", follow);
  drawGutter();

  return {
    node: el("div", { class: "editor" }, gutter, el("div", { class: "painted" }, paint, area)),
    area,
    setValue(text) { area.value = text; marked = null; drawGutter(); },
    // Mark the line of an error in the margin; null takes the mark away.
    markError(line) { marked = line; mark = "bad"; drawGutter(); },
    // Go to a place and select the line.
    show(line, column) {
      const lines = area.value.split("\n");
      const start = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
      const height = parseFloat(getComputedStyle(area).lineHeight) || 18;
      area.scrollTop = Math.max(0, (line - 4) * height);
      area.setSelectionRange(start + Math.max(0, (column || 1) - 1), start + (lines[line - 1] || "").length);
      marked = line;
      mark = "shown";
      drawGutter();
    },
  };
}

export function makeJsonArea({ value, label, rows, isValid, onValue }) {
  const problem = el("p", { class: "problem", hidden: true, role: "alert" });
  const area = el("textarea", { class: "code", spellcheck: "false", autocapitalize: "off", rows, "aria-label": label });
  area.value = value;
  area.addEventListener("input", () => {
    let found;
    try {
      found = area.value.trim() ? JSON.parse(area.value) : isValid.empty;
      if (!isValid.test(found)) throw new Error(t(isValid.message));
    } catch (error) {
      problem.textContent = `${t("badJson")}: ${error.message}`;
      problem.hidden = false;
      return;
    }
    problem.hidden = true;
    onValue(found);
  });
  return { node: el("div", {}, area, problem), area };
}

export const LIST = { empty: [], test: (value) => Array.isArray(value) && value.every((one) => one && typeof one === "object"), message: "needList" };
export const OBJECT = { empty: {}, test: (value) => value && typeof value === "object" && !Array.isArray(value), message: "needObject" };

// Let a text area be as high as its text.
export function grow(area) {
  const fit = () => {
    area.style.height = "auto";
    area.style.height = `${Math.min(area.scrollHeight + 2, 320)}px`;
  };
  area.addEventListener("input", fit);
  requestAnimationFrame(fit);
  return area;
}
