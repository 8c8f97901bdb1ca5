// The arithmetic of charts: numbers as text, scales, ticks. charts.js draws with it.
var charts = {};

(function () {
  "use strict";
  const MINUS = "\u2212", MINUTE = 60e3, HOUR = 3600e3, DAY = 86400e3;
  const STEPS_MS = [MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY];
  const MONTHS = [1, 3, 6, 12, 60, 120];

  // A number with so many decimals and a minus sign that stands out; `signed` writes a plus, too.
  charts.number = (value, decimals = 0, signed = false) => {
    const digits = { minimumFractionDigits: decimals, maximumFractionDigits: decimals };
    const text = Math.abs(value).toLocaleString("en-US", digits);
    const sign = !/[1-9]/.test(text) ? (signed ? "±" : "") : value < 0 ? MINUS : signed ? "+" : "";
    return sign + text;
  };

  // A text with {x}, {y:1}, {y:+1} or {text} in it: values with so many decimals, with a sign where asked for.
  charts.words = (template, values) => template.replace(/\{(\w+)(?::(\+?)(\d))?\}/g, (_, name, sign, decimals) => {
    const value = values[name];
    return typeof value === "number" ? charts.number(value, Number(decimals || 0), sign === "+") : String(value ?? "");
  });

  // What stands at a value of an axis: the number of a name, the milliseconds of a date, or the value itself.
  charts.value = (axis) => {
    if (axis.kind === "names") { return (name) => axis.names.indexOf(name); }
    if (axis.kind === "date") { return (moment) => Date.parse(moment.replace(" ", "T") + "Z"); }
    return (number) => number;
  };

  const inner = (axis) => axis.kind === "log" ? Math.log : Number;
  const outer = (axis) => axis.kind === "log" ? Math.exp : Number;

  // The ends of an axis that shows all values. `padded`: with room for a marker at both.
  charts.span = (axis, values, padded) => {
    if (axis.kind === "names") { return [-0.5, axis.names.length - 0.5]; }
    const log = axis.kind === "log";
    let low = Infinity, high = -Infinity;
    for (const value of axis.line === undefined ? values : [...values, axis.line]) {
      if (value === null || (log && value <= 0)) { continue; }
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
    if (low > high) { [low, high] = log ? [1, 10] : [0, 1]; }
    if (axis.zero) { [low, high] = [Math.min(low, 0), Math.max(high, 0)]; }
    let [a, b] = [low, high].map(inner(axis));
    if (a === b) {
      const half = log ? 0.35 : axis.kind === "date" ? HOUR : Math.max(Math.abs(a) * 0.1, 0.5);
      [a, b] = axis.zero && a === 0 ? [0, 1] : [a - half, b + half];
    }
    const pad = padded ? 0.05 * (b - a) : 0;
    const ends = [axis.zero && low === 0 ? a : a - pad, axis.zero && high === 0 && low < 0 ? b : b + pad].map(outer(axis));
    return [axis.low ?? ends[0], axis.high ?? ends[1]];
  };

  // Where the values of an axis lie between two pixels, and back.
  charts.scale = (axis, span, from, to) => {
    const [a, b] = span.map(inner(axis)), slope = (to - from) / (b - a || 1), at = inner(axis), back = outer(axis);
    return { span, from, to, at: (value) => from + (at(value) - a) * slope, value: (pixel) => back(a + (pixel - from) / slope) };
  };

  // The ticks of an axis as [value, text]. `room`: the pixels of a label along the axis; a label that would
  // touch one before it in the order of importance is left out. `apart`: pixels from one number to the next.
  charts.ticks = (axis, scale, room, apart) => {
    const length = Math.abs(scale.to - scale.from), count = Math.max(2, length / apart);
    if (axis.kind === "date") { return moments(scale.span, count); }
    const offered = axis.ticks || (axis.kind === "log" ? decades(scale.span) : numbers(scale.span, count));
    const [low, high] = scale.span, placed = [];
    for (const [value, text] of offered) {
      const at = scale.at(value), size = room(text);
      if (value < low - 1e-9 * Math.abs(low) || value > high + 1e-9 * Math.abs(high)) { continue; }
      if (placed.every((one) => Math.abs(one.at - at) >= (one.size + size) / 2)) { placed.push({ at, size, value, text }); }
    }
    return placed.map((one) => [one.value, one.text]);
  };

  function numbers([low, high], count) {
    const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
    const step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw * 0.999);
    const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9)), made = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) { made.push([k * step, charts.number(k * step, decimals)]); }
    return made;
  }

  function decades([low, high]) {
    const made = [];
    for (const factor of [1, 2, 5]) {
      for (let k = Math.floor(Math.log10(low)); k <= Math.ceil(Math.log10(high)); k++) {
        made.push([factor * 10 ** k, charts.number(factor * 10 ** k, Math.max(0, -k))]);
      }
    }
    return made;
  }

  // Hours with their day below, or days with their year: [value, text, text of the second line].
  function moments([low, high], count) {
    const step = STEPS_MS.find((one) => (high - low) / one <= count), made = [];
    if (step) {
      for (let at = Math.ceil(low / step) * step; at <= high; at += step) { made.push(at); }
    } else {
      const months = MONTHS.find((one) => (high - low) / (30 * DAY * one) <= count) || 120, first = new Date(low);
      for (let k = first.getUTCFullYear() * 12 + Math.ceil(first.getUTCMonth() / months) * months; ; k += months) {
        const at = Date.UTC(Math.floor(k / 12), k % 12);
        if (at > high) { break; }
        if (at >= low) { made.push(at); }
      }
    }
    const words = (options) => (at) => new Date(at).toLocaleString("en-US", { timeZone: "UTC", ...options });
    const hours = step && step < DAY;
    const text = words(hours ? { hour: "2-digit", minute: "2-digit", hourCycle: "h23" } : { month: "short", day: "numeric" });
    const below = words(hours ? { month: "short", day: "numeric", year: "numeric" } : { year: "numeric" });
    return made.map((at, i) => [at, text(at), i && below(at) === below(made[i - 1]) ? "" : below(at)]);
  }
})();
