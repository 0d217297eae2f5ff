/** @jsxImportSource hono/jsx */
/** The page about episodes. A person can filter the list, read an episode turn by turn, replay it, compare it, and continue it by hand. */
import { type PageProps, Shell } from "./shell.tsx";

const OUTCOMES = ["all", "solved", "unsolved", "failed"];

const Filter = () => (
  <form class="filter" id="filter" aria-label="Filter">
    <fieldset class="choice">
      <legend class="hidden">Outcome</legend>
      {OUTCOMES.map((kind) => (
        <label>
          <input type="radio" name="outcome" value={kind} checked={kind === "all"} />
          <span>{kind}</span>
        </label>
      ))}
    </fieldset>
    <label>
      Purpose{" "}
      <select name="purpose">
        <option value="">all</option>
        <option value="train">training</option>
        <option value="validate">validation</option>
      </select>
    </label>
    <label>
      Env <input name="env" size={12} placeholder="any" autocomplete="off" spellcheck={false} />
    </label>
    <label>
      Policy version <input name="version" type="number" min="0" placeholder="any" />
    </label>
    <label>
      Board seed <input name="layoutSeed" type="number" min="0" placeholder="any" />
    </label>
    <div class="range">
      <label>
        Reward from <input name="rewardMin" type="number" step="any" placeholder="any" />
      </label>
      <label>
        to <input name="rewardMax" type="number" step="any" placeholder="any" />
      </label>
    </div>
    <label class="grow">
      Text <input name="text" type="search" placeholder="in the policy's replies" aria-keyshortcuts="/" />
    </label>
    <button type="reset">Clear</button>
  </form>
);

export const EpisodesPage = ({ view }: PageProps) => (
  <Shell
    view={view}
    path="episodes"
    main="episodes-title"
    styles={["episodes.css", "player.css"]}
    script="page-episodes.ts"
  >
    <section class="card episodes" aria-labelledby="episodes-title">
      <header class="card-head">
        <h2 id="episodes-title">Episodes</h2>
        <p class="note" id="list-note" role="status">
          newest first
        </p>
      </header>
      <Filter />
      <p class="note" id="versions">
        The policy version grows by 1 whenever the learner publishes weights: after each update, in the warm start,
        after a resume and after a roll-back. So a version has a higher number than the update that made it.
      </p>
      <div class="split">
        <div class="listing">
          <ol class="list" id="episode-list" aria-label="Episodes" />
          <div class="pager">
            <button type="button" id="newer" disabled>
              Newer
            </button>
            <button type="button" id="older" disabled>
              Older
            </button>
          </div>
        </div>
        <article class="detail" id="episode" aria-live="off">
          <p class="empty">The chosen episode appears here.</p>
        </article>
      </div>
    </section>
    <section class="card" id="groups" aria-labelledby="groups-title" hidden>
      <header class="card-head">
        <h2 id="groups-title">Groups</h2>
      </header>
      <div class="table" id="groups-table" />
    </section>
  </Shell>
);
