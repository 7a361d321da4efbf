import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { generateText, stepCountIs, tool, type ToolSet } from "ai";
import { MockLanguageModelV4 } from "ai/test";
import { z } from "zod";

import { guarded } from "../examples/vercel-ai.js";
import type { Policyguard, Session } from "../src/index.js";
import { Service } from "./service.js";

const service = new Service();
let guard: Policyguard;

before(async () => {
  guard = await service.start();
});
after(() => service.stop());

type Script = ([string, object][] | string)[];

async function run(session: Session, script: Script, tools: ToolSet) {
  const offered: string[][] = [];
  const model = new MockLanguageModelV4({
    doGenerate: async (options: any): Promise<any> => {
      offered.push((options.tools ?? []).map((one: any) => one.name));
      const answer = script[offered.length - 1] ?? "done";
      const content =
        typeof answer === "string"
          ? [{ type: "text", text: answer }]
          : answer.map(([toolName, input], index) => ({
              type: "tool-call",
              toolCallId: `${offered.length}-${index}`,
              toolName,
              input: JSON.stringify(input),
            }));
      const reason = typeof answer === "string" ? "stop" : "tool-calls";
      return {
        content,
        finishReason: { unified: reason, raw: reason },
        usage: {
          inputTokens: { total: 500, noCache: 500, cacheRead: 0, cacheWrite: 0 },
          outputTokens: { total: 100, text: 100, reasoning: 0 },
        },
        warnings: [],
      };
    },
  });
  const options = await guarded(session, tools);
  const result = await generateText({
    model,
    prompt: "go",
    ...options,
    stopWhen: [...options.stopWhen, stepCountIs(20)],
  });
  const results = result.steps.flatMap((step) => step.toolResults.map((one) => String(one.output)));
  return { results, text: result.text, offered };
}

function desk() {
  const ran: string[] = [];
  const make = (name: string, say: (input: any) => unknown) =>
    tool({
      description: "A tool.",
      inputSchema: z.looseObject({}),
      execute: async (input: any) => {
        ran.push(name);
        return say(input);
      },
    });
  const tools = {
    read_file: make("read_file", ({ path }) => {
      throw new Error(`ENOENT: no such file or directory, open '${path}'`);
    }),
    fetch: make("fetch", ({ page }) => `page ${page}`),
    purge: make("purge", () => "purged"),
    lookup: make("lookup", ({ word }) => `${word}: a word`),
    shutdown: make("shutdown", () => "down"),
    forbidden: make("forbidden", () => "done"),
  };
  return { ran, tools };
}

test("a loop on a failing tool is refused, and the model sees why", async () => {
  const { ran, tools } = desk();
  const script: Script = [..."abcdefgh"].map((word) => [["read_file", { path: `notes/${word}.txt` }]]);
  const { results, text } = await run(guard.session("loop"), [...script, "gave up"], tools);
  assert.equal(results.length, 8);
  assert.ok(ran.length < 8);
  assert.match(results[0] ?? "", /ENOENT/);
  assert.match(results.at(-1) ?? "", /`read_file` was not run/);
  assert.equal(text, "gave up");
});

test("parallel calls are one batch, and cannot exceed a budget", async () => {
  const { ran, tools } = desk();
  const purges: [string, object][] = [..."abcd"].map((name) => ["purge", { name }]);
  const fetches: [string, object][] = [1, 2, 3, 4, 5, 6, 7, 8].map((page) => ["fetch", { page }]);
  await run(guard.session("batch"), [purges, purges.map(([t]) => [t, { more: Math.random() }]), fetches], tools);
  assert.equal(ran.filter((name) => name === "purge").length, 4);
  assert.equal(ran.filter((name) => name === "fetch").length, 5);
});

test("advice is added to a result", async () => {
  const { tools } = desk();
  const { results } = await run(guard.session("advice"), [[["lookup", { word: "cat" }]]], tools);
  assert.match(results[0] ?? "", /^cat: a word\n\n[^]*the handbook/);
});

test("a halt ends the run", async () => {
  const { ran, tools } = desk();
  const script: Script = [[["shutdown", { now: true }]], [["lookup", { word: "a" }]]];
  const { offered } = await run(guard.session("halt"), script, tools);
  assert.deepEqual(ran, []);
  assert.equal(offered.length, 1);
});

test("what the model uses counts, and tools that are always refused are hidden", async () => {
  const { tools } = desk();
  const session = guard.session("usage", { agent: "thrifty" });
  const { offered } = await run(session, [[["lookup", { word: "cat" }]]], tools);
  assert.ok(!offered[0]?.includes("forbidden"));
  assert.ok(offered[0]?.includes("lookup"));
  const decision = await session.check("lookup", { word: "dog" });
  assert.equal(decision.violations[0]?.id, "budgets/thrift");
});
