/** Where messages are written. */

export class Composer {
  #form;
  #text;
  #send;
  #stop;
  #editing;
  #settings;
  #onSend;
  #edited = null;

  /** `onSend(text, edited)`: `edited` is the message that the text replaces, or null. `onStop()`. */
  constructor(form, settings, { onSend, onStop }) {
    this.#form = form;
    this.#settings = settings;
    this.#onSend = onSend;
    [this.#text, this.#send, this.#stop, this.#editing] = ["text", "send", "stop", "editing"].map((id) =>
      document.getElementById(id),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
    this.#text.addEventListener("keydown", (event) => this.#onKey(event));
    this.#stop.addEventListener("click", onStop);
    document.getElementById("cancel-edit").addEventListener("click", () => this.cancelEdit());
  }

  /** Whether an answer is being made, which can be stopped; and whether the server takes messages. */
  setState({ isBusy, isReady }) {
    const hadFocus = document.activeElement === (isBusy ? this.#send : this.#stop);
    this.#stop.hidden = !isBusy;
    this.#send.hidden = isBusy;
    this.#send.disabled = !isReady;
    if (hadFocus) this.#text.focus(); // a button that goes takes the focus with it
  }

  /** Write a message of the user anew. */
  edit(message) {
    this.#edited = message;
    this.#editing.hidden = false;
    this.#text.value = message.content;
    this.focus();
  }

  /** Leave the earlier message as it is, if one is being edited. */
  cancelEdit() {
    if (this.#edited) this.reset();
  }

  /** Empty, and nothing is being edited. */
  reset() {
    this.#edited = null;
    this.#editing.hidden = true;
    this.#text.value = "";
  }

  focus() {
    this.#text.focus();
  }

  #onKey(event) {
    if (event.key !== "Enter" || event.isComposing || event.shiftKey || event.altKey) return;
    if (!this.#settings.get("sendOnEnter") && !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    this.#submit();
  }

  #submit() {
    const text = this.#text.value;
    if (!text.trim() || this.#send.hidden || this.#send.disabled) return;
    const edited = this.#edited;
    this.reset();
    this.#onSend(text, edited);
  }
}
