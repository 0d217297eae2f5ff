/**
 * The system calls that a sandboxed program is refused: those that hold memory which no limit counts, or look into the kernel, and
 * sockets of families that a network namespace does not hold back (a vsock reaches the host of a virtual machine). Knows no sandbox. A filter is classic BPF over (number, architecture), as bubblewrap's --seccomp reads it.
 *
 * Source: Linux include/uapi/linux/{seccomp,filter,audit}.h; call numbers of arch/x86 and asm-generic.
 */

/** Per architecture: its audit number, socket, and shmget, shmat, msgget, semget, memfd_create, io_uring_setup, ptrace, bpf,
 * perf_event_open, userfaultfd, add_key, request_key, keyctl. */
const REFUSED: Partial<
  Record<NodeJS.Architecture, readonly [audit: number, socket: number, calls: readonly number[]]>
> = {
  x64: [0xc000003e, 41, [29, 30, 68, 64, 319, 425, 101, 321, 298, 323, 248, 249, 250]],
  arm64: [0xc00000b7, 198, [194, 196, 186, 190, 279, 425, 117, 280, 241, 282, 217, 218, 219]],
};

/** AF_UNIX, AF_INET, AF_INET6: within the sandbox's own network, which is empty. */
const FAMILIES = [1, 2, 10];

const LOAD = 0x20;
const JUMP_IF_EQUAL = 0x15;
const JUMP_IF_AT_LEAST = 0x35;
const RETURN = 0x06;
const ALLOW = 0x7fff0000;
const KILL = 0x80000000;
/** The call fails with EPERM. */
const REFUSE = 0x00050001;
/** Its low half, where the filter finds it. */
const FIRST_ARGUMENT = 16;
/** x86-64 has its calls a second time from here on. */
const X32_FIRST = 0x40000000;

type Instruction = readonly [code: number, ifTrue: number, ifFalse: number, value: number];

/** null for an architecture without a list. */
export function seccompFilter(architecture: NodeJS.Architecture): Uint8Array | null {
  const refused = REFUSED[architecture];
  if (refused === undefined) return null;
  const [audit, socket, calls] = refused;
  // Jumps count the instructions between; the last two are "refuse" and "allow".
  const families = FAMILIES.length;
  const checks = calls.map((call, i): Instruction => [JUMP_IF_EQUAL, calls.length - i + families + 1, 0, call]);
  return encoded([
    [LOAD, 0, 0, 4],
    [JUMP_IF_EQUAL, 1, 0, audit],
    [RETURN, 0, 0, KILL],
    [LOAD, 0, 0, 0],
    [JUMP_IF_AT_LEAST, calls.length + families + 2, 0, X32_FIRST],
    ...checks,
    [JUMP_IF_EQUAL, 0, families + 2, socket],
    [LOAD, 0, 0, FIRST_ARGUMENT],
    ...FAMILIES.map((family, i): Instruction => [JUMP_IF_EQUAL, families - i, 0, family]),
    [RETURN, 0, 0, REFUSE],
    [RETURN, 0, 0, ALLOW],
  ]);
}

/** 8 bytes each, in the machine's order: both architectures are little-endian. */
function encoded(instructions: readonly Instruction[]): Uint8Array {
  const bytes = new DataView(new ArrayBuffer(8 * instructions.length));
  for (const [i, [code, ifTrue, ifFalse, value]] of instructions.entries()) {
    bytes.setUint16(8 * i, code, true);
    bytes.setUint8(8 * i + 2, ifTrue);
    bytes.setUint8(8 * i + 3, ifFalse);
    bytes.setUint32(8 * i + 4, value, true);
  }
  return new Uint8Array(bytes.buffer);
}
