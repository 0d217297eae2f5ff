/** Weights mapped from a file of this host: when they are published, or ahead of it. */
import { statSync } from "node:fs";
import type { Messages } from "../protocol.ts";
import { isSealed, type Seal, sealOf } from "./seal.ts";

/** Bytes of a file without reading it. The mapping is private: a write to it never reaches the file or another process. */
export function mapped(path: string, byteOffset: number, byteLength: number): Uint8Array<ArrayBuffer> {
  if (byteOffset % 4 !== 0) throw new RangeError(`values of 4 bytes cannot begin at byte ${byteOffset}`);
  checkSize(path, byteOffset, byteLength);
  return (Bun.mmap(path, { shared: false }) as Uint8Array<ArrayBuffer>).subarray(byteOffset, byteOffset + byteLength);
}

/** Reading a mapping past the end of its file would end the process. */
function checkSize(path: string, byteOffset: number, byteLength: number): void {
  const { size } = statSync(path);
  if (size >= byteOffset + byteLength) return;
  throw new RangeError(`the file has ${size} bytes, and ${byteLength} from byte ${byteOffset} on were published`);
}

/**
 * What a sampler has mapped, and perhaps proved, of a version that is not published yet.
 *
 * - Nothing of it is handed out before a seal was published and agrees with the bytes.
 * - What it is told may be early, late, twice, or of a file that never becomes a version, or of another of the same name: then nothing
 *   is handed out, and the version is mapped as if it had been told nothing.
 */
export class MappedAhead {
  #path = "";
  #bytes: Uint8Array<ArrayBuffer> | null = null;
  /** Of the bytes when they were last looked at. */
  #seal: Seal | null = null;

  /** Map these bytes and make their seal: of zeros first, which has the system map every page, and of the version once it is there. */
  look({ path, byteLength, key }: Messages["weights.next"]): void {
    try {
      if (this.#path === path && this.#bytes?.length === byteLength) checkSize(path, 0, byteLength);
      else this.#bytes = mapped(path, 0, byteLength);
      this.#path = path;
      this.#seal = sealOf(this.#bytes!, key);
    } catch {
      // Gone, or too short. If it is published, loading it says so.
      this.#forget();
    }
  }

  /**
   * The bytes of a published version, proved by its seal; null if others or none are mapped. They are not kept here.
   *
   * @throws if the file has become shorter
   */
  take(path: string, byteLength: number, seal: Seal): Uint8Array<ArrayBuffer> | null {
    const [bytes, looked] = [this.#path === path ? this.#bytes : null, this.#seal];
    this.#forget();
    if (bytes?.length !== byteLength) return null;
    if (looked?.key === seal.key && looked.tag === seal.tag) return bytes;
    checkSize(path, 0, byteLength);
    return isSealed(bytes, seal) ? bytes : null;
  }

  #forget(): void {
    this.#path = "";
    this.#bytes = null;
    this.#seal = null;
  }
}
