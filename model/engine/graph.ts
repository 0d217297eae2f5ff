/**
 * A traced computation: nodes in execution order; each value is assigned once. Operators have ONNX's names.
 * This file knows no tfjs and no runtime: trace.ts builds a graph, onnx.ts writes it to bytes, and compiled.ts runs it.
 */

import type { MachineCodeOperator } from "./native/operator.ts";

export type DType = "float32" | "int32" | "int64" | "bool";
export type TypedArray = Float32Array | Int32Array | BigInt64Array | Uint8Array;

/** A plain number is an integer; `{ float }` holds a float. */
export type Attribute = number | readonly number[] | string | { readonly float: number };

export interface Node {
  readonly op: string;
  /** "" is ONNX, "com.microsoft" onnxruntime's fused operators, "bunraku" our own. */
  readonly domain: "" | "com.microsoft" | "bunraku";
  /** Value names; "" for an absent optional input. */
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly attributes: Readonly<Record<string, Attribute>>;
  /** In domain "bunraku": the operator, whose kernel is machine code. */
  readonly machineCode?: MachineCodeOperator;
}

export interface Constant {
  readonly shape: readonly number[];
  readonly dtype: DType;
  readonly values: TypedArray;
}

export interface Port {
  readonly name: string;
  readonly shape: readonly number[];
  readonly dtype: DType;
}

export interface Graph {
  readonly inputs: readonly Port[];
  readonly outputs: readonly Port[];
  readonly nodes: readonly Node[];
  readonly constants: ReadonlyMap<string, Constant>;
}

/** The smallest multiple of `multiple` that is at least `value`. */
export const roundUp = (value: number, multiple: number): number => Math.ceil(value / multiple) * multiple;

/** Number of values in a tensor. */
export const sizeOf = (shape: readonly number[]): number => shape.reduce((size, dim) => size * dim, 1);

/** Drops nodes and constants that no output depends on. */
export function prune(graph: Graph): Graph {
  const needed = new Set(graph.outputs.map((port) => port.name));
  const nodes: Node[] = [];
  for (const node of graph.nodes.toReversed()) {
    if (!node.outputs.some((name) => needed.has(name))) continue;
    for (const name of node.inputs) needed.add(name);
    nodes.push(node);
  }
  const constants = new Map([...graph.constants].filter(([name]) => needed.has(name)));
  return { ...graph, nodes: nodes.reverse(), constants };
}
