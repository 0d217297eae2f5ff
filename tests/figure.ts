/**
 * Prints what a row of the table of faults (docs/faults.md) gave here: `fault: SIGTERM: saved and left 812 ms`. A count is as it
 * is, anything else with its unit. tests/docs.test.ts holds that every row has a test that prints it.
 */
export function figure(fault: string, values: Readonly<Record<string, number | string>>): void {
  const told = Object.entries(values).map(([what, value]) => `${what} ${value}`);
  console.log(`fault: ${fault}: ${told.join(", ")}`);
}

export const ms = (time: number): string => `${Math.round(time)} ms`;
