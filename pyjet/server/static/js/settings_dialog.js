/** The dialog in which settings are made. */

import { element } from "./dom.js";
import { FIELDS, GROUPS, jsonProblem } from "./setting_fields.js";

const RANDOM_SEED = 2 ** 32 - 1;

export class SettingsDialog {
  #dialog = document.getElementById("settings");
  #fields = document.getElementById("settings-fields");
  #settings;
  #onSave;

  /** `onSave()`: the settings have changed. */
  constructor(settings, onSave) {
    this.#settings = settings;
    this.#onSave = onSave;
    this.#dialog.querySelector("form").addEventListener("submit", () => this.#save(this.#values()));
    this.#on("cancel-settings", () => this.#dialog.close());
    this.#on("reset-settings", () => {
      this.#save({});
      this.#dialog.close();
    });
  }

  /** `defaults`: what the server does where nothing is set, by name. */
  open(defaults) {
    this.#fields.replaceChildren(...GROUPS.map((group) => this.#group(group, defaults)));
    this.#dialog.showModal();
  }

  #on(id, action) {
    document.getElementById(id).addEventListener("click", action);
  }

  #save(values) {
    this.#settings.replace(values);
    this.#onSave();
  }

  #group({ title, fields }, defaults) {
    const labels = fields.map((field) => labelled(field, input(field, this.#settings.get(field.name), defaults)));
    return element("fieldset", {}, element("legend", {}, title), ...labels);
  }

  /** What the user wants otherwise than the page or the server do by themselves. */
  #values() {
    const values = {};
    for (const field of FIELDS) {
      const value = valueOf(field, this.#fields.querySelector(`[name="${field.name}"]`));
      const wasSet = field.name in this.#settings.own;
      if (value !== undefined && (wasSet || value !== this.#settings.get(field.name))) values[field.name] = value;
    }
    return values;
  }
}

function labelled(field, node) {
  if (field.kind === "check") return element("label", { className: "check" }, node, field.label);
  const hint = field.hint ? element("small", {}, field.hint) : null;
  if (field.kind === "json") {
    node.addEventListener("input", () => {
      const problem = jsonProblem(field, node.value);
      node.setCustomValidity(problem);
      hint.textContent = problem || field.hint;
      hint.classList.toggle("wrong", problem !== "");
    });
  }
  return element("label", { className: field.wide ? "wide" : "" }, field.label, node, hint);
}

function input(field, value, defaults) {
  const { name } = field;
  switch (field.kind) {
    case "check":
      return element("input", { type: "checkbox", name, checked: value });
    case "choice":
      return choice(field, value);
    case "number":
    case "whole": {
      const placeholder = defaultText(defaults[name]);
      const step = field.kind === "whole" ? "1" : "any";
      const limits = { min: field.min, max: field.max };
      return element("input", { type: "number", name, step, placeholder, ...limits, value: value ?? "" });
    }
    default:
      return element("textarea", { name, rows: 3, spellcheck: field.kind === "text", value: value ?? "" });
  }
}

/** The server's default without the noise of its 32-bit numbers. */
function defaultText(value) {
  if (typeof value !== "number") return "";
  return value === RANDOM_SEED ? "-1" : String(Number(value.toPrecision(6)));
}

function choice({ name, choices }, value) {
  const options = Object.entries(choices).map(([key, text]) => element("option", { value: key }, text));
  const node = element("select", { name }, ...options);
  node.value = value ?? "";
  return node;
}

/** What stands in an input; undefined for no number. */
function valueOf(field, node) {
  if (field.kind === "check") return node.checked;
  if (field.kind !== "number" && field.kind !== "whole") return node.value;
  return node.value === "" ? undefined : Number(node.value);
}
