// <tagseg-viewer>: an image, its overlay and its mask, side by side or with a swipe between two of them.
//
// viewer.show({image, mask: {width, height, runs}, classes: [{name, value, color, score, share}]})
//   image: anything that a canvas draws; runs: the mask row by row as value, length, value, length, ...
// All drawing happens here, so that hiding a class or moving the opacity needs no answer of the server.

const MAX_SIDE = 1280; // pixels of what is drawn
const DARKENING = 0.2; // of the background, as in tagseg/predict/render.py
const PANES = { image: "Image", overlay: "Overlay", mask: "Mask" };

const MARKUP = `
<link rel="stylesheet" href="/app/static/elements.css">
<div class="controls">
  <fieldset class="inline">
    <legend>View</legend>
    <label><input type="radio" name="view" value="panes" checked> Side by side</label>
    <label><input type="radio" name="view" value="swipe"> Swipe</label>
  </fieldset>
  <label class="opacity">Opacity <input type="range" id="opacity" min="0" max="100" value="60"></label>
</div>
<ul class="classes" aria-label="Classes; press one to hide it"></ul>
<div class="panes">
  ${Object.entries(PANES)
    .map(([pane, name]) => `<figure><canvas data-pane="${pane}" role="img"></canvas><figcaption>${name}</figcaption></figure>`)
    .join("")}
</div>
<div class="swipe" hidden>
  <div class="controls">
    ${["left", "right"]
      .map(
        (side) => `<label>${side === "left" ? "Left" : "Right"} <select data-side="${side}">${Object.entries(PANES)
          .map(([pane, name]) => `<option value="${pane}">${name}</option>`)
          .join("")}</select></label>`
      )
      .join("")}
  </div>
  <div class="stack">
    <canvas data-side="left" role="img"></canvas>
    <canvas data-side="right" role="img"></canvas>
    <div class="divider" aria-hidden="true"></div>
    <input type="range" id="position" min="0" max="100" value="50" aria-label="Border between left and right">
  </div>
</div>`;

export class Viewer extends HTMLElement {
  #hidden = new Set(); // values of the classes that are hidden; they stay hidden in the next result
  #layers = {}; // pane -> ImageData
  #result = null;

  connectedCallback() {
    if (this.shadowRoot) return;
    this.attachShadow({ mode: "open" }).innerHTML = MARKUP;
    this.#all("input[name=view]").forEach((radio) => radio.addEventListener("change", () => this.#switchView()));
    this.#one("#opacity").addEventListener("input", () => this.#draw());
    this.#one("#position").addEventListener("input", () => this.#moveDivider());
    this.#one("select[data-side=right]").value = "overlay";
    this.#all("select").forEach((select) => select.addEventListener("change", () => this.#paint()));
  }

  /** Show a result; what is hidden, and the view, stay as they are. */
  show({ image, mask, classes }) {
    const scale = Math.min(1, MAX_SIDE / Math.max(mask.width, mask.height));
    const width = Math.max(1, Math.round(mask.width * scale));
    const height = Math.max(1, Math.round(mask.height * scale));
    const canvas = new OffscreenCanvas(width, height);
    const context = canvas.getContext("2d", { willReadFrequently: true });
    context.imageSmoothingQuality = "high";
    context.drawImage(image, 0, 0, width, height);
    const pixels = context.getImageData(0, 0, width, height);
    this.#result = { pixels, values: sample(mask, width, height), classes };
    this.#listClasses();
    this.#draw();
  }

  #one(selector) {
    return this.shadowRoot.querySelector(selector);
  }

  #all(selector) {
    return this.shadowRoot.querySelectorAll(selector);
  }

  #listClasses() {
    const list = this.#one(".classes");
    list.replaceChildren();
    for (const { name, value, color, score } of this.#result.classes) {
      const item = document.createElement("li");
      const button = document.createElement("button");
      const swatch = document.createElement("span");
      swatch.className = "swatch";
      swatch.style.background = `rgb(${color})`;
      const percent = document.createElement("b");
      percent.textContent = `${Math.round(100 * score)} %`;
      button.append(swatch, `${name} `, percent);
      button.setAttribute("aria-pressed", String(!this.#hidden.has(value)));
      button.addEventListener("click", () => {
        this.#hidden.has(value) ? this.#hidden.delete(value) : this.#hidden.add(value);
        button.setAttribute("aria-pressed", String(!this.#hidden.has(value)));
        this.#draw();
      });
      item.append(button);
      list.append(item);
    }
  }

  #switchView() {
    const view = this.#one("input[name=view]:checked").value;
    this.#one(".panes").hidden = view !== "panes";
    this.#one(".swipe").hidden = view !== "swipe";
    this.#moveDivider();
    this.#paint();
  }

  #moveDivider() {
    const position = this.#one("#position").value;
    this.#one("canvas[data-side=right]").style.clipPath = `inset(0 0 0 ${position}%)`;
    this.#one(".divider").style.left = `${position}%`;
  }

  #draw() {
    if (!this.#result) return;
    const { pixels, values, classes } = this.#result;
    const shown = values.map((value) => (this.#hidden.has(value) ? 0 : value));
    const colors = new Map(classes.map(({ value, color }) => [value, color]));
    const opacity = this.#one("#opacity").value / 100;
    this.#layers = { image: pixels, overlay: overlay(pixels, shown, colors, opacity), mask: flat(pixels, shown, colors) };
    this.#paint();
  }

  /** Copy the layers to the canvases of the view that is shown. */
  #paint() {
    if (!this.#result) return;
    const found = this.#result.classes.map(({ name, share }) => `${name} ${Math.round(100 * share)} % of the area`);
    for (const canvas of this.#all("canvas")) {
      const pane = canvas.dataset.pane ?? this.#one(`select[data-side=${canvas.dataset.side}]`).value;
      if (canvas.closest("[hidden]")) continue;
      const layer = this.#layers[pane];
      [canvas.width, canvas.height] = [layer.width, layer.height];
      canvas.getContext("2d").putImageData(layer, 0, 0);
      const content = pane === "image" ? "" : `: ${found.join(", ") || "no known class found"}`;
      canvas.setAttribute("aria-label", `${PANES[pane]}${content}`);
    }
  }
}

/** Values of a mask at the nearest pixels of a smaller size, from its runs. */
function sample({ width, height, runs }, newWidth, newHeight) {
  const values = new Uint16Array(newWidth * newHeight);
  let run = 0;
  let end = runs[1];
  for (let y = 0, index = 0; y < newHeight; y++) {
    const row = Math.floor(((y + 0.5) * height) / newHeight) * width;
    for (let x = 0; x < newWidth; x++, index++) {
      const position = row + Math.floor(((x + 0.5) * width) / newWidth);
      while (end <= position) {
        run += 2;
        end += runs[run + 1];
      }
      values[index] = runs[run];
    }
  }
  return values;
}

/** Blend the classes over the image, with outlines, as tagseg/predict/render.py does. */
function overlay(image, values, colors, opacity) {
  const { width, height, data } = image;
  const result = new ImageData(width, height);
  const fade = Math.min(1, 2 * opacity);
  const thickness = Math.max(1, Math.round(Math.min(width, height) / 300));
  const edges = findEdges(values, width, height, thickness);
  for (let index = 0; index < values.length; index++) {
    const color = colors.get(values[index]);
    const gray = (data[4 * index] + data[4 * index + 1] + data[4 * index + 2]) / 3;
    for (let channel = 0; channel < 3; channel++) {
      const pixel = data[4 * index + channel];
      let shade = (1 - DARKENING * fade) * pixel;
      if (color) shade = (1 - opacity) * (pixel + fade * (gray - pixel)) + opacity * color[channel];
      if (edges[index] & 2) shade *= 0.3;
      if (edges[index] & 1) shade = 0.25 * shade + 0.75 * 255;
      result.data[4 * index + channel] = shade + 0.5;
    }
    result.data[4 * index + 3] = 255;
  }
  return result;
}

/** Pixels within `thickness` of another class: 1 on the side of the higher value, 2 on the other. */
function findEdges(values, width, height, thickness) {
  const edges = new Uint8Array(values.length);
  const compare = (index, other) => {
    if (values[index] === values[other]) return;
    edges[index] |= values[index] > values[other] ? 1 : 2;
    edges[other] |= values[other] > values[index] ? 1 : 2;
  };
  for (let step = 1; step <= thickness; step++) {
    for (let y = 0, index = 0; y < height; y++) {
      for (let x = 0; x < width; x++, index++) {
        if (x >= step) compare(index, index - step);
        if (y >= step) compare(index, index - step * width);
      }
    }
  }
  return edges;
}

/** The classes in their colors, the background black. */
function flat({ width, height }, values, colors) {
  const result = new ImageData(width, height);
  for (let index = 0; index < values.length; index++) {
    const color = colors.get(values[index]);
    if (color) result.data.set(color, 4 * index);
    result.data[4 * index + 3] = 255;
  }
  return result;
}

customElements.define("tagseg-viewer", Viewer);
