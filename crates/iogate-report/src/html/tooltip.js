// Shows a shape's title beside the pointer at once; without scripts the browser shows it after a while.
(() => {
  const tip = document.getElementById("tip");
  document.querySelectorAll("[data-tip]").forEach((shape) => {
    shape.querySelector("title")?.remove();
    shape.addEventListener("pointermove", (event) => {
      tip.textContent = shape.dataset.tip;
      tip.hidden = false;
      const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
      const top = event.clientY + 18 + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 10 : event.clientY + 18;
      tip.style.left = left + "px";
      tip.style.top = top + "px";
    });
    shape.addEventListener("pointerleave", () => (tip.hidden = true));
  });
})();
