// The engine in this browser: CPython in WebAssembly (Pyodide), in a worker. Only files of this site are read.
import { loadPyodide } from "./pyodide/pyodide.mjs";

const START = `
import json, os, sys, time
if not hasattr(time, "thread_time"):  # WebAssembly has one thread, and no clock of it
    time.thread_time = time.process_time
sys.path.insert(0, "/engine")
from turnwise.serve.playground_api import call
from turnwise.tokens.tokenizers import tokenizer
from turnwise.errors import TurnwiseError
from turnwise.serve.playground_api import describe_error

RESOURCES = {"templates": {}, "tokenizers": {}}

def add_tokenizer(name, files):
    folder = f"/tokenizers/{len(RESOURCES['tokenizers'])}"
    os.makedirs(folder, exist_ok=True)
    for file in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        if file in files:
            with open(f"{folder}/{file}", "w", encoding="utf-8") as opened:
                opened.write(files[file])
    try:
        tokenizer(folder)
    except TurnwiseError as error:
        return {"error": describe_error(error)}
    RESOURCES["tokenizers"][name] = folder
    return {"name": name}

def answer(verb, text):
    body = json.loads(text)
    if verb == "add_tokenizer":
        return json.dumps(add_tokenizer(body["name"], body["files"]))
    return json.dumps(call(verb, body, RESOURCES))

answer
`;

async function start() {
  postMessage({ progress: "loading" });
  const [pyodide, archive] = await Promise.all([
    loadPyodide({ indexURL: new URL("./pyodide/", import.meta.url).href }),
    fetch(new URL("./engine.zip", import.meta.url)).then((answer) => answer.arrayBuffer()),
  ]);
  pyodide.unpackArchive(archive, "zip", { extractDir: "/engine" });
  const answer = pyodide.runPython(START);
  postMessage({ progress: "working" });
  return answer;
}

const engine = start();

onmessage = async ({ data }) => {
  let answer;
  try {
    answer = JSON.parse((await engine)(data.verb, JSON.stringify(data.body)));
  } catch (error) {
    const message = `the engine failed: ${String(error.message || error).trim().split("\n").at(-1)}`;
    answer = { error: { message, text: message } };
  }
  postMessage({ number: data.number, answer });
};
