/** A real service with a policy, for the tests. */

import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

import { Policyguard } from "../src/index.js";

const POLICY = `
policyguard: 1
name: client
extends: [core]
patterns: {word: 'swordfish-[0-9]{4}'}
budgets:
  fetches: {tools: [fetch], calls: 5}
  thrift: {agents: [thrifty], tokens: 1100}
  purges: {tools: [purge], calls: 2, per: batch}
rules:
  never: {tools: [forbidden], effect: block, message: nobody may do this}
  stop: {tools: [shutdown], when: call.args.now == true, effect: halt, message: that ends everything}
  ask-first: {tools: [deploy], effect: ask, message: deploying needs a yes}
  note: {tools: [lookup], effect: advise, message: the handbook is the better source}
result_rules:
  mask: {finds: [word], effect: redact}
`;

export class Service {
  readonly folder = mkdtempSync(join(tmpdir(), "policyguard-"));
  readonly #program = process.env.POLICYGUARD ?? "policyguard";
  #process: ChildProcess | undefined;
  address = "";

  async start(): Promise<Policyguard> {
    writeFileSync(join(this.folder, "policy.yaml"), POLICY);
    const port = await freePort();
    this.address = `http://127.0.0.1:${port}`;
    const options = ["--policy", "policy.yaml", "--store", "state.db", "--port", `${port}`];
    const child = spawn(this.#program, ["serve", ...options, "--token-file", "token"], {
      cwd: this.folder,
      stdio: ["ignore", "ignore", "pipe"],
    });
    this.#process = child;
    let said = "";
    child.stderr.on("data", (data: Buffer) => (said += data.toString()));
    while (!said.includes("serving")) {
      if (child.exitCode !== null) throw new Error(said);
      await sleep(20);
    }
    const token = readFileSync(join(this.folder, "token"), "utf8").trim();
    const guard = new Policyguard({ address: this.address, token });
    for (let attempt = 0; attempt < 100; attempt++) {
      try {
        await guard.health();
        break;
      } catch {
        await sleep(50);
      }
    }
    return guard;
  }

  async kill(): Promise<void> {
    const child = this.#process;
    if (child === undefined || child.exitCode !== null) return;
    child.kill("SIGKILL");
    await new Promise((resolve) => child.once("exit", resolve));
  }

  async stop(): Promise<void> {
    await this.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }
}

function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const address = server.address();
      server.close(() => resolve(typeof address === "object" ? (address?.port ?? 0) : 0));
    });
  });
}
