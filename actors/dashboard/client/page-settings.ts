/** The page about the run's settings: how a person started the run, and the run's config. */
import { plural } from "../../number-text.ts";
import type { SetupAnswer } from "../answers.ts";
import { read } from "./api.ts";
import { byId, make, put } from "./dom.ts";
import { start } from "./live.ts";
import { visible } from "./text.ts";

const row = (kind: "td" | "th", texts: readonly string[]): HTMLElement =>
  make("tr", "", ...texts.map((text) => make(kind, "", visible(text))));

const tableOf = (heads: readonly string[], rows: readonly (readonly string[])[]): HTMLElement[] => [
  make("thead", "", row("th", heads)),
  make("tbody", "", ...rows.map((texts) => row("td", texts))),
];

function showStarts({ starts }: SetupAnswer): void {
  const rows = starts.map(({ at, command, commit, versions, machine }) => [
    at.slice(0, 19).replace("T", " "),
    command,
    commit?.replace(/^(\w{10})\w*/, "$1") ?? "unknown",
    Object.entries(versions)
      .map(([name, version]) => `${name} ${version}`)
      .join(", "),
    machine,
  ]);
  const heads = ["UTC", "Command", "Commit", "Versions", "Machine"];
  byId("starts").replaceChildren(...tableOf(heads, rows));
}

function showConfig({ settings }: SetupAnswer): void {
  const onlyChanged = byId<HTMLInputElement>("only-changed").checked;
  const texts = settings.map((one) => [one.path, JSON.stringify(one.value), JSON.stringify(one.default)]);
  const rows = texts.filter(([, value, usual]) => !onlyChanged || value !== usual);
  byId("config").replaceChildren(...tableOf(["Key", "Value", "Default"], rows));
  put(
    byId("config-note"),
    `${rows.length} of ${plural(settings.length, "key")}; config.json in the run's folder has all keys`,
  );
}

await start(
  async () => {
    const setup = await read("api/setup");
    showStarts(setup);
    showConfig(setup);
    byId("only-changed").addEventListener("input", () => showConfig(setup));
  },
  () => {},
);
