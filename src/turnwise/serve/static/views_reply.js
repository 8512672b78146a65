// The tabs reply and grammar: reading what a model wrote, and what it may write.
import { copyButton, el, labelled, select } from "./dom.js";
import { t } from "./i18n.js";
import { requestOf, templateOf } from "./state.js";

const CHUNK = 4; // characters that are fed at a time
const PAUSE = 30; // milliseconds between chunks
const SAMPLE = '<think>\nThe table knows.\n</think>\n\nLet me look.\n<tool_call>\n{"name": "tide", "arguments": {"port": "Brest"}}\n</tool_call><|im_end|>';
const CHOICES = ["auto", "required", "none"];

let replay = 0; // the number of the replay that is shown; an older one stops

export const replyTab = {
  verb: "parse",
  body(state) {
    if (!state.reply) return null;
    const characters = Array.from(state.reply);
    const chunks = [];
    for (let at = 0; at < characters.length; at += CHUNK) chunks.push(characters.slice(at, at + CHUNK).join(""));
    const { messages, ...request } = requestOf(state);
    // the prompt that the reply answers: without a final assistant message, which is what the reply would be
    const asked = messages.at(-1)?.role === "assistant" ? messages.slice(0, -1) : messages;
    delete request.continue_final_message;
    return { ...request, messages: asked, chunks };
  },
  // The text area stays while answers come, so that typing goes on.
  head({ state, change }) {
    const area = el("textarea", { class: "code", id: "reply", rows: 5, placeholder: t("replyHint"), spellcheck: "false", "aria-label": t("reply") });
    area.value = state.reply;
    area.addEventListener("input", () => { state.reply = area.value; change(); });
    const sample = el("button", { type: "button", class: "small", id: "sample-reply", onclick: () => { state.reply = SAMPLE; area.value = SAMPLE; change(); } }, t("sample"));
    return el("div", {}, labelled(t("reply"), area), el("div", { class: "row" }, sample));
  },
  draw(answer, { state }) {
    replay += 1;
    if (!answer) return el("p", { class: "hint" }, t("nothing"));
    const events = el("ol", { class: "events", id: "events" });
    const bubble = el("div", { class: "bubble m2", id: "reply-message" });
    const stream = el("button", { type: "button", class: "small", id: "stream", onclick: () => play(answer, events, bubble) }, `▶ ${t("stream")}`);
    showEvents(answer, events, bubble, answer.events.length);
    return [
      el("div", { class: "bar" }, el("span", {}, `${t("finish")}: `, el("code", { id: "finish" }, answer.finish_reason ?? "–"), ` · ${t("stop")}: `, el("code", {}, answer.stop ?? "–")), stream),
      el("h3", {}, t("replyParts")), spans(state.reply, answer.spans),
      el("h3", {}, t("message")), bubble,
      el("details", {}, el("summary", {}, "JSON"), el("pre", { class: "out", id: "reply-json" }, JSON.stringify(answer.message, null, 2))),
      el("h3", {}, t("events")), events,
    ];
  },
};

function spans(reply, parts) {
  const characters = Array.from(reply);
  const box = el("pre", { class: "rendered" });
  let done = 0;
  for (const part of parts) {
    if (part.start > done) box.append(characters.slice(done, part.start).join(""));
    box.append(el("span", { class: `s-${/^[a-z_]+$/.test(part.kind) ? part.kind : "other"}`, title: part.kind }, characters.slice(part.start, part.end).join("")));
    done = Math.max(done, part.end);
  }
  box.append(characters.slice(done).join(""));
  return box;
}

function showEvents(answer, list, bubble, count) {
  const shown = answer.events.slice(0, count);
  list.replaceChildren(...shown.map((event) => el("li", {}, el("code", { class: `kind e-${event.kind}` }, event.kind), event.name ? el("b", {}, event.name) : null, el("span", { class: "t" }, event.text ? JSON.stringify(event.text) : ""), el("span", { class: "at" }, `#${event.at}`))));
  const join = (kind, call) => shown.filter((event) => event.kind === kind && (call === undefined || event.call === call)).map((event) => event.text).join("");
  const calls = shown.filter((event) => event.kind === "start");
  const reasoning = join("reasoning");
  bubble.replaceChildren(...[
    reasoning ? el("p", { class: "reasoning" }, reasoning) : null,
    el("p", { class: "said" }, join("text")),
    ...calls.map((call) => el("p", { class: "call" }, el("b", {}, call.name ?? ""), ` ${join("arguments", call.call)}`)),
  ].filter(Boolean));
}

// Show the events one chunk after the other, as a client would see them.
async function play(answer, events, bubble) {
  replay += 1;
  const own = replay;
  const last = answer.events.at(-1)?.at ?? 0;
  for (let at = 0; at <= last && own === replay; at += 1) {
    showEvents(answer, events, bubble, answer.events.filter((event) => event.at <= at).length);
    await new Promise((resolve) => { setTimeout(resolve, PAUSE); });
  }
}

export const grammarTab = {
  verb: "grammar",
  body(state) {
    const body = { template: templateOf(state), choice: state.choice };
    if (state.tools.length) body.tools = state.tools;
    return body;
  },
  draw(answer, { state, change }) {
    const names = state.tools.map((tool) => tool.function?.name ?? tool.name).filter((name) => typeof name === "string");
    const choice = select({ id: "choice" }, [...CHOICES, ...names], state.choice);
    choice.addEventListener("change", () => { state.choice = choice.value; change(); });
    const table = el("table", { id: "grammar" }, el("thead", {}, el("tr", {}, [t("part"), t("text"), t("origin")].map((one) => el("th", {}, one)))),
      el("tbody", {}, answer.table.map((row) => el("tr", {}, el("td", {}, row.part), el("td", {}, el("code", {}, row.text)), el("td", {}, row.origin)))));
    return [
      el("div", { class: "scroll" }, table),
      el("div", { class: "bar" }, el("h3", {}, t("exports")), labelled(t("choice"), choice)),
      state.tools.length ? null : el("p", { class: "hint" }, t("noTools")),
      Object.entries(answer.exports).map(([name, value]) => exported(name, value)),
    ];
  },
};

function exported(name, value) {
  if (value && value.error) return el("details", { class: "card" }, el("summary", {}, `${name} ✕`), el("pre", { class: "error" }, value.error.text ?? value.error.message));
  return el("details", { class: "card export" }, el("summary", {}, name), copyButton(t("copy"), t("copied"), () => value), el("pre", { class: "out" }, value));
}
