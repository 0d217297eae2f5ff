/**
 * Writes a graph as an ONNX model.
 * Source: github.com/onnx/onnx, onnx/onnx.proto3 (field numbers beside each message below).
 */
import type { Attribute, Constant, DType, Graph, Node, Port } from "./graph.ts";
import { ProtobufMessage } from "./protobuf.ts";

const OPSET = 21;
/** Version of the operators of all domains except ONNX's. */
const OTHER_OPSET = 1;
const IR_VERSION = 10;

/** Values of TensorProto.DataType. */
const TYPE_CODES: Record<DType, number> = { float32: 1, int32: 6, int64: 7, bool: 9 };
/** Values of AttributeProto.AttributeType. */
const FLOAT = 1;
const INT = 2;
const STRING = 3;
const INTS = 7;

/** AttributeProto: name 1, f 2, i 3, s 4, ints 8, type 20. */
function attribute(name: string, value: Attribute): ProtobufMessage {
  const message = new ProtobufMessage().text(1, name);
  if (typeof value === "number") return message.int(3, value).int(20, INT);
  if (typeof value === "string") return message.text(4, value).int(20, STRING);
  if ("float" in value) return message.float(2, value.float).int(20, FLOAT);
  for (const item of value) message.int(8, item);
  return message.int(20, INTS);
}

/** NodeProto: input 1, output 2, op_type 4, attribute 5, domain 7. */
function nodeProto(node: Node): ProtobufMessage {
  const message = new ProtobufMessage();
  for (const name of node.inputs) message.text(1, name);
  for (const name of node.outputs) message.text(2, name);
  message.text(4, node.op);
  for (const [name, value] of Object.entries(node.attributes)) message.message(5, attribute(name, value));
  return message.text(7, node.domain);
}

/** TensorProto: dims 1, data_type 2, name 8, raw_data 9. */
function tensorProto(name: string, { shape, dtype, values }: Constant): ProtobufMessage {
  const message = new ProtobufMessage();
  for (const dim of shape) message.int(1, dim);
  const raw = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
  return message.int(2, TYPE_CODES[dtype]).text(8, name).bytes(9, raw);
}

/** ValueInfoProto: name 1, type 2 {tensor_type 1 {elem_type 1, shape 2 {dim 1 {dim_value 1}}}}. */
function portProto({ name, shape, dtype }: Port): ProtobufMessage {
  const dims = new ProtobufMessage();
  for (const dim of shape) dims.message(1, new ProtobufMessage().int(1, dim));
  const tensor = new ProtobufMessage().int(1, TYPE_CODES[dtype]).message(2, dims);
  return new ProtobufMessage().text(1, name).message(2, new ProtobufMessage().message(1, tensor));
}

/** ModelProto: ir_version 1, producer_name 2, graph 7, opset_import 8 {domain 1, version 2}. */
export function encodeOnnx(graph: Graph): Uint8Array {
  // GraphProto: node 1, name 2, initializer 5, input 11, output 12, value_info 13.
  const message = new ProtobufMessage();
  for (const node of graph.nodes) message.message(1, nodeProto(node));
  message.text(2, "bunraku");
  for (const [name, constant] of graph.constants) message.message(5, tensorProto(name, constant));
  for (const port of graph.inputs) message.message(11, portProto(port));
  for (const port of graph.outputs) message.message(12, portProto(port));
  // onnxruntime cannot infer the shapes of our operators' results, and fuses only nodes whose shapes it knows.
  const named = new Set(graph.outputs.map(({ name }) => name));
  for (const { outputs, machineCode } of graph.nodes) {
    for (const [i, shape] of (machineCode?.outputs ?? []).entries()) {
      const port = { name: outputs[i]!, shape, dtype: "float32" } as const;
      if (!named.has(port.name)) message.message(13, portProto(port));
    }
  }
  return new ProtobufMessage()
    .int(1, IR_VERSION)
    .text(2, "bunraku")
    .message(7, message)
    .message(8, new ProtobufMessage().text(1, "").int(2, OPSET))
    .message(8, new ProtobufMessage().text(1, "com.microsoft").int(2, OTHER_OPSET))
    .message(8, new ProtobufMessage().text(1, "bunraku").int(2, OTHER_OPSET))
    .finish();
}
