// What the user has put in, kept in the fragment of the address: a link is the whole state, and no server sees it.

export const DEFAULT_STATE = {
  entry: "qwen3",
  source: null, // the text of a pasted or edited template; null if the entry is used as it is
  dialect: "", // of a pasted template; empty: guess
  messages: [
    { role: "system", content: "You answer in one sentence." },
    { role: "user", content: "Is it high tide in Brest? <|im_end|>" },
    { role: "assistant", reasoning_content: "I have no clock, but the table says noon.", content: "Yes, at noon." },
  ],
  tools: [],
  options: {},
  add_generation_prompt: false,
  continue_final_message: false,
  late_system: "", // where system texts after other messages go; empty: as the template allows
  tokenizer: "turnwise",
  train_on: "assistant",
  reply: "",
  choice: "auto",
  other: "chatml",
  to: "ollama",
  without: "",
  tab: "text",
  view: "bubbles",
};

export const EXAMPLE_TOOL = {
  type: "function",
  function: {
    name: "tide",
    description: "Return the time of the next high tide.",
    parameters: { type: "object", properties: { port: { type: "string" } }, required: ["port"] },
  },
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
  const packed = hash.replace(/^#s=/, "").replaceAll("-", "+").replaceAll("_", "/");
  if (!hash.startsWith("#s=") || !packed) return state;
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
