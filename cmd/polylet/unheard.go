package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
)

// mostUnheard is how many pods a note names.
const mostUnheard = 20

// unheard are the pods, as NAMESPACE/NAME, that run and are none of pods, while podsync
// has not heard all that tells it of pods: after a restart while the apiserver is away
// these are all of the apiserver's. waits is false once it has, and when it does not say.
func (p *podsyncPeer) unheard(ctx context.Context, pods []*v1.Pod) (names []string, waits bool) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	state, err := p.sync.GetRuntime(ctx, &podsyncv1.GetRuntimeRequest{})
	if err != nil || state.GetSourcesReadyTime() != nil {
		return nil, false
	}
	resp, err := p.sync.ListRuntimePods(ctx, &podsyncv1.ListRuntimePodsRequest{})
	if err != nil {
		return nil, true
	}
	for _, raw := range resp.GetPods() {
		var running v1.Pod
		if running.Unmarshal(raw) != nil || slices.ContainsFunc(pods, func(pod *v1.Pod) bool { return pod.UID == running.UID }) {
			continue
		}
		names = append(names, running.Namespace+"/"+running.Name)
	}
	slices.Sort(names)
	return names, true
}

// unheardNote says to a person that a list of pods is not all.
func unheardNote(names []string) string {
	text := "pods may be missing here: since podsync started not all that tells it of pods was heard, the apiserver or manifests; polylet status shows why"
	if len(names) == 0 {
		return text
	}
	more := ""
	if len(names) > mostUnheard {
		names, more = names[:mostUnheard], fmt.Sprintf(" and %d more", len(names)-mostUnheard)
	}
	return text + "\nwhat runs and is not known yet, goes on, and nobody probes it: " + oneLine(strings.Join(names, ", ")) + more
}

// notKnownYet is the error for a pod that is not in the list while the list is not all.
func notKnownYet(ref *podsyncv1.PodRef) error {
	return errors.New(oneLine(fmt.Sprintf("pod %s/%s is not known yet: since podsync started not all that tells it of pods was heard, the apiserver or manifests; polylet status shows why; its logs lie in the node's directory of pod logs (/var/log/pods)",
		ref.GetNamespace(), ref.GetName())))
}
