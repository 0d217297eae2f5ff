/** The installed Chromium, for browser tests and benches. Nothing is downloaded. */
import { existsSync } from "node:fs";
import { type Browser, chromium } from "playwright-core";

/** The headless shell comes first: it has no windows, so it opens a page with a fifth of Chromium's CPU time. */
const PLACES = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"].map(
  (name) => `/usr/bin/${name}`,
);

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
