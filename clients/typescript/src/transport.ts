/** Requests to the service, over a Unix socket or a loopback port. */

import { request } from "node:http";

import type { Problem } from "./api.js";

/** The service answered that something is wrong: `status`, and a `detail` that says what to do. */
export class ServiceError extends Error {
  override readonly name = "ServiceError";
  readonly status: number;
  readonly detail: string;

  constructor(problem: Problem) {
    super(`${problem.title}: ${problem.detail}`);
    this.status = problem.status;
    this.detail = problem.detail;
  }
}

/** The service could not be reached, or did not answer in time. Whether it got the request is open. */
export class UnreachableError extends Error {
  override readonly name = "UnreachableError";
}

export interface TransportOptions {
  /** `unix:/path/to.sock`, or `http://127.0.0.1:8977`. */
  address: string;
  /** The token of a service on a port, or the admin token. */
  token?: string;
  /** How long to wait for an answer, in milliseconds; 10 seconds by default. */
  timeout?: number;
}

export class Transport {
  readonly #target: { socketPath: string } | { host: string; port: number };
  readonly #headers: Record<string, string>;
  readonly #timeout: number;

  constructor({ address, token, timeout = 10_000 }: TransportOptions) {
    this.#target = readAddress(address);
    this.#headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
    this.#timeout = timeout;
  }

  post<Answer>(path: string, body: object): Promise<Answer> {
    return this.#send("POST", path, JSON.stringify(body)) as Promise<Answer>;
  }

  get<Answer>(path: string): Promise<Answer> {
    return this.#send("GET", path, "") as Promise<Answer>;
  }

  #send(method: string, path: string, body: string): Promise<unknown> {
    const headers = {
      ...this.#headers,
      "content-type": "application/json",
      "content-length": Buffer.byteLength(body),
    };
    return new Promise((resolve, reject) => {
      const fail = (error: Error): void => {
        reject(new UnreachableError(`policyguard's service: ${error.message}`, { cause: error }));
      };
      const sent = request({ ...this.#target, method, path, headers }, (answer) => {
        const chunks: Buffer[] = [];
        answer.on("data", (chunk: Buffer) => chunks.push(chunk));
        answer.on("error", fail);
        answer.on("end", () => {
          try {
            const found: unknown = JSON.parse(Buffer.concat(chunks).toString("utf8"));
            if (answer.statusCode === 200) resolve(found);
            else reject(new ServiceError(found as Problem));
          } catch (error) {
            fail(error as Error);
          }
        });
      });
      sent.setTimeout(this.#timeout, () => sent.destroy(new Error(`no answer in ${this.#timeout} ms`)));
      sent.on("error", fail);
      sent.end(body);
    });
  }
}

function readAddress(address: string): { socketPath: string } | { host: string; port: number } {
  if (address.startsWith("unix:")) return { socketPath: address.slice("unix:".length) };
  const url = new URL(address);
  if (url.protocol !== "http:") {
    throw new TypeError(`\`address\` is unix:/path/to.sock or http://host:port, not ${address}`);
  }
  return { host: url.hostname, port: Number(url.port || "80") };
}
