// The worker of the static page: answers what the page asks. Only files of this site are read.
import { startPython, unpackVocabulary } from "./python.mjs";

async function load(path) {
  const answer = await fetch(new URL(path, import.meta.url));
  if (!answer.ok) throw new Error(`${path}: status ${answer.status}`);
  return answer.arrayBuffer();
}

async function start() {
  postMessage({ progress: "loading" });
  const started = await startPython(new URL("./pyodide/", import.meta.url).href, load("./engine.zip"));
  postMessage({ progress: "working" });
  return started;
}

const python = start();
const vocabularies = new Map(); // name -> promise of the answer; only what is used is loaded

function addVocabulary(name) {
  if (!vocabularies.has(name)) {
    const added = load(`./vocabularies/${encodeURIComponent(name)}.json.gz`)
      .then((bytes) => unpackVocabulary(new Uint8Array(bytes)))
      .then(async (files) => (await python).addTokenizer(name, files));
    added.catch(() => vocabularies.delete(name)); // a later question tries again
    vocabularies.set(name, added);
  }
  return vocabularies.get(name);
}

async function answer({ verb, body, vocabulary }) {
  if (verb === "add_tokenizer") return (await python).addTokenizer(body.name, body.files, body.language);
  if (vocabulary) {
    const added = await addVocabulary(vocabulary);
    if (added.error) return added;
  }
  return (await python).call(verb, body);
}

onmessage = async ({ data }) => {
  let found;
  try {
    found = await answer(data);
  } catch (error) {
    const message = `the engine failed: ${String(error.message || error).trim().split("\n").at(-1)}`;
    found = { error: { message, text: message } };
  }
  postMessage({ number: data.number, answer: found });
};
