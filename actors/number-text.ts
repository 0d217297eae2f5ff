/** Texts of shares, counts and remaining time, for logs, reports and the page. This file imports nothing, so that the browser can load it. */

/** 0.1234 becomes "12.3 %", and null becomes a dash: the share was not measured. @param digits  number of digits after the decimal point */
export const percent = (share: number | null, digits = 1): string =>
  share === null ? "–" : `${(share * 100).toFixed(digits)} %`;

export function timeLeft(minutes: number): string {
  if (minutes < 1) return "less than a minute left";
  const hours = minutes / 60;
  if (hours < 3) return `about ${Math.round(minutes)} min left`;
  return hours < 72 ? `about ${Math.round(hours)} h left` : `about ${Math.round(hours / 24)} days left`;
}

export const whole = (value: number): string => Math.round(value).toLocaleString("en");

/** "1 turn", "1,200 turns". */
export const plural = (count: number, word: string): string => `${whole(count)} ${word}${count === 1 ? "" : "s"}`;
