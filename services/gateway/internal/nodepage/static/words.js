// Numbers and times as people say them.

export function ago(time, now = Date.now()) {
  if (!time) return '';
  const s = Math.max(0, (now - Date.parse(time)) / 1000);
  if (s < 120) return `${Math.floor(s)} s`;
  if (s < 3 * 3600) return `${Math.floor(s / 60)} min`;
  if (s < 48 * 3600) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} d`;
}

export function until(time, now = Date.now()) {
  const s = Math.max(0, Math.round((Date.parse(time) - now) / 1000));
  return s < 120 ? `${s} s` : `${Math.round(s / 60)} min`;
}

export function bytes(n) {
  if (!n) return '0';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i++; }
  return `${n < 10 && i > 0 ? n.toFixed(1) : Math.round(n)} ${units[i]}`;
}

export function cores(n) {
  if (n >= 10) return `${n.toFixed(0)}`;
  if (n >= 1) return `${n.toFixed(2)}`;
  return `${Math.round(n * 1000)} m`;
}

export function took(seconds) {
  if (seconds < 0.001) return '';
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 120) return `${seconds.toFixed(1)} s`;
  return `${Math.round(seconds / 60)} min`;
}

export function clock(time, millis = false) {
  const d = new Date(time);
  const two = (n) => String(n).padStart(2, '0');
  const base = `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
  return millis ? `${base}.${String(d.getMilliseconds()).padStart(3, '0')}` : base;
}

// mood of a pod: good, wait, bad or quiet.
export function mood(pod) {
  if (pod.phase === 'Failed') return 'bad';
  if (pod.phase === 'Succeeded') return 'quiet';
  if (pod.waits?.some((w) => w.retry || w.kind === 'backoff')) return 'bad';
  if (pod.phase === 'Terminating' || !pod.ready) return 'wait';
  return 'good';
}

// standing is a pod's state in a word or two.
export function standing(pod) {
  if (pod.phase === 'Running' && pod.ready) return 'Ready';
  const why = pod.containers.map((c) => c.reason).find((r) => r && r !== 'Completed' && r !== 'PodInitializing' && r !== 'ContainerCreating');
  if (pod.phase === 'Terminating' || pod.phase === 'Succeeded') return pod.phase;
  return why || (pod.phase === 'Running' ? 'Not ready' : pod.reason || pod.phase);
}
