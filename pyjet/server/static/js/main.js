/** The page: puts its parts together and does what the user asks for. */

import { activity } from "./answer.js";
import { Answers } from "./answers.js";
import { Api } from "./api.js";
import { Composer } from "./composer.js";
import { Conversations, title } from "./conversations.js";
import { button } from "./dom.js";
import { explain } from "./explain.js";
import { KeyDialog } from "./key_dialog.js";
import { LogView } from "./log_view.js";
import { ModelChoice } from "./model_choice.js";
import { count } from "./numbers.js";
import { Server } from "./server.js";
import { Settings } from "./settings.js";
import { SettingsDialog } from "./settings_dialog.js";
import { Sidebar } from "./sidebar.js";
import { SlotsView } from "./slots_view.js";
import { Storage } from "./storage.js";

const KEY = "key";

class Page {
  #storage = new Storage((text) => this.#notify(text));
  #api = new Api();
  #settings = new Settings(this.#storage);
  #conversations = new Conversations(this.#storage);
  #answers = new Answers(this.#api, this.#conversations, this.#settings, {
    onChange: (conversation) => this.#changed(conversation),
    onEnd: (conversation, message) => this.#ended(conversation, message),
  });
  #server = new Server(this.#api, () => this.#serverChanged());
  #models = new ModelChoice(this.#storage);
  #slots = new SlotsView(this.#api);
  #key = new KeyDialog((key) => this.#useKey(key));
  #dialog = new SettingsDialog(this.#settings, () => this.#applySettings());
  #log = new LogView(document.getElementById("log"), this.#settings, {
    edit: (message) => this.#composer.edit(message),
    retry: (message) => this.#retry(message),
    answerNow: () => this.#answerNow(),
    sendResults: (message, texts) => this.#sendResults(message, texts),
  });
  #composer = new Composer(document.getElementById("composer"), this.#settings, {
    onSend: (text, edited) => this.#send(text, edited),
    onStop: () => this.#stop(),
  });
  #sidebar = new Sidebar({
    onNew: () => this.#open(this.#conversations.create()),
    onOpen: (id) => this.#open(this.#conversations.get(id)),
    onDelete: (id) => this.#delete(id),
  });
  #current = null;
  #shownChats = "";
  #isDue = false;

  start() {
    this.#api.key = this.#storage.read(KEY) ?? "";
    this.#open(this.#conversations.get(location.hash.slice(1)) ?? this.#conversations.create());
    this.#applySettings();
    this.#storage.onChange((name) => this.#changedElsewhere(name));
    document.addEventListener("keydown", (event) => this.#onKey(event));
    document.getElementById("open-settings").addEventListener("click", () => this.#dialog.open(this.#defaults));
    this.#server.connect();
  }

  // conversations

  #open(conversation) {
    this.#current = conversation;
    this.#log.show(conversation);
    this.#composer.reset();
    this.#composer.focus();
    this.#update();
  }

  #delete(id) {
    const conversation = this.#conversations.get(id);
    this.#conversations.remove(id);
    this.#answers.stop(conversation);
    if (conversation === this.#current) this.#open(this.#conversations.create());
    else this.#update();
  }

  /** Another tab changed something; what is being written here stays. */
  #changedElsewhere(name) {
    const id = this.#conversations.idOf(name);
    if (id === null || this.#answers.isRunning(this.#conversations.get(id))) return;
    this.#conversations.reload(id);
    if (id === this.#current.id) {
      this.#current = this.#conversations.get(id) ?? this.#conversations.create();
      this.#composer.cancelEdit();
      this.#log.show(this.#current);
    }
    this.#update();
  }

  // messages

  #send(text, edited) {
    if (edited) this.#cutAt(edited);
    this.#current.messages.push({ role: "user", content: text });
    this.#answer();
  }

  #sendResults(message, texts) {
    message.calls.forEach(({ id, name }, i) =>
      this.#current.messages.push({ role: "tool", callId: id, name, content: texts[i] }),
    );
    this.#answer();
  }

  #retry(message) {
    const isLast = this.#current.messages.at(-1) === message;
    if (!isLast && !confirm("A new answer replaces this one and all that follows it. Go on?")) return;
    this.#answers.stop(this.#current);
    this.#cutAt(message);
    this.#answer();
  }

  /** Drop a message and what follows it. */
  #cutAt(message) {
    const i = this.#current.messages.indexOf(message);
    if (i >= 0) this.#current.messages.length = i;
  }

  #answer() {
    this.#notify("");
    history.replaceState(null, "", `#${this.#current.id}`);
    this.#answers.start(this.#current, this.#models.current?.id);
    this.#update();
    this.#log.scrollToEnd();
    this.#composer.focus();
  }

  #stop() {
    this.#answers.stop(this.#current);
  }

  async #answerNow() {
    try {
      await this.#answers.answerNow(this.#current);
    } catch (error) {
      this.#notify(explain(error).text);
    }
  }

  #changed(conversation) {
    if (conversation === this.#current) this.#log.refresh();
    this.#updateSoon();
  }

  #ended(conversation, message) {
    this.#changed(conversation);
    if (message.state === "failed") this.#server.connect(); // it may be gone, loading again, or want another key
  }

  // the server

  #serverChanged() {
    const { state } = this.#server;
    this.#notify("");
    if (state === "ready") this.#becomeReady();
    if (state === "locked") {
      this.#notify("The server asks for an API key. ", button("Enter it", () => this.#key.ask(), { className: "" }));
      this.#key.ask();
    }
    this.#update();
  }

  #becomeReady() {
    this.#key.accept();
    this.#settings.servers = this.#server.props.ui_settings;
    this.#applySettings();
    this.#models.update(this.#server.models);
    this.#slots.setOffered(this.#server.props.endpoint_slots !== false);
    this.#answers.resumeAll();
  }

  #useKey(key) {
    this.#api.key = key;
    this.#storage.write(KEY, key);
    this.#server.connect();
  }

  /** What the server does where a request says nothing. */
  get #defaults() {
    return this.#server.props.default_generation_settings?.params ?? {};
  }

  // what is shown

  /** Before the next frame; tokens may come faster. */
  #updateSoon() {
    if (this.#isDue) return;
    this.#isDue = true;
    requestAnimationFrame(() => {
      this.#isDue = false;
      this.#update();
    });
  }

  #update() {
    const isBusy = this.#answers.isRunning(this.#current);
    this.#composer.setState({ isBusy, isReady: this.#server.state === "ready" });
    this.#setText("state", this.#stateText());
    document.title = this.#current.messages.length ? `${title(this.#current)} · pyjet` : "pyjet";
    this.#updateSidebar();
  }

  /** Only when something in it has changed: a list that is made anew loses the keyboard's place. */
  #updateSidebar() {
    const chats = this.#conversations.all();
    const isBusy = (id) => this.#answers.isRunning(this.#conversations.get(id));
    const shown = JSON.stringify([this.#current.id, chats.map((one) => [one.id, title(one), isBusy(one.id)])]);
    if (shown === this.#shownChats) return;
    this.#shownChats = shown;
    this.#sidebar.update(chats, this.#current.id, isBusy);
  }

  #stateText() {
    if (this.#server.words) return this.#server.words;
    const last = this.#current.messages.at(-1);
    if (last?.state === "running") return activity(last);
    const room = this.#models.current?.meta?.n_ctx;
    if (!last?.timings || !room) return "Ready. Enter sends, Shift+Enter starts a new line, Escape stops an answer.";
    const { cache_n: cached, prompt_n: read, predicted_n: made } = last.timings;
    return `Ready. The conversation takes ${count(cached + read + made)} of ${count(room)} tokens.`;
  }

  #setText(id, text) {
    const node = document.getElementById(id);
    if (node.textContent !== text) node.textContent = text; // screen readers say it each time
  }

  #notify(...parts) {
    const node = document.getElementById("notice");
    node.replaceChildren(...parts);
    node.hidden = !node.textContent;
  }

  #applySettings() {
    const theme = this.#settings.get("theme");
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    this.#log.refresh();
  }

  #onKey(event) {
    if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
    if (this.#answers.isRunning(this.#current)) this.#stop();
    else this.#composer.cancelEdit();
  }
}

new Page().start();
