// What the user has put in, kept in the fragment of the address: a link is the whole state, and no server sees it.

import { makeExample } from "./examples.js";

export const DEFAULT_STATE = {
  entry: "qwen3",
  source: null, // the text of a pasted or edited template; null if the entry is used as it is
  dialect: "", // of a pasted template; empty: guess
  continue_final_message: false,
  late_system: "", // where system texts after other messages go; empty: as the template allows
  tokenizer: "", // empty: that of the entry, where it is there
  price: "", // of a million tokens
  train_on: "assistant",
  reply: "",
  choice: "auto",
  other: "chatml",
  to: "", // empty: the first dialect that can express the template
  without: "",
  tab: "text",
  view: "bubbles",
  ...makeExample("chat"), // in English; a fresh page has it in its own language
};

export async function writeHash(state) {
  const changed = {};
  for (const [key, value] of Object.entries(state)) {
    if (JSON.stringify(value) !== JSON.stringify(DEFAULT_STATE[key])) changed[key] = value;
  }
  if (!Object.keys(changed).length) return "";
  const stream = new Blob([JSON.stringify(changed)]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

// Only known fields of the right type are taken: a link is something that a stranger wrote.
export async function readHash(hash) {
  const state = structuredClone(DEFAULT_STATE);
  if (!hash.startsWith("#s=")) return Object.assign(state, makeExample("chat"));
  const packed = hash.replace(/^#s=/, "").replaceAll("-", "+").replaceAll("_", "/");
  let given;
  try {
    const bytes = Uint8Array.from(atob(packed), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    given = JSON.parse(await new Response(stream).text());
  } catch {
    return state;
  }
  for (const key of Object.keys(DEFAULT_STATE)) {
    if (Object.hasOwn(Object(given), key) && sameType(key, given[key], DEFAULT_STATE[key])) state[key] = given[key];
  }
  return state;
}

function sameType(key, value, pattern) {
  if (key === "source") return value === null || typeof value === "string";
  if (key === "messages" && !(Array.isArray(value) && value.every((one) => one && typeof one === "object"))) return false;
  return typeof value === typeof pattern && Array.isArray(value) === Array.isArray(pattern) && value !== null;
}

// The template as the engine takes it: the name of an entry, or a source. A source that is a JSON object is sent as one.
export function templateOf(state) {
  return state.source === null ? state.entry : sourceOf(state.source, state.dialect);
}

export function sourceOf(text, dialect) {
  let source = text;
  if (text.trimStart().startsWith("{") && !/^\s*\{[{%#]/.test(text)) {
    try {
      source = JSON.parse(text);
    } catch {
      source = text;
    }
  }
  return { source, dialect: dialect || null };
}

export function requestOf(state) {
  const body = { template: templateOf(state), messages: state.messages, options: state.options };
  if (state.tools.length) body.tools = state.tools;
  if (state.add_generation_prompt) body.add_generation_prompt = true;
  if (state.continue_final_message) body.continue_final_message = true;
  if (state.late_system) body.late_system = state.late_system;
  return body;
}

// The tokenizer of a state: the chosen one, else that of the entry, else the small one that every page has.
let vocabularies = new Map(); // entry -> name of its vocabulary

export function setVocabularies(listed, served) {
  vocabularies = new Map([...listed.flatMap(({ name, entries }) => entries.map((entry) => [entry, name])), ...served.map((name) => [name, name])]);
}

export function tokenizerOf(state) {
  return state.tokenizer || (vocabularies.get(state.entry) ?? "turnwise");
}
