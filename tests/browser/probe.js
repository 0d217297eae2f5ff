/** Looks at the page from inside; put there before the page's own scripts. `Probe` in run-page.test.ts is its type. */
const all = (selector) => [...document.querySelectorAll(selector)];

globalThis.probe = {
  /** How many pixels of a chart have nearly the colour of this custom property. */
  pixels(chart, property) {
    const canvas = document.querySelector(`#${chart}-plot canvas`);
    const hex = getComputedStyle(document.documentElement).getPropertyValue(property).trim();
    const wanted = [1, 3, 5].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));
    // A copy: reading the page's own canvas would change how the browser draws it.
    const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
    copy.drawImage(canvas, 0, 0);
    const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
    let count = 0;
    for (let i = 0; i < data.length; i += 4) {
      if (data[i + 3] > 200 && wanted.every((channel, k) => Math.abs(channel - data[i + k]) < 12)) count++;
    }
    return count;
  },
  /** Where everything is whose place must not change. */
  frames() {
    return all(".card, .plot, #status, h2").map((element) => {
      const { x, y, width, height } = element.getBoundingClientRect();
      return [element.id, x, y, width, height];
    });
  },
  count: (selector) => all(selector).length,
  text: (selector) => document.querySelector(selector)?.textContent ?? null,
  has: (name) => name in globalThis,
  width: (selector) => document.querySelector(selector).clientWidth,
  /** By how many pixels the page is wider than the window. */
  overflow: () => document.documentElement.scrollWidth - innerWidth,
};
