// The tabs text, tokens and loss: one rendering, looked at in three ways.
// Python counts characters by code point, so texts are arrays of code points here.
import { copyButton, el, labelled, select, visible } from "./dom.js";
import { t } from "./i18n.js";
import { requestOf, tokenizerOf } from "./state.js";

const POLICIES = ["assistant", "last", "content", "reasoning", "marked", "all"];
const COLOURS = 8;

export const textTab = {
  verb: "render",
  body: requestOf,
  // The number of tokens comes after the text: for it a vocabulary must be there.
  async complete({ state, api }, isCurrent) {
    const answer = await api("encode", encodeBody(state));
    const box = document.getElementById("length");
    if (!isCurrent() || !box) return;
    if (answer.error) return box.replaceChildren(box.firstChild);
    drawLength(box, answer.input_ids.length, state);
  },
  draw(answer, { state, showPlace, change }) {
    const origin = el("dl", { class: "origin", id: "origin", "aria-live": "polite" });
    const pieces = answer.pieces.map((piece, index) => el("span", { class: classOf(piece), "data-piece": index }, piece.text));
    const text = el("pre", { class: "rendered", id: "rendered", tabindex: 0, "aria-label": t("tabText") }, pieces);
    const cursor = makeCursor(answer.pieces, text, (piece, offset) => showOrigin(origin, piece, offset, showPlace));
    text.addEventListener("click", (event) => cursor.moveTo(event));
    text.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step) { event.preventDefault(); cursor.step(step); }
    });
    const count = Array.from(answer.text).length;
    const length = el("p", { class: "count", id: "length" }, el("span", {}, `${count.toLocaleString("en")} ${t("characters")}`), el("span", { id: "tokens-there" }, t("counting")));
    return [
      el("div", { class: "bar" }, length, copyButton(t("copy"), t("copied"), () => answer.text)),
      legend(state.messages, answer.pieces), text, origin,
      el("p", { class: "hint" }, t("textHelp")),
      answer.changes.length ? el("details", { class: "card", open: true }, el("summary", {}, t("changes")), el("ul", {}, answer.changes.map((one) => el("li", {}, one)))) : null,
    ];
  },
};

// "57 tokens (qwen3) · $0.000023 at $ [0.40] per million"
function drawLength(box, count, state) {
  const price = el("input", { id: "price", type: "number", min: 0, step: "any", placeholder: "0.00", "aria-label": t("price") });
  price.value = state.price;
  const cost = el("output", { id: "cost", for: "price" });
  const show = () => {
    const value = count * Number(state.price) / 1e6;
    cost.textContent = state.price && Number.isFinite(value) ? `= $${value.toPrecision(3)}` : "";
  };
  price.addEventListener("input", () => { state.price = price.value; show(); });
  show();
  const tokens = el("span", { id: "tokens-there" }, el("b", {}, count.toLocaleString("en")), ` ${t("count")} (${tokenizerOf(state)})`);
  box.replaceChildren(tokens, box.firstChild, el("label", { class: "price" }, "× $", price, t("perMillion")), cost);
}

function classOf(piece) {
  if (piece.kind === "template") return "p-template";
  const colour = piece.message === null ? "" : ` m${piece.message % COLOURS}`;
  return `${piece.kind === "field" ? "p-field" : "p-computed"}${colour}`;
}

function legend(messages, pieces) {
  const isOther = pieces.some((piece) => piece.kind !== "template" && piece.message === null);
  return el("div", { class: "legend" }, el("span", { class: "p-template" }, t("fromTemplate")), isOther ? el("span", {}, t("fromInput")) : null,
    messages.slice(0, 24).map((message, index) => el("span", { class: `p-field m${index % COLOURS}` }, `${index} ${message.role ?? ""}`)));
}

// A position in the pieces, moved by the mouse or by keys.
function makeCursor(pieces, text, onMove) {
  let piece = -1;
  let offset = 0;
  const lengths = pieces.map((one) => Array.from(one.text).length);

  function show() {
    for (const old of text.querySelectorAll(".here")) old.classList.remove("here");
    text.children[piece]?.classList.add("here");
    onMove(pieces[piece], offset);
  }
  return {
    moveTo(event) {
      const target = event.target.closest("[data-piece]");
      if (!target) return;
      piece = Number(target.dataset.piece);
      const place = document.caretPositionFromPoint?.(event.clientX, event.clientY);
      const units = place && place.offsetNode.parentNode === target ? place.offset : 0;
      offset = Math.min(Array.from(pieces[piece].text.slice(0, units)).length, lengths[piece] - 1);
      show();
    },
    step(step) {
      if (!pieces.length) return;
      if (piece < 0) { piece = 0; offset = 0; return show(); }
      offset += step;
      if (offset >= lengths[piece] && piece < pieces.length - 1) { piece += 1; offset = 0; }
      if (offset < 0 && piece > 0) { piece -= 1; offset = lengths[piece] - 1; }
      offset = Math.max(0, Math.min(offset, lengths[piece] - 1));
      show();
    },
  };
}

function showOrigin(box, piece, offset, showPlace) {
  const character = Array.from(piece.text)[offset] ?? "";
  const rows = [[t("character"), `${visible(character)}  U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}`]];
  if (piece.kind === "template") {
    rows.push([t("origin"), `${t("fromTemplate")}, ${t("place", piece)}`]);
  } else if (piece.kind === "field") {
    rows.push([t("origin"), `${t("fromField")} ${piece.path ?? ""}, ${t("character")} ${offset}`]);
  } else {
    rows.push([t("origin"), `${t("fromComputed")} ${piece.sources.join(", ") || piece.path || "?"}`]);
  }
  if (piece.line && piece.kind !== "template") rows.push([t("fromTemplate"), t("place", piece)]);
  if (piece.line) showPlace(piece.line, piece.column);
  box.replaceChildren(...rows.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

// -- tokens

function encodeBody(state) {
  return { ...requestOf(state), tokenizer: tokenizerOf(state), train_on: state.train_on };
}

// The tokens with the text that each covers; a token that shares a character shows its own spelling.
function listTokens(answer) {
  const characters = Array.from(answer.text);
  const control = new Set(answer.control);
  let done = 0;
  let span = 0;
  return answer.input_ids.map((id, index) => {
    const [start, end] = answer.offsets[index];
    const isOwn = start >= done && end > start;
    done = Math.max(done, end);
    while (span < answer.defused.length && answer.defused[span][1] <= start) span += 1;
    const forged = answer.defused[span];
    return {
      id, index,
      text: isOwn ? characters.slice(start, end).join("") : answer.tokens[index],
      isControl: control.has(index),
      isDefused: Boolean(forged) && start < forged[1] && end > forged[0],
      isTrained: answer.labels[index] !== -100,
      owner: answer.owners[index],
    };
  });
}

function chip(token, className, withId) {
  const owner = token.owner.field ?? t("fromTemplate");
  const title = `${token.index}: ${token.id} ${JSON.stringify(token.text)} · ${owner}${token.isControl ? ` · ${t("control")}` : ""}${token.isDefused ? ` · ${t("defused")}` : ""}`;
  const made = el("span", { class: `chip ${className}`, title }, el("span", { class: "t" }, visible(token.text)), withId ? el("span", { class: "id" }, token.id) : null);
  return token.text.endsWith("\n") ? [made, el("br")] : [made];
}

export const tokensTab = {
  verb: "encode",
  body: encodeBody,
  draw(answer, { state }) {
    const tokens = listTokens(answer);
    const chips = tokens.flatMap((token) => {
      const { field, message } = token.owner;
      const colour = field !== null && message !== null ? `m${message % COLOURS}` : "p-template";
      const marks = `${token.isControl ? " control" : ""}${token.isDefused ? " defused" : ""}`;
      return chip(token, colour + marks, true);
    });
    return [
      el("div", { class: "bar" }, el("span", { class: "hint" }, t("tokensHelp")), copyButton(`${t("copy")} ${t("ids")}`, t("copied"), () => JSON.stringify(answer.input_ids))),
      el("p", { class: "count", id: "token-count" }, `${tokens.length} ${t("count")} (${tokenizerOf(state)}) · ${answer.control.length} ${t("controls")} · ${answer.defused.length} ${t("defused")}`),
      el("div", { class: "chips", id: "chips" }, chips),
    ];
  },
};

export const lossTab = {
  verb: "encode",
  body: encodeBody,
  draw(answer, { state, change }) {
    const tokens = listTokens(answer);
    const trained = tokens.filter((token) => token.isTrained).length;
    const policy = select({ id: "train-on" }, POLICIES, state.train_on);
    policy.addEventListener("change", () => { state.train_on = policy.value; change(); });
    return [
      el("div", { class: "bar" }, labelled(t("trainOn"), policy), el("span", { class: "hint" }, t("lossHelp"))),
      el("p", { class: "count", id: "loss-count" }, `${trained} / ${tokens.length} ${t("trained")}`),
      el("div", { class: "chips", id: "chips" }, tokens.flatMap((token) => chip(token, token.isTrained ? "trained" : "masked", false))),
      answer.untrained.length ? el("section", { class: "card" }, el("h3", {}, t("untrained")), el("ul", {}, answer.untrained.map((one) => el("li", {}, `messages[${one.message}]: ${one.reason}`)))) : null,
    ];
  },
};
