// Shared by all parts of the page: data, colours, texts of times; themes and sections.
var page = {};

(function () {
  "use strict";
  var MINUS = "\u2212";
  var MANY = 8;  // policies that chips can name
  var UNITS = [["d", 86400, 259200], ["h", 3600, 7200], ["min", 60, 120]];

  page.by = function (id) { return document.getElementById(id); };

  page.css = function (name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  };

  page.seriesColour = function (series) { return page.css("--c" + (series % 8)); };

  // An element with text, never with markup: names come from files that the reader need not trust.
  page.make = function (tag, text, attributes) {
    var made = document.createElement(tag);
    if (text !== undefined && text !== null) { made.textContent = text; }
    Object.keys(attributes || {}).forEach(function (key) { made.setAttribute(key, attributes[key]); });
    return made;
  };

  // The number of the marker of a look: of its colour and its style.
  page.marker = function (look) { return (look % 8 + Math.floor(look / 8)) % 8; };

  page.swatch = function (look) { return page.make("span", "", { "class": "swatch s" + (look % 8) + " m" + page.marker(look) }); };

  // The text of a packed script element: base64 of gzip.
  page.unpack = async function (id) {
    var letters = atob(page.by(id).textContent), bytes = new Uint8Array(letters.length);
    for (var i = 0; i < letters.length; i++) { bytes[i] = letters.charCodeAt(i); }
    var stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  };

  // The unit that suits a time: its name and its seconds.
  page.unit = function (seconds) {
    return UNITS.find(function (one) { return seconds >= one[2]; }) || ["s", 1];
  };

  // A time on the trace's clock as a date in UTC; empty if the clock has no dates.
  page.date = function (steps) {
    if (!page.data.dated) { return ""; }
    var made = new Date((page.data.zero_s + page.data.from_s + steps * page.data.step_s) * 1000);
    return made.toISOString().slice(0, 16).replace("T", " ") + " UTC";
  };

  // Three digits of a number, but at most two decimals.
  page.decimals = function (value) {
    return value > 0 ? Math.max(0, Math.min(2, 2 - Math.floor(Math.log10(value)))) : 0;
  };

  // Like `duration` in clustersim/report/numbers.py: three digits in the unit that suits.
  page.duration = function (seconds) {
    if (seconds === null || seconds === undefined) { return "–"; }
    var unit = page.unit(seconds), value = seconds / unit[1];
    return page.number(value, page.decimals(value)) + " " + unit[0];
  };

  page.number = function (value, decimals) {
    return value.toLocaleString("en-US", { minimumFractionDigits: decimals || 0, maximumFractionDigits: decimals || 0 });
  };

  // Black or white, whichever contrasts more with a colour "#rrggbb" (WCAG 2.2, relative luminance).
  page.readable = function (colour) {
    var parts = [1, 3, 5].map(function (at) {
      var part = parseInt(colour.slice(at, at + 2), 16) / 255;
      return part <= 0.04045 ? part / 12.92 : Math.pow((part + 0.055) / 1.055, 2.4);
    });
    var luminance = 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
    return 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.05 ? "#ffffff" : "#000000";
  };

  page.percent = function (ratio) {
    var text = Math.abs(100 * (ratio - 1)).toFixed(1);
    return (text === "0.0" ? "±" : ratio < 1 ? MINUS : "+") + text + " %";
  };

  // One choice of a policy, shown by several sets of chips; a change calls the functions in `page.onRun`.
  page.run = 0;
  page.onRun = [];

  page.chips = function (name, after) {
    var field = document.querySelector("#" + name + " fieldset.chips");
    if (page.data.runs.length > MANY) { return choice(field, after); }
    page.data.runs.forEach(function (run, number) {
      var label = page.make("label"), input = page.make("input", "", { type: "radio", name: name + "-run", value: number });
      input.checked = number === page.run;
      input.addEventListener("change", function () { page.show(number); });
      label.append(input, page.swatch(run.look), run.label);
      field.append(label);
    });
    field.hidden = page.data.runs.length < 2;
    page.onRun.push(function () { field.querySelectorAll("input")[page.run].checked = true; after(); });
  };

  // One line for many policies.
  function choice(field, after) {
    var label = page.make("label", "Policy "), select = page.make("select");
    page.data.runs.forEach(function (run, number) { select.add(new Option(run.label, number)); });
    select.addEventListener("change", function () { page.show(Number(select.value)); });
    label.append(select);
    field.className = "choice";
    field.append(label);
    page.onRun.push(function () { select.value = page.run; after(); });
  }

  page.show = function (number) {
    page.run = number;
    page.onRun.forEach(function (tell) { tell(); });
  };

  page.onTheme = [];

  function dark() {
    var chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : window.matchMedia("(prefers-color-scheme: dark)").matches;
  }

  function themes() {
    var button = page.by("theme");
    function changed() {
      button.textContent = dark() ? "Light" : "Dark";
      button.setAttribute("aria-label", "Switch to " + (dark() ? "light" : "dark") + " colours");
      page.onTheme.forEach(function (tell) { tell(); });
    }
    button.addEventListener("click", function () {
      document.documentElement.dataset.theme = dark() ? "light" : "dark";
      changed();
    });
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
    button.hidden = false;
    changed();
  }

  // Marks the section in view.
  function sections() {
    var links = Array.from(document.querySelectorAll("nav.sections a"));
    function mark() {
      var current = links[0];
      links.forEach(function (link) {
        if (document.querySelector(link.hash).getBoundingClientRect().top < 120) { current = link; }
      });
      links.forEach(function (link) {
        if (link === current) { link.setAttribute("aria-current", "true"); } else { link.removeAttribute("aria-current"); }
      });
    }
    document.addEventListener("scroll", mark, { passive: true });
    mark();
  }

  // Tables whose heads sort their rows, the largest first.
  function sorting() {
    document.querySelectorAll("table.sortable").forEach(function (table) {
      if (table.tBodies[0].rows.length < 3) { return; }
      Array.from(table.tHead.rows[0].cells).forEach(function (head, column) {
        var button = page.make("button", "", { type: "button" });
        button.append.apply(button, Array.from(head.childNodes));
        head.append(button);
        button.addEventListener("click", function () { sort(table, head, column); });
      });
    });
  }

  function sort(table, head, column) {
    var body = table.tBodies[0], down = head.getAttribute("aria-sort") !== "descending";
    Array.from(table.tHead.rows[0].cells).forEach(function (cell) { cell.removeAttribute("aria-sort"); });
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    var rows = Array.from(body.rows).map(function (row, place) {
      var cell = row.cells[column], name = cell.querySelector(".name"), text = (name || cell).firstChild;
      text = text ? text.textContent.trim() : "";
      var number = parseFloat(text.replace(/,/g, "").replace(MINUS, "-"));
      return { row: row, place: place, text: text, number: text === "–" ? null : number };
    });
    var words = rows.some(function (one) { return one.number !== null && isNaN(one.number); });
    rows.sort(function (a, b) {
      if (!words && (a.number === null || b.number === null)) { return (a.number === null) - (b.number === null) || a.place - b.place; }
      var order = words ? b.text.localeCompare(a.text, "en", { numeric: true }) : a.number - b.number;
      return (down ? -order : order) || a.place - b.place;
    });
    rows.forEach(function (one) { body.append(one.row); });
  }

  page.parts = [];

  document.addEventListener("DOMContentLoaded", async function () {
    themes();
    sections();
    sorting();
    page.data = JSON.parse(await page.unpack("data"));
    page.parts.forEach(function (part) { part(); });
    page.data.charts.forEach(function (chart) { charts.show(page.by(chart.id), chart); });
    document.documentElement.dataset.ready = "all";
  });
})();
