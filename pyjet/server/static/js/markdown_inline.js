/** Markdown, the inner half: the text of a block into nodes. Links lead to web and mail addresses only. */

import { element } from "./dom.js";

const SPECIAL = /[\\`*_~[]|https?:\/\//g;
const PUNCTUATION = /[!-/:-@[-`{-~]/;
const LINK = /^\]\(\s*<?([^\s<>()]*(?:\([^\s<>()]*\)[^\s<>()]*)*)>?(?:\s+"[^"\n]*")?\s*\)/;
const SAFE = /^(https?:\/\/|mailto:)/i;
const TAGS = { "*": "em", _: "em", "**": "strong", __: "strong", "~~": "del" };
const MAX_DEPTH = 6;
const MAX_LABEL = 500;
const MAX_LINK = 2000;
const MAX_LENGTH = 20000; // a longer text is no prose

/** Nodes for a text. `isLabel`: it is that of a link, in which there are no others. */
export function inlineNodes(text, depth = 0, isLabel = false) {
  if (depth > MAX_DEPTH || text.length > MAX_LENGTH) return [document.createTextNode(text)];
  return new Inline(text, depth, isLabel).parse();
}

class Inline {
  #text;
  #depth;
  #isLabel;
  #nodes = [];
  #plain = "";
  #unclosed = new Set(); // marks that have no end in the rest of the text, so that each is looked for once

  constructor(text, depth, isLabel) {
    this.#text = text;
    this.#depth = depth;
    this.#isLabel = isLabel;
  }

  parse() {
    const text = this.#text;
    for (let i = 0; i < text.length; ) {
      SPECIAL.lastIndex = i;
      const found = SPECIAL.exec(text);
      if (!found) {
        this.#plain += text.slice(i);
        break;
      }
      this.#plain += text.slice(i, found.index);
      i = this.#special(found.index);
    }
    this.#flush();
    return this.#nodes;
  }

  /** Take what is at `i`; where the rest begins. */
  #special(i) {
    switch (this.#text[i]) {
      case "\\":
        return this.#escape(i);
      case "`":
        return this.#code(i);
      case "[":
        return this.#link(i);
      case "h":
        return this.#address(i);
      default:
        return this.#emphasis(i);
    }
  }

  #escape(i) {
    const next = this.#text[i + 1];
    const isEscape = next !== undefined && PUNCTUATION.test(next);
    this.#plain += isEscape ? next : "\\";
    return i + (isEscape ? 2 : 1);
  }

  #code(i) {
    const ticks = this.#run(i);
    const end = this.#findTicks(ticks, i + ticks.length);
    if (end < 0) {
      this.#plain += ticks;
      return i + ticks.length;
    }
    const code = this.#text.slice(i + ticks.length, end);
    const isPadded = /^ .*[^ ].* $/s.test(code);
    this.#push(element("code", {}, isPadded ? code.slice(1, -1) : code));
    return end + ticks.length;
  }

  #findTicks(ticks, from) {
    if (this.#unclosed.has(ticks)) return -1;
    for (let i = this.#text.indexOf("`", from); i >= 0; i = this.#text.indexOf("`", i)) {
      const run = this.#run(i);
      if (run === ticks) return i;
      i += run.length;
    }
    this.#unclosed.add(ticks);
    return -1;
  }

  #emphasis(i) {
    const run = this.#run(i);
    const mark = run[0] === "~" ? run : run.slice(0, 2);
    const from = i + mark.length;
    const end = TAGS[mark] && this.#opens(i, from) ? this.#findEnd(mark, from) : -1;
    if (end < 0) {
      this.#plain += run;
      return i + run.length;
    }
    this.#push(element(TAGS[mark], {}, ...this.#inner(from, end)));
    return end + mark.length;
  }

  #inner(from, end, isLabel = this.#isLabel) {
    return inlineNodes(this.#text.slice(from, end), this.#depth + 1, isLabel);
  }

  #opens(i, from) {
    const isInWord = this.#text[i] === "_" && isWord(this.#text[i - 1]);
    return !isInWord && isInk(this.#text[from]);
  }

  #findEnd(mark, from) {
    if (this.#unclosed.has(mark)) return -1;
    const text = this.#text;
    for (let i = from; i < text.length; ) {
      if (text.startsWith(mark, i)) {
        const run = this.#run(i);
        const end = this.#endIn(run, mark, i);
        if (end > from) return end;
        i += run.length;
      } else i = this.#behind(i);
    }
    this.#unclosed.add(mark);
    return -1;
  }

  /** Where the mark begins that ends emphasis, if the run of marks at `i` can do that; else -1. */
  #endIn(run, mark, i) {
    const fits = run.length === mark.length || run.length === 3;
    const isInWord = mark[0] === "_" && isWord(this.#text[i + run.length]);
    // of ***, which ends both kinds, the outer one takes the last part
    return fits && isInk(this.#text[i - 1]) && !isInWord ? i + run.length - mark.length : -1;
  }

  /** The place behind the character at `i`, or behind the whole of an escape or of a piece of code. */
  #behind(i) {
    if (this.#text[i] === "\\") return i + 2;
    if (this.#text[i] !== "`") return i + 1;
    const ticks = this.#run(i);
    const end = this.#findTicks(ticks, i + ticks.length);
    return ticks.length + (end < 0 ? i : end);
  }

  #link(i) {
    const end = this.#labelEnd(i);
    const [whole, address] = (end > 0 && LINK.exec(this.#text.slice(end, end + MAX_LINK))) || [];
    if (!whole || this.#isLabel || !SAFE.test(address)) {
      this.#plain += "[";
      return i + 1;
    }
    if (this.#plain.endsWith("!")) this.#plain = this.#plain.slice(0, -1); // a picture: named, not loaded
    this.#push(link(address, ...(end > i + 1 ? this.#inner(i + 1, end, true) : [address])));
    return end + whole.length;
  }

  #labelEnd(i) {
    let open = 0;
    for (let j = i; j < Math.min(this.#text.length, i + MAX_LABEL); j++) {
      if (this.#text[j] === "[") open++;
      if (this.#text[j] === "]" && --open === 0) return j;
    }
    return -1;
  }

  #address(i) {
    const [whole] = /^[^\s<>"`]*/.exec(this.#text.slice(i, i + MAX_LINK));
    const address = withoutEndMarks(whole);
    if (this.#isLabel || isWord(this.#text[i - 1]) || !/^https?:\/\/[^/]/.test(address)) {
      this.#plain += "h";
      return i + 1;
    }
    this.#push(link(address, address));
    return i + address.length;
  }

  /** The marks of one kind that follow each other at `i`. */
  #run(i) {
    let end = i + 1;
    while (this.#text[end] === this.#text[i]) end++;
    return this.#text.slice(i, end);
  }

  #push(node) {
    this.#flush();
    this.#nodes.push(node);
  }

  #flush() {
    if (this.#plain) this.#nodes.push(document.createTextNode(this.#plain));
    this.#plain = "";
  }
}

/** An address without what belongs to the sentence around it. */
function withoutEndMarks(address) {
  const hasBracket = address.includes("(");
  let end = address.length;
  while (end && (".,;:!?'*_~".includes(address[end - 1]) || (address[end - 1] === ")" && !hasBracket))) end--;
  return address.slice(0, end);
}

function link(address, ...children) {
  return element("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, ...children);
}

function isWord(character) {
  return character !== undefined && /[\p{L}\p{N}]/u.test(character);
}

function isInk(character) {
  return character !== undefined && !/\s/.test(character);
}
