/** @jsxImportSource hono/jsx */
/** What the run has cost; the page's script fills it. */

export const Costs = () => (
  <section class="card" id="costs-card" aria-labelledby="costs-title" hidden>
    <header class="card-head">
      <h2 id="costs-title">Costs</h2>
      <p class="note">a point is one percentage point of validation success gained since the first update</p>
    </header>
    <div class="times" id="time-spent" />
    <div class="table costs">
      <table>
        <thead>
          <tr>
            <td />
            <th>in all</th>
            <th>after the warm start</th>
            <th>per point</th>
          </tr>
        </thead>
        <tbody id="costs" />
      </table>
    </div>
  </section>
);
