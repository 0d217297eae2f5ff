/** @jsxImportSource hono/jsx */
/** The page that lists the runs of a folder, each with a link to the run's page. This page needs no script. */
import { percent } from "../../number-text.ts";
import type { OtherRun, RunsAnswer } from "../answers.ts";
import { PageHead } from "./shell.tsx";

const STATES: Readonly<Record<OtherRun["phase"], string>> = {
  waiting: "starting",
  warm: "warm start",
  training: "training",
  finished: "finished",
  silent: "stopped",
};

const HEADS = ["Run", "Env", "Seed", "State", "Update", "Success", "Started"];

const Row = ({ name, env, seed, phase, update, success, startedMs }: OtherRun) => (
  <tr>
    <th scope="row">
      <a href={`/run/${encodeURIComponent(name)}/`}>{name}</a>
    </th>
    <td>{env}</td>
    <td>{seed}</td>
    <td>{STATES[phase]}</td>
    <td>{update ?? "–"}</td>
    <td>{percent(success)}</td>
    <td>{new Date(startedMs).toISOString().slice(0, 16).replace("T", " ")} UTC</td>
  </tr>
);

/** @param own  the page's own run, which the list leaves out; null if the page has no run */
export const RunsPage = ({ runs, unreadable, own }: RunsAnswer & { readonly own: string | null }) => (
  <html lang="en">
    <PageHead title="Runs · Bunraku" styles={["parts.css"]} />
    <body>
      <main>
        <header class="top">
          <div class="brand">
            <img src="/assets/icon.svg" alt="" width="28" height="28" />
            <div>
              <h1>Runs</h1>
              <p class="note">newest first; only the 100 runs that changed last</p>
            </div>
          </div>
        </header>
        {own !== null && (
          <p>
            This server shows the run <a href="/">{own}</a>. The other runs in the same parent folder:
          </p>
        )}
        <div class="card table">
          {runs.length === 0 ? (
            <p class="empty">There is no {own === null ? "" : "other "}run here. Start one: bun run cluster</p>
          ) : (
            <table>
              <thead>
                <tr>
                  {HEADS.map((head) => (
                    <th scope="col">{head}</th>
                  ))}
                </tr>
              </thead>
              <tbody>
                {runs.map((run) => (
                  <Row {...run} />
                ))}
              </tbody>
            </table>
          )}
        </div>
        {unreadable.map(({ name, reason }) => (
          <p class="note">
            {name}: {reason}
          </p>
        ))}
      </main>
    </body>
  </html>
);
