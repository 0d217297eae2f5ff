/** Renders a picture as PNG with the Chromium of this machine. Nothing is downloaded. */
import { existsSync } from "node:fs";
import { UsageError } from "../cli/options.ts";

const PLACES = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/** Pixels of the PNG for one pixel of the SVG, in each direction. */
const SCALE = 2;

/**
 * @returns the bytes of a PNG, twice as wide and high as the SVG says
 * @throws {UsageError} if there is no Chromium
 */
export async function renderPng(svg: string): Promise<Uint8Array> {
  const asked = process.env["BUNRAKU_CHROMIUM"];
  const path = [...(asked === undefined ? PLACES : [asked])].find((place) => existsSync(place));
  if (path === undefined) {
    throw new UsageError(
      `cannot write a PNG: no Chromium at ${asked ?? PLACES.join(", ")}; ` +
        "install it (Debian: apt-get install chromium), or write an .svg, which needs no browser",
    );
  }
  const browser = await launch(path);
  try {
    const page = await browser.newPage({ deviceScaleFactor: SCALE });
    await page.setContent(`<style>body{margin:0}svg{display:block}</style>${svg}`);
    return await page.locator("svg").screenshot();
  } finally {
    await browser.close();
  }
}

async function launch(executablePath: string) {
  const { chromium } = await import("playwright-core");
  try {
    return await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu", "--no-first-run"] });
  } catch (error) {
    const [reason] = (error as Error).message.split("\n");
    throw new Error(`cannot write a PNG: ${executablePath} did not start: ${reason}`, { cause: error });
  }
}
