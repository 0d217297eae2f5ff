#!/usr/bin/env sh
// 2>/dev/null; exec "$(command -v bun || command -v node)" "$0" "$@"
// sh runs the line above; Bun and Node see it as a comment. If Bun is in PATH, Bun runs this file. Otherwise Node runs this file, which
// then prints what to do.
if (typeof Bun === "undefined") {
  console.error(
    "error: bunraku runs on Bun 1.4.4 or newer, not on Node; write `npx -y bun@1.4.4 x bunraku` for `bunraku`",
  );
  process.exitCode = 1;
} else await import("../scripts/run.ts");
