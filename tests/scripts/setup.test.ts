/** `setup tensorflow` puts the whole library in its place, or nothing. The server of `setup tinker` is started, or its end is noticed. */
import { afterAll, expect, test } from "bun:test";
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setUpTensorflow } from "../../scripts/setup/tensorflow.ts";
import { startTinkerServer, tinkerPlaces } from "../../scripts/setup/tinker.ts";
import { run } from "../../scripts/setup/wheel.ts";
import { temporaryFolder } from "./temporary.ts";

const hasArchive = process.platform === "linux" && process.arch === "x64";

/** Sets up from an archive of a library, of which the server sends this share. */
async function setUp(share: number) {
  const made = temporaryFolder();
  mkdirSync(join(made, "lib"));
  const library = crypto.getRandomValues(new Uint8Array(60_000));
  writeFileSync(join(made, "lib", "libtensorflow.so.2"), library);
  const packed = Bun.spawnSync(["tar", "-cz", "-C", made, "lib"]).stdout;
  using server = Bun.serve({ port: 0, fetch: () => new Response(packed.subarray(0, share * packed.length)) });
  const folder = temporaryFolder();
  const archives = server.url.href.slice(0, -1);
  const sources = { archives, python: "no-such-python", gpu: false, folder, say: () => {} };
  const ended = await setUpTensorflow(sources, null).catch(String);
  return { library, ended, place: join(folder, "lib", "libtensorflow.so.2") };
}

test.skipIf(!hasArchive)(
  "an archive that breaks off leaves no half library, which a later command would take for a whole one",
  async () => {
    const broken = await setUp(0.5);
    expect(broken.ended).toContain("tar -xzf");
    expect(existsSync(broken.place)).toBe(false);
    const { ended, place, library } = await setUp(1);
    expect(ended).toBe(place);
    expect(readFileSync(place).equals(library)).toBe(true);
  },
);

test.skipIf(!hasArchive)("a folder of the library that is left of another install is replaced", async () => {
  const { folder, sources } = wheelSources(404);
  mkdirSync(join(folder, "lib"));
  writeFileSync(join(folder, "lib", "old"), "");
  expect(await setUpTensorflow(sources, null)).toBe(join(folder, "lib", "libtensorflow_cc.so.2"));
  expect(readdirSync(join(folder, "lib")).sort()).toEqual(["libtensorflow_cc.so.2", "libtensorflow_framework.so.2"]);
  expect(readdirSync(folder)).toEqual(["lib"]);
});

/** Sources whose archive is answered with a status, and whose wheel a script writes in place of pip. */
function wheelSources(status: number, python?: string) {
  const asked: string[] = [];
  const server = Bun.serve({
    port: 0,
    fetch(request) {
      asked.push(new URL(request.url).pathname);
      return new Response("", { status });
    },
  });
  servers.push(server);
  const folder = temporaryFolder();
  const fake = join(temporaryFolder(), "python");
  // python -m pip download … -d FOLDER NAME, and python -m zipfile -e WHEEL FOLDER
  writeFileSync(
    fake,
    `#!/bin/sh
if [ "$2" = pip ]; then touch "$7/a.whl"; else
mkdir "$5/tensorflow"; cd "$5/tensorflow"; touch libtensorflow_cc.so.2 libtensorflow_framework.so.2 libother.so; fi\n`,
  );
  chmodSync(fake, 0o755);
  const archives = server.url.href.slice(0, -1);
  const said: string[] = [];
  const sources = { archives, python: python ?? fake, gpu: true, folder, say: (text: string) => void said.push(text) };
  return { asked, folder, sources, archives, said };
}
const servers: { stop(now: boolean): unknown }[] = [];
afterAll(() => {
  for (const server of servers) server.stop(true);
});

test.skipIf(!hasArchive)(
  "first the archive for the GPU is asked for, then the wheel; a failure names both",
  async () => {
    const { asked, folder, sources, archives } = wheelSources(404, "no-such-python");
    const path = "/2.18.0/libtensorflow-gpu-linux-x86_64.tar.gz";
    await expect(setUpTensorflow(sources, null)).rejects.toThrow(
      `cannot download libtensorflow: ${archives}${path} answers 404; no-such-python is missing; it is needed to download the wheel of tensorflow. Install`,
    );
    expect([asked, readdirSync(folder)]).toEqual([[path], []]);
  },
);

test("a library that this machine has is taken", async () => {
  const { asked, sources, said } = wheelSources(404);
  expect(await setUpTensorflow(sources, "/lib/mine.so")).toBe("/lib/mine.so");
  expect([asked, said]).toEqual([[], ["found; nothing to download"]]);
});

test("a program of a setup that fails is named with its last line", async () => {
  await expect(run(["sh", "-c", "echo first >&2; echo last >&2; exit 3"])).rejects.toThrow(/ ended with 3: last$/);
});

test("a tinker server that a signal ends while it starts is not waited for", async () => {
  const folder = temporaryFolder();
  const python = join(folder, "python");
  writeFileSync(python, "#!/bin/sh\nkill -KILL $$\n");
  chmodSync(python, 0o755);
  // Port 1: nothing answers there.
  const ended = await startTinkerServer({ ...tinkerPlaces(folder), python }, 1).catch(String);
  expect(ended).toBe(`Error: skyrl-tx does not answer at http://127.0.0.1:1; its log is ${join(folder, "server.log")}`);
});

test("a tinker server that ends is not waited for, even if another program takes the request and never answers", async () => {
  const folder = temporaryFolder();
  const python = join(folder, "python");
  const asked = Promise.withResolvers<void>();
  const mute = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch() {
      asked.resolve();
      return new Promise<Response>(() => {});
    },
  });
  servers.push(mute);
  // The server ends when this test writes to the pipe.
  const go = join(folder, "go");
  Bun.spawnSync(["mkfifo", go]);
  writeFileSync(python, `#!/bin/sh\ncat ${go}\n`);
  chmodSync(python, 0o755);
  const ended = startTinkerServer({ ...tinkerPlaces(folder), python }, mute.port!).catch(String);
  await asked.promise;
  writeFileSync(go, "");
  expect(await ended).toStartWith(`Error: skyrl-tx does not answer at http://127.0.0.1:${mute.port}; `);
});

/** Calls setUpTinker in a process whose `python3` is this script. @returns the places, and what the process says on standard error */
function setUpTinkerWith(python3: string) {
  const folder = temporaryFolder();
  mkdirSync(join(folder, "model"));
  writeFileSync(join(folder, "installed"), "");
  const fake = join(folder, "python3");
  writeFileSync(fake, python3);
  chmodSync(fake, 0o755);
  const module = JSON.stringify(join(import.meta.dir, "../../scripts/setup/tinker.ts"));
  const script = `const { setUpTinker, tinkerPlaces } = await import(${module});
    await setUpTinker(tinkerPlaces(${JSON.stringify(folder)}), () => {}).catch(({ message }) => console.error(message));`;
  const env = { ...process.env, PATH: `${folder}:${process.env["PATH"]}` };
  const err = Bun.spawnSync([process.execPath, "-e", script], { env }).stderr.toString();
  return { places: tinkerPlaces(folder), err };
}

/** Makes an environment whose Python is this script. */
const VENV = '#!/bin/sh\nif [ "$2" = venv ]; then mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; fi\n';

test("an environment of Python that lost its Python is made again", async () => {
  const { places, err } = setUpTinkerWith(VENV);
  expect([err, existsSync(places.python)]).toEqual(["", true]);
});

test("a package that pip cannot install is named with pip's reason, not with pip's advice to update pip", async () => {
  const { err } = setUpTinkerWith(
    `${VENV}if [ "$2" = pip ]; then
echo "ERROR: No matching distribution found" >&2
case "$*" in *--disable-pip-version-check*) ;; *) echo "[notice] To update, run: pip install --upgrade pip" >&2 ;; esac
exit 1; fi\n`,
  );
  expect(err).toEndWith(" -m pip install ended with 1: ERROR: No matching distribution found\n");
});
