/** @jsxImportSource hono/jsx */
/** Settings of all charts, and the choice of runs to compare with. */
export const Tools = ({ canAddCharts = false }: { canAddCharts?: boolean }) => (
  <form class="tools" id="tools" aria-label="Chart settings">
    <label>
      Smoothing <input type="range" name="smoothing" min="0" max="0.99" step="0.01" value="0" />
      <output id="smoothing-now">0.00</output>
    </label>
    <label>
      <input type="checkbox" name="log" /> Logarithmic axis
    </label>
    <label>
      Over{" "}
      <select name="axis">
        <option value="update">updates</option>
        <option value="minutes">minutes of reinforcement</option>
        <option value="tokens">tokens written</option>
      </select>
    </label>
    <label>
      <input type="checkbox" name="seeds" /> Mean and band of seeds
    </label>
    {canAddCharts && (
      <select name="add" aria-label="Add a chart">
        <option>Add a chart…</option>
      </select>
    )}
    <details id="compare">
      <summary>Compare runs</summary>
      <div class="drop card">
        <p class="note">Runs in the same parent folder. Choose up to 5.</p>
        <ul id="compare-list" />
      </div>
    </details>
    <ul class="chosen" id="compared" aria-label="Compared runs" />
  </form>
);
