// The page: reads the state from the address, draws both sides, and asks the engine when something changes.
import { api, isStatic, startEngine } from "./api.js";
import { copyText, el, replaceChildren } from "./dom.js";
import { hubHost, isHubAllowed } from "./hub.js";
import { getLanguage, setLanguage, t } from "./i18n.js";
import { LeftPane } from "./left.js";
import { readHash, setVocabularies, writeHash } from "./state.js";
import { grammarTab, replyTab } from "./views_reply.js";
import { checksTab, convertTab, diffTab, stabilityTab } from "./views_template.js";
import { lossTab, textTab, tokensTab } from "./views_text.js";

const TABS = {
  text: ["tabText", textTab],
  tokens: ["tabTokens", tokensTab],
  loss: ["tabLoss", lossTab],
  reply: ["tabReply", replyTab],
  grammar: ["tabGrammar", grammarTab],
  checks: ["tabChecks", checksTab],
  stability: ["tabStability", stabilityTab],
  diff: ["tabDiff", diffTab],
  convert: ["tabConvert", convertTab],
};
const DELAY = 200; // milliseconds after the last key until the engine is asked

const status = document.getElementById("status");
const result = document.getElementById("result");
const tabs = document.getElementById("tabs");
let state = null;
let left = null;
let timer = 0;
let asked = 0; // the number of the last question; answers to older ones are dropped
let doing = "working"; // what the engine does when it does not answer at once

function tell(text, isCalm = false) {
  status.textContent = text;
  status.classList.toggle("calm", isCalm); // nothing that must be seen: left out where there is no room
}

function change() {
  clearTimeout(timer);
  timer = setTimeout(() => { saveState(); ask(); }, DELAY);
}

async function saveState() {
  const hash = await writeHash(state);
  history.replaceState(null, "", hash ? `#s=${hash}` : location.pathname + location.search);
}

// -- tabs

function drawTabs() {
  const names = Object.keys(TABS);
  replaceChildren(tabs, names.map((name) => el("button", {
    type: "button", role: "tab", id: `tab-${name}`, "aria-selected": String(name === state.tab), "aria-controls": "result",
    tabindex: name === state.tab ? 0 : -1, onclick: () => openTab(name),
  }, t(TABS[name][0]))));
  tabs.onkeydown = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -names.length, End: names.length }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = Math.max(0, Math.min(names.length - 1, names.indexOf(state.tab) + step));
    openTab(names[at]);
    document.getElementById(`tab-${names[at]}`).focus();
  };
  result.setAttribute("aria-labelledby", `tab-${state.tab}`);
  document.body.dataset.tab = state.tab;
  // on a phone the tabs are wider than the screen
  const chosen = document.getElementById(`tab-${state.tab}`);
  tabs.scrollLeft = chosen.offsetLeft - (tabs.clientWidth - chosen.offsetWidth) / 2;
  hintAtTabs();
}

// Say by the edges of the strip that tabs are hidden there.
function hintAtTabs() {
  const { classList } = tabs.parentNode;
  classList.toggle("more-left", tabs.scrollLeft > 8);
  classList.toggle("more-right", tabs.scrollLeft + tabs.clientWidth < tabs.scrollWidth - 8);
}

function openTab(name) {
  state.tab = name;
  drawTabs();
  drawHead();
  saveState();
  ask();
}

const head = el("div", { id: "head" });
const answerBox = el("div", { id: "answer" });
const doingNote = el("p", { class: "hint" });

function drawHead() {
  const tab = TABS[state.tab][1];
  replaceChildren(head, tab.head ? tab.head(context) : null);
  replaceChildren(answerBox);
  replaceChildren(result, head, answerBox);
}

const context = {
  api,
  get state() { return state; },
  change,
  drawHead,
  facts: null,
  showPlace(line, column) { left.editor.show(line, column); },
  // Take over a conversation that was found, with what it is rendered with, and look at its text.
  useConversation(messages, { tools = [], add_generation_prompt = false, continue_final_message = false, documents, now, ...options } = {}) {
    Object.assign(state, { messages, tools: tools ?? [], options, add_generation_prompt: add_generation_prompt === true, continue_final_message: continue_final_message === true });
    left.draw();
    openTab("text");
  },
};

function showDoing() {
  tell(t(doing));
  doingNote.textContent = t(doing);
  if (!answerBox.hasChildNodes()) answerBox.append(doingNote);
}

async function ask() {
  asked += 1;
  const own = asked;
  const tab = TABS[state.tab][1];
  const body = tab.body(state);
  result.setAttribute("aria-busy", "true");
  const busy = setTimeout(showDoing, 250);
  const [answer, facts] = await Promise.all([
    body === null ? null : api(tab.verb, body),
    tab.also ? api(tab.also.verb, tab.also.body(state)) : null,
  ]);
  clearTimeout(busy);
  if (own !== asked) return;
  context.facts = facts;
  show(tab, answer);
  result.setAttribute("aria-busy", "false");
  if (!answer?.error) tab.complete?.(context, () => own === asked);
  tellCalmly();
}

// What is true while nothing is done; of the static page, once its engine is there.
function tellCalmly() {
  if (isStatic && doing === "loading") tell(t("loading"));
  else tell(isStatic ? t(isHubAllowed ? "online" : "offline", { host: hubHost }) : "", true);
}

function show(tab, answer) {
  const error = answer?.error;
  left.showError(error && error.line ? error : null);
  if (error) {
    replaceChildren(answerBox, tab.remedy?.(error, context), el("pre", { class: "error", id: "error", role: "alert" }, error.text ?? error.message));
    return;
  }
  const warnings = answer?.warnings?.length ? el("ul", { class: "warnings", id: "warnings" }, answer.warnings.map((one) => el("li", {}, one))) : null;
  replaceChildren(answerBox, warnings, tab.draw(answer, context));
}

// -- header

function bindHeader() {
  tabs.addEventListener("scroll", hintAtTabs, { passive: true });
  window.addEventListener("resize", hintAtTabs);
  const share = document.getElementById("share");
  share.addEventListener("click", async () => {
    await saveState();
    await copyText(location.href);
    share.textContent = t("copied");
    setTimeout(() => { share.textContent = t("share"); }, 1200);
  });
  document.getElementById("skip").addEventListener("click", () => { tabs.scrollIntoView({ block: "start" }); result.focus({ preventScroll: true }); });
  // on a phone the way to the result is a button, which goes away where the result is seen
  new IntersectionObserver(([seen]) => document.body.classList.toggle("at-result", seen.isIntersecting)).observe(result);
  const language = document.getElementById("language");
  language.addEventListener("click", () => {
    useLanguage(getLanguage() === "en" ? "zh" : "en");
    remember("language", getLanguage());
    redraw();
  });
  document.getElementById("theme").addEventListener("click", () => {
    const isDark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    document.documentElement.dataset.theme = isDark ? "light" : "dark";
    remember("theme", document.documentElement.dataset.theme);
  });
}

function useLanguage(name) {
  setLanguage(name);
  const language = document.getElementById("language");
  language.textContent = name === "zh" ? "English" : "中文";
  language.lang = name === "zh" ? "en" : "zh";
}

// Storage may be forbidden; then nothing is remembered.
function remember(key, value) {
  try { localStorage.setItem(`turnwise-${key}`, value); } catch { /* forbidden */ }
}

function recall(key) {
  try { return localStorage.getItem(`turnwise-${key}`); } catch { return null; }
}

function redraw() {
  left.draw();
  drawTabs();
  drawHead();
  return ask();
}

// Keep the files of the static site for a time without network. Where that is forbidden, the page works all the same.
function keepFiles() {
  if (isStatic) navigator.serviceWorker?.register("offline.js", { updateViaCache: "none" }).catch(() => {});
}

async function main() {
  const theme = recall("theme");
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
  useLanguage(recall("language") ?? (navigator.language.startsWith("zh") ? "zh" : "en"));
  bindHeader();
  state = await readHash(location.hash);
  if (!Object.hasOwn(TABS, state.tab)) state.tab = "text";
  // the engine of the static page starts while the page is used
  startEngine((progress) => {
    doing = progress;
    if (progress === "loading" || result.getAttribute("aria-busy") === "true") showDoing();
    else tellCalmly();
    if (progress === "working") keepFiles(); // after the engine: the two would slow each other down
  });
  const catalogue = await api("entries", {});
  if (catalogue.error) {
    tell("");
    replaceChildren(result, el("pre", { class: "error" }, catalogue.error.text));
    return;
  }
  setVocabularies(catalogue.vocabularies ?? [], catalogue.served);
  left = new LeftPane(document.getElementById("left"), state, { ...catalogue, tokenizers: [...catalogue.served] }, { onChange: change, tell, openTab });
  window.addEventListener("hashchange", async () => {
    Object.assign(state, await readHash(location.hash));
    if (!Object.hasOwn(TABS, state.tab)) state.tab = "text";
    redraw();
  });
  redraw();
  document.documentElement.dataset.ready = "true";
}

main();
