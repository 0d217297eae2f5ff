/** Looks at the page from inside; put there before the page's own scripts. `Probe` in page-stage.ts is its type. */
const all = (selector) => [...document.querySelectorAll(selector)];

/** The row of each pixel of a chart that has nearly the color of this custom property; from above. */
function rowsOf(chart, property) {
  const canvas = document.querySelector(`#${chart}-plot canvas`);
  const hex = getComputedStyle(document.documentElement).getPropertyValue(property).trim();
  const wanted = [1, 3, 5].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));
  // A copy: reading the page's own canvas would change how the browser draws it.
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
  const rows = [];
  for (let i = 0; i < data.length; i += 4) {
    if (data[i + 3] > 200 && wanted.every((channel, k) => Math.abs(channel - data[i + k]) < 12))
      rows.push(Math.floor(i / 4 / canvas.width));
  }
  return rows;
}

globalThis.probe = {
  /** How many pixels of a chart have nearly the color of this custom property. */
  pixels(chart, property) {
    return rowsOf(chart, property).length;
  },
  /** Places of these pixels, as shares of the chart's height: the uppermost pixel, and the median of all. */
  heights(chart, property) {
    const { height } = document.querySelector(`#${chart}-plot canvas`);
    const rows = rowsOf(chart, property);
    return { top: rows[0] / height, middle: rows[rows.length >> 1] / height };
  },
  /** The places of all elements that must not move. */
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
  background(selector, at) {
    return getComputedStyle(all(selector)[at]).backgroundColor;
  },
  /** Of every text in view: its contrast with what is behind it, as in WCAG 2.2; and its words. */
  contrasts() {
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const found = [];
    while (texts.nextNode()) {
      const text = texts.currentNode.textContent.trim();
      const element = texts.currentNode.parentElement;
      if (text === "" || !element.checkVisibility({ opacityProperty: true }) || element.closest(":disabled, script"))
        continue;
      const ink = rgbOf(getComputedStyle(element).color);
      // Letters that are drawn to look empty (those of walls and floors) are no text.
      if (ink[3] === 0) continue;
      const ground = behind(element);
      found.push({ text: text.slice(0, 40), ratio: contrast(over(ink, ground), ground) });
    }
    return found;
  },
};

/** By their texts in CSS: a page has hundreds of elements and few colors, and each canvas takes time. */
const colors = new Map();
const rgbOf = (color) => colors.get(color) ?? colors.set(color, drawn(color)).get(color);

function drawn(color) {
  const pixel = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  pixel.fillStyle = color;
  pixel.fillRect(0, 0, 1, 1);
  const [red, green, blue, alpha] = pixel.getImageData(0, 0, 1, 1).data;
  return [red, green, blue, alpha / 255];
}
const over = ([...top], bottom) => [0, 1, 2].map((i) => top[i] * top[3] + bottom[i] * (1 - top[3]));

/** The color of what is under an element's text. */
function behind(element) {
  const layers = [];
  for (let at = element; at !== null; at = at.parentElement) {
    const layer = rgbOf(getComputedStyle(at).backgroundColor);
    if (layer[3] > 0) layers.push(layer);
    if (layer[3] === 1) break;
  }
  return layers.reduceRight((below, layer) => over(layer, below), [255, 255, 255]);
}

function luminance(color) {
  const [red, green, blue] = color.map((channel) => {
    const share = channel / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
function contrast(a, b) {
  const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x);
  return (high + 0.05) / (low + 0.05);
}
