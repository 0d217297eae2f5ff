/** @jsxImportSource hono/jsx */
/** The page about the run's settings: how a person started the run, and the run's config. */
import { type PageProps, Shell } from "./shell.tsx";

export const SettingsPage = ({ view }: PageProps) => (
  <Shell view={view} path="settings" main="starts-title" styles={[]} script="page-settings.ts">
    <section class="card" aria-labelledby="starts-title">
      <header class="card-head">
        <h2 id="starts-title">Starts</h2>
        <p class="note">the first start, then each resume</p>
      </header>
      <div class="table">
        <table id="starts" />
      </div>
    </section>
    <section class="card" aria-labelledby="config-title">
      <header class="card-head">
        <h2 id="config-title">Config</h2>
        <p class="note" id="config-note">
          config.json in the run's folder
        </p>
        <label>
          <input type="checkbox" id="only-changed" checked /> only what differs from the defaults
        </label>
      </header>
      <div class="table">
        <table id="config" />
      </div>
    </section>
  </Shell>
);
