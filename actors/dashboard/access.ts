/**
 * Decides who may read the page.
 *
 * - If the run has a token, a request needs `Authorization: Bearer TOKEN` or the run's cookie. A request with `?token=TOKEN` gets this cookie.
 * - If the run has no token, a request must name a loopback host. This stops DNS rebinding: a site whose host name resolves to 127.0.0.1 cannot
 *   read the page.
 * - The API, /metrics and /runs refuse requests that a page of another site makes.
 * - The guard compares tokens in constant time. The cookie contains a digest of the token, not the token.
 */
import { createHash } from "node:crypto";
import type { Context, MiddlewareHandler } from "hono";
import { getCookie, setCookie } from "hono/cookie";
import { isLoopback, sameSecret } from "../transport/address.ts";

export function guard(token: string | null): MiddlewareHandler {
  if (token === null) return loopbackOnly;
  const cookieValue = createHash("sha256").update(`cookie ${token}`).digest("hex");

  return async (c, next) => {
    const bearer = /^Bearer (.+)$/.exec(c.req.header("Authorization") ?? "")?.[1];
    if (bearer !== undefined && sameSecret(bearer, token)) return next();
    const url = new URL(c.req.url);
    const presented = url.searchParams.get("token");
    if (presented === null || !sameSecret(presented, token)) {
      const cookie = getCookie(c, cookieName(c));
      if (cookie !== undefined && sameSecret(cookie, cookieValue)) return next();
      return c.text("This page needs the token of the run: open /?token=TOKEN (config key metrics.token).\n", 401);
    }
    setCookie(c, cookieName(c), cookieValue, { httpOnly: true, sameSite: "Strict", path: "/" });
    url.searchParams.delete("token");
    // Remove the token from the address bar, the history and the Referer. Keep one slash, because a path that begins with "//" names another host.
    return c.redirect(`${url.pathname.replace(/^\/+/, "/")}${url.search}`, 303);
  };
}

// A browser sends a cookie to every port of a host, so the cookies of two runs on one machine need different names.
const cookieName = (c: Context) => `bunraku_${new URL(c.req.url).port || "80"}`;

const loopbackOnly: MiddlewareHandler = (c, next) => {
  const { hostname } = new URL(c.req.url);
  if (isLoopback(hostname)) return next();
  const advice = "Without a token, only loopback names are allowed: open http://127.0.0.1, or set metrics.token.";
  return Promise.resolve(c.text(`Host "${hostname}" is refused. ${advice}\n`, 403));
};

/** Refuses a request whose Host header is no host name, because such a request has no valid URL. */
export const validHostOnly: MiddlewareHandler = (c, next) =>
  URL.canParse(c.req.url) ? next() : Promise.resolve(c.text("The Host header is not a host name.\n", 400));

/** Refuses requests of another site's page. A browser names the requesting site in Sec-Fetch-Site or Origin; a program sends neither header. */
export const sameSiteOnly: MiddlewareHandler = (c, next) => {
  const site = c.req.header("Sec-Fetch-Site");
  const origin = c.req.header("Origin");
  const { host } = new URL(c.req.url);
  const isOwn = origin === undefined || URL.parse(origin)?.host === host;
  if (site === undefined ? isOwn : ["same-origin", "none"].includes(site)) return next();
  const error = `a page of another site may not read ${c.req.path}; type its address into the browser, or send neither Origin nor Sec-Fetch-Site`;
  return Promise.resolve(c.json({ error }, 403));
};
