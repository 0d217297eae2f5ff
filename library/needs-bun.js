// Node loads this file for `import "bunraku"`.
throw new Error("bunraku runs on Bun 1.4.4 or newer, not on Node: write `npx -y bun@1.4.4 FILE` for `node FILE`");
