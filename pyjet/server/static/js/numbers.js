/** Numbers of the server in words. */

const WHOLE = new Intl.NumberFormat("en");
const SHORT = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

/** `12,345` */
export function count(number) {
  return WHOLE.format(number);
}

/** Three significant digits. */
export function short(number) {
  return SHORT.format(number);
}

/** Speed and size of an answer, from its `timings` object; an empty list without one. */
export function timingFacts(timings) {
  if (!timings) return [];
  const { predicted_n: made, predicted_per_second: speed, cache_n: cached, prompt_n: read } = timings;
  const facts = [];
  if (speed > 0) facts.push(`${short(speed)} tokens/s`);
  facts.push(`${count(made)} token${made === 1 ? "" : "s"}`);
  facts.push(`prompt ${count(cached + read)}, of these ${count(cached)} cached`);
  if (timings.prompt_per_second > 0) facts.push(`read at ${short(timings.prompt_per_second)} tokens/s`);
  if (timings.ttft_ms > 0) facts.push(`first token after ${short(timings.ttft_ms / 1000)} s`);
  const { draft_n: drafted, draft_n_accepted: accepted } = timings;
  if (drafted > 0) facts.push(`drafts ${count(accepted)} of ${count(drafted)} accepted`);
  return facts;
}

/** What is special about an entry of `/v1/models`, from its `meta` object. */
export function modelFacts(meta) {
  if (!meta) return "";
  const facts = [];
  if (meta.n_params) facts.push(`${parameters(meta.n_params)} ${meta.ftype ?? ""}`.trim());
  if (meta.n_ctx) facts.push(`context ${count(meta.n_ctx)}`);
  if (meta.max_tokens > 0) facts.push(`answers up to ${count(meta.max_tokens)}`);
  if (meta.priority) facts.push(`priority ${meta.priority}`);
  return facts.join(" · ");
}

function parameters(number) {
  return number < 1e9 ? `${short(number / 1e6)}M` : `${short(number / 1e9)}B`;
}
