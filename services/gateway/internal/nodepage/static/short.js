import { h, byId, text, list } from './dom.js';
import { ago, bytes, clock, until } from './words.js';

// What the node is short of, and what was decided about it. Where all is well
// nothing is shown.

const path = (pod) => `#/pods/${encodeURIComponent(pod.namespace)}/${encodeURIComponent(pod.name)}/${encodeURIComponent(pod.uid || '')}`;

export function showShortages(known, now) {
  const short = known?.short || [];
  const decisions = known?.decisions || [];
  const words = standing(known, now);
  byId('short-section').hidden = Boolean(known?.measured) && !known.stale && !short.length && !decisions.length;
  byId('short-words').hidden = !words;
  text(byId('short-words'), words);
  list(byId('short'), short, (s) => `${s.signal}|${s.hard}`, () => h('li', {}, h('b', {}), h('p', {}), h('small', {})), (li, s) => {
    li.className = s.hard || s.limit ? 'bad' : 'wait';
    text(li.children[0], s.signal);
    text(li.children[1], amounts(s));
    text(li.children[2], [s.since && `for ${ago(s.since)}`, s.due && `nothing is evicted before its grace period is over, in ${until(s.due)}`].filter(Boolean).join('; '));
  });
  byId('decided').hidden = !decisions.length;
  list(byId('decisions'), decisions, (d) => [d.first || d.time, d.shortage.signal, d.outcome, d.chosen?.uid].join('|'), makeDecision, fillDecision);
  byId('more-decisions').hidden = !known?.more;
  text(byId('more-decisions'), `${known?.more} earlier ones: polylet explain node`);
}

// standing is what is known; nothing where the shortages themselves say it.
function standing(known, now) {
  if (!known) return 'It is not known: nodestatus does not answer.';
  if (!known.measured) return `It is not known: nodestatus has heard no figures of stats since it was started${known.began ? ` ${ago(known.began, Date.parse(now))} ago` : ''}.`;
  if (known.stale) return `It is not known what it is short of now: stats has told nothing for ${ago(known.measured, Date.parse(now))}, and no pod is evicted for a shortage meanwhile. ${known.short.length ? 'Before that it was short of:' : 'Before that it was short of nothing.'}`;
  return known.short.length ? '' : 'Of nothing now.';
}

function amounts(s) {
  if (s.limit) return `${s.available} used, ${s.threshold} allowed`;
  return `${s.available} left, the ${s.hard ? 'hard' : 'soft'} threshold is ${s.threshold}`;
}

const moods = { evicted: 'bad', reclaimed: 'good', nobody: 'bad', held: 'quiet', hastened: 'bad', refused: 'wait' };

function outcome(d) {
  const chosen = d.chosen ? `${d.chosen.namespace}/${d.chosen.name}` : '';
  switch (d.outcome) {
    case 'evicted': return `evicted ${chosen} (it has ${d.grace || 0} s to end): ${d.why}`;
    case 'reclaimed': return `evicted nobody: ${d.why}`;
    case 'nobody': return `could evict nobody: ${d.why}`;
    case 'refused': return `would have evicted ${chosen}: ${d.why}`;
    case 'hastened': return `gave ${chosen} less time (it has ${d.grace || 0} s to end): ${d.why}`;
    case 'held': return `did nothing: ${d.why}`;
    default: return `${d.outcome}: ${d.why}`;
  }
}

function makeDecision() {
  const heads = ['Considered', 'Uses', 'Asked for', 'Exceeds', 'Priority', 'Not evicted because'];
  return h('li', {}, h('time', {}), h('b', {}), h('div', {}, h('p', {}), h('p', { class: 'quiet' }), h('p', { class: 'quiet' }), h('details', {}, h('summary', {}),
    h('div', { class: 'scroll' }, h('table', {}, h('thead', {}, h('tr', {}, heads.map((words, i) => h('th', { scope: 'col', class: i && i < 5 ? 'num' : undefined }, words)))), h('tbody', {}))))));
}

function fillDecision(li, d) {
  const [time, signal, about] = li.children;
  const [what, amount, reclaimed, details] = about.children;
  const at = Date.parse(d.time);
  li.className = moods[d.outcome] || 'quiet';
  text(time, Date.now() - at < 12 * 3600e3 ? clock(d.time) : `${ago(d.time)} ago`);
  time.dateTime = d.time;
  time.title = new Date(at).toLocaleString();
  text(signal, d.shortage.signal + (d.count > 1 ? ` ×${d.count}` : ''));
  signal.title = d.count > 1 ? `decided ${d.count} times in ${ago(d.first, at)}` : '';
  text(what, outcome(d));
  text(amount, amounts(d.shortage) + (d.shortage.since ? `; it was short for ${ago(d.shortage.since, at)}` : ''));
  const r = d.reclaimed;
  reclaimed.hidden = !r;
  text(reclaimed, r ? `reclaimed ${r.containers} containers, ${r.images} images (${bytes(r.imageBytes)})${r.error ? `; not all of it: ${r.error}` : ''}` : '');
  const considered = d.candidates.length + (d.more || 0);
  details.hidden = !d.candidates.length;
  text(details.firstElementChild, `${considered} ${considered === 1 ? 'pod was' : 'pods were'} considered${d.more ? `; the first ${d.candidates.length === 1 ? 'is' : `${d.candidates.length} are`} shown` : ''}`);
  const figure = d.counted ? String : bytes;
  list(details.querySelector('tbody'), d.candidates, (c) => `${c.uid}|${c.namespace}/${c.name}`, makeCandidate, (row, c) => {
    text(row.querySelector('span'), `${c.namespace}/`);
    text(row.querySelector('b'), c.name);
    [figure(c.usage), figure(c.request), c.exceeds ? 'yes' : 'no', String(c.priority), c.not || ''].forEach((words, i) => text(row.children[i + 1], words));
  });
}

function makeCandidate(c) {
  return h('tr', {}, h('td', {}, h('a', { href: path(c) }, h('span', { class: 'quiet' }), h('b', {}))),
    ['num', 'num', 'num', 'num', ''].map((name) => h('td', { class: name || undefined })));
}
