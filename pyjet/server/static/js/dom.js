/** Building elements. Text only ever becomes text nodes: nothing that a model writes is parsed as HTML. */

/**
 * An element. `properties` are those of the element, except that names with a dash become attributes, `on` holds
 * event listeners, and undefined values are left out. `children`: nodes and strings; null ones are left out.
 */
export function element(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined) continue;
    if (name === "on") for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    else if (name.includes("-")) node.setAttribute(name, value);
    else node[name] = value;
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** A button that does not send a form. */
export function button(text, onClick, properties = {}) {
  return element("button", { type: "button", className: "plain", ...properties, on: { click: onClick } }, text);
}

/** A button that copies what `text()` gives, and says so for a moment. */
export function copyButton(text, label = "Copy") {
  const node = button("Copy", async () => {
    node.textContent = (await copy(text())) ? "Copied" : "Not copied";
    setTimeout(() => (node.textContent = "Copy"), 1500);
  });
  node.setAttribute("aria-label", label);
  return node;
}

async function copy(text) {
  if (navigator.clipboard) {
    return navigator.clipboard.writeText(text).then(() => true, () => false);
  }
  // pages of plain http hosts other than localhost have no clipboard interface
  const area = element("textarea", { value: text });
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}

/** Text that nobody can guess; `crypto.randomUUID` is missing on plain http. */
export function randomName() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
