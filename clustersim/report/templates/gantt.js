// The timeline: a row per GPU, on a canvas. Rectangles smaller than a pixel are added up by area, so that ten
// thousand jobs on a thousand GPUs look as full as they are and take a few milliseconds to draw.
(function () {
  "use strict";
  var BOTTOM = 26, MOST_LABELS = 400;
  var SIZES = ["#440154", "#472c7a", "#3b518b", "#2c718e", "#21908d", "#27ad81", "#5cc863", "#aadc32", "#fde725", "#ffd34d", "#ffb86b", "#ff9d8a"];
  var CLASSES = ["--c0", "--c1", "--c2", "--c3", "--c4", "--c5", "--c7", "--c6"];
  var STEPS_S = [1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 604800, 1209600, 2592000, 7776000, 31536000];

  page.parts.push(function () {
    var canvas = page.by("gantt-canvas"), ink = canvas.getContext("2d"), tip = page.by("gantt-tip");
    var layer = document.createElement("canvas"), step_s = page.data.step_s;
    var run, held, classes, order, view, width, height, left = 62, chosen = -1, waiting = false;

    // The visible part: from time view.a to view.b (in steps), from GPU view.top to view.bottom.
    function all() {
      view = { a: 0, b: Math.max(1, page.data.end), top: 0, bottom: run.nodes * run.gpus_per_node };
    }

    function load(keep) {
      var before = run;
      run = page.data.runs[page.run];
      held = page.held(run);
      classes = page.classes(run, page.by("gantt-colour").value);
      order = Int32Array.from(held.of.keys()).sort(function (p, q) { return classes.of[held.of[p]] - classes.of[held.of[q]]; });
      if (!keep || !before || before.nodes * before.gpus_per_node !== run.nodes * run.gpus_per_node) { all(); }
      chosen = -1;
      hide();
      legend();
      draw();
    }

    function colour(number) {
      var kind = page.by("gantt-colour").value;
      if (kind === "size") { return SIZES[Math.round(number * (SIZES.length - 4) / Math.max(1, classes.colours - 1))]; }
      return page.css(CLASSES[number % CLASSES.length]);
    }

    function legend() {
      var box = page.by("gantt-legend");
      box.replaceChildren.apply(box, classes.names.map(function (name, number) {
        var item = page.make("span"), mark = page.make("span", "", { "class": "swatch" });
        mark.style.background = colour(number);
        item.append(mark, name);
        return item;
      }));
    }

    function draw() {
      if (!waiting) { waiting = true; requestAnimationFrame(function () { waiting = false; paint(); }); }
    }

    function paint() {
      var ratio = window.devicePixelRatio || 1, box = canvas.getBoundingClientRect();
      if (!box.width) { return; }
      ink.font = "11px " + getComputedStyle(document.body).fontFamily;
      left = Math.ceil(ink.measureText("node " + run.nodes).width) + 12;
      width = box.width - left; height = box.height - BOTTOM;
      canvas.width = Math.round(box.width * ratio); canvas.height = Math.round(box.height * ratio);
      ink.setTransform(ratio, 0, 0, ratio, 0, 0);
      ink.fillStyle = page.css("--band");
      ink.fillRect(left, 0, width, height);
      ink.save();
      ink.beginPath(); ink.rect(left, 0, width, height); ink.clip();
      ink.translate(left, 0);
      rectangles();
      overheads();
      outOfService();
      outline();
      ink.restore();
      axes();
    }

    function scale() {
      return { x: width / (view.b - view.a), y: height / (view.bottom - view.top) };
    }

    // Calls back with (rectangle, x, y, width, height) for every rectangle in view, clipped in time.
    function each(call) {
      var by = scale();
      for (var n = 0; n < order.length; n++) {
        var r = order[n], i = held.of[r], from = held.from[i], to = held.to[i], top = held.top[r];
        if (to <= view.a || from >= view.b || top >= view.bottom || top + held.rows[r] <= view.top) { continue; }
        var x = (Math.max(from, view.a) - view.a) * by.x, end = (Math.min(to, view.b) - view.a) * by.x;
        call(r, x, (top - view.top) * by.y, end - x, held.rows[r] * by.y);
      }
    }

    function rectangles() {
      var shown = -1, dust = new Dust(width, height), labels = [];
      each(function (r, x, y, w, h) {
        var number = classes.of[held.of[r]];
        if (number !== shown) { shown = number; ink.fillStyle = colour(number); dust.colour(colour(number)); }
        if (w < 1 || h < 1) { dust.add(x, y, w, h); return; }
        ink.fillRect(x, y, w > 3 ? w - 0.5 : w, h > 3 ? h - 0.5 : h);
        if (w > 46 && h >= 12 && labels.length < MOST_LABELS) { labels.push([r, x, y, w, h]); }
      });
      dust.paint(ink, layer);
      label(labels);
    }

    function label(labels) {
      ink.font = "11px " + getComputedStyle(document.body).fontFamily;
      ink.textBaseline = "middle";
      labels.forEach(function (one) {
        ink.fillStyle = page.readable(colour(classes.of[held.of[one[0]]]));
        var text = page.data.jobs.id[held.job[held.of[one[0]]]], room = one[3] - 8;
        if (text === undefined) { return; }
        text = text.slice(0, 60);
        while (text.length > 1 && ink.measureText(text).width > room) { text = text.slice(0, Math.max(1, Math.floor(text.length * 0.8) - 1)); }
        if (ink.measureText(text).width <= room) { ink.fillText(text, one[1] + 4, one[2] + Math.min(one[4] / 2, 9)); }
      });
    }

    // Hatching over the overhead of an allocation, where it is wide enough to be seen.
    function overheads() {
      var by = scale(), hatch = hatching(page.css("--paper"), 0.7);
      ink.fillStyle = hatch;
      each(function (r, x, y, w, h) {
        var i = held.of[r], end = (Math.min(held.ready[i], view.b) - view.a) * by.x;
        if (end - x >= 1.5 && h >= 1.5) { ink.fillRect(x, y, end - x, h); }
      });
    }

    function outOfService() {
      var by = scale(), g = run.gpus_per_node;
      if (!run.down.length) { return; }
      ink.fillStyle = hatching(page.css("--worse"), 0.8);
      run.down.forEach(function (spell) {
        var x = (spell[1] - view.a) * by.x, end = (spell[2] - view.a) * by.x;
        ink.fillRect(x, (spell[0] * g - view.top) * by.y, Math.max(1, end - x), Math.max(1, g * by.y));
      });
    }

    function hatching(shade, strength) {
      var tile = document.createElement("canvas");
      tile.width = tile.height = 6;
      var pen = tile.getContext("2d");
      pen.globalAlpha = strength; pen.strokeStyle = shade; pen.lineWidth = 1.6;
      pen.beginPath(); pen.moveTo(-1, 7); pen.lineTo(7, -1); pen.moveTo(-4, 4); pen.lineTo(4, -4); pen.moveTo(2, 10); pen.lineTo(10, 2); pen.stroke();
      return ink.createPattern(tile, "repeat");
    }

    function outline() {
      if (chosen < 0) { return; }
      ink.strokeStyle = page.css("--ink"); ink.lineWidth = 1.5;
      each(function (r, x, y, w, h) {
        if (held.job[held.of[r]] === held.job[chosen]) { ink.strokeRect(x, y, Math.max(1, w), Math.max(1, h)); }
      });
    }

    function axes() {
      var by = scale(), g = run.gpus_per_node, font = getComputedStyle(document.body).fontFamily;
      ink.font = "11px " + font; ink.fillStyle = page.css("--muted"); ink.strokeStyle = page.css("--rule"); ink.lineWidth = 1;
      var span_s = (view.b - view.a) * step_s, gap_s = STEPS_S.find(function (s) { return span_s / s <= width / 80; }) || span_s / 4;
      ink.textAlign = "center"; ink.textBaseline = "top";
      for (var t = Math.ceil(view.a * step_s / gap_s) * gap_s; t <= view.b * step_s; t += gap_s) {
        var x = left + (t / step_s - view.a) * by.x;
        ink.beginPath(); ink.moveTo(x + 0.5, height); ink.lineTo(x + 0.5, height + 4); ink.stroke();
        if (x > left + 14 && x < left + width - 14) { ink.fillText(tick(t, gap_s), x, height + 7); }
      }
      ink.textAlign = "right"; ink.textBaseline = "middle";
      var nodes = (view.bottom - view.top) / g, gap = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192].find(function (n) { return nodes / n <= height / 22; }) || nodes;
      for (var node = Math.ceil(view.top / g / gap) * gap; node * g < view.bottom; node += gap) {
        var y = ((node + 0.5) * g - view.top) * by.y;
        if (y > 5 && y < height - 5) { ink.fillText("node " + node, left - 5, y); }
        if (g * by.y > 14) {
          y = (node * g - view.top) * by.y;
          ink.beginPath(); ink.moveTo(left, y); ink.lineTo(left + width, y); ink.stroke();
        }
      }
      ink.textAlign = "left";
    }

    function tick(seconds, gap_s) {
      var units = gap_s >= 86400 ? [["d", 86400]] : gap_s >= 3600 ? [["d", 86400], ["h", 3600]] : gap_s >= 60 ? [["h", 3600], ["min", 60]] : [["min", 60], ["s", 1]];
      var words = [], rest = Math.round(seconds);
      units.forEach(function (unit) {
        var count = Math.floor(rest / unit[1]);
        rest -= count * unit[1];
        if (count) { words.push(count + " " + unit[0]); }
      });
      return words.join(" ") || "0";
    }

    // Pointing

    function at(event) {
      var box = canvas.getBoundingClientRect(), by = scale();
      var x = event.clientX - box.left - left, y = event.clientY - box.top;
      return { x: x, y: y, time: view.a + x / by.x, gpu: view.top + y / by.y };
    }

    function hit(point) {
      var slack = 1 / scale().x, found = -1;
      for (var r = 0; r < held.of.length; r++) {
        var i = held.of[r];
        if (point.gpu >= held.top[r] && point.gpu < held.top[r] + held.rows[r] && point.time >= held.from[i] - slack && point.time <= held.to[i] + slack) {
          if (point.time >= held.from[i] && point.time < held.to[i]) { return i; }
          found = i;
        }
      }
      return found;
    }

    function tell(i, x, y) {
      var jobs = page.data.jobs, job = held.job[i], plan = run.held.plans[run.held.plan[i]];
      var lines = [
        [jobs.models[jobs.model[job]], jobs.tenants[jobs.tenant[job]]].filter(Boolean).join(" · "),
        held.gpus[i] + (held.gpus[i] === 1 ? " GPU" : " GPUs") + (plan ? ", " + plan : ""),
        "from " + page.duration(held.from[i] * step_s) + " for " + page.duration((held.to[i] - held.from[i]) * step_s),
        held.ready[i] > held.from[i] ? "overhead " + page.duration((held.ready[i] - held.from[i]) * step_s) : ""
      ].filter(Boolean);
      tip.replaceChildren(page.make("b", jobs.id[job]));
      lines.forEach(function (text) { tip.append(page.make("span", text), document.createElement("br")); });
      tip.hidden = false;
      var room = canvas.clientWidth - tip.offsetWidth - 4;
      tip.style.left = Math.max(0, Math.min(room, left + x + 14)) + "px";
      tip.style.top = (y + 18 + tip.offsetHeight > canvas.clientHeight ? Math.max(0, y - tip.offsetHeight - 12) : y + 18) + "px";
      canvas.dataset.job = jobs.id[job];
    }

    function hide() { tip.hidden = true; delete canvas.dataset.job; }

    function point(event) {
      var place = at(event), i = place.x < 0 || place.y > height ? -1 : hit(place);
      if (i !== chosen) { chosen = i; draw(); }
      if (i < 0) { hide(); } else { tell(i, place.x, place.y); }
    }

    // Moving and zooming

    function zoomTime(factor, centre) {
      var whole = Math.max(1, page.data.end), length = Math.min(whole, Math.max(20, (view.b - view.a) * factor));
      centre = centre === undefined ? (view.a + view.b) / 2 : centre;
      var share = (centre - view.a) / (view.b - view.a);
      settle(centre - share * length, length, view.top, view.bottom - view.top);
    }

    function zoomNodes(factor, centre) {
      var whole = run.nodes * run.gpus_per_node, rows = Math.min(whole, Math.max(Math.min(whole, run.gpus_per_node), (view.bottom - view.top) * factor));
      centre = centre === undefined ? (view.top + view.bottom) / 2 : centre;
      var share = (centre - view.top) / (view.bottom - view.top);
      settle(view.a, view.b - view.a, centre - share * rows, rows);
    }

    function settle(a, length, top, rows) {
      var whole = run.nodes * run.gpus_per_node;
      a = Math.max(0, Math.min(Math.max(1, page.data.end) - length, a));
      top = Math.max(0, Math.min(whole - rows, top));
      view = { a: a, b: a + length, top: top, bottom: top + rows };
      canvas.dataset.view = [view.a, view.b, view.top, view.bottom].map(Math.round).join(" ");
      draw();
    }

    function move(dx, dy) {
      var by = scale();
      settle(view.a - dx / by.x, view.b - view.a, view.top - dy / by.y, view.bottom - view.top);
    }

    // Brings the next or the previous allocation, in order of time, into view.
    function go(direction) {
      var i = chosen + direction;
      if (chosen < 0) {
        i = held.from.findIndex(function (from) { return from >= view.a; });
        i = i < 0 ? held.from.length - 1 : i;
      }
      if (i < 0 || i >= held.from.length) { return; }
      chosen = i;
      var length = view.b - view.a, r = held.of.indexOf(i), rows = view.bottom - view.top;
      var a = held.from[i] < view.a || held.from[i] > view.b ? held.from[i] - length / 4 : view.a;
      var top = r >= 0 && (held.top[r] < view.top || held.top[r] >= view.bottom) ? held.top[r] - rows / 2 : view.top;
      settle(a, length, top, rows);
      var by = scale();
      tell(i, (held.from[i] - view.a) * by.x, r < 0 ? 0 : (held.top[r] - view.top) * by.y);
    }

    function story() { if (chosen >= 0 && held.job[chosen] >= 0) { page.story(held.job[chosen]); } }

    var fingers = new Map(), moved = 0;

    canvas.addEventListener("pointerdown", function (event) {
      fingers.set(event.pointerId, event);
      moved = 0;
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", function (event) {
      var before = fingers.get(event.pointerId);
      if (!before) { point(event); return; }
      var dx = event.clientX - before.clientX, dy = event.clientY - before.clientY;
      if (fingers.size === 2) {
        var other = Array.from(fingers.values()).find(function (finger) { return finger.pointerId !== event.pointerId; });
        var wide = Math.abs(before.clientX - other.clientX), now = Math.abs(event.clientX - other.clientX);
        if (wide > 10 && now > 10) { zoomTime(wide / now, (at(event).time + at(other).time) / 2); }
        moved = 99;
      } else {
        moved += Math.abs(dx) + Math.abs(dy);
        if (moved > 4) { canvas.classList.add("dragging"); hide(); move(dx, event.pointerType === "touch" ? 0 : dy); }
      }
      fingers.set(event.pointerId, event);
    });
    function release(event) {
      if (fingers.delete(event.pointerId) && moved <= 4 && event.type === "pointerup") { point(event); story(); }
      canvas.classList.remove("dragging");
    }
    canvas.addEventListener("pointerup", release);
    canvas.addEventListener("pointercancel", release);
    canvas.addEventListener("pointerleave", function () { if (!fingers.size) { chosen = -1; hide(); draw(); } });
    canvas.addEventListener("wheel", function (event) {
      if (document.activeElement !== canvas && !event.ctrlKey) { return; }
      event.preventDefault();
      var place = at(event), turned = event.deltaY || event.deltaX, factor = Math.exp(Math.max(-1, Math.min(1, turned / 300)));
      if (event.shiftKey) { zoomNodes(factor, place.gpu); } else { zoomTime(factor, place.time); }
      hide();
    }, { passive: false });
    canvas.addEventListener("blur", hide);

    var keys = {
      ArrowLeft: function () { move(width / 8, 0); }, ArrowRight: function () { move(-width / 8, 0); },
      ArrowUp: function () { move(0, height / 8); }, ArrowDown: function () { move(0, -height / 8); },
      "+": function () { zoomTime(0.67); }, "=": function () { zoomTime(0.67); }, "-": function () { zoomTime(1.5); },
      "]": function () { zoomNodes(0.5); }, "[": function () { zoomNodes(2); },
      "0": function () { all(); settle(view.a, view.b, view.top, view.bottom); },
      n: function () { go(1); }, p: function () { go(-1); }, Enter: story
    };
    canvas.addEventListener("keydown", function (event) {
      var act = keys[event.key];
      if (act && !event.ctrlKey && !event.metaKey && !event.altKey) { event.preventDefault(); hide(); act(); }
    });

    // The first colouring is by model, or by size if all jobs have one model.
    if (page.data.jobs.models.length < 2) { page.by("gantt-colour").value = "size"; }
    page.by("gantt-in").addEventListener("click", keys["+"]);
    page.by("gantt-out").addEventListener("click", keys["-"]);
    page.by("gantt-taller").addEventListener("click", keys["]"]);
    page.by("gantt-lower").addEventListener("click", keys["["]);
    page.by("gantt-all").addEventListener("click", keys["0"]);
    page.by("gantt-colour").addEventListener("change", function () { load(true); });
    page.chips("timeline", function () { load(true); });
    page.onTheme.push(function () { legend(); draw(); });
    new ResizeObserver(draw).observe(canvas);
    load(false);
  });

  // Rectangles too small to draw: colour and area by pixel, added up and painted at once.
  function Dust(width, height) {
    this.width = Math.max(1, Math.ceil(width)); this.height = Math.max(1, Math.ceil(height));
    this.sums = null; this.shade = [0, 0, 0];
  }

  Dust.prototype.colour = function (text) {
    this.shade = [1, 3, 5].map(function (i) { return parseInt(text.slice(i, i + 2), 16); });
  };

  Dust.prototype.add = function (x, y, w, h) {
    var sums = this.sums = this.sums || new Float32Array(4 * this.width * this.height);
    var x1 = Math.min(this.width, x + w), y1 = Math.min(this.height, y + h), shade = this.shade;
    for (var row = Math.max(0, Math.floor(y)); row < y1; row++) {
      var tall = Math.min(row + 1, y1) - Math.max(row, y);
      for (var column = Math.floor(x); column < x1; column++) {
        var area = tall * (Math.min(column + 1, x1) - Math.max(column, x)), k = 4 * (row * this.width + column);
        sums[k] += area * shade[0]; sums[k + 1] += area * shade[1]; sums[k + 2] += area * shade[2]; sums[k + 3] += area;
      }
    }
  };

  Dust.prototype.paint = function (ink, layer) {
    if (!this.sums) { return; }
    var pixels = new ImageData(this.width, this.height), sums = this.sums;
    for (var k = 0; k < sums.length; k += 4) {
      var area = sums[k + 3];
      if (area > 0) {
        for (var c = 0; c < 3; c++) { pixels.data[k + c] = sums[k + c] / area; }
        pixels.data[k + 3] = Math.min(255, 255 * area);
      }
    }
    layer.width = this.width; layer.height = this.height;
    layer.getContext("2d").putImageData(pixels, 0, 0);
    ink.drawImage(layer, 0, 0);
  };
})();
