/** Asking for the API key. */

export class KeyDialog {
  #dialog = document.getElementById("key");
  #text = document.getElementById("key-text");
  #hint = document.getElementById("key-hint");
  #wasAsked = false;

  /** `onKey(key)` */
  constructor(onKey) {
    this.#dialog.querySelector("form").addEventListener("submit", () => onKey(this.#text.value.trim()));
  }

  /** Ask; the second time in a row the key that was given was wrong. */
  ask() {
    if (this.#dialog.open) return;
    if (this.#wasAsked) this.#hint.textContent = "The server does not know that key. Check it and enter it again.";
    this.#wasAsked = true;
    this.#text.value = "";
    this.#dialog.showModal();
  }

  /** The key was right. */
  accept() {
    this.#wasAsked = false;
  }
}
