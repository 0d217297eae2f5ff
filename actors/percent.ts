/** How a share is written, in logs, reports and on the page. It imports nothing, so that the browser can load it. */

/** 0.1234 becomes "12.3 %"; null, which is not measured, a dash. @param digits  behind the point */
export const percent = (share: number | null, digits = 1): string =>
  share === null ? "–" : `${(share * 100).toFixed(digits)} %`;
