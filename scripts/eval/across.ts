/** The tables of several evaluations: each policy on each env, and why its episodes failed there. */
import { percent } from "../../actors/number-text.ts";
import { FAILURES } from "../../envs/analysis/failure.ts";
import { aligned } from "../cli/aligned.ts";
import { FAILED, type References, type Result } from "./report.ts";

export interface Evaluated {
  readonly policy: string;
  /** The envs that the policy was trained on; null for players and hosted models. */
  readonly trained: string | null;
  readonly result: Result;
  readonly references: References;
}

/**
 * A row for each policy and a column for each env; then a row of failures for each policy and env. Where policies played an env with other
 * options or boards, its references have several values, in the order of the policies.
 */
export function acrossEnvs(all: readonly Evaluated[]): string {
  const titles = new Map(
    all.map(({ policy, trained }) => [policy, trained === null ? policy : `${policy} (trained on ${trained})`]),
  );
  const envs = [...new Set(all.map(({ result }) => result.name))];
  const cell = (policy: string, env: string) => {
    const found = all.find((one) => one.policy === policy && one.result.name === env);
    return found === undefined ? "" : percent(found.result.success);
  };
  const referenceRow = (of: (one: References) => number | null) =>
    envs.map((env) => {
      const values = all.filter(({ result }) => result.name === env).map(({ references }) => of(references));
      return [...new Set(values.map((value) => (value === null ? "unknown" : percent(value))))].join(" / ");
    });
  const success = [
    ["success", ...envs],
    ...[...titles].map(([policy, title]) => [title, ...envs.map((env) => cell(policy, env))]),
    ["random", ...referenceRow(({ random }) => random?.success ?? null)],
    ["best possible", ...referenceRow(({ best }) => best)],
  ];
  const failed = all.flatMap(({ policy, result: { name, failures, episodes, samples } }) =>
    failures === null
      ? []
      : [[`${policy} on ${name}`, ...FAILURES.map((one) => percent(failures[one] / (episodes * samples)))]],
  );
  const names = FAILURES.map((one) => FAILED[one]);
  const tables = failed.length === 0 ? [success] : [success, [["failed, of all episodes", ...names], ...failed]];
  return tables.map(aligned).join("\n\n");
}
