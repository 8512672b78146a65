// A tokenizer.json in this browser, encoded by Hugging Face's tokenizers.js; browser_tokenizer.py is the other half.
//
// The library looks for added tokens in any text. Here it never does: its table of them stays empty, so whatever it is
// given is plain text, and which text may become a control token is decided by turnwise.
import { Tokenizer } from "./tokenizers/tokenizers.min.mjs";

const NO_PARTS = { normalizer: null, pre_tokenizer: null, post_processor: null, decoder: null, added_tokens: [] };
const NO_WORDS = { type: "BPE", vocab: {}, merges: [] };
// What ByteLevel splits by. The library has it with JavaScript's \s, which is not that of Unicode; a Split it translates.
const WORDS = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
// The library knows two behaviours of a Split. The others are patterns whose matches are the parts: m is a match, o one character that begins none.
const BEHAVIOURS = {
  MergedWithPrevious: (m, o) => `${o}*${m}|${o}+`,
  MergedWithNext: (m, o) => `${m}${o}*|${o}+`,
  Contiguous: (m, o) => `(?:${m})+|${o}+`,
};

// Return the vocabulary of a tokenizer.json, given as text or as data.
export function readVocabulary(file) {
  const { normalizer = null, pre_tokenizer = null, added_tokens = [], model } = typeof file === "string" ? JSON.parse(file) : file;
  const { vocab, merges, ...facts } = model;
  const words = new Tokenizer({ ...NO_PARTS, model: { ...model, type: "BPE" } }, {}).model;
  return {
    // All but the vocabulary, as JSON.
    parts: JSON.stringify({ normalizer, pre_tokenizer, added_tokens, model: { ...facts, size: words.tokens_to_ids.size } }),
    id: (spelling) => words.tokens_to_ids.get(spelling),
    token: (id) => words.vocab[id],
    // The ids of one word as it is.
    encodeWord: (word) => words([word]).map((token) => words.tokens_to_ids.get(token)),
    // A function from plain text to ids; normalizer and pre-tokenizer are given as JSON.
    makeEncoder(normalizing, splitting) {
      const parts = { normalizer: JSON.parse(normalizing), pre_tokenizer: translate(JSON.parse(splitting)) };
      const encoder = new Tokenizer({ ...NO_PARTS, ...parts, model: NO_WORDS }, {});
      encoder.model = words;
      return (plain) => encoder.encode(plain, { add_special_tokens: false }).ids;
    },
  };
}

// Return a pre-tokenizer that splits in the library as the given one does in `tokenizers`.
function translate(part) {
  switch (part?.type) {
    case "Sequence":
      return { ...part, pretokenizers: part.pretokenizers.map(translate) };
    case "ByteLevel": {
      const bytes = { ...part, add_prefix_space: false, use_regex: false };
      return sequence([
        part.add_prefix_space !== false && { type: "Replace", pattern: { Regex: "\\A(?! )" }, content: " " },
        part.use_regex !== false && isolate(WORDS),
        bytes,
      ]);
    }
    case "Metaspace": {
      const scheme = part.prepend_scheme ?? (part.add_prefix_space === false ? "never" : "always");
      const spaces = { ...part, prepend_scheme: scheme };
      return sequence([spaces, part.split !== false && splitLike("MergedWithNext", part.replacement)]);
    }
    case "Digits":
      return part.individual_digits ? isolate("\\p{N}") : splitLike("Contiguous", "\\p{N}");
    case "Split":
      return splitLike(part.behavior, part.pattern.Regex ?? part.pattern.String.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&"), part);
    default:
      return part;
  }
}

function splitLike(behaviour, pattern, otherwise) {
  const write = BEHAVIOURS[behaviour];
  return write ? isolate(write(`(?:${pattern})`, `(?:(?!${pattern})[\\s\\S])`)) : otherwise;
}

function isolate(pattern) {
  return { type: "Split", pattern: { Regex: pattern }, behavior: "Isolated", invert: false };
}

function sequence(parts) {
  return { type: "Sequence", pretokenizers: parts.filter(Boolean) };
}
