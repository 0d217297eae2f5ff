/** What a run shows of its gate. tests/e2e/terminal.test.ts has the terminal. */
import { afterAll, expect, test } from "bun:test";
import { RunView } from "../../scripts/cli/run-view.ts";
import { configOf } from "../actors/training/stage.ts";
import { removeTemporaryFolders, temporaryFolder } from "./temporary.ts";

afterAll(removeTemporaryFolders);

const GATE = "--join ws://127.0.0.1:7 --token-file t";

test.each([
  [{}, ""],
  [{ join: { listen: "ws://127.0.0.1:7" } }, `others may join: bun run sampler ${GATE}\n`],
  [{ sampler: { count: 0 } }, `the run starts no sampler, and waits until others lend one: bun run sampler ${GATE}\n`],
  [
    { sampler: { count: 0 }, envServer: { count: 0 } },
    `the run starts no sampler and no env-server, and waits until others lend one: bun run sampler ${GATE}; bun run env-server ${GATE}\n`,
  ],
])("where others may join: %j", (settings, text) => {
  let shown = "";
  const view = new RunView({
    config: configOf(settings),
    folder: temporaryFolder(),
    quiet: false,
    terminal: false,
    write: (part) => {
      shown += part;
    },
    columns: () => 80,
  });
  view.event({ kind: "open", child: "gate", address: "ws://127.0.0.1:7", tokenFile: "t" });
  expect(shown).toBe(text);
});
