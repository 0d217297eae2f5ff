/** The installed Chromium, for browser tests and benches. Nothing is downloaded. */
import { existsSync } from "node:fs";
import { type Browser, chromium } from "playwright-core";

const PLACES = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/** null if there is none; then browser tests are skipped with a warning. */
export const chromiumPath = process.env["BUNRAKU_CHROMIUM"] ?? PLACES.find((path) => existsSync(path)) ?? null;

if (chromiumPath === null) {
  console.warn(`browser tests are skipped: no Chromium at ${PLACES.join(", ")} (on Debian: apt-get install chromium)`);
}

export const launch = (): Promise<Browser> =>
  chromium.launch({
    executablePath: chromiumPath!,
    args: [
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
    ],
  });
