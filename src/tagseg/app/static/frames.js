// <tagseg-frames>: its images one at a time, by a slider. The attribute `label` says what the slider counts, from 0.

class Frames extends HTMLElement {
  connectedCallback() {
    const images = [...this.querySelectorAll("img")];
    this.querySelector("label")?.remove();
    const label = document.createElement("label");
    const slider = Object.assign(document.createElement("input"), { type: "range", min: 0, max: images.length - 1 });
    const output = document.createElement("output");
    slider.value = images.length - 1;
    const show = () => {
      images.forEach((image, index) => (image.hidden = index !== Number(slider.value)));
      output.textContent = slider.value;
      slider.setAttribute("aria-valuetext", images[slider.value].alt);
    };
    slider.addEventListener("input", show);
    label.append(`${this.getAttribute("label")} `, slider, " ", output);
    this.append(label);
    show();
  }
}

customElements.define("tagseg-frames", Frames);
