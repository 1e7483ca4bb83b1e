/** An element that shows Markdown, and keeps what is finished while the text grows. */

import { copyButton, element } from "./dom.js";
import { splitBlocks } from "./markdown_blocks.js";
import { inlineNodes } from "./markdown_inline.js";

const MAX_DEPTH = 8;

export class MarkdownView {
  node = element("div", { className: "markdown" });
  #blocks = [];
  #text = "";

  /** Show `text`; blocks that are as before stay untouched, so that a selection in them stays, too. */
  update(text) {
    if (text === this.#text) return;
    this.#text = text;
    const blocks = splitBlocks(text);
    const shared = blocks.findIndex((block, i) => !isSame(block, this.#blocks[i]));
    const kept = shared < 0 ? Math.min(blocks.length, this.#blocks.length) : shared;
    while (this.node.children.length > kept) this.node.lastElementChild.remove();
    this.node.append(...blocks.slice(kept).map((block) => blockNode(block, 0)));
    this.#blocks = blocks;
  }
}

function isSame(block, other) {
  return other !== undefined && block.type === other.type && block.source === other.source;
}

function blockNode(block, depth) {
  return BUILDERS[block.type](block, depth);
}

const BUILDERS = {
  paragraph: ({ text }) => element("p", {}, ...inlineNodes(text)),
  heading: ({ level, text }) => element(`h${level}`, {}, ...inlineNodes(text)),
  rule: () => element("hr"),
  quote: ({ text }, depth) => element("blockquote", {}, ...innerNodes(text, depth)),
  code: codeNode,
  list: listNode,
  table: tableNode,
};

/** What is inside an item or a quote; beyond a depth that no text needs it is shown as written. */
function innerNodes(text, depth) {
  if (depth >= MAX_DEPTH) return [element("p", {}, text)];
  return splitBlocks(text).map((block) => blockNode(block, depth + 1));
}

function codeNode({ language, text }) {
  const name = language || "text";
  const caption = element("figcaption", {}, element("span", {}, name), copyButton(() => text, "Copy this code"));
  const code = element("pre", { tabIndex: 0, "aria-label": `Code, ${name}` }, element("code", {}, text));
  return element("figure", { className: "code" }, caption, code);
}

function listNode({ isOrdered, number, items }, depth) {
  const nodes = items.map((item) => element("li", {}, ...itemNodes(item, depth)));
  return isOrdered ? element("ol", { start: number }, ...nodes) : element("ul", {}, ...nodes);
}

function itemNodes(item, depth) {
  const box = item.match(/^\[([ xX])\] /);
  const text = box ? item.slice(box[0].length) : item;
  const nodes = innerNodes(text, depth);
  if (!box) return nodes;
  const name = box[1] === " " ? "to do" : "done";
  const mark = element("input", { type: "checkbox", disabled: true, checked: box[1] !== " ", "aria-label": name });
  (nodes[0]?.tagName === "P" ? nodes[0] : element("p")).prepend(mark, " ");
  return nodes;
}

function tableNode({ head, rows, sides }) {
  const row = (tag, texts) =>
    element("tr", {}, ...texts.map((text, i) => element(tag, { className: sides[i] }, ...inlineNodes(text))));
  const body = rows.map((texts) => row("td", texts));
  const table = element("table", {}, element("thead", {}, row("th", head)), element("tbody", {}, ...body));
  return element("div", { className: "table", tabIndex: 0 }, table);
}
