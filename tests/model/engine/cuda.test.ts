/**
 * What is loaded for onnxruntime's CUDA provider, and the message where something is missing. gcc makes libraries with the names and
 * needs of NVIDIA's. They are loaded in a process of their own, which keeps them until its end.
 */
import { expect, test } from "bun:test";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expectCudaProvider, NVIDIA, PROVIDER } from "../../../model/engine/cuda.ts";
import { describeWhere } from "../../needs.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";

const [shared, cuda] = PROVIDER;
const GET = "on Linux x64 with NVIDIA's driver R580 or newer, get it with: bun run setup cuda";

test("a provider that is not installed: one line says what is missing, and how to get it", () => {
  const folder = temporaryFolder();
  expect(() => expectCudaProvider(folder)).toThrow(
    new Error(`onnxruntime's CUDA provider is not installed: ${shared} and ${cuda} are not in ${folder}; ${GET}`),
  );
  writeFileSync(join(folder, shared!), "");
  expect(() => expectCudaProvider(folder)).toThrow(`is not installed: ${cuda} is not in ${folder}; ${GET}`);
});

/** Makes a library of functions without arguments, each of which returns a number. */
function library(folder: string, name: string, functions: Record<string, string>, needs: readonly string[] = []): void {
  const source = Object.entries(functions).map(([name, body]) => `int ${name}(int *out) { ${body} }`);
  writeFileSync(join(folder, `${name}.c`), source.join("\n"));
  const names = [`-Wl,-soname,${name}`, "-o", join(folder, name), join(folder, `${name}.c`)];
  const linked = ["-Wl,--no-as-needed", ...needs.map((need) => join(folder, need))];
  const made = Bun.spawnSync(["gcc", "-shared", "-fPIC", "-nostdlib", ...names, ...linked]);
  expect(made.stderr.toString()).toBe("");
}

/** A folder of NVIDIA's libraries, whose functions return this number. */
function nvidiaLibraries(number: number): string {
  const folder = temporaryFolder();
  for (const [name, symbol] of Object.entries(NVIDIA)) {
    const needs = name === "libcublas.so.13" ? ["libcublasLt.so.13"] : [];
    library(folder, name, { [symbol]: `return ${number};` }, needs);
  }
  return folder;
}

/** A folder of a provider that ends the process when it is loaded. */
function provider(): string {
  const folder = temporaryFolder();
  writeFileSync(join(folder, shared!), "");
  writeFileSync(
    join(folder, `${cuda}.c`),
    "__attribute__((constructor)) static void crash(void) { __builtin_trap(); }",
  );
  Bun.spawnSync(["gcc", "-shared", "-fPIC", "-nostdlib", "-o", join(folder, cuda!), join(folder, `${cuda}.c`)]);
  return folder;
}

/** A folder of a driver for a version of CUDA: 13.0 is 13000. */
function driver(version: number): string {
  const folder = temporaryFolder();
  library(folder, "libcuda.so.1", { cuDriverGetVersion: `*out = ${version}; return 0;` });
  return folder;
}

/** Checks the provider, then prints what the libcurand that is found by its name returns. @param machine  folders of the machine's libraries */
function check(nvidia: string, machine: readonly string[]): string {
  const module = JSON.stringify(join(import.meta.dir, "../../../model/engine/cuda.ts"));
  const script = `import { dlopen } from "bun:ffi";
    const { expectCudaProvider } = await import(${module});
    try {
      expectCudaProvider(${JSON.stringify(provider())}, ${JSON.stringify(nvidia)});
      const { symbols } = dlopen("libcurand.so.10", { curandGetVersion: { args: ["ptr"], returns: "i32" } });
      console.log("found", symbols.curandGetVersion(null));
    } catch (error) {
      console.log(error.name + ": " + error.message);
    }`;
  const env = { ...process.env, LD_LIBRARY_PATH: machine.join(":") };
  const { stdout, stderr } = Bun.spawnSync([process.execPath, "-e", script], { env, cwd: temporaryFolder() });
  return stdout.toString().trim() + stderr.toString();
}

function lack(): string | null {
  if (process.platform !== "linux" || process.arch !== "x64") return "not Linux on x64";
  if (Bun.which("nvidia-smi") !== null) return "this machine has an NVIDIA driver";
  return Bun.which("gcc") === null ? "no gcc" : null;
}

describeWhere(lack(), "with libraries made by gcc", () => {
  test("what the provider needs is found by name in the folder of `setup cuda`, and only onnxruntime loads the provider", () => {
    expect(check(nvidiaLibraries(1), [driver(13_000)])).toBe("found 1");
  });

  test("the machine's own libraries are preferred", () => {
    expect(check(nvidiaLibraries(1), [driver(13_000), nvidiaLibraries(2)])).toBe("found 2");
    expect(check("/nowhere", [driver(13_010), nvidiaLibraries(2)])).toBe("found 2");
  });

  test("without a driver, or with an old one, one line says which driver is needed", () => {
    const nvidia = nvidiaLibraries(1);
    expect(check(nvidia, [])).toBe(
      "DriverError: NVIDIA's driver is missing: libcuda.so.1 does not load; install R580 or newer",
    );
    expect(check(nvidia, [driver(12_040)])).toBe(
      "DriverError: NVIDIA's driver supports CUDA 12.4, but onnxruntime's CUDA provider needs CUDA 13; install R580 or newer",
    );
  });

  test.each(Object.keys(NVIDIA))("without %s, one line names it, and how to get it", (name) => {
    const nvidia = nvidiaLibraries(1);
    rmSync(join(nvidia, name));
    const message = check(nvidia, [driver(13_000)]);
    expect(message).toStartWith(`Error: onnxruntime's CUDA provider needs ${name}, which does not load (`);
    expect(message).toEndWith(`); ${GET}`);
    expect(message).not.toContain("\n");
  });
});
