// What is put in: model, switches, messages, tools and options on the left, the template under the result.
import { addTokenizer, api, isStatic } from "./api.js";
import { el, labelled, select } from "./dom.js";
import { LIST, OBJECT, makeEditor, makeJsonArea } from "./editor.js";
import { EXAMPLE_NAMES, exampleTool, makeExample } from "./examples.js";
import { MODEL_ID, fetchModel, hubHost, isHubAllowed, switchHub } from "./hub.js";
import { getLanguage, t } from "./i18n.js";
import { buildMessages } from "./messages.js";
import { makePicker } from "./picker.js";
import { templateOf, tokenizerOf } from "./state.js";

// The dialects that are read; those that are written are in views_template.js.
export const DIALECTS = ["jinja", "fastchat", "llamafactory", "lmdeploy", "xtuner", "xtuner_v1", "internlm2", "paddlenlp", "ollama"];
const TEMPLATE_NAMES = /\.(jinja|j2|jinja2|gotmpl|tmpl|txt|json)$|^Modelfile/i;
const MAX_TEMPLATE = 4_000_000; // characters of a template file
// The variables by which templates let a model think, and their values; the first that a template has is switched.
const THINKING = { enable_thinking: [true, false], thinking: [true, false], reasoning_effort: ["low", "medium", "high"] };

export class LeftPane {
  constructor(container, state, catalogue, { onChange, tell, openTab }) {
    Object.assign(this, { container, state, catalogue, onChange, tell, openTab, editor: null });
    this.variables = []; // of the template, as far as known
    this.ownTemplate = null; // what an example took the place of
  }

  draw() {
    this.container.replaceChildren(this.modelSection(), this.messageSection(), this.toolSection(), this.optionSection());
    document.getElementById("source-slot").replaceChildren(this.templateSection());
    this.showSource();
    document.body.ondragover = (event) => { event.preventDefault(); };
    document.body.ondrop = (event) => this.dropped(event);
  }

  // -- model and switches

  modelSection() {
    const { state, catalogue } = this;
    this.picker = makePicker({ value: state.source === null ? state.entry : "", entries: catalogue.entries, served: catalogue.served, onPick: (name) => this.pick(name) });
    const example = select({ id: "example" }, [["", t("choose")], ...EXAMPLE_NAMES.map((name) => [name, t(`example_${name}`)])], "");
    example.addEventListener("change", () => this.useExample(example.value));
    this.note = el("p", { class: "note", id: "entry-note" });
    this.modelError = el("pre", { class: "error", id: "model-error", hidden: true, role: "alert" });
    this.thinking = el("span", { class: "switch", role: "group", id: "thinking", "aria-label": t("thinking") });
    this.drawThinking();
    return el("section", { class: "card", id: "model" },
      el("div", { class: "row" }, labelled(t("entry"), this.picker.node, "grow"), labelled(t("example"), example)),
      this.hubSwitch(), this.note, this.modelError,
      el("div", { class: "row switches" }, this.check("add_generation_prompt", t("prompt")), el("span", { class: "check" }, this.thinking)));
  }

  check(key, label) {
    const box = el("input", { type: "checkbox", id: key, checked: this.state[key] === true });
    box.addEventListener("change", () => { this.state[key] = box.checked; this.onChange(); });
    return el("label", { class: "check" }, box, label);
  }

  hubSwitch() {
    if (!isStatic || !hubHost) return null;
    const box = el("input", { type: "checkbox", id: "hub", checked: isHubAllowed });
    box.addEventListener("change", () => switchHub(box.checked));
    return el("label", { class: "check hint" }, box, t(isHubAllowed ? "hubOn" : "hubOff", { host: hubHost }));
  }

  // The switch of the variable by which this template thinks, if it has one.
  drawThinking() {
    const { state } = this;
    const name = Object.keys(THINKING).find((one) => this.variables.includes(one));
    const choices = name ? [undefined, ...THINKING[name]] : [];
    const label = { undefined: t("usual"), true: t("on"), false: t("off") };
    this.thinking.replaceChildren(...(name ? [t("thinking")] : []), ...choices.map((value) => el("button", {
      type: "button", class: "small", title: name, "data-value": String(value), "aria-pressed": String(state.options[name] === value),
      onclick: () => {
        const { [name]: _, ...others } = state.options;
        this.setOptions(value === undefined ? others : { ...others, [name]: value });
        this.onChange();
      },
    }, label[String(value)] ?? value)));
  }

  setOptions(options) {
    this.state.options = options;
    this.optionArea.value = Object.keys(options).length ? JSON.stringify(options) : "";
    this.drawThinking();
  }

  useExample(name) {
    if (!name) return;
    const { entry, tab, ...changes } = makeExample(name);
    Object.assign(this.state, changes);
    // an example that needs a certain template has it; the next one goes back to the user's
    const { source, dialect } = this.state;
    const wanted = entry ? { entry, source: null, dialect: "" } : this.ownTemplate;
    this.ownTemplate = entry ? this.ownTemplate ?? { entry: this.state.entry, source, dialect } : null;
    Object.assign(this.state, wanted);
    this.draw();
    document.getElementById("example").value = name;
    if (tab || this.state.tab === "tokens") this.openTab(tab ?? "text");
    else this.onChange();
  }

  // -- template

  templateSection() {
    const { state } = this;
    const dialect = select({ id: "dialect" }, [["", t("guess")], ...DIALECTS], state.dialect);
    dialect.addEventListener("change", () => { state.dialect = dialect.value; if (state.source !== null) this.onChange(); });
    this.editor = makeEditor({ value: state.source ?? "", label: t("source"), rows: 16, onInput: (text) => {
      state.source = text;
      this.markEdited();
      this.onChange();
    } });
    this.editor.area.id = "source";
    this.editor.area.placeholder = t("paste");
    const reset = el("button", { type: "button", class: "small", id: "reset", onclick: () => this.pick(state.entry) }, t("reset"));
    const file = el("input", { type: "file", multiple: true, class: "offscreen", id: "file", tabindex: -1, "aria-label": t("open") });
    file.addEventListener("change", () => this.readFiles([...file.files]));
    const open = el("button", { type: "button", class: "small", onclick: () => file.click() }, t("open"));
    this.error = el("pre", { class: "error", id: "template-error", hidden: true, role: "alert" });
    this.edited = el("span", { class: "tag", id: "edited", hidden: state.source === null }, t("edited"));
    this.dialectSelect = dialect;
    return el("details", { class: "card", id: "template", open: true },
      el("summary", {}, t("template"), " ", this.edited),
      el("div", { class: "buttons corner" }, labelled(t("dialect"), dialect, "inline"), reset, open, file),
      this.editor.node, this.error, el("p", { class: "hint" }, t("drop")));
  }

  markEdited() {
    this.edited.hidden = this.state.source === null;
  }

  pick(name) {
    const { state, catalogue } = this;
    if (!name) return;
    this.ownTemplate = null;
    if (!catalogue.served.includes(name) && !catalogue.entries.some((entry) => entry.name === name)) {
      this.tell(name);
      return isHubAllowed && MODEL_ID.test(name) ? this.fetchModel(name) : this.matchModel(name);
    }
    state.entry = name;
    state.source = null;
    state.dialect = "";
    this.picker.setValue(name);
    this.dialectSelect.value = "";
    this.markEdited();
    this.showModelError(null);
    this.showSource();
    this.onChange();
  }

  // Take the template and the tokenizer of a model from the hub.
  async fetchModel(id) {
    this.tell(t("fetching", { name: id, host: hubHost }));
    try {
      const files = await fetchModel(id);
      if (!files.size) throw new Error(t("notFound", { name: id, host: hubHost }));
      this.showModelError(null);
      await this.readFiles([...files.values()], id);
      this.picker.setValue(id);
      this.note.textContent = t("fetched", { name: id, host: hubHost });
    } catch (error) {
      this.tell("");
      this.showModelError({ text: error.message });
    }
  }

  showModelError(error) {
    this.modelError.hidden = !error;
    this.modelError.textContent = error ? error.text || error.message : "";
  }

  // A name that is no entry may be the id of a model.
  async matchModel(model) {
    const answer = await api("match", { model });
    const hint = isStatic && hubHost && !isHubAllowed ? `\n  ${t("hubHint", { host: hubHost })}` : "";
    if (answer.error) return this.showModelError({ text: `${answer.error.text}${hint}` });
    const { catalogue } = this;
    if (answer.name && catalogue.entries.some((entry) => entry.name === answer.name)) {
      this.pick(answer.name);
      this.note.textContent = `${model}: ${answer.reason}`;
    } else {
      this.showModelError({ text: `${model}: ${answer.reason || answer.warning || "?"}${hint}` });
    }
  }

  async showSource() {
    const { state } = this;
    const entry = this.catalogue.entries.find((one) => one.name === state.entry);
    this.note.textContent = state.source === null && entry ? [entry.dialect, (getLanguage() === "zh" && entry.notes_zh) || entry.notes].filter(Boolean).join(" · ") : "";
    this.showTokenizers();
    if (state.source !== null) this.editor.setValue(state.source);
    const wanted = JSON.stringify(templateOf(state));
    const answer = await api("source", { template: templateOf(state) });
    if (answer.error || JSON.stringify(templateOf(state)) !== wanted) return; // broken, or another was picked in the meantime
    this.variables = answer.variables;
    this.drawThinking();
    if (state.source === null) this.editor.setValue(typeof answer.source === "string" ? answer.source : JSON.stringify(answer.source, null, 2));
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
    return el("section", { class: "card", id: "messages" }, el("h2", {}, t("messages"), views), messages.node);
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
      state.tools = [exampleTool()];
      area.value = JSON.stringify(state.tools, null, 2);
      this.onChange();
    } }, t("exampleTool"));
    return el("details", { class: "card", open: state.tools.length > 0 }, el("summary", {}, t("tools")), node, example);
  }

  optionSection() {
    const { state } = this;
    const { node, area } = makeJsonArea({
      value: Object.keys(state.options).length ? JSON.stringify(state.options) : "",
      label: t("kwargs"),
      rows: 2,
      isValid: OBJECT,
      onValue: (options) => { state.options = options; this.drawThinking(); this.onChange(); },
    });
    this.optionArea = area;
    area.id = "kwargs";
    area.placeholder = '{"enable_thinking": false}';
    this.tokenizerSelect = select({ id: "tokenizer" }, [], "");
    this.tokenizerSelect.addEventListener("change", () => { state.tokenizer = this.tokenizerSelect.value; this.onChange(); });
    this.showTokenizers();
    const late = select({ id: "late-system" }, [["", t("lateUsual")], "in_place", "user", "front"], state.late_system);
    late.addEventListener("change", () => { state.late_system = late.value; this.onChange(); });
    return el("details", { class: "card", open: true }, el("summary", {}, t("options")),
      labelled(t("tokenizer"), this.tokenizerSelect), isStatic ? null : el("p", { class: "hint" }, t("noTokenizerHere")),
      labelled(t("kwargs"), node), labelled(t("lateSystem"), late),
      el("div", { class: "row" }, this.check("continue_final_message", t("continued"))));
  }

  showTokenizers() {
    const { state, catalogue } = this;
    const rows = [
      ["", t("automatic", { name: tokenizerOf({ ...state, tokenizer: "" }) })], ["turnwise", t("shipped")],
      ...(catalogue.vocabularies ?? []).map(({ name, licence }) => [name, `${name} (${licence})`]), ...catalogue.tokenizers.map((name) => [name, name]),
    ];
    if (!rows.some(([name]) => name === state.tokenizer)) state.tokenizer = ""; // of a file that another visitor had
    this.tokenizerSelect.replaceChildren(...rows.map(([key, label]) => el("option", { value: key }, label)));
    this.tokenizerSelect.value = state.tokenizer;
  }

  // -- files of the user

  async dropped(event) {
    event.preventDefault();
    const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
    const files = entries.length ? (await Promise.all(entries.map(listFiles))).flat() : [...event.dataTransfer.files];
    await this.readFiles(files);
  }

  // Take what is known among some files: a template, a tokenizer, or both as a model folder has them.
  async readFiles(files, model = null) {
    const named = new Map(files.map((file) => [file.name, file]));
    const vocabulary = named.get("tokenizer.json");
    if (vocabulary) await this.readTokenizer(vocabulary, named, model);
    const template = await findTemplate(named);
    if (template !== null) this.takeTemplate(template);
    else if (!vocabulary) this.tell(t("unknownFile"));
  }

  takeTemplate(text) {
    const { state } = this;
    state.source = text;
    state.dialect = "";
    this.editor.setValue(state.source);
    this.picker.setValue("");
    this.dialectSelect.value = "";
    this.note.textContent = "";
    this.markEdited();
    this.showSource();
    this.onChange();
  }

  async readTokenizer(file, named, model) {
    if (!isStatic) return this.tell(t("noTokenizerHere"));
    const name = model ?? `${t("file")} ${this.catalogue.tokenizers.length + 1} (${Math.round(file.size / 1e6)} MB)`;
    const contents = { "tokenizer.json": await file.text() };
    for (const beside of ["tokenizer_config.json", "special_tokens_map.json"]) {
      if (named.has(beside)) contents[beside] = await named.get(beside).text();
    }
    const answer = await addTokenizer(name, contents);
    if (answer.error) return this.showModelError(answer.error);
    if (!this.catalogue.tokenizers.includes(name)) this.catalogue.tokenizers.push(name);
    this.state.tokenizer = name;
    this.showTokenizers();
    this.tell(t("added"));
    this.onChange();
  }
}

// The text of the template among some files: one of its own, that of a tokenizer_config.json, or the first that may be one.
async function findTemplate(named) {
  if (named.has("chat_template.jinja")) return named.get("chat_template.jinja").text();
  for (const name of ["tokenizer_config.json", "chat_template.json"]) {
    const inside = named.has(name) ? templateInside(await named.get(name).text()) : null;
    if (inside !== null) return inside;
  }
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
