/** The progress of an evaluation. */

/** On a terminal one line that is redrawn; elsewhere at most four lines. */
export function progressLine(episodes: number): (played: number, solved: number) => void {
  const terminal = process.stderr.isTTY === true;
  const step = Math.ceil(episodes / 4);
  return (played, solved) => {
    const text = `played ${played} of ${episodes}, ${solved} solved`;
    if (terminal) process.stderr.write(played === episodes ? "\r\u001b[2K" : `\r${text}`);
    else if (played % step === 0 || played === episodes) process.stderr.write(`${text}\n`);
  };
}
