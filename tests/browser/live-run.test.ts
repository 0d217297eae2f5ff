/** A real run in a real browser while it learns, and its page when the run has ended. */
import { afterAll, afterEach, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { readFileSync } from "node:fs";
import { basename, join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { chromiumPath, launch } from "../../bench/chromium.ts";
import { LONG, RunProcess, Runs } from "../e2e/run-process.ts";
import { describeWhere } from "../needs.ts";
import { commandHere, root } from "../scripts/command.ts";

setDefaultTimeout(LONG);

const runs = new Runs("shared");

describeWhere(chromiumPath === null ? "no Chromium" : null, "a run in the browser", () => {
  let browser: Browser;
  let page: Page | null = null;
  let complaints: string[];

  beforeAll(async () => {
    browser = await launch();
  });
  afterAll(() => browser.close());
  afterEach(() => expect(complaints).toEqual([]));

  /** A page that is left open complains when its run ends. */
  async function close(): Promise<void> {
    await page?.context().close();
    page = null;
  }
  async function open(url: string, state: "live" | "recorded"): Promise<void> {
    await close();
    complaints = [];
    const opened = await (await browser.newContext()).newPage();
    page = opened;
    opened.on("console", (message) => {
      if (["error", "warning"].includes(message.type())) complaints.push(message.text());
    });
    opened.on("pageerror", (error) => complaints.push(error.message));
    await opened.goto(url);
    await opened.waitForSelector(`#link[data-state=${state}]`);
  }
  const hasText = (selector: string, text: string | RegExp) =>
    page!
      .locator(selector)
      .filter({ hasText: text })
      .first()
      .waitFor({ timeout: LONG / 2 });

  test("goes on before one's eyes: updates, actors, and episodes that replay as they were played", async () => {
    const { folder, args } = runs.fresh({ learner: { updates: 100_000 } });
    const run = new RunProcess(folder, args);
    const url = (await run.entry(({ kind }) => kind === "page")).text!;
    await run.updated(1);
    await open(url, "live");
    const shown = (await page!.textContent("#update"))!;
    expect(shown).toMatch(/^\d+ of 100000$/);
    await page!.locator("#update").filter({ hasNotText: shown }).waitFor();
    await open(`${url}actors`, "live");
    await hasText(".actor.learner", "waits for episodes");
    await hasText(".actor.sampler", /policy \d+ · [0-9a-f]{12}/);
    // Slippery ice: a replay is only the same with the run's own options and seeds.
    await open(`${url}episodes?outcome=unsolved`, "live");
    await hasText(".replay", "replayed here: the same as recorded");
    await close();
    run.kill("SIGINT");
    expect((await run.ended).code).toBe(0);
  });

  test("is shown again by `bun run page` when it is over, and not touched", async () => {
    const folder = await runs.undisturbed({ learner: { updates: 2 } });
    const before = readFileSync(join(folder, "run.sqlite"));
    const child = Bun.spawn([process.execPath, "scripts/run.ts", "page", folder, "--port", "0"], {
      cwd: root,
      stdio: ["ignore", "pipe", "inherit"],
    });
    let line = "";
    for await (const bytes of child.stdout) {
      line += new TextDecoder().decode(bytes);
      if (line.includes("\n")) break;
    }
    const url = /^page: (http:\S+)\n/.exec(line)![1]!;
    await open(url, "recorded");
    await hasText("#status", "2 updates, success");
    await open(`${url}actors`, "recorded");
    for (const actor of [".learner", ".sampler", ".env-server"]) await hasText(`.actor${actor}`, "ended");
    await open(`${url}episodes`, "recorded");
    await hasText(".replay", "replayed here: the same as recorded");
    await open(`${url}settings`, "recorded");
    await hasText("#starts td", /^bun run cluster --config /);
    await hasText("#config tr", /learner\.updates\s*2\s*200/);
    // The run of the test before, which was stopped in order, from the list of runs.
    await page!.getByRole("link", { name: "All runs" }).click();
    await page!.waitForURL("**/runs");
    await page!.locator("table a").first().click();
    await page!.waitForSelector("#link[data-state=recorded]");
    expect(page!.url()).toBe(`${url}run/${basename(runs.folder)}-r1/`);
    await hasText("#success-legend", "validation");
    await page!.getByText("Episodes", { exact: true }).click();
    await hasText(".replay", "replayed here: the same as recorded");
    await close();
    child.kill("SIGINT");
    expect(await child.exited).toBe(0);
    expect(readFileSync(join(folder, "run.sqlite"))).toEqual(before);
  });
});

test("`bun run page` of no folder is refused", async () => {
  const ended = await commandHere(["page", "no/such/run"]);
  const refusal = "error: there is no folder no/such/run; name the folder of a run, or a folder of runs\n";
  expect([ended.code, ended.err]).toEqual([2, refusal]);
});
