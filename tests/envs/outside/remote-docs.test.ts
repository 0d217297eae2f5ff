/** docs/remote-envs.md against the schemas that are used. */
import { expect, test } from "bun:test";
import { join } from "node:path";
import { z } from "zod";
import { envTag } from "../../../envs/registry.ts";
import {
  answerSchemas,
  Close,
  Closed,
  Failed,
  Health,
  Open,
  Opened,
  Step,
  Stepped,
} from "../../../envs/remote/protocol.ts";

const docs = join(import.meta.dir, "../../../docs");
const text = await Bun.file(join(docs, "remote-envs.md")).text();

test("the published schema is the one that is used", async () => {
  const used = { Health, Open, Opened, Step, Stepped, Close, Closed, Failed };
  const schemas = Object.entries(used).map(([name, schema]) => [name, z.toJSONSchema(schema, { io: "input" })]);
  const published = await Bun.file(join(docs, "remote-envs.schema.json")).json();
  expect(published).toEqual(JSON.parse(JSON.stringify(Object.fromEntries(schemas))));
});

test("the episode that is shown is one", () => {
  const lines = JSON.parse(/```json\n([\s\S]*?)```/.exec(text)![1]!) as Record<string, unknown>[];
  const asks = { open: Open, step: Step, close: Close };
  for (let i = 0; i < lines.length; i += 2) {
    const [[request, body]] = Object.entries(lines[i]!) as [[string, unknown]];
    const kind = request.replace("POST /", "") as keyof typeof asks;
    expect(asks[kind].parse(body)).toEqual(body as never);
    expect(answerSchemas[kind].parse(lines[i + 1]!["answer"])).toMatchObject(lines[i + 1]!["answer"] as object);
  }
  expect(lines.length).toBe(8);
});

test("every option of the tag is in the table, with its default", () => {
  for (const [name, value] of Object.entries(envTag("Remote").config)) {
    const row = text.split("\n").find((line) => line.startsWith("|") && line.includes(`\`${name}\``));
    expect([name, row === undefined]).toEqual([name, false]);
    if (typeof value === "string" && value !== "") expect(row!).toContain(value);
    if (typeof value === "number") expect(row!).toContain(String(value));
  }
});
