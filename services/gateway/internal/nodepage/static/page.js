import { h, byId, text, list } from './dom.js';
import { ago, bytes, cores, clock, mood, standing } from './words.js';
import { History, draw } from './chart.js';
import { Sheet } from './pod.js';
import { showShortages } from './short.js';

const state = { overview: null, usage: null, filter: '', history: new History() };
const sheet = new Sheet(byId('sheet'), state);

async function get(path) {
  const answer = await fetch(path, { headers: { Accept: 'application/json' }, signal: AbortSignal.timeout(8000) });
  if (!answer.ok) throw new Error((await answer.text()) || answer.statusText);
  return answer.json();
}

// every runs work now and again after pause; not while nobody looks.
function every(pause, work) {
  let timer;
  const run = async () => {
    clearTimeout(timer);
    if (document.hidden) return;
    try { await work(); } finally { timer = setTimeout(run, pause); }
  };
  document.addEventListener('visibilitychange', () => { if (!document.hidden) run(); });
  run();
  return run;
}

function problem(words) {
  const banner = byId('problem');
  banner.hidden = !words;
  text(banner, words || '');
}

async function look() {
  try {
    state.overview = await get('api/overview');
    problem(state.overview.problems?.join(' · '));
  } catch (error) {
    problem(`The node does not answer: ${error.message}. The page tries again.`);
    return;
  }
  show();
}

async function measure() {
  let usage;
  try { usage = await get('api/usage'); } catch { return; }
  if (usage.problem) return;
  state.usage = usage;
  const sample = { node: [usage.node.cpu, usage.node.memory] };
  for (const [name, a] of Object.entries(usage.containers)) sample[name] = [a.cpu, a.memory];
  state.history.add(Date.parse(usage.time), sample);
  state.history.keep();
  showUsage();
  if (state.overview) showRows();
  sheet.measured();
}

function show() {
  const { node, services, pods, events } = state.overview;
  document.title = `${node.name} · polylet`;
  text(byId('node'), node.name);
  const ready = (node.conditions || []).find((c) => c.type === 'Ready');
  const isReady = ready?.status === 'True';
  byId('ready').className = `chip ${isReady ? 'good' : 'bad'}`;
  text(byId('ready'), isReady ? 'Ready' : ready ? 'Not ready' : 'Unknown');
  text(byId('about'), [node.kubelet, node.runtime, node.os, node.kernel && `Linux ${node.kernel}`, !node.registered && 'standalone or not registered'].filter(Boolean).join(' · '));
  showConditions(node);
  showShortages(state.overview.shortages, state.overview.time);
  showServices(services);
  showPodsTile(pods);
  showWaiting(pods);
  showRows();
  showEvents(events);
  sheet.look();
}

function showConditions(node) {
  const good = (c) => (c.type === 'Ready' ? c.status === 'True' : c.status === 'False');
  const items = [...(node.conditions || []).map((c) => ({ key: c.type, good: good(c), words: good(c) && c.type !== 'Ready' ? `no ${c.type.replace(/([a-z])([A-Z])/g, '$1 $2').replace(/([A-Z])([A-Z][a-z])/g, '$1 $2').toLowerCase()}` : c.type + (good(c) ? '' : `: ${c.reason || c.status}`), title: `${c.message || c.reason || ''} (since ${ago(c.since)})` })),
    ...(node.taints || []).map((t) => ({ key: `taint ${t}`, good: true, words: `taint ${t}`, title: 'taint' }))];
  list(byId('conditions'), items, (i) => i.key, () => h('li', {}), (li, i) => {
    li.className = `chip ${i.good ? 'quiet' : 'bad'}`;
    li.title = i.title;
    text(li, i.words);
  });
}

function showServices(services) {
  text(byId('services-now'), `${services.filter((s) => s.up).length} of ${services.length}`);
  list(byId('services'), services, (s) => s.name, () => h('li', {}, h('i', {}), h('span', {}), h('small', {})), (li, s) => {
    li.className = !s.up ? 'bad' : s.lacks?.length ? 'wait' : 'good';
    li.title = (s.lacks || []).join('\n');
    text(li.children[1], s.name);
    text(li.children[2], s.up ? (s.lacks?.length ? `waits for ${s.lacks.map((l) => l.split(':')[0]).join(', ')}` : s.since ? ago(s.since) : '') : 'down');
  });
}

const moods = [['good', 'ready'], ['wait', 'on the way'], ['bad', 'in trouble'], ['quiet', 'done']];

function showPodsTile(pods) {
  const counts = Object.fromEntries(moods.map(([m]) => [m, pods.filter((p) => mood(p) === m).length]));
  text(byId('pods-now'), String(pods.length));
  const shown = moods.filter(([m]) => counts[m]);
  list(byId('pods-bar'), shown, ([m]) => m, ([m]) => h('i', { class: m }), (i, [m]) => { i.style.flexGrow = counts[m]; });
  list(byId('pods-legend'), shown, ([m]) => m, ([m]) => h('li', { class: m }), (li, [m, words]) => text(li, `${counts[m]} ${words}`));
}

const path = (pod) => `#/pods/${encodeURIComponent(pod.namespace)}/${encodeURIComponent(pod.name)}/${encodeURIComponent(pod.uid)}`;

function showWaiting(pods) {
  const waiting = pods.filter((p) => p.waits?.length && mood(p) !== 'quiet');
  byId('waiting-section').hidden = !waiting.length;
  list(byId('waiting'), waiting.slice(0, 12), (p) => p.uid, (p) => h('li', {}, h('a', { href: path(p) }), h('p', {}), h('small', {})), (li, p) => {
    const w = p.waits[0];
    li.className = mood(p);
    text(li.children[0], `${p.namespace}/${p.name}`);
    text(li.children[1], `${w.kind}${w.object ? ` ${w.object}` : ''}: ${w.reason}`);
    text(li.children[2], `${w.since ? `for ${ago(w.since)}` : ''}${p.waits.length > 1 ? ` · and ${p.waits.length - 1} more` : ''}`);
  });
}

function showRows() {
  const words = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
  const pods = state.overview.pods.filter((p) => {
    const about = `${p.namespace}/${p.name} ${p.phase} ${standing(p)} ${p.containers.map((c) => `${c.name} ${c.image}`).join(' ')}`.toLowerCase();
    return words.every((w) => about.includes(w));
  });
  byId('nothing').hidden = pods.length > 0;
  list(byId('rows'), pods, (p) => p.uid, makeRow, fillRow);
}

function makeRow(pod) {
  const open = () => { location.hash = path(pod); };
  return h('tr', { onclick: (e) => { if (!e.target.closest('a')) open(); } },
    h('td', {}, h('a', { href: path(pod) }, h('span', { class: 'quiet' }), h('b', {}))),
    h('td', {}, h('span', { class: 'state' })), h('td', { class: 'num' }), h('td', { class: 'num' }),
    h('td', { class: 'spark' }, h('div', {}), h('small', {})), h('td', { class: 'spark' }, h('div', {}), h('small', {})), h('td', { class: 'num' }));
}

function fillRow(row, pod) {
  const [name, status, ready, restarts, cpu, memory, age] = row.children;
  text(name.querySelector('span'), `${pod.namespace}/`);
  text(name.querySelector('b'), pod.name);
  const badge = status.firstElementChild;
  badge.className = `state ${mood(pod)}`;
  text(badge, standing(pod));
  const running = pod.containers.filter((c) => !c.kind || c.kind === 'sidecar');
  text(ready, `${running.filter((c) => c.ready).length}/${running.length}`);
  text(restarts, String(pod.containers.reduce((n, c) => n + c.restarts, 0)));
  text(age, ago(pod.created));
  const names = pod.containers.map((c) => `${pod.uid}/${c.name}`);
  for (const [cell, field, say, what] of [[cpu, 1, cores, 'CPU'], [memory, 2, bytes, 'memory']]) {
    const points = state.history.sum(names, field);
    draw(cell.firstElementChild, points, { width: 96, height: 22, say, label: `${what} of ${pod.name}`, axis: false });
    text(cell.lastElementChild, points.length && pod.phase !== 'Succeeded' ? say(points[points.length - 1][1]) : '');
  }
}

function showUsage() {
  const { node } = state.usage;
  const { cpus, memory } = state.overview?.node || {};
  text(byId('cpu-now'), cpus ? `${cores(node.cpu)} of ${cores(cpus)}` : cores(node.cpu));
  text(byId('memory-now'), memory ? `${bytes(node.memory)} of ${bytes(memory)}` : bytes(node.memory));
  draw(byId('cpu-chart'), state.history.of('node', 1), { say: cores, limit: cpus, label: 'CPU of the node' });
  draw(byId('memory-chart'), state.history.of('node', 2), { say: bytes, limit: memory, label: 'Memory of the node' });
}

// The newest events; the node's own are few, and do not go under among pods'.
function newest(events) {
  const shown = new Set([...events.slice(0, 60), ...events.filter((e) => !e.namespace).slice(0, 20)]);
  return events.filter((e) => shown.has(e));
}

function showEvents(events) {
  byId('no-events').hidden = events.length > 0;
  list(byId('events'), newest(events), (e) => [e.time, e.namespace, e.name, e.container, e.reason].join('|'),
    () => h('li', {}, h('time', {}), h('b', {}), h('span', { class: 'object' }), h('p', {})), (li, e) => {
      li.className = e.type === 'Warning' ? 'warning' : '';
      text(li.children[0], clock(e.time));
      li.children[0].dateTime = e.time;
      text(li.children[1], e.reason + (e.count > 1 ? ` ×${e.count}` : ''));
      text(li.children[2], (e.namespace ? `${e.namespace}/` : '') + e.name + (e.container ? ` (${e.container})` : ''));
      text(li.children[3], e.message);
    });
}

// Keyboard: a list that one walks through.
function keys(event) {
  const field = byId('filter');
  if (event.target === field) {
    if (event.key === 'Escape') { field.value = state.filter = ''; showRows(); field.blur(); }
    if (event.key === 'ArrowDown' || event.key === 'Enter') { byId('rows').querySelector('a')?.focus(); event.preventDefault(); }
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || byId('sheet').open) return;
  if (event.key === '/') { field.focus(); event.preventDefault(); return; }
  const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[event.key];
  if (!step) return;
  const links = [...byId('rows').querySelectorAll('a')];
  if (!links.length) return;
  const at = links.indexOf(document.activeElement);
  links[at < 0 ? 0 : Math.min(links.length - 1, Math.max(0, at + step))].focus();
  event.preventDefault();
}

function theme(next) {
  if (next) try { localStorage.setItem('theme', next); } catch { /* for this time only */ }
  let chosen = next;
  if (!chosen) try { chosen = localStorage.getItem('theme'); } catch { /* the system's */ }
  if (chosen) document.documentElement.dataset.theme = chosen;
}

theme();
byId('theme').addEventListener('click', () => {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  theme(dark ? 'light' : 'dark');
});
byId('filter').addEventListener('input', (e) => { state.filter = e.target.value; if (state.overview) showRows(); });
document.addEventListener('keydown', keys);
every(2500, look);
every(5000, measure);
