/** Server-sent events of a response body. */

const NEWLINE = 10;

/** The connection broke in the middle of a body. */
export class BrokenStream extends Error {}

/**
 * The events as they come: {data, offset}, with `data` null for comments. `offset`: bytes from the start of the body
 * to the end of the event, where reading may go on after a lost connection. Raises BrokenStream.
 */
export async function* events(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = new Uint8Array(0);
  let offset = 0;
  try {
    for (;;) {
      const { value, done } = await reader.read().catch((error) => {
        throw new BrokenStream(error.message);
      });
      if (done) return;
      rest = join(rest, value);
      let start = 0;
      for (let end = blockEnd(rest, start); end >= 0; end = blockEnd(rest, start)) {
        offset += end - start;
        yield { data: dataOf(decoder.decode(rest.subarray(start, end))), offset };
        start = end;
      }
      rest = rest.slice(start);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function join(first, second) {
  if (!first.length) return second;
  const both = new Uint8Array(first.length + second.length);
  both.set(first);
  both.set(second, first.length);
  return both;
}

/** Where the block that begins at `start` ends, behind its empty line; -1 while it is not complete. */
function blockEnd(bytes, start) {
  for (let i = bytes.indexOf(NEWLINE, start); i >= 0; i = bytes.indexOf(NEWLINE, i + 1)) {
    if (bytes[i + 1] === NEWLINE) return i + 2;
  }
  return -1;
}

function dataOf(block) {
  const lines = block.split("\n").filter((line) => line.startsWith("data:"));
  return lines.length ? lines.map((line) => line.slice(5).trimStart()).join("\n") : null;
}
