/** Texts of shares, counts and remaining time, for logs, reports and the page. Imports nothing, so that the browser can load it. */

/** 0.1234 becomes "12.3 %". null means not measured, and becomes a dash. @param digits  after the decimal point */
export const percent = (share: number | null, digits = 1): string =>
  share === null ? "–" : `${(share * 100).toFixed(digits)} %`;

export const timeLeft = (minutes: number): string =>
  minutes < 1 ? "less than a minute left" : `about ${Math.round(minutes)} min left`;

export const whole = (value: number): string => Math.round(value).toLocaleString("en");

/** "1 turn", "1,200 turns". */
export const plural = (count: number, word: string): string => `${whole(count)} ${word}${count === 1 ? "" : "s"}`;
