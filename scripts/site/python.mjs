// The engine: CPython in WebAssembly (Pyodide), with the vocabularies that JavaScript has read. engine.js runs it in a
// worker of the page, a test in Node.
import { loadPyodide } from "./pyodide/pyodide.mjs";
import { readVocabulary } from "./vocabulary.mjs";

const START = `
import json, os, sys, time
from pathlib import Path
if not hasattr(time, "thread_time"):  # WebAssembly has one thread, and no clock of it
    time.thread_time = time.process_time
sys.path.insert(0, "/engine")
from turnwise.errors import TurnwiseError
from turnwise.languages import translate_answer
from turnwise.serve.playground_api import call, describe_error

RESOURCES = {"templates": {}, "tokenizers": {}}

def add_tokenizer(name, vocabulary, files, language):
    from browser_tokenizer import BrowserTokenizer
    from turnwise.tokens.tokenizers.special_tokens_config import CONFIG_FILES, read_declarations
    folder = Path("/tokenizers") / str(len(RESOURCES["tokenizers"]))
    folder.mkdir(parents=True)
    for file, text in json.loads(files).items():
        if file in CONFIG_FILES:
            (folder / file).write_text(text, encoding="utf-8")
    try:
        declared = read_declarations(folder)
        RESOURCES["tokenizers"][name] = BrowserTokenizer(vocabulary, name=name, declared=declared)
    except TurnwiseError as error:
        answer = {"error": describe_error(error)}
        return json.dumps(translate_answer(answer, {"language": language}))
    return json.dumps({"name": name})

def answer(verb, text):
    return json.dumps(call(verb, json.loads(text), RESOURCES))

(answer, add_tokenizer)
`;

// Start Python; `archive` is engine.zip, or a promise of it.
export async function startPython(indexURL, archive) {
  const [pyodide, engine] = await Promise.all([loadPyodide({ indexURL }), archive]);
  pyodide.unpackArchive(engine, "zip", { extractDir: "/engine" });
  const [answer, addTokenizer] = pyodide.runPython(START).toJs();
  return {
    call: (verb, body) => JSON.parse(answer(verb, JSON.stringify(body))),
    // Files by their names, as texts; tokenizer.json may be data. It stays here, Python has the small ones.
    addTokenizer(name, { "tokenizer.json": vocabulary, ...files }, language = "en") {
      let read;
      try {
        read = readVocabulary(vocabulary);
      } catch (error) {
        const message = `${name} is not a tokenizer.json: ${error.message}`;
        return { error: { message, text: message } };
      }
      return JSON.parse(addTokenizer(name, read, JSON.stringify(files), language));
    },
  };
}

// The files of a vocabulary of this site, of its packed bytes.
export async function unpackVocabulary(bytes) {
  const isPacked = bytes[0] === 0x1f && bytes[1] === 0x8b; // some hosts have unpacked it on the way
  const stream = new Blob([bytes]).stream();
  const files = await new Response(isPacked ? stream.pipeThrough(new DecompressionStream("gzip")) : stream).json();
  return Object.fromEntries(Object.entries(files).map(([name, data]) => [name, name === "tokenizer.json" ? data : JSON.stringify(data)]));
}
