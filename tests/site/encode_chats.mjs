// Answer requests as the static page does, with its own engine, in Node: one line of JSON for each.
//
//     node encode_chats.mjs build/site VOCABULARY < requests
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [site, vocabulary] = process.argv.slice(2);
const { startPython, unpackVocabulary } = await import(pathToFileURL(`${site}/python.mjs`));
const python = await startPython(`${site}/pyodide/`, new Uint8Array(readFileSync(`${site}/engine.zip`)).buffer);
const files = await unpackVocabulary(new Uint8Array(readFileSync(`${site}/vocabularies/${vocabulary}.json.gz`)));
const added = python.addTokenizer(vocabulary, files);
if (added.error) throw new Error(added.error.text);
for await (const line of createInterface({ input: process.stdin })) {
  const { input_ids, control, defused, offsets, error } = python.call("encode", { ...JSON.parse(line), tokenizer: vocabulary });
  console.log(JSON.stringify({ input_ids, control, defused, offsets, error: error?.message }));
}
