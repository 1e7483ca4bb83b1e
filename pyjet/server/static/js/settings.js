/** The user's settings, over those that the server was started with (--ui-config). */

import { FIELDS, jsonProblem } from "./setting_fields.js";

const NAME = "settings";

export class Settings {
  #storage;
  #own;
  #servers = {};

  constructor(storage) {
    this.#storage = storage;
    this.#own = storage.read(NAME) ?? {};
  }

  /** `ui_settings` of the server's /props: what applies where the user has set nothing. */
  set servers(values) {
    this.#servers = values ?? {};
  }

  /** The setting, or undefined when there is none; a value of a wrong kind counts as none. */
  get(name) {
    const field = FIELDS.find((one) => one.name === name);
    const made = [this.#own[name], this.#servers[name]].find((value) => isValid(field, value));
    return made ?? field.standard;
  }

  /** What the user set, by name. */
  get own() {
    return { ...this.#own };
  }

  /** Replace all that the user set. */
  replace(values) {
    this.#own = values;
    this.#storage.write(NAME, values);
  }

  /** The value of a JSON setting, or undefined. */
  json(name) {
    const text = this.get(name);
    return text?.trim() ? JSON.parse(text) : undefined;
  }
}

function isValid(field, value) {
  switch (field.kind) {
    case "number":
    case "whole":
      return typeof value === "number" && Number.isFinite(value);
    case "check":
      return typeof value === "boolean";
    case "choice":
      return typeof value === "string" && value in field.choices;
    case "json":
      return typeof value === "string" && !jsonProblem(field, value);
    default:
      return typeof value === "string";
  }
}
