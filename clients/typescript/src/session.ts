/** Sessions of agents: their calls are checked, run and recorded. */

import { randomUUID } from "node:crypto";

import type {
  CheckAnswer,
  CheckRequest,
  RecordAnswer,
  RecordRequest,
  SessionAnswer,
  SessionRequest,
  SpendRequest,
} from "./api.js";
import { ServiceError, type Transport, UnreachableError } from "./transport.js";

/** Whose session it is; the first request on a session decides. */
export type SessionOptions = Omit<SessionRequest, "session">;
export type CallOptions = Omit<CheckRequest, keyof SessionRequest | "tool" | "args">;
export type CallResult = Omit<RecordRequest, keyof SessionRequest | "call">;

/** What the model is to see of a call. */
export interface CallEnd<Value> {
  /** Whether the tool has run and returned. */
  ok: boolean;
  /** What the tool returned, if it did, as result rules leave it. */
  value?: Value;
  /** Text for the model: the result with advice, or why there is none. */
  text: string;
  /** The decision; undefined if the service could not be asked. */
  decision?: CheckAnswer;
}

/** A call was refused; the message is for the model. */
export class CallRefused extends Error {
  override readonly name = "CallRefused";
  readonly decision: CheckAnswer | undefined;

  constructor(message: string, decision?: CheckAnswer) {
    super(message);
    this.decision = decision;
  }
}

export class Session {
  readonly id: string;
  readonly #transport: Transport;
  readonly #options: SessionOptions;

  constructor(transport: Transport, id: string, options: SessionOptions = {}) {
    this.#transport = transport;
    this.id = id;
    this.#options = options;
  }

  /** A session of a sub-agent, which spends this one's budgets. */
  child(id: string, options: Omit<SessionOptions, "parent"> = {}): Session {
    return new Session(this.#transport, `${this.id}/${id}`, { ...options, parent: this.id });
  }

  /** Decides on a call, and counts it if it may run. Then record its result. */
  async check(tool: string, args: object, options: CallOptions = {}): Promise<CheckAnswer> {
    const body = { tool, args, ...options, call: options.call ?? randomUUID() };
    try {
      return await this.#post<CheckAnswer>("/v1/check", body);
    } catch (error) {
      if (!(error instanceof UnreachableError)) throw error;
      return this.#post<CheckAnswer>("/v1/check", { ...body, retry: true }); // it is counted once
    }
  }

  /** Decides as `check` does, and changes nothing. */
  preview(tool: string, args: object, options: CallOptions = {}): Promise<CheckAnswer> {
    return this.#post("/v1/preview", { tool, args, ...options });
  }

  /** Records the result of a call that was allowed. */
  record(call: string, result: CallResult): Promise<RecordAnswer> {
    return this.#post("/v1/record", { call, ...result });
  }

  /** Frees a call that was allowed and will not run. */
  async release(call: string): Promise<void> {
    await this.#post("/v1/release", { call });
  }

  /** Lets a call of the same tool and arguments run that was decided *ask*; with the admin token. */
  approve(call: string, by: string, labels: string[] = []): Promise<{ approved: boolean }> {
    return this.#post("/v1/approve", { call, by, labels });
  }

  /** Begins a turn: the user has said something. */
  turn(): Promise<SessionAnswer> {
    return this.#post("/v1/turn", {});
  }

  /** Counts what a model used. */
  spend(used: Omit<SpendRequest, keyof SessionRequest>): Promise<SessionAnswer> {
    return this.#post("/v1/spend", used);
  }

  /** Says which tools the model could have; the answer says which are `disabled`. */
  offer(tools: string[]): Promise<SessionAnswer> {
    return this.#post("/v1/offer", { tools });
  }

  status(): Promise<SessionAnswer> {
    return this.#post("/v1/sessions", {});
  }

  /** Lets another process go on with the run. */
  async close(): Promise<void> {
    await this.#post("/v1/close", {});
  }

  /** Ends the run: its counts are reset. */
  async end(): Promise<void> {
    await this.#post("/v1/end", {});
  }

  /**
   * Checks a call, runs `fn` if it may run, and records what it returned or threw.
   *
   * It never throws: a call that cannot be checked does not run.
   */
  async run<Value>(
    tool: string,
    args: object,
    fn: () => Value | PromiseLike<Value>,
    options: CallOptions = {},
  ): Promise<CallEnd<Value>> {
    let decision: CheckAnswer;
    try {
      decision = await this.check(tool, args, options);
    } catch (error) {
      return { ok: false, text: `\`${tool}\` was not run: it could not be checked (${say(error)})` };
    }
    if (!decision.allowed) return { ok: false, text: decision.message, decision };
    const start = performance.now();
    const duration = (): number => (performance.now() - start) / 1000;
    let value: Value;
    try {
      value = await fn();
    } catch (error) {
      const text = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
      const recorded = await this.#recorded(decision.call, { error: text, duration: duration() });
      return { ok: false, text: recorded?.text ?? text, decision };
    }
    const result = value === undefined ? null : value;
    const recorded = await this.#recorded(decision.call, { result, duration: duration() });
    if (recorded === undefined) return { ok: true, value, text: show(value), decision };
    const isSame = JSON.stringify(recorded.result) === JSON.stringify(result);
    const left = isSame ? value : (recorded.result as Value);
    return { ok: true, value: left, text: recorded.text, decision };
  }

  /** Returns `fn` as a function whose calls are checked: it throws `CallRefused` if one is refused. */
  wrap<Args extends object, Value>(
    tool: string,
    fn: (args: Args) => Value | PromiseLike<Value>,
  ): (args: Args) => Promise<Value> {
    return async (args) => {
      let thrown: unknown;
      const end = await this.run(tool, args, async () => {
        try {
          return await fn(args);
        } catch (error) {
          thrown = error;
          throw error;
        }
      });
      if (end.ok) return end.value as Value;
      throw thrown ?? new CallRefused(end.text, end.decision);
    };
  }

  /** Records a result; undefined if the service cannot be asked, which must not undo the call. */
  async #recorded(call: string, result: CallResult): Promise<RecordAnswer | undefined> {
    try {
      return await this.record(call, result);
    } catch (error) {
      if (error instanceof UnreachableError || error instanceof ServiceError) return undefined;
      throw error;
    }
  }

  #post<Answer>(path: string, body: object): Promise<Answer> {
    return this.#transport.post(path, { ...this.#options, session: this.id, ...body });
  }
}

function say(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function show(value: unknown): string {
  return typeof value === "string" ? value : (JSON.stringify(value) ?? "");
}
