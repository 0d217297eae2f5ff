/** @jsxImportSource hono/jsx */
/** The <head> of every page. */
import type { Child } from "hono/jsx";

interface PageHeadProps {
  readonly title: string;
  /** Style sheets besides style.css. */
  readonly styles?: readonly string[];
  readonly children?: Child;
}

export const PageHead = ({ title, styles = [], children }: PageHeadProps) => (
  <head>
    <meta charset="utf-8" />
    <meta name="viewport" content="width=device-width, initial-scale=1" />
    <meta name="color-scheme" content="light dark" />
    <title>{title}</title>
    <link rel="icon" href="/assets/icon.svg" type="image/svg+xml" />
    {["style.css", ...styles].map((name) => (
      <link rel="stylesheet" href={`/assets/${name}`} />
    ))}
    {children}
  </head>
);
