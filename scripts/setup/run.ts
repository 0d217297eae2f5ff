/** Runs a program of a setup. */

/** @throws {Error} with the program's last line of standard error, if it fails. */
export async function run(argv: readonly string[]): Promise<void> {
  const child = Bun.spawn([...argv], { stdio: ["ignore", "ignore", "pipe"] });
  const [text, code] = await Promise.all([child.stderr.text(), child.exited]);
  if (code !== 0)
    throw new Error(`${argv.slice(0, 4).join(" ")} ended with ${code}: ${text.trim().split("\n").at(-1)}`);
}
