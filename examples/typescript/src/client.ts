// Client of Indexmill for Node and browsers: fetch, and the types of stack/openapi.yaml (api.ts, generated).
import type { components, operations } from "./api.js";

type Schemas = components["schemas"];
export type Job = Schemas["Job"];
export type Submitted = Schemas["SubmitResponse"];
export type SubmitOptions = Partial<Omit<Schemas["SubmitRequest"], "url" | "urls">> & { idempotencyKey?: string };
export type SearchRequest = Pick<Schemas["SearchRequest"], "query"> & Partial<Schemas["SearchRequest"]>;
export type SearchResponse = Schemas["SearchResponse"];
export type StreamToken = Schemas["StreamToken"];
export type ListFilters = NonNullable<operations["list_jobs_orchestrator_jobs_get"]["parameters"]["query"]>;

/** The service answered with an error; `status` is 0 and `code` connection_error when no answer came. */
export class ApiError extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly status: number,
    readonly request_id?: string,
    /** Seconds. */
    readonly retry_after?: number,
    /** Input that is wrong. */
    readonly field?: string,
    /** What to do. */
    readonly hint?: string,
  ) {
    super(`${code} (${status}): ${message}${request_id ? ` [request ${request_id}]` : ""}`);
    this.name = "ApiError";
  }
}

/** A job did not end in time; `job` is as it was last read. */
export class WaitTimeout extends Error {
  constructor(readonly job: Job | undefined) {
    super(`the job was not finished in time, its status is ${job?.status ?? "unknown"}`);
    this.name = "WaitTimeout";
  }
}

export interface ClientOptions {
  /** How long a request that was refused with 429 is repeated, as its Retry-After says (30 s). */
  patienceMs?: number;
  /** Of one request (35 s). */
  timeoutMs?: number;
}

const TRANSIENT = new Set([0, 429, 502, 503, 504]);
const FIRST_POLL_MS = 100;
const LONGEST_POLL_MS = 2_000;
const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

export class Client {
  readonly #base: string;
  readonly #key: string;
  readonly #patienceMs: number;
  readonly #timeoutMs: number;

  constructor(baseUrl: string, apiKey: string, { patienceMs = 30_000, timeoutMs = 35_000 }: ClientOptions = {}) {
    this.#base = baseUrl.replace(/\/+$/, "");
    this.#key = apiKey;
    this.#patienceMs = patienceMs;
    this.#timeoutMs = timeoutMs;
  }

  /** Submit one URL, or up to 100; the same `idempotencyKey` within a day gets the same answer. */
  async submit(url: string | string[], { idempotencyKey, ...options }: SubmitOptions = {}): Promise<Submitted> {
    const body = { ...(typeof url === "string" ? { url } : { urls: url }), ...options };
    const headers = idempotencyKey ? { "Idempotency-Key": idempotencyKey } : {};
    return this.#json("POST", "/orchestrator/jobs", body, headers);
  }

  async get(jobId: string): Promise<Job> {
    return this.#json("GET", `/orchestrator/jobs/${encodeURIComponent(jobId)}`);
  }

  /** One page of the caller's jobs, newest first. */
  async list(filters: ListFilters = {}): Promise<Schemas["JobList"]> {
    const given = Object.entries(filters).filter(([, value]) => value !== undefined && value !== null);
    return this.#json("GET", `/orchestrator/jobs?${new URLSearchParams(given.map(([name, value]) => [name, String(value)]))}`);
  }

  async search(request: SearchRequest): Promise<SearchResponse> {
    return this.#json("POST", "/embedding/search", request);
  }

  /** Lets a browser follow one job without the key, by `url`. */
  async streamToken(jobId: string): Promise<StreamToken> {
    return this.#json("POST", `/orchestrator/jobs/${encodeURIComponent(jobId)}/stream-token`);
  }

  /** Poll until the job is done or failed; reads that an outage fails are repeated until `timeoutMs` is over. */
  async wait(jobId: string, timeoutMs: number, onChange?: (job: Job) => void): Promise<Job> {
    const deadline = Date.now() + timeoutMs;
    let last: Job | undefined;
    for (let pause = FIRST_POLL_MS; ; pause = Math.min(pause * 1.5, LONGEST_POLL_MS)) {
      const job = await patiently(() => this.get(jobId), deadline);
      if (job.status !== last?.status) {
        onChange?.(job);
        pause = FIRST_POLL_MS;
      }
      last = job;
      if (ended(job)) return job;
      if (Date.now() >= deadline) throw new WaitTimeout(last);
      await sleep(Math.min(pause, Math.max(0, deadline - Date.now())));
    }
  }

  async #json<T>(method: string, path: string, body?: object, headers: Record<string, string> = {}): Promise<T> {
    const until = Date.now() + this.#patienceMs;
    const sent: RequestInit = { method, headers: { "X-API-Key": this.#key, ...headers } };
    if (body) {
      sent.body = JSON.stringify(body);
      sent.headers = { ...sent.headers, "Content-Type": "application/json" };
    }
    for (;;) {
      try {
        return (await (await send(this.#base + path, sent, this.#timeoutMs)).json()) as T;
      } catch (error) {
        // Refused before any work was done, so that a repeated POST does nothing twice.
        const waitMs = error instanceof ApiError && error.status === 429 ? (error.retry_after ?? NaN) * 1000 : NaN;
        if (!(Date.now() + waitMs <= until)) throw error;
        await sleep(waitMs);
      }
    }
  }
}

/** Follow a job by the URL of a stream token, without the API key: yields it now and after each of its events. */
export async function* stream(tokenUrl: string, timeoutMs: number): AsyncGenerator<Job> {
  const deadline = Date.now() + timeoutMs;
  let lastId = "";
  let retryMs = 3_000;
  let job: Job | undefined;
  for (;;) {
    const headers: Record<string, string> = lastId ? { "Last-Event-ID": lastId } : {};
    const answer = await patiently(async () => {
      const response = await send(tokenUrl, { headers }, 35_000);
      return { status: response.status, text: await response.text() };
    }, deadline);
    // What follows the last empty line was cut off.
    for (const event of answer.text.replace(/\r\n?/g, "\n").split("\n\n").slice(0, -1)) {
      const fields = event.split("\n").map((line) => /^(\w+): ?(.*)$/.exec(line) ?? []);
      const values = (name: string) => fields.filter((field) => field[1] === name).map((field) => field[2] ?? "");
      lastId = values("id").at(-1) ?? lastId;
      retryMs = Number(values("retry").at(-1) ?? retryMs);
      const data = values("data").join("\n");
      if (data) yield (job = JSON.parse(data) as Job);
    }
    if (answer.status === 204 || (job && ended(job))) return;
    if (Date.now() >= deadline) throw new WaitTimeout(job);
    await sleep(Math.min(retryMs, Math.max(0, deadline - Date.now())));
  }
}

const ended = (job: Job) => job.status === "done" || job.status === "failed";

/** Repeat `read` while an outage lasts and before the deadline, as Retry-After says. */
async function patiently<T>(read: () => Promise<T>, deadline: number): Promise<T> {
  for (let pause = FIRST_POLL_MS; ; pause = Math.min(pause * 2, LONGEST_POLL_MS)) {
    try {
      return await read();
    } catch (error) {
      const left = deadline - Date.now();
      if (!(error instanceof ApiError) || !TRANSIENT.has(error.status) || left <= 0) throw error;
      await sleep(Math.min(Math.max((error.retry_after ?? 0) * 1000, pause), left));
    }
  }
}

async function send(url: string, request: RequestInit, timeoutMs: number): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(url, { ...request, redirect: "error", signal: AbortSignal.timeout(timeoutMs) });
  } catch (error) {
    throw new ApiError("connection_error", `${new URL(url).origin} did not answer: ${error}`, 0);
  }
  if (response.ok) return response;
  const text = await response.text();
  try {
    const { error } = JSON.parse(text) as Schemas["ErrorEnvelope"];
    const { code, message, request_id, retry_after, field, hint } = error;
    throw new ApiError(code, message, response.status, request_id, retry_after, field, hint);
  } catch (error) {
    if (error instanceof ApiError) throw error;
    throw new ApiError("upstream_error", text.slice(0, 200) || response.statusText, response.status);
  }
}
