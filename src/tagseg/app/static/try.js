// <tagseg-try>: the tab Try. An image goes to POST /predict, and the answer to <tagseg-viewer>.

import "./viewer.js";

const MAX_VIEW_SIDE = 1600;
const MILLISECONDS_BETWEEN_LOOKS = 400;
const DOWNLOADS = { png: "Mask (PNG)", json: "JSON", coco: "COCO" };

const MARKUP = `
<link rel="stylesheet" href="/app/static/elements.css">
<div class="columns">
  <form class="settings">
    <label class="drop">
      <input type="file" id="file" accept="image/*,.heic,.heif,.tif,.tiff">
      <span>Drop an image here, or <u>choose a file</u></span>
    </label>
    <div class="samples" role="group" aria-label="Samples"></div>
    <details>
      <summary>Settings</summary>
      <div>
        <fieldset>
          <legend>Scales</legend>
          <label><input type="radio" name="tta" value="false" checked> Single scale</label>
          <label><input type="radio" name="tta" value="true"> Multi-scale and flip (TTA)</label>
        </fieldset>
        <fieldset>
          <legend>Refinement</legend>
          <label><input type="checkbox" id="crf"> Dense CRF</label>
        </fieldset>
        <label class="field">Longest side for the network
          <select id="size"></select>
        </label>
        <fieldset>
          <legend>Tags</legend>
          <label><input type="radio" name="known" value="false" checked> Predicted</label>
          <label><input type="radio" name="known" value="true"> Known</label>
          <div class="tags" hidden>
            <input type="search" id="filter" aria-label="Find a tag" placeholder="Find a tag">
            <div class="tag-list"></div>
          </div>
        </fieldset>
      </div>
    </details>
  </form>
  <div class="result">
    <p class="status" role="status">Drop an image, or take one of the samples.</p>
    <p class="error" role="alert" hidden></p>
    <div class="shown" hidden>
      <tagseg-viewer></tagseg-viewer>
      <div class="downloads" role="group" aria-label="Downloads"></div>
      <div class="tables">
        <table class="times"><caption>Time of each setting</caption>
          <thead><tr><th scope="col">Setting</th><th scope="col">Classes</th><th scope="col">Seconds</th></tr></thead>
          <tbody></tbody>
        </table>
        <table class="scores"><caption>Highest scores</caption><tbody></tbody></table>
      </div>
    </div>
  </div>
</div>`;

class Try extends HTMLElement {
  #settings = null;
  #file = null;
  #image = null; // what the viewer draws
  #answers = new Map(); // of this image: description of a setting -> answer
  #request = null; // AbortController of the request that runs

  connectedCallback() {
    if (this.shadowRoot) return;
    this.#settings = JSON.parse(this.getAttribute("settings"));
    this.attachShadow({ mode: "open" }).innerHTML = MARKUP;
    this.#one("details").open = matchMedia("(min-width: 46rem)").matches; // on a phone the masks come first
    this.#fillIn();
    this.#one("#file").addEventListener("change", (event) => this.#take(event.target.files[0]));
    const drop = this.#one(".drop");
    for (const type of ["dragover", "dragleave", "drop"]) {
      drop.addEventListener(type, (event) => {
        event.preventDefault();
        drop.classList.toggle("over", type === "dragover");
        if (type === "drop") this.#take(event.dataTransfer.files[0]);
      });
    }
    this.#one("form").addEventListener("submit", (event) => event.preventDefault());
    this.#one("#filter").addEventListener("input", () => this.#filterTags());
    this.#one("form").addEventListener("change", (event) => {
      if (event.target.id === "file" || event.target.id === "filter") return;
      if (event.target.name === "known") this.#switchTags();
      this.#predict();
    });
  }

  #one(selector) {
    return this.shadowRoot.querySelector(selector);
  }

  #all(selector) {
    return [...this.shadowRoot.querySelectorAll(selector)];
  }

  #fillIn() {
    const { classes, size, sizes, samples } = this.#settings;
    const isNative = size === "native";
    this.#one("#size").append(
      new Option(isNative ? "The model's: the image's own" : `The model's: ${size}`, ""),
      ...sizes.filter((other) => other !== size).map((other) => new Option(other, other)),
      ...(isNative ? [] : [new Option("The image's own", "native")])
    );
    this.#one(".tag-list").append(
      ...classes.map((name) => {
        const label = document.createElement("label");
        const box = Object.assign(document.createElement("input"), { type: "checkbox", name: "tag", value: name });
        label.append(box, ` ${name}`);
        return label;
      })
    );
    for (const address of samples) {
      const name = address.split("/").pop();
      const button = Object.assign(document.createElement("button"), { type: "button" });
      button.append(Object.assign(new Image(), { src: address, alt: `Sample ${name}` }));
      button.addEventListener("click", async () => {
        const response = await fetch(address);
        this.#take(new File([await response.blob()], name));
      });
      this.#one(".samples").append(button);
    }
    for (const [format, name] of Object.entries(DOWNLOADS)) {
      const link = Object.assign(document.createElement("a"), { textContent: name, className: "button" });
      link.dataset.format = format;
      this.#one(".downloads").append(link);
    }
  }

  #filterTags() {
    const text = this.#one("#filter").value.trim().toLowerCase();
    for (const label of this.#all(".tag-list label")) label.hidden = !label.textContent.toLowerCase().includes(text);
  }

  /** Known tags begin with those that were predicted. */
  #switchTags() {
    const isKnown = this.#one("input[name=known]:checked").value === "true";
    this.#one(".tags").hidden = !isKnown;
    const predicted = this.#answers.get(this.#describe({ ...this.#chosen(), tags: null }));
    const names = new Set((predicted?.classes ?? []).map(({ name }) => name));
    if (isKnown) for (const box of this.#all("input[name=tag]")) box.checked = names.has(box.value);
  }

  async #take(file) {
    if (!file) return;
    this.#one("#file").value = "";
    if (file.size > this.#settings.maxBytes) {
      this.#fail(`${file.name} has ${Math.ceil(file.size / 2 ** 20)} MiB, more than ${this.#settings.maxBytes / 2 ** 20}.`);
      return;
    }
    this.#file = file;
    this.#answers = new Map();
    this.#one("input[name=known][value=false]").checked = true; // known tags are those of one image
    this.#switchTags();
    this.#image = decode(file).catch(() => null); // some formats only the server decodes
    this.#predict();
  }

  #chosen() {
    const isKnown = this.#one("input[name=known]:checked").value === "true";
    return {
      tta: this.#one("input[name=tta]:checked").value === "true",
      crf: this.#one("#crf").checked,
      size: this.#one("#size").value,
      tags: isKnown ? this.#all("input[name=tag]:checked").map((box) => box.value) : null,
    };
  }

  #describe({ tta, crf, size, tags }) {
    const parts = [tta ? "TTA" : "single-scale", ...(crf ? ["CRF"] : [])];
    if (size) parts.push(size === "native" ? "own size" : `size ${size}`);
    if (tags) parts.push(`tags: ${tags.join(", ") || "none"}`);
    return parts.join(", ");
  }

  async #predict() {
    if (!this.#file) return;
    this.#request?.abort();
    const request = (this.#request = new AbortController());
    const file = this.#file;
    const image = await this.#image;
    const setting = this.#describe(this.#chosen());
    try {
      let answer = this.#answers.get(setting);
      if (!answer) {
        this.#say(`Segmenting ${file.name} …`);
        answer = await this.#ask(file, this.#chosen(), !image, request);
        this.#answers.set(setting, answer);
      }
      if (request.signal.aborted) return;
      const view = image ?? (await decode(new Blob([bytes(answer.view)], { type: "image/jpeg" })));
      this.#show(answer, view, setting);
      requestAnimationFrame(() => setTimeout(() => performance.mark("tagseg-shown", { detail: answer.seconds })));
    } catch (error) {
      if (!request.signal.aborted) this.#fail(error.message);
    }
  }

  /** Post the image; while the answer is awaited, say how many requests are before this one. */
  async #ask(file, { tta, crf, size, tags }, view, request) {
    const name = Array.from({ length: 4 }, () => Math.random().toString(36).slice(2)).join("");
    const form = new FormData();
    form.append("image", file, file.name);
    for (const [field, value] of Object.entries({ tta, crf, size, view, name })) form.append(field, value);
    if (tags) for (const tag of tags.length ? tags : [""]) form.append("tags", tag);
    const timer = setInterval(async () => {
      const { before } = await (await fetch(`/queue/${name}`)).json();
      if (before && !request.signal.aborted) this.#say(`Waiting: ${before} ${before === 1 ? "request is" : "requests are"} before this one`);
    }, MILLISECONDS_BETWEEN_LOOKS);
    performance.mark("tagseg-sent");
    try {
      const response = await fetch("/predict", { method: "POST", body: form, signal: request.signal });
      const answer = await response.json();
      if (!response.ok) throw new Error(answer.detail);
      return answer;
    } catch (error) {
      throw error instanceof TypeError ? new Error("The server does not answer. Is tagseg app still running?") : error;
    } finally {
      clearInterval(timer);
    }
  }

  #show(answer, image, setting) {
    const { name, size, mask, scores } = answer;
    const classes = answer.classes.map((entry) => ({ ...entry, score: scores[entry.name] }));
    this.#one(".error").hidden = true;
    this.#one(".shown").hidden = false;
    this.#one("tagseg-viewer").show({ image, mask: { ...size, runs: mask.runs }, classes });
    const found = classes.map((entry) => `${entry.name} ${Math.round(100 * entry.score)} %`).join(", ");
    this.#say(`${name}: ${found || "no known class found"}`);
    this.#offerDownloads(answer);
    this.#listTimes(setting);
    const highest = Object.entries(scores).sort((a, b) => b[1] - a[1]).slice(0, 5);
    this.#one(".scores tbody").replaceChildren(
      ...highest.map(([label, score]) => {
        const row = document.createElement("tr");
        const bar = Object.assign(document.createElement("div"), { className: "bar" });
        bar.style.setProperty("--share", `${100 * score}%`);
        row.append(cell(label, "th"), cell(bar), cell(`${(100 * score).toFixed(1)} %`));
        return row;
      })
    );
  }

  #offerDownloads({ mask, coco, view, ...summary }) {
    const stem = summary.name.replace(/\.[^.]+$/, "");
    const files = {
      png: [`${stem}_mask.png`, new Blob([bytes(mask.png)], { type: "image/png" })],
      json: [`${stem}.json`, new Blob([JSON.stringify(summary, null, 2)], { type: "application/json" })],
      coco: [`${stem}_coco.json`, new Blob([JSON.stringify(coco)], { type: "application/json" })],
    };
    for (const link of this.#all(".downloads a")) {
      if (link.href) URL.revokeObjectURL(link.href);
      const [name, content] = files[link.dataset.format];
      Object.assign(link, { download: name, href: URL.createObjectURL(content) });
    }
  }

  #listTimes(current) {
    this.#one(".times tbody").replaceChildren(
      ...[...this.#answers].map(([setting, answer]) => {
        const row = document.createElement("tr");
        if (setting === current) row.setAttribute("aria-current", "true");
        const names = answer.classes.map(({ name }) => name).join(", ") || "none";
        row.append(cell(setting, "th"), cell(names), cell(answer.seconds.predict.toFixed(2)));
        return row;
      })
    );
  }

  #say(text) {
    this.#one(".status").textContent = text;
  }

  #fail(text) {
    this.#say("");
    this.#one(".error").textContent = text;
    this.#one(".error").hidden = false;
  }
}

/** Decode an image, reduced to a size that screens show. */
async function decode(blob) {
  const bitmap = await createImageBitmap(blob);
  const scale = MAX_VIEW_SIDE / Math.max(bitmap.width, bitmap.height);
  if (scale >= 1) return bitmap;
  const [resizeWidth, resizeHeight] = [bitmap.width, bitmap.height].map((side) => Math.max(1, Math.round(side * scale)));
  const reduced = await createImageBitmap(bitmap, { resizeWidth, resizeHeight, resizeQuality: "high" });
  bitmap.close();
  return reduced;
}

function bytes(base64) {
  return Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
}

function cell(content, tag = "td") {
  const element = document.createElement(tag);
  if (tag === "th") element.scope = "row";
  element.append(content);
  return element;
}

customElements.define("tagseg-try", Try);
