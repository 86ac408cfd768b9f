customElements.define("tagseg-try", class extends HTMLElement {
  connectedCallback() { this.textContent = "…"; }
});
