/** @jsxImportSource hono/jsx */
/** Pages for a run that has not started, and for an unknown path. */
import type { Child } from "hono/jsx";

interface NoticeProps {
  readonly title: string;
  /** Reload every two seconds. */
  readonly reloads?: boolean;
  readonly children: Child;
}

export const Notice = ({ title, reloads = false, children }: NoticeProps) => (
  <html lang="en">
    <head>
      <meta charset="utf-8" />
      <meta name="viewport" content="width=device-width, initial-scale=1" />
      {reloads && <meta http-equiv="refresh" content="2" />}
      <title>Bunraku</title>
      <link rel="icon" href="/assets/icon.svg" type="image/svg+xml" />
      <link rel="stylesheet" href="/assets/style.css" />
    </head>
    <body>
      <main class="nothing">
        <h1>{title}</h1>
        <p>{children}</p>
      </main>
    </body>
  </html>
);

export const EmptyPage = () => (
  <Notice title="No run here yet" reloads>
    The run is starting. This page reloads every two seconds.
  </Notice>
);

export const MissingPage = ({ path }: { path: string }) => (
  <Notice title="Page not found">
    There is no page {path}. <a href="/">Go to the first page</a>
  </Notice>
);
