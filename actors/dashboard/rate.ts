/** The only request that changes data: POST api/ratings adds a rating (ratings.ts) to the page's run. */
import type { Context } from "hono";
import { bodyLimit } from "hono/body-limit";
import { schemaFaults } from "../errors.ts";
import type { ApiContext } from "./api.ts";
import { NewRating, TooManyRatings } from "./ratings.ts";

export const RATINGS_PATH = "/api/ratings";

const BYTES_MAX = 16_384;

export const ratingLimit = bodyLimit({
  maxSize: BYTES_MAX,
  onError: (c) => c.json({ error: `a rating has at most ${BYTES_MAX} bytes` }, 413),
});

/** Accepts only JSON, which a form of another site cannot send. */
export async function rate(c: Context, { store, ratings }: ApiContext): Promise<Response> {
  if (c.req.header("Content-Type")?.split(";")[0] !== "application/json")
    return c.json({ error: "a rating is sent as application/json" }, 415);
  const body = NewRating.safeParse(await c.req.json().catch(() => null));
  if (!body.success) return c.json({ error: schemaFaults(body.error, "rating").slice(0, 1000) }, 400);
  const found = store.episode(body.data.id);
  if (found === null) return c.json({ error: `no episode ${body.data.id}; api/episodes lists them` }, 404);
  const { episode, turnCount } = found.summary;
  const { turn } = body.data;
  if (turn !== null && turn > turnCount)
    return c.json({ error: `turn is ${turn}, but the episode has ${turnCount} turns` }, 400);
  try {
    ratings.add({ ...body.data, episode, atMs: Date.now() });
  } catch (error) {
    if (error instanceof TooManyRatings) return c.json({ error: error.message }, 507);
    throw error;
  }
  return c.json({}, 201);
}
