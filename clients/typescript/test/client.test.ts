import assert from "node:assert/strict";
import { createServer } from "node:http";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { CallRefused, Policyguard, ServiceError, UnreachableError } from "../src/index.js";
import { Service } from "./service.js";

const service = new Service();
let guard: Policyguard;

before(async () => {
  guard = await service.start();
});
after(() => service.stop());

test("a failing tool with other words each time is refused", async () => {
  const session = guard.session("loop");
  let ran = 0;
  const texts: string[] = [];
  for (const word of "abcdefgh") {
    const end = await session.run("read_file", { path: `notes/${word}.txt` }, () => {
      ran += 1;
      throw new Error(`ENOENT: no such file or directory, open 'notes/${word}.txt'`);
    });
    assert.equal(end.ok, false);
    texts.push(end.text);
  }
  assert.ok(ran < 8, `${ran} calls run`);
  assert.match(texts[0] ?? "", /ENOENT/);
  assert.match(texts.at(-1) ?? "", /`read_file` was not run/);
});

test("parallel calls cannot exceed a budget", async () => {
  const session = guard.session("budget");
  let ran = 0;
  const calls = Array.from({ length: 16 }, (_, page) =>
    session.run("fetch", { page }, () => `page ${page} ${(ran += 1)}`),
  );
  const ends = await Promise.all(calls);
  assert.equal(ran, 5);
  assert.equal(ends.filter((end) => end.text.includes("budgets/fetches")).length, 11);
});

test("a sub-agent spends its parent's budget", async () => {
  const session = guard.session("parent");
  for (let page = 0; page < 3; page++) await session.run("fetch", { page }, () => page);
  const child = session.child("research", { agent: "researcher" });
  const ends = [];
  for (let page = 3; page < 6; page++) ends.push(await child.run("fetch", { page }, () => page));
  assert.deepEqual(ends.map((end) => end.ok), [true, true, false]);
});

test("results are what rules leave of them, with advice", async () => {
  const session = guard.session("results");
  const end = await session.run("lookup", { word: "cat" }, () => ({ found: "swordfish-1234" }));
  assert.deepEqual(end.value, { found: "[word]" });
  assert.match(end.text, /the handbook is the better source/);
  const plain = await session.run("list", {}, () => ({ items: [1, 2] }));
  assert.deepEqual(plain.value, { items: [1, 2] });
  const nothing = await session.run("write", {}, () => undefined);
  assert.equal(nothing.ok, true);
});

test("a call that is asked about runs after a yes", async () => {
  const session = guard.session("ask");
  const asked = await session.run("deploy", { to: "shop" }, () => "deployed");
  assert.equal(asked.decision?.effect, "ask");
  assert.deepEqual((await guard.questions()).map((one) => one.tool), ["deploy"]);
  assert.deepEqual(await session.approve(asked.decision?.call ?? "", "ann"), { approved: true });
  const end = await session.run("deploy", { to: "shop" }, () => "deployed");
  assert.equal(end.value, "deployed");
});

test("a wrapped function throws its own error, or that it was refused", async () => {
  const session = guard.session("wrap");
  const broken = new TypeError("broken");
  const read = session.wrap("read", (): string => {
    throw broken;
  });
  await assert.rejects(read({}), broken);
  const forbidden = session.wrap("forbidden", () => "done");
  await assert.rejects(forbidden({}), (error: CallRefused) => {
    assert.equal(error.decision?.effect, "block");
    return error instanceof CallRefused && error.message.includes("nobody may do this");
  });
});

test("a halt refuses all later calls of the turn", async () => {
  const session = guard.session("halt");
  assert.equal((await session.run("shutdown", { now: true }, () => 1)).decision?.effect, "halt");
  assert.equal((await session.run("list", {}, () => 1)).ok, false);
  await session.turn();
  assert.equal((await session.run("list", {}, () => 1)).ok, true);
});

test("what the service says is wrong is an error with its detail", async () => {
  await assert.rejects(guard.session("wrong").record("no-such-call", { result: 1 }), ServiceError);
  const stranger = new Policyguard({ address: service.address, token: "wrong" });
  await assert.rejects(stranger.constraints(), (error: ServiceError) => error.status === 401);
  assert.throws(() => new Policyguard({ address: "ftp://x" }), TypeError);
});

test("a service that is gone refuses all calls", async () => {
  await service.kill();
  let ran = false;
  const end = await guard.session("gone").run("list", {}, () => (ran = true));
  assert.equal(ran, false);
  assert.equal(end.ok, false);
  assert.match(end.text, /was not run: it could not be checked/);
  await assert.rejects(guard.health(), UnreachableError);
});

test("a service on a Unix socket is reached", async () => {
  const path = join(service.folder, "service.sock");
  const server = createServer((request, response) => {
    assert.equal(request.url, "/v1/health");
    response.end(JSON.stringify({ policy: "client" }));
  });
  await new Promise<void>((resolve) => server.listen(path, resolve));
  const health = await new Policyguard({ address: `unix:${path}` }).health();
  server.close();
  assert.equal(health.policy, "client");
});
