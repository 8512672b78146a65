// Build elements. Content is text, always: nothing here, or anywhere on the page, parses HTML.

// el("p", {class: "x", onclick: f}, "text", child, ...) -> element. null and false children are left out.
export function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "value" || key === "checked" || key === "disabled" || key === "selected" || key === "open") made[key] = value;
    else made.setAttribute(key, value === true ? "" : String(value));
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false).map(toNode));
  return made;
}

function toNode(child) {
  return child instanceof Node ? child : document.createTextNode(String(child));
}

export function replaceChildren(parent, ...children) {
  parent.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false).map(toNode));
}

// A button that copies a text.
export function copyButton(label, done, getText) {
  const button = el("button", { type: "button", class: "small" }, label);
  button.addEventListener("click", async () => {
    await copyText(getText());
    button.textContent = done;
    setTimeout(() => { button.textContent = label; }, 1200);
  });
  return button;
}

export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // not allowed here (no HTTPS, or no permission): the old way
    const area = el("textarea", { class: "offscreen" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

export function downloadText(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  const link = el("a", { href: url, download: name });
  link.click();
  URL.revokeObjectURL(url);
}

// A <select>; options are texts or [value, label].
export function select(attributes, options, value) {
  const made = el("select", attributes, options.map((option) => {
    const [key, label] = Array.isArray(option) ? option : [option, option];
    return el("option", { value: key }, label);
  }));
  made.value = value;
  return made;
}

export function labelled(label, control, className = "") {
  return el("label", { class: `field ${className}` }, el("span", {}, label), control);
}

// White space that can be seen, for chips.
export function visible(text) {
  return text.replaceAll(" ", "␣").replaceAll("\n", "⏎").replaceAll("\t", "⇥").replaceAll("\r", "␍");
}
