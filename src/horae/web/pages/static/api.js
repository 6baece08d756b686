// Asks the native API. Whatever fails is thrown in the shape of a problem: code, detail, hint, errors.

export class Problem extends Error {
  constructor(status, { code, detail, hint, errors } = {}) {
    super(detail ?? `the server answered ${status}`);
    Object.assign(this, { status, code, hint, detail: this.message, errors: errors ?? [] });
  }
}

const LOST = { code: "E_UNAVAILABLE", detail: "the server does not answer", hint: "see whether it runs, then try again" };

// The session has ended, or is too old for what was asked.
function logIn(isAnew) {
  const here = encodeURIComponent(location.pathname + location.search);
  location.href = `/login?${isAnew ? "anew=true&" : ""}next=${here}`;
}

export async function ask(method, path, { body, type = "application/json", headers = {}, signal } = {}) {
  const sent = body === undefined || typeof body === "string" ? body : JSON.stringify(body);
  let answer;
  try {
    answer = await fetch(path, {
      method, body: sent, signal, headers: body === undefined ? headers : { "content-type": type, ...headers },
    });
  } catch (error) {
    throw error.name === "AbortError" ? error : new Problem(0, LOST);
  }
  const isJson = (answer.headers.get("content-type") ?? "").includes("json");
  const text = await answer.text();
  const found = isJson && text ? JSON.parse(text) : text;
  if (answer.status === 401) logIn(found.code === "E_REAUTH");
  if (!answer.ok) throw new Problem(answer.status, isJson ? found : {});
  return found;
}

export const get = (path, options) => ask("GET", path, options);
export const post = (path, body, options) => ask("POST", path, { body, ...options });
