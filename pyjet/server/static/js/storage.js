/** JSON values in the browser's storage, apart for every server that shares the origin. */

const PREFIX = `pyjet:${new URL(".", document.baseURI).pathname}:`;

export class Storage {
  #onFailure;

  /** `onFailure(text)`: something cannot be kept, for the user to read. */
  constructor(onFailure) {
    this.#onFailure = onFailure;
  }

  /** The value of that name; null when there is none, or none that can be read. */
  read(name) {
    try {
      return JSON.parse(localStorage.getItem(PREFIX + name));
    } catch {
      return null;
    }
  }

  write(name, value) {
    try {
      localStorage.setItem(PREFIX + name, JSON.stringify(value));
    } catch (error) {
      const isFull = error.name === "QuotaExceededError";
      const reason = isFull ? "it is full; delete conversations you no longer need" : "it is switched off";
      this.#onFailure(`The browser's storage does not take this conversation: ${reason}.`);
    }
  }

  remove(name) {
    try {
      localStorage.removeItem(PREFIX + name);
    } catch {
      // without storage there is nothing to remove
    }
  }

  /** The names that start with `start`. */
  names(start) {
    try {
      return Object.keys(localStorage)
        .filter((key) => key.startsWith(PREFIX + start))
        .map((key) => key.slice(PREFIX.length));
    } catch {
      return [];
    }
  }

  /** Call `listener(name)` when another tab changes a value. */
  onChange(listener) {
    addEventListener("storage", (event) => {
      if (event.key?.startsWith(PREFIX)) listener(event.key.slice(PREFIX.length));
    });
  }
}
