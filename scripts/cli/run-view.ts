/**
 * Shows a run on standard error and writes its log. On a terminal, the view redraws a few status lines at the foot; elsewhere it
 * prints plain lines.
 *
 * - An error is one line. Its stack is in the log only.
 * - Text of a model cannot move the cursor or color the terminal, because the view makes control characters visible.
 */
import { appendFileSync } from "node:fs";
import { join } from "node:path";
import { parsedJson } from "../../actors/checkpoint/json.ts";
import type { RunConfig } from "../../actors/config/config.ts";
import { visible } from "../../actors/dashboard/client/text.ts";
import { describeError, messageOf, oneLine, stackOf } from "../../actors/errors.ts";
import { EVENT_KINDS } from "../../actors/metrics/metrics.ts";
import type { SupervisorEvent } from "../../actors/supervisor/supervision.ts";
import { RunStatus, type UpdateMetrics } from "./run-status.ts";

export interface RunViewOptions {
  readonly config: RunConfig;
  readonly folder: string;
  readonly quiet: boolean;
  readonly terminal: boolean;
  readonly write: (text: string) => void;
  readonly columns: () => number;
}

/**
 * Kinds of frequent lines. On a terminal, the status lines show the content of these lines. Elsewhere the view prints every tenth or fifth
 * of these lines.
 */
const FREQUENT: Readonly<Record<string, number>> = { update: 10, warm: 5 };

/** The view prints the first three warnings of one kind, and then every tenth. */
const WARNINGS_SHOWN = 3;
const REPEATED = 10;

/** The default of `join.listen`. With this default, the view prints the gate's address only if the run waits for lent actors. */
const DEFAULT_GATE = "ws://127.0.0.1:0";

export class RunView {
  readonly #options: RunViewOptions;
  readonly #logFile: string;
  readonly #counts = new Map<string, number>();
  readonly #status: RunStatus;
  /** Status lines that are on the terminal now. */
  #statusLines = 0;
  #logFails = false;
  /** Address of the run's page; null before it is served. */
  pageUrl: string | null = null;

  constructor(options: RunViewOptions) {
    this.#options = options;
    this.#logFile = join(options.folder, "log.jsonl");
    this.#status = new RunStatus(options.config.learner);
  }

  /** A line of an actor: JSON from its log, or the output of a crash. */
  line(actor: string, line: string): void {
    this.#log(line);
    const entry = parsedJson(line) as (Entry & UpdateMetrics) | null | undefined;
    if (typeof entry?.text !== "string") {
      this.note(`${actor}: ${line}`);
    } else if (actor === "learner" && entry.kind === "metrics") {
      this.#status.add(entry);
      this.#redraw();
    } else {
      this.#show(actor, entry);
    }
  }

  #show(actor: string, { level, kind, text }: Entry): void {
    if (kind === EVENT_KINDS.health) this.#status.alarm = level === "info" ? null : visible(text);
    if (kind === "page") {
      this.pageUrl = text;
      this.#status.page = visible(text);
    }
    if (level === "error") this.note(`error: ${actor}: ${text}`);
    else if (level === "warning") this.#warn(`${actor}: ${text}`);
    else if (level === "debug" || this.#options.quiet) return;
    else if (kind in FREQUENT) this.#showFrequent(kind, text);
    else if (kind === "page") this.note(`page: ${text}`);
    else if (actor === "learner") this.note(text);
  }

  /** The log has every warning. Two warnings that differ only in their numbers have the same kind. */
  #warn(text: string): void {
    const count = this.#count(text.replaceAll(/\d+/g, "#"));
    if (count < WARNINGS_SHOWN) this.note(`warning: ${text}`);
    else if ((count + 1) % REPEATED === 0) this.note(`warning: ${text} (${count + 1} such warnings so far)`);
  }

  #showFrequent(kind: string, text: string): void {
    if (this.#options.terminal) {
      if (kind === "warm") this.#status.phase = visible(text);
      this.#redraw();
      return;
    }
    const count = this.#count(kind);
    if (count % FREQUENT[kind]! === 0) this.#options.write(`${visible(text)}\n`);
  }

  /** Counts this line. @returns the number of earlier lines of the same kind */
  #count(line: string): number {
    const count = this.#counts.get(line) ?? 0;
    this.#counts.set(line, count + 1);
    return count;
  }

  event(event: SupervisorEvent): void {
    this.#log(JSON.stringify({ actor: "supervisor", ...event }));
    const text = this.#noteOn(event);
    if (text !== null) this.note(text);
  }

  /** The line to print for an event; null if the view prints nothing. The learner itself logs which samplers join and leave. */
  #noteOn(event: SupervisorEvent): string | null {
    switch (event.kind) {
      case "exited":
        if (event.asked || event.code === 0) return null;
        return `${event.child} died (${event.signal ?? `exit code ${event.code}`})`;
      case "restarted":
        return `${event.child} was started again`;
      case "startFailed":
        return `${event.child} could not be started; trying again (${event.reason})`;
      case "silent":
        return `${event.child} has been silent for ${event.silentMs} ms (${event.doing}); replacing it`;
      case "stuck": {
        const { child, workingMs, doing, lastMessage } = event;
        const where = `${doing}; last message ${lastMessage}`;
        return `${child} has computed for ${workingMs} ms without a result (${where}); replacing it`;
      }
      case "joined":
        return event.role === "sampler" ? null : `${event.child} joined`;
      case "left":
        return event.role === "sampler" ? null : `${event.child} left: ${event.reason}`;
      case "open": {
        const { join, sampler, envServer } = this.#options.config;
        const counts = { sampler: sampler.count, "env-server": envServer.count };
        const lent = Object.entries(counts).flatMap(([name, count]) => (count === 0 ? [name] : []));
        if (join.listen === DEFAULT_GATE && lent.length === 0) return null;
        const token = event.tokenFile === null ? "" : ` --token-file ${event.tokenFile}`;
        const command = (name: string) => `bun run ${name} --join ${event.address}${token}`;
        if (lent.length === 0) return `others may join: ${command("sampler")}`;
        return `the run starts no ${lent.join(" and no ")}, and waits until others lend one: ${lent.map(command).join("; ")}`;
      }
      default:
        return null;
    }
  }

  /** Logs an error of this process with its stack. The command prints the message when the command ends. */
  crashed(error: unknown): void {
    const entry = { level: "error", actor: "supervisor", kind: "crash", text: describeError(error) };
    this.#log(JSON.stringify({ ...entry, stack: stackOf(error) }));
    this.clear();
  }

  /** Prints a line above the status lines. */
  note(text: string): void {
    this.clear();
    this.#options.write(`${visible(oneLine(text))}\n`);
    this.#draw();
  }

  /** If the log cannot be written, the view warns once and the run continues. It warns again only after a successful write. */
  #log(line: string): void {
    try {
      appendFileSync(this.#logFile, `${line}\n`);
      this.#logFails = false;
    } catch (error) {
      if (this.#logFails) return;
      this.#logFails = true;
      this.note(`warning: lines are missing in ${this.#logFile}: ${messageOf(error)}`);
    }
  }

  #redraw(): void {
    this.clear();
    this.#draw();
  }

  clear(): void {
    if (this.#statusLines === 0) return;
    const up = this.#statusLines > 1 ? `\u001b[${this.#statusLines - 1}A` : "";
    this.#options.write(`\r${up}\u001b[J`);
    this.#statusLines = 0;
  }

  #draw(): void {
    const { terminal, quiet, write, columns } = this.#options;
    if (!terminal || quiet) return;
    // A line that fills the terminal would wrap.
    const lines = this.#status.lines(columns() - 1);
    write(lines.join("\n"));
    this.#statusLines = lines.length;
  }
}

interface Entry {
  readonly level: string;
  readonly kind: string;
  readonly text: string;
}
