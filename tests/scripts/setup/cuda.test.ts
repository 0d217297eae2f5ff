/** `setup cuda` puts each whole library of a wheel in its place, or none of the wheel's. The wheels are made here. */
import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { NVIDIA, PROVIDER } from "../../../model/engine/cuda.ts";
import { CUDA_WHEELS, type CudaWheel, missingForCuda, setUpCuda } from "../../../scripts/setup/cuda.ts";
import { describeWhere, lackOfPython, pythonHere } from "../../needs.ts";
import { temporaryFolder } from "../temporary.ts";

describe("the wheels", () => {
  test("have the provider of onnxruntime-node's version, and every library that it needs", () => {
    const { dependencies } = JSON.parse(readFileSync(join(import.meta.dir, "../../../package.json"), "utf8"));
    const provider = CUDA_WHEELS.find(({ name }) => name === "onnxruntime-gpu")!;
    expect(provider.version).toBe(dependencies["onnxruntime-node"]);
    const names = (machineMayHave: boolean) =>
      CUDA_WHEELS.filter((wheel) => wheel.machineMayHave === machineMayHave)
        .flatMap(({ libraries }) => Object.keys(libraries))
        .sort();
    expect(names(false)).toEqual(PROVIDER.toSorted());
    expect(names(true)).toEqual(Object.keys(NVIDIA).sort());
  });

  test("are for Linux on x64; elsewhere one line says so", () => {
    expect(missingForCuda("linux", "x64")).toBeNull();
    expect(missingForCuda("darwin", "arm64")).toBe("setup cuda is for Linux on x64; this machine is darwin on arm64");
    expect(missingForCuda("linux", "arm64")).toBe("setup cuda is for Linux on x64; this machine is linux on arm64");
  });
});

test("without Python one line says what is missing, and for what", async () => {
  const wheel = { ...CUDA_WHEELS[0]!, folder: temporaryFolder() };
  await expect(
    setUpCuda(
      [wheel],
      "no-such-python",
      () => {},
      () => false,
    ),
  ).rejects.toThrow(/^no-such-python is missing; it is needed to download the wheel of nvidia-cuda-runtime$/);
});

setDefaultTimeout(120_000);

const python3 = pythonHere() ?? "python3";

/** A Python whose pip takes a wheel from its folder. The real pip takes seconds. */
function withFakePip(): string {
  const python = join(temporaryFolder(), "python");
  // python -m pip download … -d FOLDER NAME==VERSION …
  const copy = `cp ${wheelsFolder}/"$(echo "$8" | sed s/==/-/)"-py3-none-any.whl "$7"`;
  writeFileSync(python, `#!/bin/sh\nif [ "$2" = pip ]; then ${copy}; else exec ${python3} "$@"; fi\n`);
  chmodSync(python, 0o755);
  return python;
}
const wheelsFolder = temporaryFolder();

/** A wheel with a library and another file, as `setup cuda` knows it. */
function makeWheel(name: string, file: string, machineMayHave: boolean): CudaWheel & { readonly bytes: Uint8Array } {
  const made = temporaryFolder();
  const inside = "some/lib";
  const info = `${name}-1.5.dist-info`;
  for (const folder of [inside, info]) mkdirSync(join(made, folder), { recursive: true });
  const bytes = crypto.getRandomValues(new Uint8Array(10_000));
  writeFileSync(join(made, inside, file), bytes);
  writeFileSync(join(made, inside, "other.so"), "");
  writeFileSync(join(made, info, "METADATA"), `Metadata-Version: 2.1\nName: ${name}\nVersion: 1.5\n`);
  writeFileSync(join(made, info, "WHEEL"), "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-any\n");
  writeFileSync(join(made, info, "RECORD"), "");
  const path = join(wheelsFolder, `${name}-1.5-py3-none-any.whl`);
  const zip = [python3, "-m", "zipfile", "-c", path, "some", info];
  expect(Bun.spawnSync(zip, { cwd: made }).stderr.toString()).toBe("");
  return {
    name,
    version: "1.5",
    sha256: new Bun.CryptoHasher("sha256").update(readFileSync(path)).digest("hex"),
    options: [...CUDA_WHEELS[0]!.options!, "--quiet", "--no-index", "--find-links", wheelsFolder],
    inside,
    libraries: { [file]: bytes.length },
    folder: join(temporaryFolder(), "cuda"),
    machineMayHave,
    bytes,
  };
}

/** @returns what it said */
async function setUp(
  wheels: readonly CudaWheel[],
  python = withFakePip(),
  machineHas = () => false,
): Promise<string[]> {
  const said: string[] = [];
  await setUpCuda(wheels, python, (text) => void said.push(text), machineHas);
  return said;
}

describeWhere(lackOfPython("pip"), "with pip", () => {
  test("the libraries are put in place, and nothing else; the second time nothing is downloaded", async () => {
    const wheels = [makeWheel("one", "libone.so", true), makeWheel("two", "libtwo.so", false)];
    expect(await setUp(wheels, python3)).toEqual([
      "downloading wheel 1 of 2 with pip: one 1.5",
      "downloading wheel 2 of 2 with pip: two 1.5",
    ]);
    for (const { folder, libraries, bytes } of wheels) {
      const [file] = Object.keys(libraries);
      expect(readdirSync(folder)).toEqual([file!]);
      expect(readFileSync(join(folder, file!)).equals(bytes)).toBe(true);
    }
    expect(await setUp(wheels, "no-such-python")).toEqual(["found; nothing to download"]);
  });

  test("a wheel that pip does not find: one line with pip's reason", async () => {
    const wheel = { ...makeWheel("one", "libone.so", false), version: "9.9" };
    await expect(setUp([wheel], python3)).rejects.toThrow(
      / -m pip download ended with 1: ERROR: No matching distribution found for one==9\.9$/,
    );
  });
});

describeWhere(lackOfPython("zipfile"), "with Python", () => {
  test("libraries of NVIDIA that the machine has are not downloaded; the provider is", async () => {
    const [nvidia, provider] = [makeWheel("one", "libone.so", true), makeWheel("two", "libtwo.so", false)];
    const said = await setUp([nvidia, provider], withFakePip(), () => true);
    expect(said).toEqual(["downloading wheel 1 of 1 with pip: two 1.5"]);
    expect([existsSync(nvidia.folder), existsSync(join(provider.folder, "libtwo.so"))]).toEqual([false, true]);
  });

  test("a library of another version is replaced", async () => {
    const wheel = makeWheel("one", "libone.so", false);
    mkdirSync(wheel.folder);
    writeFileSync(join(wheel.folder, "libone.so"), "old");
    await setUp([wheel]);
    expect(readFileSync(join(wheel.folder, "libone.so")).equals(wheel.bytes)).toBe(true);
  });

  test("a wheel with another hash, or without a library, leaves nothing", async () => {
    const wheel = makeWheel("one", "libone.so", false);
    const hash = "0".repeat(64);
    await expect(setUp([{ ...wheel, sha256: hash }])).rejects.toThrow(
      `the wheel one-1.5-py3-none-any.whl has the SHA-256 hash ${wheel.sha256}, not ${hash}`,
    );
    expect(readdirSync(wheel.folder)).toEqual([]);
    await expect(setUp([{ ...wheel, libraries: { ...wheel.libraries, "libtwo.so": 1 } }])).rejects.toThrow(
      "the wheel of one has no some/lib/libtwo.so",
    );
    expect(readdirSync(wheel.folder)).toEqual([]);
  });
});
