/** What `bun run sampler` and `bun run env-server` refuse before they connect: one line, exit code 2. */
import { describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { commandHere, root } from "../command.ts";
import { temporaryFolder } from "../temporary.ts";

const folder = temporaryFolder();
const token = join(folder, "token");
writeFileSync(token, "a-token-of-this-test\n");
const twoLines = join(folder, "two-lines");
writeFileSync(twoLines, "a-token-of-this\ntest\n");
const pem = join(folder, "ca.pem");
writeFileSync(pem, "-----BEGIN CERTIFICATE-----\n");
const at = ["--join", "wss://127.0.0.1:1"];

const READABLE = "warning: other users can read --token in the process list; use --token-file FILE or BUNRAKU_TOKEN\n";

describe.each(["sampler", "env-server"])("bun run %s", (name) => {
  test.each<[string, string[], number]>([
    ["--join is missing: write --join ws://HOST:PORT, or wss:// for TLS", [], 2],
    [
      "the run's token is missing: give --token-file FILE, or set BUNRAKU_TOKEN in the environment",
      ["--join", "ws://127.0.0.1:1"],
      2,
    ],
    ["give --token or --token-file, not both", [...at, "--token", "x", "--token-file", token], 2],
    [
      `cannot read --token-file ${folder}/none: ENOENT: no such file or directory, open '${folder}/none'; name a file with the token`,
      [...at, "--token-file", join(folder, "none")],
      2,
    ],
    [
      "--token: the token has a line break or characters beyond ASCII, which HTTP cannot send; use one line of ASCII letters, digits and punctuation",
      [...at, "--token", "två-lines-are-not-one"],
      2,
    ],
    [
      `--token-file ${twoLines}: the token has a line break or characters beyond ASCII, which HTTP cannot send; use one line of ASCII letters, digits and punctuation`,
      [...at, "--token-file", twoLines],
      2,
    ],
    ["--cert and --key need each other; give both, or neither", [...at, "--token-file", token, "--cert", token], 2],
    ["--cert and --key need each other; give both, or neither", [...at, "--token-file", token, "--key", token], 2],
    ["--patience takes seconds, 0 or more, got -1", [...at, "--token-file", token, "--patience=-1"], 2],
    [
      "--join: ws://127.0.0.1:1 does not use certificates; write wss://",
      ["--join", "ws://127.0.0.1:1", "--token-file", token, "--ca", pem],
      2,
    ],
    [
      "cannot use --ca: /dev/zero has more than 1048576 bytes; name a file in PEM format",
      [...at, "--token-file", token, "--ca", "/dev/zero"],
      1,
    ],
    [
      `cannot use --ca: ${token} is not in PEM format; name a file with a CERTIFICATE in PEM format`,
      [...at, "--token-file", token, "--ca", token],
      1,
    ],
    [
      "--join: cannot use http://127.0.0.1:1: expected ws://HOST:PORT, or wss://HOST:PORT for TLS",
      ["--join", "http://127.0.0.1:1", "--token-file", token],
      2,
    ],
    [`${name} has no flag --jion; did you mean --join?`, ["--jion", "ws://127.0.0.1:1"], 2],
  ])("%s", async (message, args, code) => {
    const warning = message.startsWith("--token: ") ? READABLE : "";
    expect(await commandHere([name, ...args])).toEqual({ code, out: "", err: `${warning}error: ${message}\n` });
  });
});

test("--token comes before BUNRAKU_TOKEN", async () => {
  const { err } = await commandHere(["sampler", ...at, "--token", "två"], { BUNRAKU_TOKEN: "a-token-of-this-test" });
  expect(err).toStartWith(`${READABLE}error: --token: the token has a line break or characters beyond ASCII`);
});

test("a guest that is stopped before it has joined ends with 0, and with its JSON", async () => {
  const args = ["sampler", "--join", "ws://127.0.0.1:1", "--token-file", token, "--json"];
  const child = Bun.spawn([process.execPath, "scripts/run.ts", ...args], {
    cwd: root,
    stdio: ["ignore", "pipe", "pipe"],
  });
  // It tries to join.
  await child.stderr.getReader().read();
  child.kill("SIGINT");
  expect([await child.exited, JSON.parse(await child.stdout.text())]).toEqual([0, { run: null, actor: null, code: 0 }]);
});
