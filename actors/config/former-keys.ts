/**
 * Keys of earlier Bunraku versions. If a layer sets such a key, the error names the new key, or says which value a run uses now.
 * `upgraded` converts the config.json of a run that an earlier version recorded.
 */
import { isDeepStrictEqual } from "node:util";
import { isTree, type Tree, valueAt } from "./layers.ts";

/** What replaced a key: a path, or a constant. With `why`, `constant` is only the former default, and `why` says which value a run uses now. */
type Fate = { readonly to: string } | { readonly constant: unknown; readonly why?: string };

export const FORMER_KEYS: Readonly<Record<string, Fate>> = {
  "learner.gigpo.normalise": { to: "learner.gigpo.normalize" },
  "learner.gigpo.turnWeight": { constant: 1 },
  "learner.kl.horizon": { constant: 10_000 },
  "learner.filter.epsilon": { constant: 0.01 },
  "learner.critic.coefficient": { constant: 0.5 },
  "learner.brokenUpdatesMax": { constant: 5 },
  "warmStart.firstSeed": { constant: 10_000 },
  "model.ropeTheta": { constant: 10_000 },
  "model.tiedEmbedding": { constant: true },
  "model.normEpsilon": { constant: 1e-6 },
  "health.filterFactor": { constant: 0.5 },
  "health.entropyStep": { constant: 0.003 },
  "health.klStep": { constant: 0.01 },
  "health.stepSizeFactor": { constant: 0.5 },
  "health.trap.smoothing": { constant: 0.2 },
  "health.trap.constantShare": { constant: 0.1 },
  "health.trap.entropyShare": { constant: 0.25 },
  "health.trap.entropyRise": { constant: 20 },
  "health.trap.informationShare": { constant: 0.3 },
  "health.trap.repetitionRise": { constant: 0.1 },
  "health.trap.validityFall": { constant: 0.4 },
  "health.trap.successShare": { constant: 0.5 },
  "health.trap.successFallAlone": { constant: 0.2 },
  "health.trap.gradientSpike": { constant: 8 },
  "health.trap.gradientWindow": { constant: 20 },
  "health.stops.collapseShare": { constant: 0.1 },
  "health.stops.validations": { constant: 5 },
  "health.stops.validationMin": { constant: 0.01 },
  "health.stops.emptyUpdates": { constant: 5 },
  "health.stops.solvedAt": { constant: 0.9 },
  "supervisor.heartbeatMs": { constant: 500, why: "it is a twentieth of supervisor.heartbeatDeadlineMs" },
  "supervisor.startDeadlineMs": { constant: 60_000 },
  "supervisor.restartWindowMs": { constant: 30_000, why: "it is 60000" },
  "supervisor.killGraceMs": { constant: 2000 },
  "transport.frameBytesMax": { constant: 64 * 2 ** 20 },
  "transport.queuedBytesMax": { constant: 256 * 2 ** 20 },
  "transport.askDeadlineMs": { constant: 30_000, why: "it is 1.2 times envServer.answerMsMax" },
};

/** The error for a key of an earlier version; null if the path is no such key. */
export function formerKeyText(path: string): string | null {
  if (!Object.hasOwn(FORMER_KEYS, path)) return null;
  const fate = FORMER_KEYS[path]!;
  if ("to" in fate) return `${path} is now ${fate.to}; write that key`;
  return `${path} is removed: ${fate.why ?? `it is always ${JSON.stringify(fate.constant)}`}; leave it out`;
}

/** An earlier version's config with today's keys. A removed key without `why` stays if its value is not `constant`, so the schema refuses it. */
export function upgraded(stored: Tree): Tree {
  const config = structuredClone(stored);
  for (const [path, fate] of Object.entries(FORMER_KEYS)) {
    const { section, name } = placeOf(config, path);
    if (!isTree(section) || !Object.hasOwn(section, name)) continue;
    const value = section[name];
    if ("to" in fate) {
      const to = placeOf(config, fate.to);
      if (!isTree(to.section)) continue;
      to.section[to.name] = value;
    } else if (!isDeepStrictEqual(value, fate.constant) && fate.why === undefined) continue;
    delete section[name];
  }
  return config;
}

function placeOf(config: Tree, path: string) {
  const dot = path.lastIndexOf(".");
  return { section: valueAt(config, path.slice(0, dot)), name: path.slice(dot + 1) };
}
