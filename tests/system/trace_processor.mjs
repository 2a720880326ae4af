// What Perfetto's trace processor answers of a trace: called by perfetto.sh with the folder that it lies in, the trace, and queries in SQL.
// Prints the rows of each query as a line of JSON. A trace or a query that it does not take ends this with an error.

import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { setImmediate } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { runInThisContext } from "node:vm";

const [folder, trace, ...queries] = process.argv.slice(2);

// It is made for a worker of a browser, where it fetches its WebAssembly by a request that it waits for.
globalThis.self = globalThis;
globalThis.WorkerGlobalScope = Object;
globalThis.location = pathToFileURL(resolve(folder, "engine_bundle.node.js"));
globalThis.XMLHttpRequest = class {
  open(_method, file) {
    this.file = file;
  }
  send() {
    this.response = readFileSync(join(folder, this.file));
  }
};
// There is only its variant of 32 bits. What it is spoken to by stays within reach.
const source = readFileSync(join(folder, "engine_bundle.node.js"), "utf8")
  .replace("= hasMemory64Support();", "= false;")
  .replace("const wasmBridge = new", "const wasmBridge = self.bridge = new");
runInThisContext(source);
const { bridge } = globalThis;
while (bridge.reqBufferAddr === 0) {
  await setImmediate(); // it begins by itself
}

const { EngineBase } = await import(pathToFileURL(resolve(folder, "engine.mjs")));
class Engine extends EngineBase {
  rpcSendRequestBytes(data) {
    port.onmessage({ data });
  }
}
const engine = new Engine();
const port = { postMessage: (data) => engine.onRpcResponseBytes(data) };
bridge.initialize(port);

const bytes = readFileSync(trace);
const PIECE = 32 << 20; // it takes no message above 64 MiB
for (let at = 0; at < bytes.length; at += PIECE) {
  await engine.parse(bytes.subarray(at, at + PIECE));
}
await engine.notifyEof();
for (const query of queries) {
  const result = await engine.query(query);
  const rows = [];
  for (const row = result.iter({}); row.valid(); row.next()) {
    rows.push(Object.fromEntries(result.columns().map((column) => [column, row.get(column)])));
  }
  // Its integers are of 64 bits, and those that are asked for here are below 2^53.
  console.log(JSON.stringify(rows, (_key, value) => (typeof value === "bigint" ? Number(value) : value)));
}
