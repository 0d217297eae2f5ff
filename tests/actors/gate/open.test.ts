/** The file of the token that a gate makes. */
import { afterEach, expect, test } from "bun:test";
import { existsSync, lstatSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { realClock } from "../../../actors/clock.ts";
import { RunConfig } from "../../../actors/config/config.ts";
import { openGate } from "../../../actors/gate/open.ts";
import { RoutedTransport } from "../../../actors/transport/routed.ts";
import { TRANSPORT_LIMITS } from "../../../actors/transport/transport.ts";
import { removeTemporaryFolders, temporaryFolder } from "../../scripts/temporary.ts";

afterEach(removeTemporaryFolders);

const token = "the-actors-own-token";
const open = (folder: string) =>
  openGate("ws://127.0.0.1:0", {
    run: "run",
    folder,
    config: RunConfig.parse({}),
    transport: new RoutedTransport({ clock: realClock, token, ...TRANSPORT_LIMITS }),
    actorsToken: token,
    find: () => null,
    firstMessages: () => [],
    envServersChanged() {},
    event() {},
    report() {},
  });

test.each(["a link to another file", "a file of an earlier run that others may read"])(
  "replaces %s, and only its owner can read the token",
  async (before) => {
    const folder = temporaryFolder();
    const file = join(folder, "join.token");
    const other = join(folder, "other");
    writeFileSync(other, "precious");
    if (before.startsWith("a link")) symlinkSync(other, file);
    else writeFileSync(file, "old", { mode: 0o644 });
    const gate = await open(folder);
    expect(gate.tokenFile).toBe(file);
    const stat = lstatSync(file);
    expect([stat.isFile(), stat.mode & 0o777]).toEqual([true, 0o600]);
    expect(readFileSync(file, "utf8")).toMatch(/^[\w-]{32}\n$/);
    expect(readFileSync(other, "utf8")).toBe("precious");
    await gate.close("enough");
    expect(existsSync(file)).toBe(false);
  },
);
