/** An env server in Python, as a process of its own on a free port. */
import { join, resolve } from "node:path";
import { pythonHere } from "../../needs.ts";

const examples = join(import.meta.dir, "../../../examples/remote-envs");

export interface PythonServer extends AsyncDisposable {
  readonly url: string;
}

/** @param script  its path from the examples. @throws {Error} if there is no Python, or the server ends before it listens. */
export async function startPython(script: string, args: string[] = [], env: Record<string, string> = {}) {
  const python = pythonHere();
  if (python === null) throw new Error("this test needs python3; install it (Debian: apt-get install python3)");
  const server = Bun.spawn([python, resolve(examples, script), "--port", "0", ...args], {
    stdout: "pipe",
    stderr: "pipe",
    env: { ...process.env, PYTHONDONTWRITEBYTECODE: "1", ...env },
  });
  const url = await firstLine(server.stdout);
  if (url === "") throw new Error(`${script} did not start: ${await new Response(server.stderr).text()}`);
  return {
    url,
    async [Symbol.asyncDispose]() {
      server.kill();
      await server.exited;
    },
  };
}

async function firstLine(stream: ReadableStream<Uint8Array<ArrayBuffer>>): Promise<string> {
  let text = "";
  for await (const chunk of stream) {
    text += new TextDecoder().decode(chunk);
    const end = text.indexOf("\n");
    if (end >= 0) return text.slice(0, end);
  }
  return "";
}
