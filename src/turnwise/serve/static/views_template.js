// The tabs about the template itself: checks, stability, diff and convert.
import { copyButton, downloadText, el, labelled, select } from "./dom.js";
import { t } from "./i18n.js";
import { sourceOf, templateOf, tokenizerOf } from "./state.js";

const FILES = { jinja: "chat_template.jinja", ollama: "Modelfile" };
const SEVERITIES = ["error", "warning", "note"];
const TARGETS = ["jinja", "fastchat", "llamafactory", "lmdeploy", "xtuner", "paddlenlp", "ollama"]; // the dialects that can be written
const REMEDY = /without=\[([^\]]*)\]/; // in the hint of a refusal, in any language
const CAPABILITY = /^(.+?)\s{2,}(\S+(?: \S+)?)\s*(.*)$/;

export const checksTab = {
  verb: "check",
  body: (state) => ({ template: templateOf(state), tokenizer: tokenizerOf(state) }),
  also: { verb: "facts", body: (state) => ({ template: templateOf(state), tokenizer: tokenizerOf(state) }) },
  draw(answer, { showPlace, useConversation, facts }) {
    return [
      el("h3", {}, `${t("findings")} (${answer.findings.length})`),
      answer.findings.length ? el("ul", { class: "findings", id: "findings" }, answer.findings.map((finding) => drawFinding(finding, showPlace, useConversation))) : el("p", { id: "findings" }, t("noFindings")),
      facts && !facts.error ? drawFacts(facts) : null,
    ];
  },
};

function drawFinding(finding, showPlace, useConversation) {
  const load = finding.messages ? el("button", { type: "button", class: "small load", onclick: () => useConversation(finding.messages, finding.arguments ?? {}) }, t("useWitness")) : null;
  const place = finding.line ? el("button", { type: "button", class: "small", onclick: () => showPlace(finding.line, finding.column) }, t("line", finding)) : null;
  return el("li", { class: `finding is-${SEVERITIES.includes(finding.severity) ? finding.severity : "note"}` },
    el("div", { class: "head" }, el("span", { class: "tag" }, t(finding.severity)), el("b", {}, `${finding.code} ${finding.name}`), place, load),
    el("p", {}, finding.message),
    finding.fix ? el("p", { class: "fix" }, `${t("fix")}: ${finding.fix}`) : null,
    finding.messages || finding.output ? el("details", {}, el("summary", {}, t("example")), el("pre", { class: "out" }, [...(finding.messages ?? []).map((one) => JSON.stringify(one)), finding.output ?? ""].join("\n"))) : null);
}

function drawFacts(facts) {
  const rows = facts.capabilities.split("\n").map((line) => CAPABILITY.exec(line)).filter(Boolean);
  return el("div", {},
    el("h3", {}, t("stops")),
    el("p", {}, facts.stops.map((stop, index) => [el("code", {}, stop), facts.stop_ids[index] !== undefined ? ` ${facts.stop_ids[index]} ` : " "])),
    el("h3", {}, t("variables")), el("p", {}, facts.variables.map((name) => [el("code", {}, name), " "])),
    el("h3", {}, t("capabilities")),
    el("div", { class: "scroll" }, el("table", { id: "capabilities" }, el("thead", {}, el("tr", {}, [t("feature"), t("state"), t("seen")].map((one) => el("th", {}, one)))),
      el("tbody", {}, rows.map(([, name, state, seen]) => el("tr", {}, el("td", {}, name), el("td", { class: `c-${/^[a-z]+$/.test(state) ? state : "other"}` }, state), el("td", {}, el("code", {}, seen))))))));
}

export const stabilityTab = {
  verb: "facts",
  body: (state) => ({ template: templateOf(state), tokenizer: tokenizerOf(state) }),
  draw(answer) {
    const [table, ...examples] = answer.stability.split("\n\n");
    const rows = table.split("\n").map((line) => line.split(/\s{2,}/));
    return [
      el("p", { class: "hint" }, t("stabilityHelp")),
      el("div", { class: "scroll" }, el("table", { id: "stability" }, el("thead", {}, el("tr", {}, [t("appending"), t("earlier"), t("conversations")].map((one) => el("th", {}, one)))),
        el("tbody", {}, rows.slice(1).map((row) => el("tr", {}, row.map((one, index) => el("td", { class: index === 1 ? `c-${one === "stable" ? "written" : "dropped"}` : null }, one))))))),
      examples.map((example) => el("pre", { class: "out" }, example)),
    ];
  },
};

export const diffTab = {
  verb: "diff",
  body(state) {
    return { template: templateOf(state), other: isSource(state.other) ? sourceOf(state.other, "") : state.other.trim(), tokenizer: tokenizerOf(state) };
  },
  head({ state, change }) {
    const area = el("textarea", { class: "code", id: "other", rows: 2, spellcheck: "false", "aria-label": t("other") });
    area.value = state.other;
    area.addEventListener("input", () => { state.other = area.value; change(); });
    return labelled(t("other"), area);
  },
  draw(answer, { state, useConversation }) {
    const other = isSource(state.other) ? t("otherTemplate") : state.other;
    if (answer.equal || !answer.witness) {
      return [el("p", { class: "verdict good", id: "verdict" }, `${t("same")} · ${answer.tried} ${t("tried")}`), el("pre", { class: "out" }, answer.text)];
    }
    const { witness } = answer;
    return [
      el("div", { class: "bar" }, el("span", { class: "verdict bad", id: "verdict" }, t("differ")), el("button", { type: "button", class: "small", onclick: () => useConversation(witness.messages, witness.arguments) }, t("useWitness"))),
      el("pre", { class: "out" }, witness.messages.map((one) => JSON.stringify(one)).join("\n")),
      el("div", { class: "sides" }, side(state.source === null ? state.entry : t("thisTemplate"), witness.a, witness.at), side(other, witness.b, witness.at)),
    ];
  },
};

function isSource(text) {
  return text.includes("\n") || /\{[{%#"]/.test(text);
}

function side(label, text, at) {
  const characters = Array.from(text ?? "");
  const place = Number.isInteger(at) ? at : characters.length;
  return el("div", {}, el("h3", {}, label), el("pre", { class: "rendered" }, el("span", { class: "p-template" }, characters.slice(0, place).join("")), el("mark", {}, characters.slice(place).join(""))));
}

function namesToLeaveOut(error) {
  return REMEDY.exec(error?.hint ?? "")?.[1].replaceAll("'", "").split(",").map((name) => name.trim()) ?? null;
}

export const convertTab = {
  verb: "convert",
  body(state) {
    const without = state.without.split(",").map((name) => name.trim()).filter(Boolean);
    return { template: templateOf(state), without, ...(state.to ? { to: state.to } : {}) };
  },
  head({ state, change }) {
    const to = select({ id: "to" }, [["", t("firstPossible")], ...TARGETS], state.to);
    to.addEventListener("change", () => { state.to = to.value; change(); });
    const without = el("input", { id: "without", spellcheck: "false" });
    without.value = state.without;
    without.addEventListener("input", () => { state.without = without.value; change(); });
    return el("div", { class: "row" }, labelled(t("to"), to), labelled(t("without"), without, "grow"));
  },
  // What cannot be expressed may be left out.
  remedy(error, { state, change, drawHead }) {
    const found = namesToLeaveOut(error);
    if (!found) return null;
    const names = found.join(", ");
    const leaveOut = () => { state.without = [state.without, names].filter(Boolean).join(", "); drawHead(); change(); };
    return el("button", { type: "button", class: "small", id: "leave-out", onclick: leaveOut }, t("leaveOut", { names }));
  },
  draw(answer) {
    const name = FILES[answer.dialect] ?? `${answer.dialect}.json`;
    const leftOut = answer.left_out.length ? el("p", { class: "warnings", id: "left-out" }, t("leftOut", { names: answer.left_out.join(", ") })) : null;
    return [
      el("div", { class: "bar" }, el("h3", {}, name), el("span", { class: "buttons" }, copyButton(t("copy"), t("copied"), () => answer.output), el("button", { type: "button", class: "small", onclick: () => downloadText(name, answer.output) }, t("download")))),
      leftOut, el("pre", { class: "out", id: "converted" }, answer.output),
    ];
  },
};
