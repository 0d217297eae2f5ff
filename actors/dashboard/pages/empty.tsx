/** @jsxImportSource hono/jsx */
/** Pages with nothing on them but what to do. */
import type { Child } from "hono/jsx";

interface NothingProps {
  readonly title: string;
  /** Look again every two seconds. */
  readonly again?: boolean;
  readonly children: Child;
}

const Nothing = ({ title, again = false, children }: NothingProps) => (
  <html lang="en">
    <head>
      <meta charset="utf-8" />
      <meta name="viewport" content="width=device-width, initial-scale=1" />
      {again && <meta http-equiv="refresh" content="2" />}
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

/** Before the run was started in the store. */
export const EmptyPage = () => (
  <Nothing title="No run here yet" again>
    The run is being started; this page looks again every two seconds.
  </Nothing>
);

export const MissingPage = ({ path }: { path: string }) => (
  <Nothing title="Nothing here">
    There is no page {path}. <a href="/">To the run</a>
  </Nothing>
);
