// The left side: template, messages, tools and options.
import { addTokenizer, api, isStatic } from "./api.js";
import { el, labelled, select } from "./dom.js";
import { LIST, OBJECT, makeEditor, makeJsonArea } from "./editor.js";
import { t } from "./i18n.js";
import { buildMessages } from "./messages.js";
import { EXAMPLE_TOOL, templateOf } from "./state.js";

// The dialects that are read; those that are written are in views_template.js.
export const DIALECTS = ["jinja", "fastchat", "llamafactory", "lmdeploy", "xtuner", "xtuner_v1", "internlm2", "paddlenlp", "ollama"];
const TEMPLATE_NAMES = /\.(jinja|j2|jinja2|gotmpl|tmpl|txt|json)$|^Modelfile/i;
const MAX_TEMPLATE = 4_000_000; // characters of a template file

export class LeftPane {
  constructor(container, state, catalogue, onChange, tell) {
    Object.assign(this, { container, state, catalogue, onChange, tell, editor: null });
    this.shown = ""; // the source that was last shown for an entry
  }

  draw() {
    const { state } = this;
    const sections = [this.templateSection(), this.messageSection(), this.toolSection(), this.optionSection()];
    this.container.replaceChildren(...sections);
    this.showSource();
    this.container.closest("section").ondragover = (event) => { event.preventDefault(); };
    this.container.closest("section").ondrop = (event) => this.dropped(event);
    return state;
  }

  // -- template

  templateSection() {
    const { state, catalogue } = this;
    const list = el("datalist", { id: "entries" }, [...catalogue.served, ...catalogue.entries.map((entry) => entry.name)].map((name) => el("option", { value: name })));
    const input = el("input", { id: "entry", list: "entries", placeholder: t("search"), autocomplete: "off", spellcheck: "false" });
    input.value = state.source === null ? state.entry : "";
    input.addEventListener("focus", () => input.select());
    input.addEventListener("change", () => this.pick(input.value.trim()));
    const dialect = select({ id: "dialect" }, [["", t("guess")], ...DIALECTS], state.dialect);
    dialect.addEventListener("change", () => { state.dialect = dialect.value; if (state.source !== null) this.onChange(); });
    this.editor = makeEditor({ value: state.source ?? "", label: t("source"), rows: 11, onInput: (text) => {
      state.source = text;
      this.markEdited();
      this.onChange();
    } });
    this.editor.area.id = "source";
    this.editor.area.placeholder = t("paste");
    const reset = el("button", { type: "button", class: "small", id: "reset", onclick: () => this.pick(state.entry) }, t("reset"));
    const file = el("input", { type: "file", multiple: true, class: "offscreen", id: "file", "aria-label": t("open") });
    file.addEventListener("change", () => this.readFiles([...file.files]));
    const open = el("button", { type: "button", class: "small", onclick: () => file.click() }, t("open"));
    this.note = el("p", { class: "note", id: "entry-note" });
    this.error = el("pre", { class: "error", id: "template-error", hidden: true, role: "alert" });
    this.edited = el("span", { class: "tag", id: "edited", hidden: state.source === null }, t("edited"));
    this.entryInput = input;
    this.dialectSelect = dialect;
    return el("section", { class: "card" },
      el("h2", {}, t("template"), this.edited),
      el("div", { class: "row" }, labelled(t("entry"), input, "grow"), labelled(t("dialect"), dialect), list),
      this.note, this.editor.node, this.error,
      el("div", { class: "row" }, reset, open, file, el("span", { class: "hint" }, t("drop"))));
  }

  markEdited() {
    this.edited.hidden = this.state.source === null;
  }

  pick(name) {
    const { state, catalogue } = this;
    if (!name) return;
    if (!catalogue.served.includes(name) && !catalogue.entries.some((entry) => entry.name === name)) {
      this.tell(name);
      return this.matchModel(name);
    }
    state.entry = name;
    state.source = null;
    state.dialect = "";
    this.entryInput.value = name;
    this.dialectSelect.value = "";
    this.markEdited();
    this.showSource();
    this.onChange();
  }

  // A name that is no entry may be the id of a model.
  async matchModel(model) {
    const answer = await api("match", { model });
    if (answer.error) return this.showError(answer.error);
    const { catalogue } = this;
    if (answer.name && catalogue.entries.some((entry) => entry.name === answer.name)) {
      this.pick(answer.name);
      this.note.textContent = `${model}: ${answer.reason}`;
    } else {
      this.showError({ text: `${model}: ${answer.reason || answer.warning || "?"}` });
    }
  }

  async showSource() {
    const { state } = this;
    const entry = this.catalogue.entries.find((one) => one.name === state.entry);
    this.note.textContent = state.source === null && entry ? [entry.dialect, entry.notes].filter(Boolean).join(" · ") : "";
    if (state.source !== null) {
      this.editor.setValue(state.source);
      return;
    }
    const wanted = state.entry;
    const answer = await api("source", { template: templateOf(state) });
    if (state.source !== null || state.entry !== wanted) return; // another was picked in the meantime
    if (answer.error) return;
    this.editor.setValue(typeof answer.source === "string" ? answer.source : JSON.stringify(answer.source, null, 2));
  }

  // Show an error of the template: the line in the margin, the sentence with its caret below.
  showError(error) {
    this.error.hidden = !error;
    this.error.textContent = error ? error.text || error.message : "";
    if (this.editor) this.editor.markError(error?.line ?? null);
  }

  // -- messages, tools, options

  messageSection() {
    const { state } = this;
    const messages = buildMessages(state, this.onChange);
    const views = el("span", { class: "switch", role: "group" }, ["bubbles", "json"].map((view) => {
      const button = el("button", { type: "button", id: `view-${view}`, class: "small", "aria-pressed": String(state.view === view) }, t(view));
      button.addEventListener("click", () => {
        state.view = view;
        for (const other of views.children) other.setAttribute("aria-pressed", String(other === button));
        messages.redraw();
        this.onChange();
      });
      return button;
    }));
    this.messages = messages;
    return el("section", { class: "card" }, el("h2", {}, t("messages"), views), messages.node);
  }

  toolSection() {
    const { state } = this;
    const { node, area } = makeJsonArea({
      value: state.tools.length ? JSON.stringify(state.tools, null, 2) : "",
      label: t("tools"),
      rows: 4,
      isValid: LIST,
      onValue: (tools) => { state.tools = tools; this.onChange(); },
    });
    area.id = "tools";
    area.placeholder = "[]";
    const example = el("button", { type: "button", class: "small", id: "example-tool", onclick: () => {
      state.tools = [EXAMPLE_TOOL];
      area.value = JSON.stringify(state.tools, null, 2);
      this.onChange();
    } }, t("exampleTool"));
    return el("details", { class: "card", open: state.tools.length > 0 }, el("summary", {}, t("tools")), node, example);
  }

  optionSection() {
    const { state } = this;
    const check = (key, label) => {
      const box = el("input", { type: "checkbox", id: key, checked: state[key] === true });
      box.addEventListener("change", () => { state[key] = box.checked; this.onChange(); });
      return el("label", { class: "check" }, box, label);
    };
    const { node, area } = makeJsonArea({
      value: Object.keys(state.options).length ? JSON.stringify(state.options) : "",
      label: t("kwargs"),
      rows: 2,
      isValid: OBJECT,
      onValue: (options) => { state.options = options; this.onChange(); },
    });
    area.id = "kwargs";
    area.placeholder = '{"enable_thinking": false}';
    this.tokenizerSelect = select({ id: "tokenizer" }, this.tokenizerNames(), state.tokenizer);
    this.tokenizerSelect.addEventListener("change", () => { state.tokenizer = this.tokenizerSelect.value; this.onChange(); });
    const late = select({ id: "late-system" }, [["", t("lateUsual")], "in_place", "user", "front"], state.late_system);
    late.addEventListener("change", () => { state.late_system = late.value; this.onChange(); });
    return el("details", { class: "card", open: true }, el("summary", {}, t("options")),
      el("div", { class: "row" }, check("add_generation_prompt", t("prompt")), check("continue_final_message", t("continued"))),
      labelled(t("lateSystem"), late), labelled(t("kwargs"), node), labelled(t("tokenizer"), this.tokenizerSelect));
  }

  tokenizerNames() {
    return [["turnwise", t("shipped")], ...this.catalogue.tokenizers];
  }

  // -- files of the user

  async dropped(event) {
    event.preventDefault();
    const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
    const files = entries.length ? (await Promise.all(entries.map(listFiles))).flat() : [...event.dataTransfer.files];
    await this.readFiles(files);
  }

  // Take what is known among some files: a template, a tokenizer, or both as a model folder has them.
  async readFiles(files) {
    const named = new Map(files.map((file) => [file.name, file]));
    const vocabulary = named.get("tokenizer.json");
    if (vocabulary) await this.readTokenizer(vocabulary, named);
    const template = await findTemplate(named);
    if (template !== null) this.takeTemplate(template);
    else if (!vocabulary) this.tell(t("unknownFile"));
  }

  takeTemplate(text) {
    const { state } = this;
    state.source = text;
    state.dialect = "";
    this.editor.setValue(state.source);
    this.entryInput.value = "";
    this.dialectSelect.value = "";
    this.note.textContent = "";
    this.markEdited();
    this.onChange();
  }

  async readTokenizer(file, named) {
    if (!isStatic) return this.tell(t("noTokenizerHere"));
    const name = `${t("file")} ${this.catalogue.tokenizers.length + 1} (${Math.round(file.size / 1e6)} MB)`;
    const contents = { "tokenizer.json": await file.text() };
    for (const beside of ["tokenizer_config.json", "special_tokens_map.json"]) {
      if (named.has(beside)) contents[beside] = await named.get(beside).text();
    }
    const answer = await addTokenizer(name, contents);
    if (answer.error) return this.showError(answer.error);
    this.catalogue.tokenizers.push(name);
    this.state.tokenizer = name;
    const names = this.tokenizerNames().map((one) => (Array.isArray(one) ? one : [one, one]));
    this.tokenizerSelect.replaceChildren(...names.map(([key, label]) => el("option", { value: key }, label)));
    this.tokenizerSelect.value = name;
    this.tell(t("added"));
    this.onChange();
  }
}

// The text of the template among some files: one of its own, that of a tokenizer_config.json, or the first that may be one.
async function findTemplate(named) {
  if (named.has("chat_template.jinja")) return named.get("chat_template.jinja").text();
  const config = named.get("tokenizer_config.json");
  const inside = config ? templateInside(await config.text()) : null;
  if (inside !== null) return inside;
  const known = ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "config.json", "generation_config.json"];
  const found = [...named.values()].find((file) => !known.includes(file.name) && TEMPLATE_NAMES.test(file.name) && file.size <= MAX_TEMPLATE);
  return found ? found.text() : null;
}

// The template in the text of a tokenizer_config.json; null if it has none.
function templateInside(text) {
  try {
    const { chat_template: template } = JSON.parse(text);
    if (typeof template === "string") return template;
    if (Array.isArray(template)) return String((template.find((one) => one.name === "default") ?? template[0]).template);
  } catch {
    // not JSON
  }
  return null;
}

async function listFiles(entry) {
  if (entry.isFile) return [await new Promise((resolve, reject) => entry.file(resolve, reject))];
  const reader = entry.createReader();
  const inner = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
  return (await Promise.all(inner.filter((one) => one.isFile).map(listFiles))).flat();
}
