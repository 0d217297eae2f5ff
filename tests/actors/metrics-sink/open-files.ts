/** Files that this process has open. */
import { readdirSync, readlinkSync } from "node:fs";

/** Paths of the open files in a folder. */
export const openFilesIn = (folder: string): string[] =>
  readdirSync("/proc/self/fd").flatMap((descriptor) => {
    try {
      const path = readlinkSync(`/proc/self/fd/${descriptor}`);
      return path.startsWith(`${folder}/`) ? [path] : [];
    } catch {
      // The descriptor of the listing itself is closed by now.
      return [];
    }
  });
