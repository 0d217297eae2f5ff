/** Every command with its summary, in the order in which `bun run help` lists them. Command NAME is scripts/NAME.ts. */
export const COMMANDS: Readonly<Record<string, string>> = {
  cluster: "train an agent; all actors run as processes on this machine",
  sweep: "train presets × variants × seeds of a file, and print one table with 95 % intervals",
  sampler: "lend a sampler to a run on another machine",
  "env-server": "lend an env server to a run on another machine",
  eval: "measure how good a policy or player is on fixed boards",
  export: "write a run's records or policy in a format of other tools",
  page: "serve the page of a recorded run, with its episodes and their replays",
  curves: "draw metrics of recorded runs side by side, as SVG or PNG",
  compare: "compare recorded runs: success, reward, signs of collapse, speed and settings",
  replay: "play a recorded episode again and compare it with its record byte for byte",
  play: "play an env by hand in the terminal",
  serve: "serve a run's policy over OpenAI's chat completions API",
  diagnose: "tell whether, when and why recorded runs fell into the Echo Trap",
  bench: "measure parts of the system against their budgets; without a name, list the benchmarks",
  chaos:
    "kill and freeze processes of a real training run at seeded moments, and check that no episode is lost or trained twice",
  simulate: "simulate whole runs on one thread with seeded faults and check them after every event",
  golden: "check this code against a file of golden vectors: inputs, and the outputs of RAGEN's code",
  config: "print the config that a run would have, with the meaning of every key",
  metrics: "list the metrics of a run, with unit and meaning",
  doctor: "check whether this machine has everything that a run needs",
  setup: "install the dependencies (every command does this if they are missing), and optional libraries",
  board: "draw a board, or the boards after each action of a player, as a PNG",
  init: "write a project of your own: an env, its test and a config",
  "new-env": "write a small env and its test, as a start for an env of your own",
  prepack: "write the package's declarations and manifest; `bun pm pack` runs this command first",
  postpack: "restore the clone's manifest; `bun pm pack` runs this command last",
  test: "run the test suite",
  check: "check types, lint, format and the rules of the folders, and change nothing",
};

/** Commands that need the tests, benchmarks and tools of a clone. The package does not have them. */
export const CLONE_ONLY: readonly string[] = ["bench", "golden", "prepack", "postpack", "test", "check"];
