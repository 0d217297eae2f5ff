/**
 * Prints the figures that a row of the table of faults (docs/faults.md) gave here: `fault: SIGTERM: saved and left 812 ms`. A count has no
 * unit; every other value has its unit. tests/docs.test.ts checks that every row has a test that prints the row's figures.
 */
export function figure(fault: string, values: Readonly<Record<string, number | string>>): void {
  const told = Object.entries(values).map(([what, value]) => `${what} ${value}`);
  console.log(`fault: ${fault}: ${told.join(", ")}`);
}

export const ms = (time: number): string => `${Math.round(time)} ms`;
