import { afterEach, expect, spyOn, test } from "bun:test";
import { onStopSignal } from "../../../scripts/cli/stop-signals.ts";

const spies: { mockRestore(): void }[] = [];
afterEach(() => {
  for (const spy of spies.splice(0)) spy.mockRestore();
});

test("signals of one second are one request; a later one ends at once, but a closed terminal does not", () => {
  const handlers = new Map<string, (signal: string) => void>();
  const exits: unknown[] = [];
  let nowMs = 5000;
  spies.push(
    spyOn(process, "on").mockImplementation(((name: string, handler: (signal: string) => void) =>
      handlers.set(name, handler)) as never),
    spyOn(process, "exit").mockImplementation(((code: number) => exits.push(code)) as never),
    spyOn(performance, "now").mockImplementation(() => nowMs),
  );
  const asked: string[] = [];
  onStopSignal((signal) => asked.push(signal));
  const send = (signal: string) => (handlers.get(signal) ?? handlers.get("SIGINT"))!(signal);
  for (const signal of ["SIGTERM", "SIGINT"]) send(signal);
  nowMs += 1000;
  send("SIGINT");
  nowMs++;
  send("SIGHUP");
  expect([asked, exits]).toEqual([["SIGTERM"], []]);
  send("SIGINT");
  expect([asked, exits]).toEqual([["SIGTERM"], [1]]);
});

test.each([
  ["listens to a closed terminal", "exec", 1],
  ["started with nohup keeps ignoring it", 'trap "" HUP; exec', 0],
])("a process %s", (_, shell, listeners) => {
  const module = JSON.stringify(Bun.resolveSync("../../../scripts/cli/stop-signals.ts", import.meta.dir));
  const script = `const { onStopSignal } = await import(${module}); onStopSignal(() => {});
    console.log(process.listenerCount("SIGHUP"), process.listenerCount("SIGTERM")); process.exit();`;
  const { stdout } = Bun.spawnSync(["sh", "-c", `${shell} "$0" -e "$1"`, process.execPath, script]);
  expect(stdout.toString()).toBe(`${listeners} 1\n`);
});
