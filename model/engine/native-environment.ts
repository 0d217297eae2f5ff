/** Strings and environment variables for native libraries, which do not see changes of Bun's `process.env`. */
import { dlopen, ptr } from "bun:ffi";

const C_LIBRARIES: Partial<Record<NodeJS.Platform, string>> = { linux: "libc.so.6", darwin: "libSystem.B.dylib" };

/** Sets a variable of this process for native code; it does nothing on systems other than Linux and macOS. */
export function setNativeVariable(name: string, value: string): void {
  const library = C_LIBRARIES[process.platform];
  if (library === undefined) return;
  const { setenv } = dlopen(library, { setenv: { args: ["ptr", "ptr", "i32"], returns: "i32" } }).symbols;
  setenv(ptr(zeroEnded(name)), ptr(zeroEnded(value)), 1);
}

/** The bytes of a C string. */
export const zeroEnded = (text: string) => new TextEncoder().encode(`${text}\0`);
