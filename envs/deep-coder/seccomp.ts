/**
 * The seccomp filter of the sandbox, as classic BPF for bubblewrap's --seccomp. The filter refuses system calls that use memory
 * outside the sandbox's limits or inspect the kernel. It also refuses sockets of families that a network namespace does not
 * isolate (a vsock reaches the host of a virtual machine).
 *
 * Source: Linux include/uapi/linux/{seccomp,filter,audit}.h; call numbers of arch/x86 and asm-generic.
 */

/** The audit number of each architecture, and the architecture's index in the rows of `REFUSED`. */
const ARCHITECTURES: Partial<Record<NodeJS.Architecture, readonly [audit: number, index: 0 | 1]>> = {
  x64: [0xc000003e, 0],
  arm64: [0xc00000b7, 1],
};

const SOCKET = [41, 198] as const;
/** Numbers of each refused system call, on x64 and on arm64. */
const REFUSED: readonly (readonly [x64: number, arm64: number])[] = Object.values({
  shmget: [29, 194],
  shmat: [30, 196],
  msgget: [68, 186],
  semget: [64, 190],
  memfd_create: [319, 279],
  memfd_secret: [447, 447],
  io_uring_setup: [425, 425],
  ptrace: [101, 117],
  bpf: [321, 280],
  perf_event_open: [298, 241],
  userfaultfd: [323, 282],
  add_key: [248, 217],
  request_key: [249, 218],
  keyctl: [250, 219],
});

/** AF_UNIX, AF_INET, AF_INET6: the sandbox's own network isolates them. */
const FAMILIES = [1, 2, 10];

const LOAD = 0x20;
const JUMP_IF_EQUAL = 0x15;
const JUMP_IF_AT_LEAST = 0x35;
const RETURN = 0x06;
const ALLOW = 0x7fff0000;
const KILL = 0x80000000;
/** Makes the system call fail with EPERM. */
const REFUSE = 0x00050001;
/** Offset of the low half of the first argument. */
const FIRST_ARGUMENT = 16;
/** From this number on, x86-64 repeats its calls in the x32 ABI. */
const X32_FIRST = 0x40000000;

type Instruction = readonly [code: number, ifTrue: number, ifFalse: number, value: number];

/** @returns the filter's instructions; null for an unsupported architecture */
export function seccompFilter(architecture: NodeJS.Architecture): Uint8Array | null {
  const known = ARCHITECTURES[architecture];
  if (known === undefined) return null;
  const [audit, index] = known;
  const calls = REFUSED.map((numbers) => numbers[index]);
  // A jump holds the number of instructions that it skips. The last two instructions are "refuse" and "allow".
  const families = FAMILIES.length;
  const checks = calls.map((call, i): Instruction => [JUMP_IF_EQUAL, calls.length - i + families + 1, 0, call]);
  return encoded([
    [LOAD, 0, 0, 4],
    [JUMP_IF_EQUAL, 1, 0, audit],
    [RETURN, 0, 0, KILL],
    [LOAD, 0, 0, 0],
    [JUMP_IF_AT_LEAST, calls.length + families + 2, 0, X32_FIRST],
    ...checks,
    [JUMP_IF_EQUAL, 0, families + 2, SOCKET[index]],
    [LOAD, 0, 0, FIRST_ARGUMENT],
    ...FAMILIES.map((family, i): Instruction => [JUMP_IF_EQUAL, families - i, 0, family]),
    [RETURN, 0, 0, REFUSE],
    [RETURN, 0, 0, ALLOW],
  ]);
}

/** 8 bytes per instruction, little-endian as both architectures are. */
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
