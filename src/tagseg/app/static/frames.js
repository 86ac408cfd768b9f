// <tagseg-frames>: its images one at a time, by a slider. The attribute `label` says what the slider counts, from 0.
//
// The page replaces the images in place when it shows another result, so nothing of this element is among them.

const MARKUP = `
<link rel="stylesheet" href="/app/static/elements.css">
<style>label { display: flex; align-items: center; gap: .6rem; margin-top: .4rem; } input { flex: 1; min-width: 4rem; }</style>
<slot></slot>
<label><span></span><input type="range" min="0"><output></output></label>`;

class Frames extends HTMLElement {
  connectedCallback() {
    if (this.shadowRoot) return;
    this.attachShadow({ mode: "open", slotAssignment: "manual" }).innerHTML = MARKUP;
    this.#one("span").textContent = this.getAttribute("label");
    this.#one("input").addEventListener("input", () => this.#show());
    this.#showLast();
    new MutationObserver(() => this.#showLast()).observe(this, { childList: true, subtree: true, attributes: true });
  }

  #one(selector) {
    return this.shadowRoot.querySelector(selector);
  }

  #showLast() {
    const last = this.querySelectorAll("img").length - 1;
    this.#one("input").max = last;
    this.#one("input").value = last;
    this.#show();
  }

  #show() {
    const slider = this.#one("input");
    const image = this.querySelectorAll("img")[slider.value];
    this.#one("slot").assign(image);
    this.#one("output").textContent = slider.value;
    slider.setAttribute("aria-valuetext", image.alt);
  }
}

customElements.define("tagseg-frames", Frames);
