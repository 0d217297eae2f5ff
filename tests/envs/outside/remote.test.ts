/** Remote envs, played by the Python example server: the real process, also over a line that loses answers. */
import { afterAll, describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { composeRunConfig } from "../../../actors/config/compose.ts";
import { EnvServer } from "../../../actors/env-server/env-server.ts";
import { meanBaselines, measureBaselines } from "../../../actors/training/baselines.ts";
import { evaluatePlayer, expertSuccess } from "../../../envs/analysis/evaluate.ts";
import type { OutsideGame } from "../../../envs/env.ts";
import { openEpisode } from "../../../envs/episode.ts";
import { envTag } from "../../../envs/registry.ts";
import { answerSchemas } from "../../../envs/remote/protocol.ts";
import { FakeClock } from "../../actors/fake-clock.ts";
import { pythonHere } from "../../needs.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";
import { type PythonServer, startPython } from "./python-server.ts";

const python: PythonServer = await startPython("guess.py");
afterAll(() => python[Symbol.asyncDispose]());

const remote = (options: object = {}) => envTag("Remote", { url: python.url, retryMs: 1, ...options });
const game = (options: object = {}, layout = 5) => remote(options).open({ layout, dynamics: 0 }) as OutsideGame;

/** What an episode shows and pays for these guesses. */
async function played(options: object, layout: number, guesses: readonly string[]) {
  const episode = game(options, layout);
  await episode.start();
  const seen: unknown[] = [episode.render()];
  for (const guess of guesses) {
    const effect = await episode.act(guess);
    seen.push(episode.render(), effect);
    if (effect.done) break;
  }
  await episode.close();
  return seen;
}

/** Stands before the server and counts its requests. `lose` says after which of them the answer never arrives. */
function line(lose: (request: number) => boolean) {
  const paths: string[] = [];
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    async fetch(request) {
      const { pathname } = new URL(request.url);
      paths.push(pathname);
      const lost = lose(paths.length);
      const { method, headers } = request;
      const body = method === "POST" ? await request.text() : null;
      const answer = await fetch(python.url + pathname, { method, headers, body });
      const text = await answer.text();
      return lost ? new Response("lost", { status: 502 }) : new Response(text, { status: answer.status });
    },
  });
  return { url: `http://127.0.0.1:${server.port}`, paths, [Symbol.asyncDispose]: () => server.stop(true) };
}

describe("a remote game", () => {
  test("is opened, played and closed", async () => {
    const told = ["I think of a number from 1 to 20.", "nonsense", "10", "20"];
    const seen = await played({}, 5, told.slice(1));
    expect(seen[0]).toBe(told[0]);
    expect(seen[1]).toBe("'nonsense' is no number.");
    expect(seen[2]).toEqual({ reward: -1, done: false, success: false, valid: false, effective: false, extra: {} });
    expect(seen[3]).toMatch(/^10 is too (small|large)\.$/);
    expect(seen[4]).toMatchObject({ reward: -1, valid: true, effective: true });
  });

  test("is the same again for the same seeds, and has the server's options", async () => {
    const guesses = ["3", "17", "9"];
    expect(await played({}, 7, guesses)).toEqual(await played({}, 7, guesses));
    expect((await played({ options: { highest: 5 } }, 7, []))[0]).toBe("I think of a number from 1 to 5.");
  });

  test("plays each step once, though every other answer is lost", async () => {
    const guesses = Array.from({ length: 20 }, (_, i) => String(i + 1));
    for (const layout of [1, 2, 3]) {
      await using lossy = line((request) => request % 2 === 1);
      expect(await played({ url: lossy.url }, layout, guesses)).toEqual(await played({}, layout, guesses));
      expect(lossy.paths.filter((path) => path === "/open").length).toBe(2);
    }
  });

  test("fails with the server's words for what the server refuses", async () => {
    expect(await played({ env: "chess" }, 1, []).catch(String)).toBe(
      'Error: the remote server has no env "chess"; it has guess (options.env)',
    );
    const error = await played({ options: { highest: "many" } }, 1, []).catch(String);
    expect(error).toContain("/open: answers 422: the env raised TypeError: ");
  });

  test("says how to get a server where there is none", async () => {
    await using gone = line(() => false);
    await gone[Symbol.asyncDispose]();
    const error = await played({ url: gone.url, retriesMax: 1 }, 1, []).catch(String);
    expect(error).toContain("/health after 2 tries: cannot be reached");
    expect(error).toEndWith("Start the server, or set env.options.url; see docs/remote-envs.md.");
  });

  test("is closed at the server however it is left, also while a step is played", async () => {
    const episode = game();
    await episode.start();
    const answer = episode.act("3").catch(String);
    await episode.close();
    await episode.close();
    expect(await answer).toBe("Error: the episode was closed");
    const unopened = game();
    await unopened.close();
  });
});

test("a server lists at most 4,096 actions", () => {
  const opened = (count: number) =>
    answerSchemas.open.safeParse({ observation: "", actions: Array.from({ length: count }, (_, i) => `${i}`) }).success;
  expect([opened(4096), opened(4097)]).toEqual([true, false]);
});

describe("the tag", () => {
  test("is solved by the server's expert, and by chance as a guess is", async () => {
    const tag = remote({ expert: true });
    const options = { episodes: 64, seed: 123, actionsMax: 5 };
    expect(await evaluatePlayer(tag, tag.expert!, options)).toMatchObject({ success: 1 });
    // Five guesses of twenty: 1 - (19/20)^5 = 0.226; the interval of 64 episodes around it.
    const { success } = await evaluatePlayer(tag, tag.random, options);
    expect(success).toBeWithin(0.08, 0.38);
  });

  test("shows the expert's success where the best possible is unknown", async () => {
    const config = composeRunConfig([
      {
        source: "test",
        values: {
          env: { tag: "Remote", options: { url: python.url, expert: true }, actionsMax: 5 },
          validate: { episodes: 32 },
          warmStart: { enabled: false },
        },
      },
    ]);
    const { random, best, expert } = meanBaselines(await measureBaselines(config));
    expect([best, expert, random! < 0.5]).toEqual([null, 1, true]);
    expect(await expertSuccess(remote(), { episodes: 1, seed: 1 })).toBeNull();
    expect(await expertSuccess(envTag("FrozenLake"), { episodes: 1, seed: 1 })).toBeNull();
  });

  test("names the missing player of the server", async () => {
    const tag = remote();
    expect(tag.expert).toBeUndefined();
    const asked = { ...remote(), expert: remote({ expert: true }).expert! };
    expect(await evaluatePlayer(asked, asked.expert, { episodes: 1, seed: 1 }).catch(String)).toContain(
      "set env.options.expert to false",
    );
  });

  test.each([
    [{ url: "ftp://host/" }, "must be http:// or https://"],
    [{ url: "http://me:secret@host/" }, "without user, password"],
    [{ tokenVariable: "s3cret-token" }, "must be the name of an environment variable, not the token itself"],
  ])("refuses %j", (options, message) => {
    expect(() => envTag("Remote", options)).toThrow(message);
  });
});

test("an env server plays a remote episode through, and the far server holds nothing afterwards", async () => {
  const tag = remote();
  const clock = new FakeClock();
  const rules = { turnsMax: 10, actionsMax: 3, actionsPerTurnMax: 2, formatPenalty: -0.5, think: false };
  const server = new EnvServer({
    find: () => (seeds) => openEpisode(tag.open(seeds), rules),
    episodesMax: 4,
    idleMs: 1000,
    answerMsMax: 10_000,
    clock,
    warn: (text) => expect(text).toBe(""),
  });
  const open = { type: "env.open", episode: "e", env: "Remote", layoutSeed: 1, dynamicsSeed: 2 } as const;
  expect(await server.answer("s", open)).toMatchObject({ type: "env.opened", actionsLeft: 3 });
  const step = { type: "env.step", episode: "e", turn: 0, reply: "<answer>0 || 0</answer>" } as const;
  expect(await server.answer("s", step)).toMatchObject({ reward: -2, actionsLeft: 1, ending: null, penalty: 0 });
  expect(await server.answer("s", { ...step, turn: 1 })).toMatchObject({ reward: -1, ending: "actions" });
  await server.stop();
  expect(server.openCount).toBe(0);
});

test.each([
  [2, 1],
  [3, 0],
])("an episode that fails %d times is repeated, up to three attempts", async (failures, success) => {
  const [opened, closed]: [number[], number[]] = [[], []];
  const open = (): OutsideGame => {
    const attempt = opened.push(0);
    return {
      kind: "outside",
      actions: null,
      start: async () => {},
      render: () => "",
      async act() {
        if (attempt <= failures) throw new Error("the line is dead");
        return { reward: 1, done: true, effective: true, valid: true, success: true };
      },
      close: async () => void closed.push(attempt),
    };
  };
  const tag = { ...remote(), open };
  const result = await evaluatePlayer(tag, () => "go", { episodes: 1, seed: 1 }).catch(String);
  expect(result).toEqual(success === 1 ? expect.objectContaining({ success }) : "Error: the line is dead");
  expect(closed).toEqual([1, 2, 3]);
});

describe("the example server", () => {
  const examples = join(import.meta.dir, "../../../examples/remote-envs");
  /** Runs a script that knows the example server and its env, without HTTP. */
  const inPython = (script: string) => {
    const head = "from env_server import EnvServer, HttpServer, Refused\nfrom guess import Guess\n";
    const { stdout, stderr } = Bun.spawnSync([pythonHere()!, "-c", head + script], {
      cwd: examples,
      env: { ...process.env, PYTHONDONTWRITEBYTECODE: "1" },
    });
    return { out: stdout.toString(), err: stderr.toString() };
  };
  const post = (path: string, body: object | string, headers = {}, url = python.url) =>
    fetch(url + path, {
      method: "POST",
      headers,
      body: typeof body === "string" ? body : JSON.stringify(body),
    });
  const open = { env: null, layoutSeed: 1, dynamicsSeed: 1, expert: false, options: {} };

  test("answers a repeated ask alike, and refuses every other step than the next", async () => {
    const opened = await (await post("/open", { ...open, episode: "twice" })).json();
    expect(await (await post("/open", { ...open, episode: "twice" })).json()).toEqual(opened);
    expect((await post("/open", { ...open, episode: "twice", layoutSeed: 2 })).status).toBe(409);
    const step = { episode: "twice", step: 0, action: "0" };
    const stepped = await (await post("/step", step)).json();
    expect(await (await post("/step", step)).json()).toEqual(stepped);
    for (const wrong of [
      { ...step, action: "1" },
      { ...step, step: 2 },
    ]) {
      expect((await post("/step", wrong)).status).toBe(409);
    }
    for (const _ of [1, 2]) expect(await (await post("/close", { episode: "twice" })).json()).toEqual({});
    expect((await post("/step", { ...step, step: 1 })).status).toBe(404);
  });

  test.each([
    ["/step", { episode: "e" }, 400, "step must be of type int"],
    ["/open", "{", 400, "the body is no JSON"],
    ["/open", { episode: "e", layoutSeed: true, dynamicsSeed: 1 }, 400, "layoutSeed must be of type int"],
    ["/batch", { asks: [] }, 404, "nothing at /batch"],
    ["/open", "[]", 400, "the body must be an object"],
    ["/nowhere", {}, 404, "nothing at /nowhere"],
  ])("answers %s with %j by %p, and goes on", async (path, body, status, said) => {
    const answer = await post(path, body);
    expect(answer.status).toBe(status);
    expect(await answer.text()).toContain(said);
    expect((await fetch(`${python.url}/health`)).status).toBe(200);
  });

  test("refuses a body without its length", async () => {
    const endless = new ReadableStream({ pull: (controller) => controller.enqueue(new TextEncoder().encode("x")) });
    const answer = await fetch(`${python.url}/open`, { method: "POST", body: endless });
    expect([answer.status, await answer.json()]).toEqual([411, { error: "a body needs its Content-Length" }]);
  });

  test("takes no body beyond its limit", async () => {
    const answer = await post("/open", "x".repeat(2 ** 20 + 1)).catch(() => null);
    // It may hang up before the whole body is sent, which is a refusal too.
    if (answer !== null) expect(answer.status).toBe(413);
    expect((await fetch(`${python.url}/health`)).status).toBe(200);
  });

  test("refuses clients without its token", async () => {
    const variable = "BUNRAKU_TEST_REMOTE_TOKEN";
    await using closed = await startPython("guess.py", ["--token-variable", variable], { [variable]: "open sesame" });
    expect((await fetch(`${closed.url}/health`)).status).toBe(401);
    expect((await post("/open", { ...open, episode: "e" }, { authorization: "Bearer wrong" }, closed.url)).status).toBe(
      401,
    );
    process.env[variable] = "open sesame";
    try {
      expect(await played({ url: closed.url, tokenVariable: variable }, 1, ["0"])).toHaveLength(3);
    } finally {
      delete process.env[variable];
    }
  });

  test("forgets every idle episode for a new one, also if the close of one raises", () => {
    const { out, err } = inPython(`
import sys

class Broken(Guess):
    def close(self):
        raise OSError("the line is dead")

class Leaving(Guess):
    def close(self):
        sys.exit("a wrong close")

now = [0.0]
server = EnvServer({"broken": Broken, "leaving": Leaving, "guess": Guess}, 3, 600.0, lambda: now[0])
for name in ("broken", "leaving", "guess"):
    server.open({"episode": name, "env": name, "layoutSeed": 1, "dynamicsSeed": 1})
now[0] = 601.0
server.open({"episode": "new", "env": "guess", "layoutSeed": 1, "dynamicsSeed": 1})
print(list(server.episodes), server.step({"episode": "new", "step": 0, "action": "1"})["done"])
`);
    expect(out).toBe("['new'] False\n");
    expect(err.trimEnd().split("\n")).toEqual([
      "warning: idle episode broken: close() raised OSError: the line is dead",
      "warning: idle episode leaving: close() raised SystemExit: a wrong close",
    ]);
  });

  test("prints no stack of a client that leaves, and that of a fault", () => {
    const { err } = inPython(`
server = HttpServer(("127.0.0.1", 0), None)
for error in (ConnectionResetError("gone"), ValueError("a fault")):
    try:
        raise error
    except Exception:
        server.handle_error(None, ("127.0.0.1", 1))
`);
    expect([err.includes("gone"), err.includes("ValueError: a fault")]).toEqual([false, true]);
  });

  test("reports why an episode does not open, not that its close raises too", () => {
    const { out } = inPython(`
class Broken(Guess):
    def __init__(self, *seeds):
        pass
    @property
    def observation(self):
        raise ValueError("no picture")
    def close(self):
        raise OSError("the line is dead")

class Leaving(Broken):
    def close(self):
        raise SystemExit("a wrong close")

for env in (Broken, Leaving):
    server = EnvServer({"broken": env})
    try:
        server.open({"episode": "e", "layoutSeed": 1, "dynamicsSeed": 1})
    except Refused as refused:
        print(refused.status, refused, server.episodes)
`);
    expect(out).toBe("422 the env raised ValueError: no picture {}\n".repeat(2));
  });

  test("answers for an env that ends by sys.exit, and plays the step no second time", () => {
    const { out, err } = inPython(`
import sys

class Leaving(Guess):
    def step(self, action):
        print("plays", action)
        sys.exit("a wrong argument")
    def close(self):
        sys.exit("a wrong close")

def leave(*_):
    sys.exit("no such board")

server = EnvServer({"leaving": Leaving, "none": leave})
e = {"episode": "e", "action": "1", "step": 0, "layoutSeed": 1, "dynamicsSeed": 1}
for kind, env in (("open", "none"), ("open", "leaving"), ("step", ""), ("step", ""), ("close", "")):
    try:
        server.answer(kind, {**e, "env": env})
    except Refused as refused:
        print(refused.status, refused)
`);
    expect(err).toBe("");
    expect(out.trimEnd().split("\n")).toEqual([
      "422 the env raised SystemExit: no such board",
      "plays 1",
      "422 the env raised SystemExit: a wrong argument",
      "409 episode e is over; cannot play step 0",
      "422 the env raised SystemExit: a wrong close",
    ]);
  });

  test.each([
    ['float("nan")', "not JSON compliant"],
    ["object()", "Object of type object is not JSON serializable"],
  ])("refuses a reward of %s once: a repeated request would fail alike", async (reward, message) => {
    const script = join(temporaryFolder(), "bad.py");
    const head = `import sys\nsys.path.insert(0, ${JSON.stringify(examples)})\nfrom env_server import main\n`;
    const step = `lambda self, action: {"reward": ${reward}, "done": False, "success": False}`;
    const env = `type("Bad", (), {"observation": "go", "step": ${step}})`;
    writeFileSync(script, `${head}main({"bad": lambda *_: ${env}()}, "bad")\n`);
    await using bad = await startPython(script);
    const error = await played({ url: bad.url }, 1, ["0"]).catch(String);
    expect(error).toContain("/step: answers 422: the env returned what JSON cannot hold: ");
    expect(error).toContain(message);
  });

  test("says what to do where its port is taken", async () => {
    const { port } = new URL(python.url);
    const said = await startPython("guess.py", ["--port", port]).catch(String);
    expect(said).toContain(`error: cannot listen on 127.0.0.1:${port}: `);
    expect(said).toContain("; choose another --port, or 0 for a free one");
  });

  test("does not listen to others without a token", async () => {
    expect(await startPython("guess.py", ["--host", "0.0.0.0"]).catch(String)).toContain(
      "0.0.0.0 is open to other machines",
    );
  });
});
