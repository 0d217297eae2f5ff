/** A sampler loads the published weights bit for bit, and refuses anything else in one line. No file stays behind. */

import { beforeEach, describe, expect, test } from "bun:test";
import { readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { WeightsError } from "../../../actors/errors.ts";
import { parseMessage } from "../../../actors/protocol.ts";
import { isAlive, sweep, thisProcess, weightsFolder, weightsPath } from "../../../actors/weights/files.ts";
import { loadWeights } from "../../../actors/weights/load.ts";
import { type Published, WeightsPublisher } from "../../../actors/weights/publisher.ts";
import { Sealer } from "../../../actors/weights/seal.ts";
import { endsOfTests } from "../../ends.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";

let folder: string;
const ends = endsOfTests();
beforeEach(() => {
  folder = temporaryFolder();
});

const publisherIn = (options: Partial<ConstructorParameters<typeof WeightsPublisher>[0]> = {}) =>
  new WeightsPublisher({ folder, run: "test", ...options });
const values = (version: number, length = 1000) => Float32Array.from({ length }, (_, i) => version + i / length);
const sha256 = (bytes: Uint8Array) => new Bun.CryptoHasher("sha256").update(bytes).digest("hex");
const pathOf = ({ location }: Published) => (location.kind === "shared" ? location.path : "");
const versionsLeft = () => readdirSync(folder).map((name) => Number(/-v(\d+)$/.exec(name)?.[1]));

describe("a published version", () => {
  test("is loaded to the bit, and its message passes the protocol's check", async () => {
    // Every pattern of bits that the sixteen upper ones can have: infinities, NaN with payloads, subnormals.
    const patterns = Uint32Array.from({ length: 1 << 16 }, (_, upper) => (upper << 16) | 1);
    const message = await publisherIn().publish(3, new Float32Array(patterns.buffer));
    expect(parseMessage(message)).toEqual(message);
    expect(message).toMatchObject({ version: 3, byteLength: 1 << 18, digest: sha256(new Uint8Array(patterns.buffer)) });
    const loaded = await loadWeights(message, 1 << 16);
    expect(loaded.digest).toBe(message.digest);
    expect(new Uint32Array(loaded.values!.buffer, loaded.values!.byteOffset, 1 << 16)).toEqual(patterns);
  });

  test("can come from a part of memory that threads share, and be larger than one piece", async () => {
    const length = 5 << 20;
    const memory = new Float32Array(new SharedArrayBuffer(4 * length + 8), 4, length).map((_, i) => i);
    const loaded = await loadWeights(await publisherIn().publish(0, memory), length);
    expect(loaded.values).toEqual(Float32Array.from(memory));
  });

  test("never changes: what one process writes into its copy reaches neither the file nor another process", async () => {
    const message = await publisherIn().publish(1, values(1));
    const [mine, other] = [await loadWeights(message, 1000), await loadWeights(message, 1000)];
    mine.values!.fill(0);
    expect(other.values).toEqual(values(1));
    expect(sha256(readFileSync(pathOf(message)))).toBe(message.digest);
  });

  test("stays with who has mapped it when it is unlinked", async () => {
    const publisher = publisherIn();
    const loaded = await loadWeights(await publisher.publish(1, values(1)), 1000);
    publisher.close();
    expect(readdirSync(folder)).toEqual([]);
    expect(loaded.values).toEqual(values(1));
  });

  test("is newer than the one before, or refused", async () => {
    const publisher = publisherIn();
    await publisher.publish(5, values(5));
    for (const version of [5, 4, 5.5]) {
      await expect(publisher.publish(version, values(1))).rejects.toThrow(
        new RangeError(`cannot publish version ${version}: the last was 5, and versions only grow`),
      );
    }
    const next = publisher.publish(6, values(6));
    await expect(publisher.publish(7, values(7))).rejects.toThrow("while another one is being published");
    await next;
    expect(versionsLeft().sort()).toEqual([5, 6]);
  });
});

describe("a publisher", () => {
  test("keeps the newest two versions", async () => {
    const publisher = publisherIn();
    for (const version of [1, 2, 3, 4]) await publisher.publish(version, values(version));
    expect(versionsLeft().sort()).toEqual([3, 4]);
  });

  test("leaves nothing when it is closed, even in the middle of publishing", async () => {
    const publisher = publisherIn();
    await publisher.publish(1, values(1));
    const last = publisher.publish(2, values(2));
    publisher.close();
    await last;
    expect(readdirSync(folder)).toEqual([]);
    await expect(publisher.publish(3, values(3))).rejects.toThrow("the publisher is closed");
  });

  test("says where it could not write, and leaves nothing", async () => {
    const publisher = publisherIn({ folder: join(folder, "gone") });
    const error = await publisher.publish(1, values(1)).catch((error: unknown) => error);
    expect(error).toBeInstanceOf(WeightsError);
    expect((error as Error).message).toMatch(
      /^cannot write version 1, 4000 bytes, to \S+\/gone\/bunraku-test-\S+-v1: ENOENT: no such file or directory/,
    );
  });

  test("goes to the spare folder, for good and saying so once, when shared memory is full", async () => {
    const spareFolder = temporaryFolder();
    const notices: string[] = [];
    let full = true;
    const write = async (path: string, bytes: Uint8Array) => {
      if (full && path.startsWith(folder)) throw Object.assign(new Error("ENOSPC: no space left"), { code: "ENOSPC" });
      writeFileSync(path, bytes);
      const sealer = new Sealer();
      sealer.update(bytes);
      return { digest: sha256(bytes), seal: sealer.seal() };
    };
    const publisher = publisherIn({ spareFolder, write, notice: (text) => notices.push(text) });
    const first = await publisher.publish(1, values(1));
    full = false;
    const second = await publisher.publish(2, values(2));
    expect([first, second].map((message) => pathOf(message).startsWith(spareFolder))).toEqual([true, true]);
    expect((await loadWeights(first, 1000)).values).toEqual(values(1));
    expect(notices).toEqual([
      `${folder} has no room for 4000 bytes of weights; from now on weights go to ${spareFolder}`,
    ]);
    full = true;
    await expect(publisherIn({ write }).publish(1, values(1))).rejects.toThrow(/-v1: ENOSPC: no space left$/);
  });

  test("stays in its folder, whatever the run is called", () => {
    for (const run of ["../../etc/x", "a/b", "läuft-v3", ".."]) {
      const path = weightsPath(folder, run, thisProcess(), 1);
      expect(join(folder, basename(path))).toBe(path);
      expect(basename(path)).toMatch(/^bunraku-[\w-]+-\d+\.\d+\.\d+-v1$/);
    }
  });
});

describe("files without a name", () => {
  test("are loaded as any, and nothing of them is ever in the folder", async () => {
    const publisher = publisherIn({ nameless: true });
    const first = await publisher.publish(1, values(1));
    const loaded = await loadWeights(first, 1000);
    expect(loaded).toMatchObject({ values: values(1), digest: first.digest });
    const second = await publisher.publish(2, values(2));
    expect((await loadWeights(second, 1000)).values).toEqual(values(2));
    await publisher.publish(3, values(3));
    // The first is gone, but for who has it.
    await expect(loadWeights(first, 1000)).rejects.toBeInstanceOf(WeightsError);
    expect(loaded.values).toEqual(values(1));
    publisher.close();
    expect(readdirSync(folder)).toEqual([]);
  });

  test("are gone with a process that was killed, and who has mapped one keeps it", async () => {
    const script = `
      import { WeightsPublisher } from ${JSON.stringify(join(import.meta.dir, "../../../actors/weights/publisher.ts"))};
      const publisher = new WeightsPublisher({ folder: ${JSON.stringify(folder)}, run: "test", nameless: true });
      console.log(JSON.stringify(await publisher.publish(3, Float32Array.from({ length: 1000 }, (_, i) => 3 + i / 1000))));
      setInterval(() => {}, 1000);`;
    const child = Bun.spawn([process.execPath, "-e", script], { stdout: "pipe" });
    let line = "";
    for await (const bytes of child.stdout) {
      line += new TextDecoder().decode(bytes);
      if (line.endsWith("\n")) break;
    }
    const message = JSON.parse(line) as Published;
    const loaded = await loadWeights(message, 1000);
    child.kill("SIGKILL");
    await child.exited;
    expect(loaded.values).toEqual(values(3));
    expect(readdirSync(folder)).toEqual([]);
    await expect(loadWeights(message, 1000)).rejects.toThrow("no such file or directory");
  });
});

describe("weights that are not what was published are refused", () => {
  let message: Published;
  const refusal = async (wanted = message, length = 1000) => {
    const error = (await loadWeights(wanted, length).catch((error: unknown) => error)) as WeightsError;
    expect(error).toBeInstanceOf(WeightsError);
    expect(error.message).not.toContain("\n");
    return error;
  };
  beforeEach(async () => {
    message = await publisherIn().publish(8, values(8));
  });

  test("one flipped bit: with the digest of what was found", async () => {
    const bytes = readFileSync(pathOf(message));
    bytes[1234]! ^= 4;
    writeFileSync(pathOf(message), bytes);
    expect(await loadWeights(message, 1000)).toEqual({ values: null, digest: sha256(bytes) });
  });

  test("a shorter file", async () => {
    truncateSync(pathOf(message), 3000);
    expect((await refusal()).message).toEndWith(
      "the file has 3000 bytes, but the learner published 4000 bytes from byte 0 on",
    );
  });

  test("a file that is gone", async () => {
    rmSync(pathOf(message));
    expect((await refusal()).message).toContain("ENOENT: no such file or directory");
  });

  test("a policy of another size", async () => {
    expect((await refusal(message, 999)).message).toEndWith(
      "they are 4000 bytes, and this policy has 999 values of 4 bytes",
    );
  });

  test("a place where no value can begin", async () => {
    const location = { ...message.location, byteOffset: 2 } as Published["location"];
    expect((await refusal({ ...message, location })).message).toEndWith("values of 4 bytes cannot begin at byte 2");
  });

  test("but not a good part of a larger file", async () => {
    const bytes = new Uint8Array(values(8).buffer);
    const path = join(folder, "arena");
    writeFileSync(path, Buffer.concat([new Uint8Array(400), bytes, new Uint8Array(40)]));
    const loaded = await loadWeights(
      { ...message, location: { ...message.location, path, byteOffset: 400 } as never },
      1000,
    );
    expect(loaded.values).toEqual(values(8));
  });
});

describe("what a dead learner left", () => {
  /** A real process that has published one version. */
  async function learner() {
    const script = join(import.meta.dir, "weights-process.ts");
    const child = Bun.spawn([process.execPath, script, folder, "other run"], { stdin: "pipe", stdout: "pipe" });
    ends.push(() => child.kill("SIGKILL"));
    for await (const text of child.stdout.pipeThrough(new TextDecoderStream())) {
      return { child, message: JSON.parse(text) as Published };
    }
    throw new Error("the learner said nothing");
  }

  test("is swept when it was killed, and not while it lives; who has mapped it keeps it", async () => {
    const { child, message } = await learner();
    const name = basename(pathOf(message));
    expect(sweep(folder)).toEqual([]);
    const loaded = await loadWeights(message, 1000);
    child.kill("SIGKILL");
    await child.exited;
    writeFileSync(join(folder, `${name}.part`), "half");
    expect(sweep(folder).sort()).toEqual([name, `${name}.part`]);
    expect(readdirSync(folder)).toEqual([]);
    expect(loaded.values).toEqual(Float32Array.from({ length: 1000 }, (_, i) => i / 7));
  });

  test("is swept when its pid is another process's now, but not if it is of another pid namespace", () => {
    const me = thisProcess();
    const paths = [me, { ...me, startTime: me.startTime + 1 }, { ...me, namespace: me.namespace + 1, pid: 1 << 30 }];
    for (const owner of paths) writeFileSync(weightsPath(folder, "r", owner, 1), "x");
    expect(sweep(folder)).toEqual([basename(weightsPath(folder, "r", paths[1]!, 1))]);
  });

  test("is all that is swept: other files stay, dead owner or not", () => {
    const dead = weightsPath("", "r", { ...thisProcess(), pid: 1 << 30 }, 1);
    const names = ["bunraku", "bunraku-x-v1", `sem.${dead}`, `${dead}.bak`, dead.replace(/\.\d+-/, "-")];
    for (const name of names) writeFileSync(join(folder, name), "x");
    expect(sweep(folder)).toEqual([]);
    expect(readdirSync(folder).sort()).toEqual(names.sort());
  });

  test.skipIf(process.platform !== "linux")(
    "is swept too when its owner is a zombie, which kill -0 calls alive",
    async () => {
      // The shell becomes a program that never asks what became of its child, while that still lives.
      const parent = Bun.spawn(["sh", "-c", "sleep 1 & echo $!; exec sleep 60"], { stdout: "pipe" });
      ends.push(() => parent.kill("SIGKILL"));
      let pid = 0;
      for await (const text of parent.stdout.pipeThrough(new TextDecoderStream())) {
        pid = Number(text);
        break;
      }
      const stat = () => readFileSync(`/proc/${pid}/stat`, "utf8").split(" ");
      while (stat()[2] !== "Z") await Bun.sleep(1);
      expect(process.kill(pid, 0)).toBe(true);
      expect(isAlive({ ...thisProcess(), pid, startTime: Number(stat()[21]) })).toBe(false);
    },
  );
});

describe("weightsFolder", () => {
  test("is shared memory where there is some", () => {
    const notices: string[] = [];
    expect(weightsFolder("run", (text) => notices.push(text), folder)).toBe(folder);
    expect(notices).toEqual([]);
  });

  test("is the run's own folder elsewhere, and says so in one line", () => {
    const notices: string[] = [];
    expect(weightsFolder("runs/x", (text) => notices.push(text), join(folder, "none"))).toBe("runs/x");
    expect(notices).toEqual([
      `${join(folder, "none")} cannot be written, so weights go through runs/x, which is slower on a slow disk`,
    ]);
  });
});
