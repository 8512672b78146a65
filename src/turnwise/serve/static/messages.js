// The messages of the conversation, as bubbles or as JSON.
import { el, replaceChildren, select } from "./dom.js";
import { LIST, grow, makeJsonArea } from "./editor.js";
import { t } from "./i18n.js";

const ROLES = ["system", "developer", "user", "assistant", "tool"];
const JSON_FIELDS = { tool_calls: "calls" };
const TEXT_FIELDS = { reasoning_content: "reasoning", tool_call_id: "callId", name: "name" };

export function buildMessages(state, onChange) {
  const body = el("div", {});

  function redraw() {
    replaceChildren(body, state.view === "json" ? drawJson() : drawBubbles());
  }

  function drawJson() {
    return makeJsonArea({
      value: JSON.stringify(state.messages, null, 2),
      label: t("messages"),
      rows: 14,
      isValid: LIST,
      onValue: (messages) => { state.messages = messages; onChange(); },
    }).node;
  }

  function drawBubbles() {
    const list = el("ol", { class: "bubbles" }, state.messages.map(drawBubble));
    const add = el("button", { type: "button", class: "wide", id: "add-message", onclick: addMessage }, `+ ${t("addMessage")}`);
    return [list, add];
  }

  function addMessage() {
    const last = state.messages.at(-1);
    const role = last && last.role === "user" ? "assistant" : "user";
    state.messages.push({ role, content: "" });
    redraw();
    onChange();
    body.querySelector("li:last-child textarea")?.focus();
  }

  function move(index, step) {
    const [moved] = state.messages.splice(index, 1);
    state.messages.splice(index + step, 0, moved);
    redraw();
    onChange();
  }

  function drawBubble(message, index) {
    const roles = ROLES.includes(message.role) ? ROLES : [String(message.role ?? ""), ...ROLES];
    const role = select({ class: "role", "aria-label": t("role") }, roles, String(message.role ?? ""));
    const bubble = el("li", { class: `bubble m${index % 8}`, "data-role": String(message.role ?? "") });
    role.addEventListener("change", () => { message.role = role.value; bubble.dataset.role = role.value; redraw(); onChange(); });
    const buttons = el("span", { class: "buttons" },
      el("button", { type: "button", class: "icon", "aria-label": t("up"), title: t("up"), disabled: index === 0, onclick: () => move(index, -1) }, "↑"),
      el("button", { type: "button", class: "icon", "aria-label": t("down"), title: t("down"), disabled: index === state.messages.length - 1, onclick: () => move(index, 1) }, "↓"),
      el("button", { type: "button", class: "icon", "aria-label": t("remove"), title: t("remove"), onclick: () => { state.messages.splice(index, 1); redraw(); onChange(); } }, "✕"));
    bubble.append(el("div", { class: "head" }, role, buttons));
    if ("reasoning_content" in message) bubble.append(textField(message, "reasoning_content", t("reasoning")));
    bubble.append(textField(message, "content", t("content")));
    for (const key of Object.keys(JSON_FIELDS)) if (key in message) bubble.append(jsonField(message, key));
    for (const key of ["tool_call_id", "name"]) if (key in message) bubble.append(textField(message, key, t(TEXT_FIELDS[key])));
    const missing = missingFields(message);
    if (missing.length) bubble.append(el("div", { class: "more" }, missing.map((key) => el("button", {
      type: "button", class: "small", onclick: () => { message[key] = key === "tool_calls" ? [exampleCall()] : ""; redraw(); onChange(); },
    }, `+ ${t(JSON_FIELDS[key] ?? TEXT_FIELDS[key])}`))));
    return bubble;
  }

  function textField(message, key, label) {
    const value = message[key];
    if (value !== null && value !== undefined && typeof value !== "string") return jsonField(message, key);
    const area = grow(el("textarea", { rows: 1, "aria-label": `${label} (${message.role})`, class: key, placeholder: label }));
    area.value = value ?? "";
    area.addEventListener("input", () => { message[key] = area.value; onChange(); });
    return area;
  }

  function jsonField(message, key) {
    const any = { empty: null, test: () => true };
    const { node, area } = makeJsonArea({
      value: JSON.stringify(message[key], null, 1),
      label: key,
      rows: 3,
      isValid: any,
      onValue: (value) => { message[key] = value; onChange(); },
    });
    grow(area);
    return el("div", { class: "jsonfield" }, el("span", { class: "tag" }, key), node);
  }

  redraw();
  return { node: body, redraw };
}

function missingFields(message) {
  const wanted = { assistant: ["reasoning_content", "tool_calls"], tool: ["tool_call_id", "name"] }[message.role] ?? [];
  return wanted.filter((key) => !(key in message));
}

function exampleCall() {
  return { id: "call00000", type: "function", function: { name: "tide", arguments: { port: "Brest" } } };
}
