// Compile the Python modules of the site to bytecode, with the very Python that runs them in the browser: the engine's
// own, and the standard library, which npm's package has as source. Compiling that at each start took half of it.
//
//     node scripts/compile_engine.mjs build/site
import { readFileSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";

const site = resolve(process.argv[2] ?? "build/site");
const { loadPyodide } = await import(`${site}/pyodide/pyodide.mjs`);
const pyodide = await loadPyodide({ indexURL: `${site}/pyodide/` });

const COMPILE = `
import compileall, io, os, py_compile, shutil, zipfile

def compile_archive(folder):
    compiled = compileall.compile_dir(
        folder, quiet=1, legacy=True, stripdir=folder, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )
    assert compiled, "a module cannot be compiled"
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as written:
        for place, _, names in sorted(os.walk(folder)):
            for name in sorted(names):
                path = os.path.join(place, name)
                if not name.endswith(".py"):  # its bytecode is there
                    entry = zipfile.ZipInfo(os.path.relpath(path, folder), (2020, 1, 1, 0, 0, 0))
                    entry.compress_type = zipfile.ZIP_DEFLATED
                    with open(path, "rb") as opened:
                        written.writestr(entry, opened.read())
    shutil.rmtree(folder)
    return stream.getvalue()

compile_archive
`;
const compileArchive = pyodide.runPython(COMPILE);

for (const name of ["engine.zip", "pyodide/python_stdlib.zip"]) {
  const archive = `${site}/${name}`;
  pyodide.unpackArchive(new Uint8Array(readFileSync(archive)).buffer, "zip", { extractDir: "/archive" });
  const data = compileArchive("/archive");
  writeFileSync(archive, data.toJs());
  data.destroy();
  console.log(`${archive}: ${(readFileSync(archive).length / 1e6).toFixed(1)} MB of bytecode`);
}

// What a fresh page asks first is answered here, once: the page shows it while the engine starts.
const { DEFAULT_STATE, requestOf, templateOf } = await import(`${site}/state.js`);
const { makeExample } = await import(`${site}/examples.js`);
const { startPython } = await import(`${site}/python.mjs`);
const python = await startPython(`${site}/pyodide/`, new Uint8Array(readFileSync(`${site}/engine.zip`)).buffer);
const answers = {};
for (const language of ["en", "zh"]) {
  const state = { ...DEFAULT_STATE, ...makeExample("chat", language) };
  for (const [verb, body] of [["source", { template: templateOf(state) }], ["render", requestOf(state)]]) {
    answers[`${verb} ${JSON.stringify(body)}`] = python.call(verb, body);
  }
}
writeFileSync(`${site}/first.json`, JSON.stringify(answers));
