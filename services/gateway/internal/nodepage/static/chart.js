// What was used over time. The history is the page's own: it is kept in this
// tab, so a reload keeps it and the node remembers nothing.

const most = 240; // samples
const svg = 'http://www.w3.org/2000/svg';

export class History {
  constructor() {
    this.series = new Map();
    try {
      const kept = JSON.parse(sessionStorage.getItem('usage') || '{}');
      for (const [name, points] of Object.entries(kept)) this.series.set(name, points);
    } catch { /* what was kept is of no use */ }
  }

  // add takes a sample: name -> [cpu, memory].
  add(time, sample) {
    for (const [name, [cpu, memory]] of Object.entries(sample)) {
      const points = this.series.get(name) || [];
      if (points.length && points[points.length - 1][0] >= time) continue;
      points.push([time, cpu, memory]);
      if (points.length > most) points.shift();
      this.series.set(name, points);
    }
    for (const [name, points] of this.series) {
      if (time - points[points.length - 1][0] > 15 * 60e3) this.series.delete(name);
    }
  }

  keep() {
    try { sessionStorage.setItem('usage', JSON.stringify(Object.fromEntries(this.series))); } catch { /* full: do without */ }
  }

  // of returns [time, value] of one series; field is 1 for CPU, 2 for memory.
  of(name, field) {
    return (this.series.get(name) || []).map((p) => [p[0], p[field]]);
  }

  // sum adds series up at the times of the newest one.
  sum(names, field) {
    const all = names.map((n) => this.of(n, field)).filter((s) => s.length);
    if (!all.length) return [];
    const times = new Map();
    for (const points of all) for (const [t, v] of points) times.set(t, (times.get(t) || 0) + v);
    return [...times].sort((a, b) => a[0] - b[0]);
  }
}

const make = (tag, attributes) => {
  const e = document.createElementNS(svg, tag);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  return e;
};

// draw draws points into parent. say makes a value a text; limit, if any, is
// drawn as a line.
export function draw(parent, points, { width = 320, height = 72, say, limit = 0, label, axis = true }) {
  const now = points.length ? points[points.length - 1][0] : Date.now();
  const span = Math.max(axis ? 20e3 : 10e3, points.length ? now - points[0][0] : 0);
  const peak = Math.max(1e-9, ...points.map((p) => p[1]));
  const top = limit && limit < peak * 4 ? Math.max(limit, peak) * 1.08 : peak * 1.25;
  const x = (t) => width - ((now - t) / span) * width;
  const y = (v) => height - 1 - (v / top) * (height - 4);
  const root = make('svg', { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: 'none', role: 'img' });
  root.setAttribute('aria-label', points.length ? `${label}: now ${say(points[points.length - 1][1])}, at most ${say(peak)} in ${Math.round(span / 60e3)} min` : `${label}: nothing measured yet`);
  if (points.length > 1) {
    const line = points.map((p, i) => `${i ? 'L' : 'M'}${x(p[0]).toFixed(1)} ${y(p[1]).toFixed(1)}`).join('');
    root.append(make('path', { class: 'area', d: `${line}L${width} ${height}L${x(points[0][0]).toFixed(1)} ${height}Z` }));
    root.append(make('path', { class: 'line', d: line, 'vector-effect': 'non-scaling-stroke' }));
  }
  if (limit && limit <= top) root.append(make('path', { class: 'limit', d: `M0 ${y(limit).toFixed(1)}H${width}`, 'vector-effect': 'non-scaling-stroke' }));
  const parts = [root];
  if (axis) {
    const note = (name, words) => Object.assign(document.createElement('span'), { className: name, textContent: words });
    parts.push(note('peak', points.length ? `peak ${say(peak)}` : ''));
    parts.push(note('span', points.length > 1 ? `${span < 120e3 ? `${Math.round(span / 1000)} s` : `${Math.round(span / 60e3)} min`}` : 'measuring …'));
  }
  parent.replaceChildren(...parts);
}
