// Fetch a model's template and tokenizer from the hub. Only hub.html may: the policy of index.html allows no other host,
// so the switch goes from one page to the other.
import { MODE } from "./mode.js";

const PAGE = "hub.html";
const FILES = ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "chat_template.json"];
export const MODEL_ID = /^[\w.-]+\/[\w.-]+$/;

export const hubHost = MODE.hub ? new URL(MODE.hub).host : "";
export const isHubAllowed = Boolean(MODE.hub) && location.pathname.endsWith(`/${PAGE}`);

// Allow the hub, or forbid it: go to the other page, with the same state.
export function switchHub(allowed) {
  location.assign(`${allowed ? PAGE : "./"}${location.hash}`);
}

// The files of a model that are there, by name.
export async function fetchModel(id) {
  const found = await Promise.all(FILES.map((name) => fetchFile(id, name)));
  return new Map(found.filter(Boolean).map((file) => [file.name, file]));
}

async function fetchFile(id, name) {
  const answer = await fetch(`${MODE.hub}/${id}/resolve/main/${name}`, { credentials: "omit", referrerPolicy: "no-referrer" });
  if (answer.status === 404) return null;
  if (!answer.ok) throw new Error(`${id}/${name}: status ${answer.status}`);
  return new File([await answer.blob()], name);
}
