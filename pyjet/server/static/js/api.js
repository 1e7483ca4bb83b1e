/** The server's HTTP interface, below the folder that this page is in. */

/** The server refused, or could not be reached (`status` 0). `fields`: the whole error object. */
export class ApiError extends Error {
  constructor(status, message, fields = {}) {
    super(message);
    this.status = status;
    this.type = fields.type ?? "";
    this.fields = fields;
  }
}

export class Api {
  key = "";

  /** The answer's JSON value. Raises ApiError. */
  async json(path, options = {}) {
    const response = await this.open(path, options);
    return response.json();
  }

  /**
   * A response with a good status. `options`: those of fetch; a `body` is any value and makes a POST of it.
   * Raises ApiError, and AbortError when the `signal` says so.
   */
  async open(path, { body, headers = {}, ...options } = {}) {
    const all = { ...headers };
    if (this.key) all["Authorization"] = `Bearer ${this.key}`;
    if (body !== undefined) {
      all["Content-Type"] = "application/json";
      options = { method: "POST", ...options, body: JSON.stringify(body) };
    }
    const response = await send(path, { cache: "no-store", ...options, headers: all });
    if (!response.ok) throw await asError(response);
    return response;
  }
}

async function send(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "no answer");
  }
}

async function asError(response) {
  const text = await response.text().catch(() => "");
  try {
    const fields = JSON.parse(text).error;
    return new ApiError(response.status, String(fields.message), fields);
  } catch {
    return new ApiError(response.status, text.slice(0, 500) || response.statusText);
  }
}
