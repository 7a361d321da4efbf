/** Vercel AI SDK: tools whose calls are checked, and a run that ends when it is halted. */

import { randomUUID } from "node:crypto";

import type { StopCondition, ToolSet } from "ai";

import type { Session } from "../src/index.js";

/**
 * Returns the options of `generateText`, `streamText` or an agent that guard its tools.
 *
 * A refusal, an error or a result with advice is the tool's result, as a text. Pass the options on
 * with spread: `generateText({ model, prompt, ...(await guarded(session, tools)) })`.
 */
export async function guarded<Tools extends ToolSet>(session: Session, tools: Tools) {
  await session.turn();
  const { disabled } = await session.offer(Object.keys(tools));
  let batch = randomUUID();
  let isHalted = false;

  const entries = Object.entries(tools).map(([name, tool]) => {
    const execute = tool.execute;
    if (execute === undefined) return [name, tool]; // the client or the provider runs it
    const run = async (args: object, options: { toolCallId: string }): Promise<unknown> => {
      const end = await session.run(name, args, () => execute(args as never, options as never), {
        call: options.toolCallId,
        batch,
      });
      isHalted ||= end.decision?.effect === "halt";
      return end.ok && end.value !== undefined && !hasAdvice(end.text, end.value)
        ? end.value
        : end.text;
    };
    return [name, { ...tool, execute: run }];
  });

  const halted: StopCondition<Tools> = () => isHalted;
  return {
    tools: Object.fromEntries(entries) as Tools,
    activeTools: Object.keys(tools).filter((name) => !(name in disabled)) as (keyof Tools &
      string)[],
    stopWhen: [halted],
    onStepFinish: async ({ usage }: { usage: { inputTokens?: number | undefined; outputTokens?: number | undefined } }) => {
      batch = randomUUID();
      const tokens = (usage.inputTokens ?? 0) + (usage.outputTokens ?? 0);
      await session.spend({ tokens, model_calls: 1 });
    },
  };
}

function hasAdvice(text: string, value: unknown): boolean {
  return text !== (typeof value === "string" ? value : JSON.stringify(value));
}
