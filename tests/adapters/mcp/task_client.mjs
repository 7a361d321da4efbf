// A client on the TypeScript SDK that runs a tool as a task and prints what it sees, as JSON.
//
// node task_client.mjs SDK_FOLDER URL|COMMAND...
import { pathToFileURL } from 'node:url';
import { join } from 'node:path';

const [sdk, ...target] = process.argv.slice(2);
const load = name => import(pathToFileURL(join(sdk, 'dist', 'esm', name)));
const { Client } = await load('client/index.js');
const { StdioClientTransport } = await load('client/stdio.js');
const { StreamableHTTPClientTransport } = await load('client/streamableHttp.js');
const { CallToolResultSchema, ElicitRequestSchema } = await load('types.js');

const capabilities = { elicitation: { form: {} }, tasks: { list: {}, cancel: {} } };
const client = new Client({ name: 'task-client', version: '1' }, { capabilities });
client.setRequestHandler(ElicitRequestSchema, async request => {
    const properties = Object.keys(request.params.requestedSchema.properties);
    return { action: 'accept', content: Object.fromEntries(properties.map(name => [name, 'technical'])) };
});
const transport = target[0].startsWith('http')
    ? new StreamableHTTPClientTransport(new URL(target[0]))
    : new StdioClientTransport({ command: target[0], args: target.slice(1), env: process.env, stderr: 'ignore' });
await client.connect(transport);
const tasks = client.experimental.tasks;
await client.listTools();

async function run(args) {
    const seen = [];
    let id;
    const params = { name: 'simulate-research-query', arguments: args };
    for await (const message of tasks.callToolStream(params, CallToolResultSchema, { timeout: 60000 })) {
        id = message.task?.taskId ?? id;
        if (message.type === 'taskCreated') seen.push('created');
        else if (message.type === 'taskStatus') seen.push(message.task.status);
        else seen.push(message.result ?? String(message.error));
    }
    const steps = seen.filter((step, at) => step !== seen[at - 1]);
    return { id, steps };
}

const seen = {};
const { id, steps } = await run({ topic: 'sk-123' });
seen.steps = steps;
seen.again = (await tasks.getTaskResult(id, CallToolResultSchema)).content;
seen.status = (await tasks.getTask(id)).status;
seen.listed = (await tasks.listTasks()).tasks.length;
seen.asked = (await run({ topic: 'this', ambiguous: true })).steps;
const created = await client.request(
    { method: 'tools/call', params: { name: 'simulate-research-query', arguments: { topic: 'that' }, task: {} } },
    (await load('types.js')).CreateTaskResultSchema
);
seen.cancelled = (await tasks.cancelTask(created.task.taskId)).status;
try {
    seen.after = await tasks.getTaskResult(created.task.taskId, CallToolResultSchema);
} catch (error) {
    seen.after = String(error).replace(created.task.taskId, 'ID');
}
await client.close();
console.log(JSON.stringify(seen));
process.exit(0);
