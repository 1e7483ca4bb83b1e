/** What the page knows about the server: whether it is ready, its models and its properties. */

import { explain, isLoading } from "./explain.js";

const RETRY_MS = 1000;

export class Server {
  /** "connecting", "loading", "locked" (the key is wrong), "away" or "ready" */
  state = "connecting";
  models = [];
  props = {};
  problem = ""; // why it is "away"
  #api;
  #onChange;
  #isLooking = false;

  /** `onChange()`: one of the fields has changed. */
  constructor(api, onChange) {
    this.#api = api;
    this.#onChange = onChange;
  }

  /** Look until the server is ready or asks for a key. */
  async connect() {
    if (this.#isLooking) return;
    this.#isLooking = true;
    while (!(await this.#look())) await new Promise((done) => setTimeout(done, RETRY_MS));
    this.#isLooking = false;
  }

  /** Whether looking again is of no use. */
  async #look() {
    try {
      await this.#api.json("health");
      const models = await this.#api.json("v1/models");
      this.props = await this.#api.json("props");
      this.models = models.data;
      this.#become("ready");
      return true;
    } catch (error) {
      this.#become(error.status === 401 ? "locked" : isLoading(error) ? "loading" : "away", explain(error).text);
      return error.status === 401;
    }
  }

  #become(state, problem = "") {
    this.state = state;
    this.problem = problem;
    this.#onChange();
  }

  /** The entry of `/v1/models` with that id; the first one when there is none. */
  model(id) {
    return this.models.find((one) => one.id === id) ?? this.models[0];
  }

  /** The state in words; "" when ready. */
  get words() {
    return {
      connecting: "Connecting…",
      loading: "The model is loading…",
      locked: "The server asks for an API key.",
      away: `${this.problem} Trying again…`,
      ready: "",
    }[this.state];
  }
}
