package sim

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// hookBegins notes that the hook after the start of a container is still to run.
func (j *judge) hookBegins(tr fakecri.Transition, f *facts) {
	for _, c := range f.sub.pod.Spec.Containers {
		if c.Name == tr.Name && c.Lifecycle != nil && c.Lifecycle.PostStart != nil {
			j.hooking[tr.ID] = true
		}
	}
}

// hookOver notes that the hook of a container has ended, or that podsync cannot
// know that it runs.
func (j *judge) hookOver(id string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.hooking, id)
}

// hooked checks that a regular container is started after the postStart hooks of
// the running ones before it.
func (j *judge) hooked(tr fakecri.Transition, f *facts) {
	all := f.sub.pod.Spec.Containers
	mine := slices.IndexFunc(all, func(c v1.Container) bool { return c.Name == tr.Name })
	for i := range max(mine, 0) {
		for id := range j.record(tr.PodUID, all[i].Name).live {
			if j.hooking[id] {
				j.violationLocked("container %s of pod %s was started before the postStart hook of %s was over", tr.Name, tr.Pod, all[i].Name)
			}
		}
	}
}
