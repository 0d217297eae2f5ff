/** @jsxImportSource hono/jsx */
/** Pages for a run that has not started, and for an unknown path. */
import type { Child } from "hono/jsx";
import { PageHead } from "./page-head.tsx";

interface NoticeProps {
  readonly title: string;
  /** Reload every two seconds. */
  readonly reloads?: boolean;
  readonly children: Child;
}

export const Notice = ({ title, reloads = false, children }: NoticeProps) => (
  <html lang="en">
    <PageHead title="Bunraku">{reloads && <meta http-equiv="refresh" content="2" />}</PageHead>
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
