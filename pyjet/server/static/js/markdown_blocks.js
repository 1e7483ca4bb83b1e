/**
 * Markdown, the outer half: text into blocks. Covers what models write: paragraphs, headings, fenced code, lists,
 * quotes, pipe tables and rules. A block is {type, source, ...}; equal `type` and `source` mean equal blocks.
 */

const FENCE = /^( {0,3})(`{3,}|~{3,})[ \t]*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*)$/;
const RULE = /^ {0,3}([-*_])([ \t]*\1){2,}[ \t]*$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])( +|$)/;
const CELL_RULE = /^:?-+:?$/;

/** The blocks of a text, in order. */
export function splitBlocks(text) {
  const lines = withoutTabs(text.replaceAll("\r\n", "\n").split("\n"));
  const blocks = [];
  for (let i = 0; i < lines.length; ) {
    if (!lines[i].trim()) {
      i++;
      continue;
    }
    const { end, ...block } = blockAt(lines, i);
    blocks.push({ ...block, source: lines.slice(i, end).join("\n") });
    i = end;
  }
  return blocks;
}

/** Lines that are indented by spaces, except in code, where a tab may mean something. */
function withoutTabs(lines) {
  let fence = "";
  return lines.map((line) => {
    const mark = line.trim();
    if (fence) {
      if (closes(mark, fence)) fence = "";
      return line;
    }
    fence = FENCE.exec(mark)?.[2] ?? "";
    return line.replace(/^[ \t]*/, (indent) => indent.replaceAll("\t", "    ")).replace(/^( *[-*+])\t/, "$1 ");
  });
}

function blockAt(lines, start) {
  return (
    codeAt(lines, start) ??
    headingAt(lines, start) ??
    (RULE.test(lines[start]) ? { type: "rule", end: start + 1 } : null) ??
    quoteAt(lines, start) ??
    listAt(lines, start) ??
    tableAt(lines, start) ??
    paragraphAt(lines, start)
  );
}

function codeAt(lines, start) {
  const [, indent, fence, info] = FENCE.exec(lines[start]) ?? [];
  if (!fence) return null;
  let end = start + 1;
  while (end < lines.length && !closes(lines[end], fence)) end++;
  const text = lines.slice(start + 1, end).map((line) => withoutIndent(line, indent.length)).join("\n");
  return { type: "code", language: info.trim().split(" ", 1)[0], text, end: Math.min(end + 1, lines.length) };
}

function closes(line, fence) {
  const mark = line.trim();
  return mark.length >= fence.length && mark === fence[0].repeat(mark.length) && indentOf(line) < 4;
}

function headingAt(lines, start) {
  const [, marks, rest] = HEADING.exec(lines[start]) ?? [];
  if (!marks) return null;
  const text = rest.trim();
  let end = text.length;
  while (end > 0 && text[end - 1] === "#") end--;
  const isClosed = end === 0 || text[end - 1] === " ";
  return { type: "heading", level: marks.length, text: isClosed ? text.slice(0, end).trim() : text, end: start + 1 };
}

function quoteAt(lines, start) {
  let end = start;
  while (end < lines.length && QUOTE.test(lines[end])) end++;
  if (end === start) return null;
  return { type: "quote", text: lines.slice(start, end).map((line) => line.replace(QUOTE, "")).join("\n"), end };
}

function listAt(lines, start) {
  const first = ITEM.exec(lines[start]);
  if (!first) return null;
  const items = [];
  let indent = 0; // of the text of the newest item
  let i = start;
  for (; i < lines.length; i++) {
    const item = ITEM.exec(lines[i]);
    if (i === start || (item && isSibling(item, first, indent) && !RULE.test(lines[i]))) {
      indent = item[1].length + item[2].length + (item[3].length > 4 ? 1 : Math.max(1, item[3].length));
      items.push([lines[i].slice(indent)]);
    } else if (belongs(lines, i, Math.min(indent, first[1].length + 2))) {
      items.at(-1).push(withoutIndent(lines[i], indent));
    } else break;
  }
  const number = parseInt(first[2], 10);
  const texts = items.map((item) => item.join("\n"));
  return { type: "list", isOrdered: !Number.isNaN(number), number, items: texts, end: i };
}

function isSibling(item, first, indent) {
  const isSameKind = item[2].at(-1) === first[2].at(-1);
  return isSameKind && item[1].length < indent && item[1].length >= first[1].length;
}

/** Whether line `i` goes on with the list item above it, whose further lines are indented by `indent`. */
function belongs(lines, i, indent) {
  if (!lines[i].trim()) {
    const next = lines.slice(i + 1, i + 4).find((line) => line.trim());
    return next !== undefined && (indentOf(next) >= indent || ITEM.test(next));
  }
  if (indentOf(lines[i]) >= indent) return true;
  return lines[i - 1].trim() !== "" && !startsBlock(lines, i);
}

function tableAt(lines, start) {
  if (!lines[start].includes("|") || !lines[start + 1]?.includes("-")) return null;
  const head = cells(lines[start]);
  const rules = cells(lines[start + 1]);
  if (head.length !== rules.length || !rules.every((cell) => CELL_RULE.test(cell))) return null;
  let end = start + 2;
  while (end < lines.length && lines[end].includes("|")) end++;
  const rows = lines.slice(start + 2, end).map((line) => fill(cells(line), head.length));
  return { type: "table", head, rows, sides: rules.map(sideOf), end };
}

function fill(row, length) {
  return Array.from({ length }, (_, column) => row[column] ?? "");
}

function sideOf(rule) {
  if (!rule.endsWith(":")) return "";
  return rule.startsWith(":") ? "center" : "right";
}

function cells(line) {
  const inner = line.trim().replace(/^\|/, "").replace(/\|$/, "");
  return inner.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function paragraphAt(lines, start) {
  let end = start + 1;
  while (end < lines.length && lines[end].trim() && !startsBlock(lines, end)) end++;
  return { type: "paragraph", text: lines.slice(start, end).join("\n").trim(), end };
}

/** Whether line `i` ends a paragraph by being the start of something else. */
function startsBlock(lines, i) {
  const line = lines[i];
  if (FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line)) return true;
  const item = ITEM.exec(line);
  // a number other than 1 is more likely a line of text that begins with a year
  return item ? !/^\d/.test(item[2]) || parseInt(item[2], 10) === 1 : tableAt(lines, i) !== null;
}

function indentOf(line) {
  return line.length - line.trimStart().length;
}

/** The line without so many columns of white space at its start; a tab counts as four. */
function withoutIndent(line, indent) {
  let i = 0;
  for (let column = 0; column < indent && (line[i] === " " || line[i] === "\t"); i++) column += line[i] === " " ? 1 : 4;
  return line.slice(i);
}
