// policyguard's plugin for OpenCode, written by `policyguard hook install opencode`.
// It asks policyguard-hook before each call of a tool. A throw refuses the call: all throws but an answer that allows it.
import { spawn } from "node:child_process"

const CHECK = "{{check}}"
const REPORT = "{{report}}"
const MILLISECONDS = {{milliseconds}}

const run = (command, event) =>
  new Promise((resolve, reject) => {
    const fail = (reason) => reject(new Error(`policyguard: ${reason}, so the call is refused`))
    const child = spawn(command, { shell: true })
    const clock = setTimeout(() => {
      child.kill("SIGKILL")
      fail("the hook does not answer")
    }, MILLISECONDS)
    let output = ""
    let errors = ""
    child.stdout.setEncoding("utf8").on("data", (text) => (output += text))
    child.stderr.setEncoding("utf8").on("data", (text) => (errors += text))
    child.stdin.on("error", () => {}) // of a command that ended: its exit code tells
    child.on("error", (error) => fail(error.message))
    child.on("close", (code) => {
      clearTimeout(clock)
      if (code !== 0) return fail(errors.trim() || `the hook ended with ${code}`)
      try {
        resolve(output ? JSON.parse(output) : {})
      } catch {
        fail("the hook's answer is no JSON")
      }
    })
    child.stdin.end(JSON.stringify(event))
  })

export const Policyguard = async ({ client, directory }) => {
  const parents = new Map() // session -> its parent's
  const running = new Map() // call -> what is reported when it ends
  let reports = Promise.resolve({}) // a check waits for the results before it

  const describe = async (session) => {
    if (!parents.has(session)) {
      const found = await client.session.get({ path: { id: session } })
      parents.set(session, found.data?.parentID ?? null)
    }
    return { session, parent: parents.get(session), cwd: directory }
  }
  const report = (session, event) => {
    const send = async () => run(REPORT, { ...(await describe(session)), ...event })
    reports = reports.then(send).catch(() => ({}))
    return reports
  }

  return {
    "chat.message": (input) => report(input.sessionID, { event: "prompt" }),
    "tool.execute.before": async (input, output) => {
      await reports
      const call = { call: input.callID, tool: input.tool, args: output.args }
      const answer = await run(CHECK, { ...(await describe(input.sessionID)), event: "before", ...call })
      if (answer?.allow !== true) throw new Error(answer?.refuse || "policyguard: the hook does not allow the call")
      running.set(input.callID, call)
    },
    "tool.execute.after": async (input, output) => {
      const call = running.get(input.callID)
      if (!call) return
      running.delete(input.callID)
      const result = output.output ?? { content: output.content, isError: output.isError }
      const exit = output.metadata?.exit ?? null
      const { advice } = await report(input.sessionID, { event: "after", ...call, result, exit_code: exit })
      if (!advice) return
      if (output.output === undefined) output.content?.push({ type: "text", text: advice })
      else output.output += `\n${advice}`
    },
    event: async ({ event }) => {
      const part = event.properties?.part
      const call = running.get(part?.callID)
      if (event.type === "message.part.updated" && part?.state?.status === "error" && call) {
        running.delete(part.callID) // a tool that throws fires no `after`
        await report(part.sessionID, { event: "after", ...call, error: part.state.error ?? "failed" })
      }
      if (event.type === "session.idle") await report(event.properties.sessionID, { event: "idle" })
    },
  }
}
