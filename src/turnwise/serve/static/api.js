// api(verb, body): the one way to the engine. Served: POST /api/<verb>. Static: the same Python functions, in a worker
// of this browser. Both answer with data; an error is {error: {message, hint, line, column, text, ...}}.
import { getLanguage, t } from "./i18n.js";
import { MODE } from "./mode.js";

const TIMEOUT = 30000; // milliseconds; a template that loops longer is ended with its worker

export const isStatic = MODE.kind === "static";

export async function api(verb, body) {
  const asked = { language: getLanguage(), ...body }; // of findings, errors and warnings
  if (!isStatic) return callServer(verb, asked);
  if (verb === "entries") return readEntries();
  return (isReady ? null : await findFirst(verb, body)) ?? callWorker(verb, asked);
}

// `make site` wrote these answers to files: the page is there before the engine is.
async function readEntries() {
  try {
    const answer = await (await fetch("entries.json")).json();
    shipped = new Set(["turnwise", ...answer.vocabularies.map((row) => row.name)]);
    return answer;
  } catch {
    return failure(t("noEntries"), t("loadAgain"));
  }
}

let first = null; // answers to what a fresh page asks

async function findFirst(verb, body) {
  first ??= fetch("first.json").then((answer) => answer.json()).catch(() => ({}));
  return (await first)[`${verb} ${JSON.stringify(body)}`] ?? null;
}

async function callServer(verb, body) {
  let answer;
  try {
    answer = await fetch(`api/${verb}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
  } catch {
    return failure(t("serverSilent"), t("isItRunning"));
  }
  try {
    const data = await answer.json();
    // the server's own refusals (too large, too slow) have OpenAI's shape, which has a message too
    if (data && data.error && !data.error.text) data.error.text = data.error.message;
    return data;
  } catch {
    return failure(t("notJson", { status: answer.status }), null);
  }
}

function failure(message, hint) {
  return { error: { message, hint, text: hint ? `${message}\n  ${hint}` : message } };
}

// -- the worker

let shipped = new Set(); // vocabularies that the worker loads by name
let worker = null;
let number = 0;
const waiting = new Map();
const files = new Map(); // name of a tokenizer -> {file name: text}; given again to a worker that is started anew
let tellProgress = () => {};

export function startEngine(onProgress) {
  tellProgress = onProgress;
  if (isStatic) startWorker();
}

function startWorker() {
  worker = new Worker("engine.js", { type: "module" });
  worker.onmessage = ({ data }) => {
    if (data.progress) return tellProgress(data.progress);
    const call = waiting.get(data.number);
    if (!call) return;
    waiting.delete(data.number);
    clearTimeout(call.timer);
    call.resolve(data.answer);
  };
  worker.onerror = (event) => endWorker(t("engineStopped", { reason: event.message || t("notLoaded") }));
  for (const [name, contents] of files) worker.postMessage({ number: 0, verb: "add_tokenizer", body: { name, files: contents } });
}

function endWorker(message) {
  worker.terminate();
  worker = null;
  for (const call of waiting.values()) {
    clearTimeout(call.timer);
    call.resolve(failure(message, null));
  }
  waiting.clear();
}

let isReady = false;

function callWorker(verb, body) {
  if (!worker) startWorker();
  number += 1;
  const own = number;
  return new Promise((resolve) => {
    const limit = isReady ? TIMEOUT : 120000; // the first call waits for the engine
    const timer = setTimeout(() => endWorker(t("tooLong")), limit);
    waiting.set(own, { timer, resolve: (answer) => { isReady = true; resolve(answer); } });
    worker.postMessage({ number: own, verb, body, vocabulary: shipped.has(body.tokenizer) ? body.tokenizer : null });
  });
}

// Make a tokenizer of the user's own files known to the engine; nothing leaves the browser.
export function addTokenizer(name, contents) {
  if (!isStatic) return Promise.resolve(failure(t("noTokenizerHere"), null));
  files.set(name, contents);
  return callWorker("add_tokenizer", { name, files: contents, language: getLanguage() });
}
