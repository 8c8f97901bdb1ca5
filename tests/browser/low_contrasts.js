() => {
  const paint = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const luminance = (colour, under) => {
    paint.fillStyle = under; paint.fillRect(0, 0, 1, 1);
    paint.fillStyle = colour; paint.fillRect(0, 0, 1, 1);
    const parts = Array.from(paint.getImageData(0, 0, 1, 1).data).slice(0, 3).map(
      part => part / 255 <= 0.04045 ? part / 255 / 12.92 : Math.pow((part / 255 + 0.055) / 1.055, 2.4));
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const ground = element => {
    for (let one = element; one; one = one.parentElement) {
      const colour = getComputedStyle(one).backgroundColor;
      if (!/, 0\)$|^transparent$/.test(colour)) { return colour; }
    }
    return "white";
  };
  const found = {};
  document.querySelectorAll("main *, header *, nav *").forEach(element => {
    const nodes = Array.from(element.childNodes);
    const text = nodes.some(node => node.nodeType === 3 && node.textContent.trim());
    const others = "button:disabled, option";
    if (!text || !element.checkVisibility() || element.closest(others)) { return; }
    const under = ground(element);
    const style = getComputedStyle(element), ink = element.closest("svg") ? style.fill : style.color;
    const a = luminance(ink, under), b = luminance(under, under);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) { found[element.tagName + "." + element.className] = ratio.toFixed(2); }
  });
  return found;
}
