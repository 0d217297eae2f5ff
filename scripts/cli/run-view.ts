/**
 * A run as the terminal shows it: a few lines at its foot that keep up with the run, and above them what should stay. Elsewhere
 * plain lines. Everything goes to the run's log.
 *
 * - An error is one line. Where it was thrown is in the log only.
 * - What a model wrote cannot move the cursor or colour the terminal: controls are shown, not obeyed.
 */
import { appendFileSync } from "node:fs";
import { join } from "node:path";
import type { RunConfig } from "../../actors/config/config.ts";
import { visible } from "../../actors/dashboard/client/text.ts";
import { describeError, oneLine, stackOf } from "../../actors/errors.ts";
import { EVENT_KINDS } from "../../actors/metrics/metrics.ts";
import type { SupervisorEvent } from "../../actors/supervisor/supervision.ts";
import { RunStatus, type Told } from "./run-status.ts";

export interface RunViewOptions {
  readonly config: RunConfig;
  readonly folder: string;
  readonly quiet: boolean;
  readonly terminal: boolean;
  readonly write: (text: string) => void;
  /** Columns of the terminal, now. */
  readonly columns: () => number;
}

/** Lines of these kinds come often: a terminal shows them in its foot, and elsewhere only every so many of them are shown. */
const FLOWING: Readonly<Record<string, number>> = { update: 10, warm: 5 };

/** The default gate, which few want to know of; its address is in the log. */
const ANYWHERE = "ws://127.0.0.1:0";

export class RunView {
  readonly #options: RunViewOptions;
  readonly #log: string;
  readonly #seen = new Map<string, number>();
  readonly #status: RunStatus;
  /** Lines of the foot that are on the terminal now. */
  #footLines = 0;
  #logFails = false;

  constructor(options: RunViewOptions) {
    this.#options = options;
    this.#log = join(options.folder, "log.jsonl");
    this.#status = new RunStatus(options.config.learner);
  }

  /** A line that an actor wrote: JSON from its log, or whatever a crash printed. */
  line(actor: string, line: string): void {
    this.#record(line);
    const entry = parse(line);
    if (entry === null) this.note(`${actor}: ${line}`);
    else if (actor === "learner" && entry.kind === "metrics") this.#told(line);
    else this.#entry(actor, entry);
  }

  #told(line: string): void {
    this.#status.take(JSON.parse(line) as Told);
    this.#redraw();
  }

  #entry(actor: string, { level, kind, text }: Entry): void {
    if (kind === EVENT_KINDS.health) this.#status.alarm(level === "info" ? null : visible(text));
    if (kind === "page") this.#status.page(visible(text));
    if (level === "warning" || level === "error") this.note(`${level}: ${actor}: ${text}`);
    else if (level === "debug" || this.#options.quiet) return;
    else if (kind in FLOWING) this.#flow(kind, text);
    else if (kind === "page") this.note(`page: ${text}`);
    else if (actor === "learner") this.note(text);
  }

  /** The run's own process fails: where, goes to the log. What, is said by whoever ends it. */
  crashed(error: unknown): void {
    const entry = { level: "error", actor: "supervisor", kind: "crash", text: describeError(error) };
    this.#record(JSON.stringify({ ...entry, stack: stackOf(error) }));
    this.#clear();
  }

  event(event: SupervisorEvent): void {
    this.#record(JSON.stringify({ actor: "supervisor", ...event }));
    if (event.kind === "exited" && !event.asked && event.code !== 0) {
      this.note(`${event.child} died (${event.signal ?? `exit code ${event.code}`})`);
    }
    if (event.kind === "restarted") this.note(`${event.child} was started again`);
    if (event.kind === "wedged")
      this.note(`${event.child} is silent for ${event.silentMs} ms (${event.doing}); replacing it`);
    if (event.kind === "stuck") {
      const { child, workingMs, doing, lastMessage } = event;
      this.note(
        `${child} computes without a result for ${workingMs} ms (${doing}; last message ${lastMessage}); replacing it`,
      );
    }
    // Of samplers the learner tells.
    if (event.kind === "joined" && event.role !== "sampler") this.note(`${event.child} joined`);
    if (event.kind === "left" && event.role !== "sampler") this.note(`${event.child} left: ${event.reason}`);
    if (event.kind === "open" && this.#options.config.join.listen !== ANYWHERE) {
      const token = event.tokenFile === null ? "" : ` --token-file ${event.tokenFile}`;
      this.note(`others may join: bun run sampler --join ${event.address}${token}`);
    }
  }

  /** A log that cannot be written is said once, and is no reason to end a run. */
  #record(line: string): void {
    try {
      appendFileSync(this.#log, `${line}\n`);
      this.#logFails = false;
    } catch (error) {
      if (this.#logFails) return;
      this.#logFails = true;
      this.note(`warning: lines are missing in ${this.#log}: ${error instanceof Error ? error.message : error}`);
    }
  }

  /** A line that stays. */
  note(text: string): void {
    this.#clear();
    this.#options.write(`${visible(oneLine(text))}\n`);
    this.#show();
  }

  close(): void {
    this.#clear();
  }

  #flow(kind: string, text: string): void {
    if (this.#options.terminal) {
      if (kind === "warm") this.#status.phase(visible(text));
      this.#redraw();
      return;
    }
    const seen = this.#seen.get(kind) ?? 0;
    this.#seen.set(kind, seen + 1);
    if (seen % FLOWING[kind]! === 0) this.#options.write(`${visible(text)}\n`);
  }

  #redraw(): void {
    this.#clear();
    this.#show();
  }

  /** Back to the beginning of the foot, and everything from there on is gone. */
  #clear(): void {
    if (this.#footLines === 0) return;
    const up = this.#footLines > 1 ? `\u001b[${this.#footLines - 1}A` : "";
    this.#options.write(`\r${up}\u001b[J`);
    this.#footLines = 0;
  }

  #show(): void {
    const { terminal, quiet, write, columns } = this.#options;
    if (!terminal || quiet) return;
    // A line as wide as the terminal would take two.
    const lines = this.#status.lines(columns() - 1);
    write(lines.join("\n"));
    this.#footLines = lines.length;
  }
}

interface Entry {
  readonly level: string;
  readonly kind: string;
  readonly text: string;
}

function parse(line: string): Entry | null {
  try {
    const entry = JSON.parse(line);
    return typeof entry?.text === "string" ? entry : null;
  } catch {
    return null;
  }
}
