// Compile the modules in the site's engine.zip to bytecode, with the very Python that runs them in the browser: so the
// page starts in half the time.
//
//     node scripts/compile_engine.mjs build/site
import { readFileSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";

const site = resolve(process.argv[2] ?? "build/site");
const archive = `${site}/engine.zip`;
const { loadPyodide } = await import(`${site}/pyodide/pyodide.mjs`);
const pyodide = await loadPyodide({ indexURL: `${site}/pyodide/` });

pyodide.unpackArchive(new Uint8Array(readFileSync(archive)).buffer, "zip", { extractDir: "/engine" });
const data = pyodide.runPython(`
import compileall, io, os, py_compile, zipfile

compiled = compileall.compile_dir(
    "/engine", quiet=1, legacy=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
)
assert compiled, "a module cannot be compiled"
stream = io.BytesIO()
with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as written:
    for folder, _, names in sorted(os.walk("/engine")):
        for name in sorted(names):
            path = os.path.join(folder, name)
            if not name.endswith(".py"):  # its bytecode is there
                entry = zipfile.ZipInfo(os.path.relpath(path, "/engine"), (2020, 1, 1, 0, 0, 0))
                entry.compress_type = zipfile.ZIP_DEFLATED
                with open(path, "rb") as opened:
                    written.writestr(entry, opened.read())
stream.getvalue()
`);
writeFileSync(archive, data.toJs());
console.log(`${archive}: ${(readFileSync(archive).length / 1e6).toFixed(1)} MB of bytecode`);
