/** A thread that adds, throws, dies or never answers, as a test asks. */
import { serveMethods } from "../../../actors/process/worker-rpc.ts";

const methods = {
  add: (a: number, b: number): number => a + b,
  fill: (shared: Int32Array, value: number): void => void shared.fill(value),
  async later(ms: number, text: string): Promise<string> {
    await Bun.sleep(ms);
    return text;
  },
  fail: (text: string): never => {
    throw new RangeError(text);
  },
  never: (): Promise<never> => new Promise(() => {}),
  leave: (code: number): never => process.exit(code),
  fall: (): void => {
    setTimeout(() => {
      throw new RangeError("it fell\nfrom 3 m");
    });
  },
};
export type AddingMethods = typeof methods;

serveMethods(methods);
