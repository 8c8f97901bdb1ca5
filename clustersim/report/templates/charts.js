// Charts as SVG, from the documents of clustersim/report/frame/chart.py: charts.show(box, document).
//
// The plot that it returns takes a newer document (update), a line at a value of x (mark), a part of the axes
// (look), and writes itself to a file (save). chart_pointer.js answers the pointer and the keyboard. Colours
// are properties of CSS, so a change of the theme needs no new drawing. Nothing here knows the page: a page
// gives boxes, documents and charts.css.
(function () {
  "use strict";
  const DASHES = ["", "9 5", "2 4", "9 4 2 4", "16 6", "16 5 2 5", "8 2 2 2 2 2", "2 8"];
  const CIRCLE = "M-1 0A1 1 0 1 1 1 0A1 1 0 1 1-1 0Z";
  const MARKERS = [
    CIRCLE, "M0-1.25L1.25 0 0 1.25-1.25 0Z", "M-.9-.9H.9V.9H-.9Z", "M0-1.1L1.15 .9H-1.15Z",
    "M-.4-1.1H.4V-.4H1.1V.4H.4V1.1H-.4V.4H-1.1V-.4H-.4Z",
    "M0-1.3L.33-.4 1.25-.38 .52.18 .78 1.05 0 .53-.78 1.05-.52.18-1.25-.38-.33-.4Z",
    "M-.55-1H.55L1.1 0 .55 1H-.55L-1.1 0Z", "M0 1.1L-1.15-.9H1.15Z",
  ];
  const NAMED = ["steps", "line", "dots"];  // kinds with an entry in the legend
  const WITHOUT_MARKERS = ["steps", "area", "bars"];
  const GAP = 10, RIGHT = 12, TOP = 8, NARROW = 520, EDGE = 6, ROW_LABEL = 18, LEAST_ROW = 36, MOST_BAR = 28;
  const STYLES = [
    "fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linejoin", "opacity",
    "font-family", "font-size", "text-anchor",
  ];
  const ruler = document.createElement("canvas").getContext("2d");
  let count = 0;

  function svg(tag, attributes, parent, text) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const name of Object.keys(attributes || {})) { made.setAttribute(name, attributes[name]); }
    if (text !== undefined) { made.textContent = text; }
    if (parent) { parent.append(made); }
    return made;
  }

  function element(tag, attributes, parent, text) {
    const made = document.createElement(tag);
    for (const name of Object.keys(attributes || {})) { made.setAttribute(name, attributes[name]); }
    if (text !== undefined) { made.textContent = text; }
    if (parent) { parent.append(made); }
    return made;
  }

  const px = (value) => Math.round(value * 10) / 10;
  const colour = (series) => `var(${series.colour || `--c${series.look % 8}`})`;
  const dash = (series) => DASHES[Math.floor((series.look || 0) / 8) % 8];
  const marker = (series) => MARKERS[((series.look || 0) % 8 + Math.floor((series.look || 0) / 8)) % 8];

  // A line, a marker or both, as in the chart.
  charts.swatch = (series) => {
    const line = ["steps", "line"].includes(series.kind), width = line ? 28 : 12;
    const made = svg("svg", { "class": "sample", viewBox: `0 0 ${width} 12`, width, height: 12, "aria-hidden": "true" });
    made.style.setProperty("--shade", colour(series));
    if (line) { svg("path", { d: "M0 6H28", "class": "curve", "stroke-dasharray": dash(series) }, made); }
    if (["line", "dots", "intervals"].includes(series.kind)) { svg("path", { d: marker(series), "class": "mark", transform: `translate(${width / 2} 6) scale(4.5)` }, made); }
    if (["bars", "area", "points"].includes(series.kind)) { svg("rect", { x: 1, y: 1, width: 10, height: 10, rx: 2, "class": "mark" }, made); }
    return made;
  };

  // Draw a chart in a box when it comes near the screen; returns the plot (see Plot.mark).
  charts.show = (box, chart) => {
    const plot = new Plot(box, chart);
    const watch = new IntersectionObserver((entries) => {
      if (entries.some((entry) => entry.isIntersecting)) { watch.disconnect(); plot.begin(); }
    }, { rootMargin: "600px" });
    watch.observe(box);
    window.addEventListener("beforeprint", () => plot.begin());
    return plot;
  };

  class Plot {
    constructor(box, chart) {
      Object.assign(this, { box, zoom: {}, id: `plot-${++count}` });
      this.take(chart);
    }

    take(chart) {
      const x = charts.value(chart.x);
      this.chart = chart;
      chart.panels.forEach((panel) => {
        const y = charts.value(panel.y);
        panel.series.forEach((series) => {
          Object.assign(series, { xs: series.x.map(x), ys: series.y.map(y), kind: series.kind || "steps" });
        });
      });
      this.rows = chart.panels[0].y.kind === "names";
    }

    begin() {
      if (this.root) { return; }
      this.bar = element("div", { "class": "names", role: "group", "aria-label": "Legend: shows and hides curves" }, this.box);
      this.root = svg("svg", { role: "img", tabindex: 0, "aria-label": this.box.dataset.label || "" }, this.box);
      this.tip = element("div", { "class": "tip", role: "status", hidden: "" }, this.box);
      this.legend();
      this.draw();
      charts.listen(this);
      new ResizeObserver(() => { if (this.box.clientWidth !== this.width) { this.draw(); } }).observe(this.box);
    }

    legend() {
      const [panel] = this.chart.panels;
      const series = this.chart.panels.length > 1 ? [] : panel.series.filter((one) => NAMED.includes(one.kind));
      series.forEach((one) => {
        const button = element("button", { type: "button", "aria-pressed": String(!one.quiet) }, this.bar);
        button.append(charts.swatch(one), one.name);
        button.addEventListener("click", () => {
          one.quiet = !one.quiet;
          button.setAttribute("aria-pressed", String(!one.quiet));
          this.draw();
        });
      });
      this.whole = element("button", { type: "button", "class": "whole", hidden: "" }, this.bar, "Show all");
      this.whole.addEventListener("click", () => this.look({}));
      const kept = element("button", { type: "button", "class": "save", "aria-label": "Save this chart as SVG" }, this.bar, "Save");
      kept.addEventListener("click", () => this.save());
    }

    // Draw a newer document of the same chart, at the same zoom.
    update(chart) {
      this.take(chart);
      this.draw();
    }

    // Show a part of the axes, as {x: [from, to], y: [from, to]}; all of an axis that is left out.
    look(zoom) {
      this.zoom = zoom;
      this.whole.hidden = !zoom.x && !zoom.y;
      this.draw();
    }

    // Write the chart as it stands to a file: SVG with the colours of now.
    save() {
      const copy = this.root.cloneNode(true), all = (root) => [root, ...root.querySelectorAll("*")], shapes = all(copy);
      all(this.root).forEach((shape, i) => {
        const style = getComputedStyle(shape);
        STYLES.forEach((name) => shapes[i].setAttribute(name, style.getPropertyValue(name)));
        ["class", "style", "tabindex"].forEach((name) => shapes[i].removeAttribute(name));
      });
      const file = new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" });
      const link = element("a", { href: URL.createObjectURL(file), download: `${this.box.id}.svg` });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    }

    // Draw a line across all panels at a value of x, or none for null: where a slider of the page stands.
    mark(value) {
      this.marked = value;
      if (this.root) { this.drawMark(); }
    }

    visible(panel) { return panel.series.filter((series) => !series.quiet); }

    // Sizes: font, margins, the panels' tops and bottoms, scales and ticks.
    measure() {
      const { chart } = this, narrow = this.width < NARROW, names = chart.x.kind === "names";
      this.font = narrow ? 11 : 12.5;
      ruler.font = `${this.font}px ${getComputedStyle(this.box).fontFamily}`;
      const wide = (text) => ruler.measureText(text).width, longest = (texts) => Math.max(0, ...texts.map(wide));
      const rowLabels = this.rows ? longest(chart.panels[0].y.names) : 0;
      this.above = this.rows && rowLabels > 0.3 * this.width;  // labels stand above their rows
      this.height = chart.height;
      if (this.above) {
        const rows = chart.panels[0].y.names.length;
        this.height = Math.max(chart.height, rows * LEAST_ROW + 60);
      }
      this.tilted = names && longest(chart.x.names) + 8 > (this.width - 70) / chart.x.names.length;
      const below = this.tilted ? Math.min(110, 0.62 * longest(chart.x.names) + 12) : chart.x.kind === "date" ? 34 : 20;
      this.bottom = this.height - below - (chart.x.title ? 20 : 0) - 4;
      this.titleY = this.height - 6;
      let top = TOP;
      const heads = chart.panels.map((panel) => panel.title ? 20 : 0), gaps = GAP * (chart.panels.length - 1);
      const high = (this.bottom - TOP - gaps - heads.reduce((a, b) => a + b, 0)) / chart.panels.length;
      this.panels = chart.panels.map((panel, i) => {
        top += heads[i];
        const made = { panel, top, bottom: top + high, axis: panel.y };
        top += high + GAP;
        const values = this.visible(panel).flatMap((series) => [...series.ys, ...(this.rows ? [] : [...(series.low || []), ...(series.high || [])])]);
        const span = this.zoom.y || charts.span(panel.y, values, true);
        made.y = this.rows ? charts.scale(panel.y, span, made.top, made.bottom) : charts.scale(panel.y, span, made.bottom, made.top);
        made.ticks = this.rows ? panel.y.names.map((name, k) => [k, name]) : charts.ticks(panel.y, made.y, () => this.font * 1.5, 44);
        return made;
      });
      const labels = this.rows ? (this.above ? 0 : rowLabels) : longest(this.panels.flatMap((one) => one.ticks.map((tick) => tick[1])));
      const title = chart.panels.some((panel) => panel.y.title) ? this.font * 1.5 + 2 : 0;
      this.left = Math.min(0.45 * this.width, labels + 10) + title;
      const series = chart.panels.flatMap((panel) => this.visible(panel));
      const values = series.flatMap((one) => [...one.xs, ...(this.rows ? [...(one.low || []), ...(one.high || []), ...(one.kind === "bars" ? [0] : [])] : [])]);
      const padded = series.some((one) => !WITHOUT_MARKERS.includes(one.kind));
      const span = this.zoom.x || charts.span(chart.x, values, padded);
      this.x = charts.scale(chart.x, span, this.left, this.width - RIGHT);
      this.ticks = names ? chart.x.names.map((name, k) => [k, name]) : charts.ticks(chart.x, this.x, (text) => wide(text) + 14, 90);
    }

    draw() {
      this.width = this.box.clientWidth;
      if (!this.width || !this.root) { return; }
      this.measure();
      this.root.replaceChildren();
      for (const [name, value] of [["viewBox", `0 0 ${this.width} ${this.height}`], ["height", this.height], ["font-size", this.font]]) {
        this.root.setAttribute(name, value);
      }
      this.panels.forEach((one, k) => {
        const clip = svg("clipPath", { id: `${this.id}-${k}` }, this.root);
        const [aside, above] = [this.zoom.x, this.zoom.y].map((zoom) => zoom ? 0 : EDGE);  // room for markers at the ends
        const { left } = this, wide = this.width - RIGHT - left, high = one.bottom - one.top;
        svg("rect", { x: left - aside, y: one.top - above, width: wide + 2 * aside, height: high + 2 * above }, clip);
        this.drawFrame(one, k === this.panels.length - 1);
        const group = svg("g", { "clip-path": `url(#${this.id}-${k})`, "class": "panel" }, this.root);
        const shown = this.visible(one.panel), stacked = new Map();
        shown.forEach((series, number) => {
          const shape = svg("g", { "class": `series ${series.kind}${series.faint ? " faint" : ""}` }, group);
          shape.style.setProperty("--shade", colour(series));
          SHAPES[series.kind](this, one, series, shape, { number, of: shown.length, stacked });
        });
      });
      this.over = svg("g", { "class": "over" }, this.root);
      this.drawMark();
    }

    // Grid, ticks, dotted lines and titles of a panel.
    drawFrame(one, last) {
      const { chart, left, width, x, rows } = this, right = width - RIGHT;
      const grid = svg("g", { "class": "grid" }, this.root), text = svg("g", { "class": "ticks" }, this.root);
      for (const [value, label, second] of this.ticks) {
        const at = px(x.at(value));
        if (chart.x.kind !== "names") { svg("path", { d: `M${at} ${px(one.top)}V${px(one.bottom)}` }, grid); }
        if (!last) { continue; }
        const low = one.bottom + this.font + 5;
        if (this.tilted) {
          svg("text", { transform: `translate(${at + 4} ${px(low)}) rotate(-38)`, "text-anchor": "end" }, text, label);
        } else {
          svg("text", { x: at, y: px(low), "text-anchor": "middle" }, text, label);
        }
        if (second) { svg("text", { x: at, y: px(low + this.font * 1.25), "text-anchor": "middle" }, text, second); }
      }
      const band = (one.bottom - one.top) / one.ticks.length;
      for (const [value, label] of one.ticks) {
        const at = px(one.y.at(value));
        if (!rows) { svg("path", { d: `M${px(left)} ${at}H${right}` }, grid); }
        if (this.above) {
          svg("text", { x: 2, y: px(at - band / 2 + this.font) }, text, this.cut(label, this.width - 4));
        } else {
          svg("text", { x: px(left - 8), y: px(at + this.font * 0.35), "text-anchor": "end" }, text, this.cut(label, left - 10));
        }
      }
      const lines = svg("g", { "class": "dotted" }, this.root), fixed = one.axis.line;
      if (chart.x.line !== undefined) { svg("path", { d: `M${px(x.at(chart.x.line))} ${px(one.top)}V${px(one.bottom)}` }, lines); }
      if (fixed !== undefined) { svg("path", { d: `M${px(left)} ${px(one.y.at(fixed))}H${right}` }, lines); }
      if (chart.diagonal) {
        const low = Math.max(x.span[0], one.y.span[0]), high = Math.min(x.span[1], one.y.span[1]);
        if (high > low) { svg("path", { d: `M${px(x.at(low))} ${px(one.y.at(low))}L${px(x.at(high))} ${px(one.y.at(high))}` }, lines); }
      }
      if (one.axis.title) {
        svg("text", { transform: `translate(${this.font} ${px((one.top + one.bottom) / 2)}) rotate(-90)`, "text-anchor": "middle" }, text, one.axis.title);
      }
      if (one.panel.title) { svg("text", { x: left, y: px(one.top - 6), "class": "head" }, this.root, one.panel.title); }
      if (last && chart.x.title) { svg("text", { x: px((left + right) / 2), y: this.titleY, "text-anchor": "middle" }, text, this.cut(chart.x.title, width)); }
    }

    drawMark() {
      this.over.querySelector(".marked")?.remove();
      if (this.marked === undefined || this.marked === null) { return; }
      const at = px(this.x.at(this.marked)), last = this.panels[this.panels.length - 1];
      if (at >= this.left && at <= this.width - RIGHT) { svg("path", { d: `M${at} ${this.panels[0].top}V${px(last.bottom)}`, "class": "marked" }, this.over); }
    }

    // A label that fits, cut at its end.
    cut(label, width) {
      let text = label;
      while (text.length > 4 && ruler.measureText(text).width > width) { text = `${text.slice(0, -2).trimEnd().replace(/…$/, "")}…`; }
      return text;
    }

    // Where the bar of a row begins and ends, and its middle.
    row(one, number) {
      const band = (one.bottom - one.top) / one.axis.names.length, top = one.top + number * band;
      const label = this.above ? ROW_LABEL : 0, high = Math.min(MOST_BAR, (this.above ? 0.9 : 0.62) * (band - label));
      const middle = this.above ? top + label + high / 2 : top + band / 2;
      return { from: middle - high / 2, to: middle + high / 2, middle };
    }

    // Where a point stands: dots of one name stand side by side, rows have a height of their own.
    place(one, series, i, number, of) {
      const at = this.x.at(series.xs[i]);
      if (this.rows) { return [at, this.row(one, series.ys[i]).middle]; }
      if (series.kind !== "dots") { return [at, one.y.at(series.ys[i])]; }
      const band = (this.x.to - this.x.from) / this.chart.x.names.length, step = Math.min(16, 0.7 * band / of);
      return [at + (number - (of - 1) / 2) * step, one.y.at(series.ys[i])];
    }
  }

  function stepped(plot, one, series) {
    let path = "";
    for (let i = 0; i < series.xs.length; i++) {
      const x = px(plot.x.at(series.xs[i])), y = px(one.y.at(series.ys[i]));
      path += i ? `H${x}V${y}` : `M${x} ${y}`;
    }
    return path;
  }

  function marked(plot, one, series, shape, scale, { number, of }) {
    series.xs.forEach((_, i) => {
      const [x, y] = plot.place(one, series, i, number, of);
      svg("path", { d: marker(series), "class": "mark", transform: `translate(${px(x)} ${px(y)}) scale(${scale})` }, shape);
    });
  }

  // A whisker from low to high at each point where both are known.
  function whiskers(plot, one, series, shape) {
    (series.low || []).forEach((low, i) => {
      const high = series.high[i];
      if (low === null || high === null) { return; }
      if (plot.rows) {
        const y = px(plot.row(one, series.ys[i]).middle), [a, b] = [low, high].map((value) => px(plot.x.at(value)));
        svg("path", { d: `M${a} ${y - 4}v8m0-4H${b}m0-4v8`, "class": "whisker" }, shape);
      } else {
        const x = px(plot.x.at(series.xs[i])), [a, b] = [low, high].map((value) => px(one.y.at(value)));
        svg("path", { d: `M${x - 4} ${a}h8m-4 0V${b}m-4 0h8`, "class": "whisker" }, shape);
      }
    });
  }

  // How each kind of series is drawn.
  const SHAPES = {
    steps(plot, one, series, shape) {
      svg("path", { d: stepped(plot, one, series), "class": "curve", "stroke-dasharray": dash(series) }, shape);
    },
    area(plot, one, series, shape) {
      if (!series.xs.length) { return; }
      const zero = px(one.y.at(Math.max(0, one.y.span[0]))), first = px(plot.x.at(series.xs[0]));
      svg("path", { d: `${stepped(plot, one, series)}V${zero}H${first}Z`, "class": "filled" }, shape);
    },
    line(plot, one, series, shape, order) {
      const points = series.xs.map((x, i) => `${px(plot.x.at(x))} ${px(one.y.at(series.ys[i]))}`);
      if (points.length) { svg("path", { d: `M${points.join("L")}`, "class": "curve", "stroke-dasharray": dash(series) }, shape); }
      whiskers(plot, one, series, shape);
      marked(plot, one, series, shape, 4.2, order);
    },
    dots(plot, one, series, shape, order) { marked(plot, one, series, shape, 5.5, order); },
    points(plot, one, series, shape) {
      series.xs.forEach((x, i) => svg("circle", { cx: px(plot.x.at(x)), cy: px(one.y.at(series.ys[i])), r: 3, "class": "mark" }, shape));
    },
    bars(plot, one, series, shape, { stacked }) {
      series.xs.forEach((length, i) => {
        const row = plot.row(one, series.ys[i]), from = stacked.get(series.ys[i]) || 0;
        const [a, b] = [from, from + length].map((value) => plot.x.at(value));
        stacked.set(series.ys[i], from + length);
        if (b > a) { svg("rect", { x: px(a), y: px(row.from), width: Math.max(0.2, px(b - a)), height: px(row.to - row.from) }, shape); }
      });
      whiskers(plot, one, series, shape);
    },
    intervals(plot, one, series, shape, order) {
      whiskers(plot, one, series, shape);
      marked(plot, one, series, shape, 4.8, order);
    },
  };

  charts.colour = colour;
  charts.svg = svg;
  charts.element = element;
  charts.px = px;
})();
