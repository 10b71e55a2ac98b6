package inventory

import (
	"cmp"
	"slices"
)

// PresentPod is a pod of which something runs, or is left.
type PresentPod struct {
	// Sandbox is its newest one that is ready; of a pod without one it says only whose it
	// would be.
	Sandbox Sandbox
	// Containers are those that run, of each name the newest instance. Ended are the newest
	// instances that do not run, and Older all others: the runtime keeps what they have
	// written until they are removed.
	Containers, Ended, Older []Container
	// Volumes are the pod's.
	Volumes []Volume
}

// Pods returns the pods with a ready sandbox: the newest sandbox of each, and
// of each container name the newest attempt when it runs. Sorted by namespace,
// name and UID, containers by name.
func (v View) Pods() []PresentPod {
	out := slices.DeleteFunc(v.Kept(), func(p PresentPod) bool { return !p.Sandbox.Ready })
	for i := range out {
		out[i].Ended, out[i].Older = nil, nil
	}
	return out
}

// Kept returns all pods that may have something on the node's disks, also those without a
// ready sandbox, in the order of Pods. All containers of a pod are there, by name, the
// newest first.
func (v View) Kept() []PresentPod {
	pods := map[string]*PresentPod{}
	of := func(whose Pod) *PresentPod {
		p := pods[whose.UID]
		if p == nil {
			p = &PresentPod{Sandbox: Sandbox{Pod: whose}}
			pods[whose.UID] = p
		}
		return p
	}
	for _, s := range v.Sandboxes {
		if !s.Ready {
			continue
		}
		if p := of(s.Pod); !p.Sandbox.Ready || s.Attempt > p.Sandbox.Attempt {
			p.Sandbox = s
		}
	}
	for _, volumes := range v.Volumes {
		of(volumes.Pod).Volumes = volumes.Volumes
	}
	for _, c := range v.Containers {
		p := of(c.Pod)
		p.Older = append(p.Older, c)
	}
	out := make([]PresentPod, 0, len(pods))
	for _, p := range pods {
		p.part()
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b PresentPod) int { return comparePods(a.Sandbox.Pod, b.Sandbox.Pod) })
	return out
}

// part sorts the containers of a pod, all of which are in Older.
func (p *PresentPod) part() {
	all := p.Older
	p.Older = nil
	slices.SortFunc(all, func(a, b Container) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(b.Attempt, a.Attempt), cmp.Compare(a.ID, b.ID))
	})
	for i, c := range all {
		switch {
		case i > 0 && all[i-1].Name == c.Name:
			p.Older = append(p.Older, c)
		case c.Running:
			p.Containers = append(p.Containers, c)
		default:
			p.Ended = append(p.Ended, c)
		}
	}
}

func comparePods(a, b Pod) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

// ByUID returns the pod with this UID, from its sandboxes.
func (v View) ByUID() map[string]Pod {
	out := make(map[string]Pod, len(v.Sandboxes))
	for _, s := range v.Sandboxes {
		out[s.Pod.UID] = s.Pod
	}
	return out
}
