// The colours of a Jinja template. What is between the marks is read word by word; texts without marks have one colour.
import { el } from "./dom.js";

const ENDS = { "{#": "#}", "{%": "%}", "{{": "}}" };
const LONGEST = 120_000; // characters; a longer source is left plain, so that typing stays quick
const WORD = /"(?:[^"\\]|\\[\s\S])*"|'(?:[^'\\]|\\[\s\S])*'|[A-Za-z_]\w*|\d+(?:\.\d+)?|\s+|[\s\S]/g;
const KEYWORDS = new Set(("for endfor in if elif else endif set endset macro endmacro call endcall filter endfilter generation endgeneration block endblock "
  + "raw endraw with endwith include import from extends is and or not true false none True False None defined recursive break continue").split(" "));

// Return a template as spans with classes j-*.
export function paintJinja(source) {
  if (source.length > LONGEST) return [source];
  const parts = [];
  let done = 0;
  while (done < source.length) {
    const start = findStart(source, done);
    const mark = source.slice(start, start + 2);
    const end = start < 0 ? -1 : source.indexOf(ENDS[mark], start + 2);
    if (end < 0) break; // the rest is text, or a mark that is not closed yet
    if (start > done) parts.push(el("span", { class: "j-text" }, source.slice(done, start)));
    const inside = source.slice(start, end + 2);
    parts.push(mark === "{#" ? el("span", { class: "j-note" }, inside) : paintCode(inside));
    done = end + 2;
  }
  if (done < source.length) parts.push(el("span", { class: "j-text" }, source.slice(done)));
  return parts;
}

function findStart(source, from) {
  for (let at = source.indexOf("{", from); at >= 0; at = source.indexOf("{", at + 1)) {
    if (Object.hasOwn(ENDS, source.slice(at, at + 2))) return at;
  }
  return -1;
}

function paintCode(code) {
  const marks = /^(\{.[-+]?)([\s\S]*?)([-+]?.\})$/.exec(code);
  const words = marks[2].match(WORD) ?? [];
  return el("span", { class: "j-code" }, el("span", { class: "j-mark" }, marks[1]), words.map((word) => {
    const kind = KEYWORDS.has(word) ? "j-key" : /^["']./.test(word) ? "j-string" : /^\d/.test(word) ? "j-number" : null;
    return kind ? el("span", { class: kind }, word) : word;
  }), el("span", { class: "j-mark" }, marks[3]));
}
