/**
 * Checks the requests that `bun run serve` takes: POST /v1/chat/completions and /v1/completions of OpenAI's API. This file uses no policy and no HTTP.
 *
 * - A field that is unknown or not supported is an error, with the field's name in `param` and a sentence that says what is allowed.
 * - The prompt of /v1/completions becomes one message of the user, because a policy reads only dialogues.
 *
 * Source: platform.openai.com/docs/api-reference/chat, platform.openai.com/docs/api-reference/completions.
 */
import { z } from "zod";

/** A fault of the request. The client gets the fault's message. */
export class RequestError extends Error {
  override readonly name = "RequestError";
  readonly status: 400 | 401 | 403 | 404 | 413 | 415 | 429;
  readonly code: string;
  readonly param: string | null;

  constructor(status: RequestError["status"], code: string, message: string, param: string | null = null) {
    super(message);
    this.status = status;
    this.code = code;
    this.param = param;
  }
}

export type RequestForm = "chat" | "text";

/** A checked request. For a null field the server uses its own value, unless the field's comment says otherwise. */
export interface Asked extends ReturnType<typeof commonOf> {
  readonly form: RequestForm;
  readonly messages: readonly { readonly role: "system" | "user" | "assistant"; readonly content: string }[];
  readonly tokensMax: number | null;
  /** Number of likeliest tokens to report beside each written token; null means no log-probabilities. */
  readonly tops: number | null;
}

const CHOICES_MAX = 8;
const TEMPERATURE_MAX = 2;
const STOPS_MAX = 4;
const TOPS_MAX = 20;

const Text = z.union([
  z.string(),
  z
    .array(z.strictObject({ type: z.literal("text"), text: z.string() }))
    .transform((parts) => parts.map(({ text }) => text).join("")),
]);
const Stop = z.string().min(1);

const common = {
  model: z.string(),
  temperature: z.number().min(0).max(TEMPERATURE_MAX).nullish(),
  top_p: z.number().positive().max(1).nullish(),
  /** OpenAI's own API has no top_k and no return_token_ids. Other servers of this API, such as vLLM, have them. */
  top_k: z.int().nonnegative().nullish(),
  return_token_ids: z.boolean().nullish(),
  max_tokens: z.int().positive().nullish(),
  n: z.int().positive().max(CHOICES_MAX).nullish(),
  seed: z.int().nonnegative().max(0xffffffff).nullish(),
  stop: z.union([Stop, z.array(Stop).max(STOPS_MAX)]).nullish(),
  stream: z.boolean().nullish(),
  stream_options: z.strictObject({ include_usage: z.boolean().optional() }).nullish(),
  user: z.string().nullish(),
  // This server supports only the value that changes nothing.
  frequency_penalty: z.literal(0).nullish(),
  presence_penalty: z.literal(0).nullish(),
};
const ChatBody = z.strictObject({
  ...common,
  messages: z
    .array(
      z.strictObject({
        role: z.enum(["system", "developer", "user", "assistant"]),
        content: Text,
        // A client sends a reply back as it got the reply, with this field.
        refusal: z.null().optional(),
      }),
    )
    .min(1),
  max_completion_tokens: z.int().positive().nullish(),
  logprobs: z.boolean().nullish(),
  top_logprobs: z.int().nonnegative().max(TOPS_MAX).nullish(),
  response_format: z.strictObject({ type: z.literal("text") }).nullish(),
});
const TextBody = z.strictObject({
  ...common,
  prompt: z.string(),
  logprobs: z.int().nonnegative().max(TOPS_MAX).nullish(),
  echo: z.literal(false).nullish(),
  best_of: z.literal(1).nullish(),
});

/** @throws {RequestError} naming the first fault. */
export function askedOf(form: RequestForm, raw: unknown): Asked {
  return form === "chat" ? chatAsked(raw) : textAsked(raw);
}

function chatAsked(raw: unknown): Asked {
  const body = checked(ChatBody, raw);
  const { messages, logprobs, top_logprobs: tops, max_tokens, max_completion_tokens } = body;
  if (typeof tops === "number" && logprobs !== true) throw invalid("top_logprobs", "needs logprobs: true");
  const tokensMax = max_completion_tokens ?? max_tokens ?? null;
  if ((max_tokens ?? tokensMax) !== tokensMax)
    throw invalid("max_tokens", `is ${max_tokens}, and max_completion_tokens is ${tokensMax}; leave one of them out`);
  return {
    ...commonOf(body),
    form: "chat",
    messages: messages.map(({ role, content }) => ({ role: role === "developer" ? "system" : role, content })),
    tokensMax,
    tops: logprobs === true ? streamless(body, "logprobs", tops ?? 0) : null,
  };
}

function textAsked(raw: unknown): Asked {
  const body = checked(TextBody, raw);
  const { prompt, logprobs, max_tokens } = body;
  return {
    ...commonOf(body),
    form: "text",
    messages: [{ role: "user", content: prompt }],
    tokensMax: max_tokens ?? null,
    tops: typeof logprobs === "number" ? streamless(body, "logprobs", logprobs) : null,
  };
}

function streamless<T>({ stream }: { readonly stream?: boolean | null | undefined }, param: string, value: T): T {
  if (stream === true) throw invalid(param, "is not supported with stream: true; leave one of them out");
  return value;
}

function commonOf(body: z.infer<z.ZodObject<typeof common>>) {
  return {
    model: body.model,
    temperature: body.temperature ?? null,
    topP: body.top_p ?? 1,
    topK: body.top_k ?? 0,
    count: body.n ?? 1,
    /** null means a random seed. */
    seed: body.seed ?? null,
    /** A reply ends before the first of these texts. */
    stops: typeof body.stop === "string" ? [body.stop] : (body.stop ?? []),
    /** True if the answer must have the tokens of the prompt and the replies. */
    tokenIds: body.return_token_ids === true && streamless(body, "return_token_ids", true),
    stream: body.stream === true,
    includeUsage: body.stream_options?.include_usage === true,
  };
}

const invalid = (param: string, problem: string) =>
  new RequestError(400, "invalid", param === "" ? problem : `${param} ${problem}`, param === "" ? null : param);

function checked<T>(schema: z.ZodType<T>, raw: unknown): T {
  if (typeof raw !== "object" || raw === null || Array.isArray(raw))
    throw invalid("", "the body must be a JSON object");
  const parsed = schema.safeParse(raw, { reportInput: true });
  if (parsed.success) return parsed.data;
  throw faultOf(parsed.error.issues[0]!);
}

function faultOf(issue: z.core.$ZodIssue): RequestError {
  const param = issue.path.join(".");
  const found = issue.input === undefined ? "it is missing" : `got ${shortJson(issue.input)}`;
  switch (issue.code) {
    case "unrecognized_keys": {
      const name = [...issue.path, issue.keys[0]!].join(".").slice(0, 100);
      return invalid(name, "is not supported by this server; leave it out");
    }
    case "invalid_type":
      return invalid(param, `must be of type ${issue.expected}; ${found}`);
    case "invalid_value":
      return invalid(param, `must be ${issue.values.map((value) => JSON.stringify(value)).join(" or ")}; ${found}`);
    case "too_small":
      return invalid(
        param,
        `must ${sizeWord(issue)} ${issue.inclusive ? "at least" : "more than"} ${issue.minimum}; ${found}`,
      );
    case "too_big":
      return invalid(param, `must ${sizeWord(issue)} at most ${issue.maximum}; ${found}`);
    case "invalid_union":
      return invalid(
        param,
        `must be ${param === "stop" ? `a text, or up to ${STOPS_MAX} texts` : "a text, or parts of type text"}; ${found}`,
      );
    default:
      return invalid(param, `is not valid; ${found}`);
  }
}

const sizeWord = ({ origin }: { readonly origin: string }) =>
  origin === "string" || origin === "array" ? "have a length of" : "be";

const shortJson = (value: unknown): string => (JSON.stringify(value) ?? typeof value).slice(0, 100);
