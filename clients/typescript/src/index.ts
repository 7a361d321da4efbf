/** A client of policyguard's service. */

import type {
  ApprovalsAnswer,
  Constraint,
  Grant,
  Health,
  OpenQuestion,
  SessionAnswer,
} from "./api.js";
import { Session, type SessionOptions } from "./session.js";
import { Transport, type TransportOptions } from "./transport.js";

export type * from "./api.js";
export { CallRefused, Session } from "./session.js";
export type { CallEnd, CallOptions, CallResult, SessionOptions } from "./session.js";
export { ServiceError, UnreachableError } from "./transport.js";
export type { TransportOptions } from "./transport.js";

export class Policyguard {
  readonly #transport: Transport;

  constructor(options: TransportOptions) {
    this.#transport = new Transport(options);
  }

  /** The session of a run; it is opened by its first request. */
  session(id: string, options: SessionOptions = {}): Session {
    return new Session(this.#transport, id, options);
  }

  /** Whether the service runs, and with which policy. */
  health(): Promise<Health> {
    return this.#transport.get("/v1/health");
  }

  /** The sessions that are open in the service. */
  sessions(): Promise<SessionAnswer[]> {
    return this.#transport.get("/v1/sessions");
  }

  /** The calls that wait for a person; `session.approve` answers one. */
  async questions(): Promise<OpenQuestion[]> {
    return (await this.#transport.post<ApprovalsAnswer>("/v1/approvals", {})).approvals;
  }

  constraints(): Promise<Constraint[]> {
    return this.#transport.get("/v1/constraints");
  }

  grants(): Promise<Grant[]> {
    return this.#transport.get("/v1/grants");
  }
}
