package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
)

// openWithin bounds how long the runtime may take to prepare a session.
const openWithin = 30 * time.Second

// defaultContainer is kubectl's annotation.
const defaultContainer = "kubectl.kubernetes.io/default-container"

// find returns the pod that a person means by [NAMESPACE/]POD. Of several of
// one name, it is the one that is not being deleted.
func (p *podsyncPeer) find(ctx context.Context, text string) (*v1.Pod, error) {
	pods, err := p.list(ctx)
	if err != nil {
		return nil, err
	}
	ref := podRef(text)
	var found *v1.Pod
	var elsewhere []string
	for _, pod := range pods {
		switch {
		case pod.Name != ref.GetName():
		case pod.Namespace != ref.GetNamespace():
			elsewhere = append(elsewhere, pod.Namespace+"/"+pod.Name)
		case found == nil || found.DeletionTimestamp != nil:
			found = pod
		}
	}
	if found != nil {
		return found, nil
	}
	if _, waits := p.unheard(ctx, pods); waits {
		return nil, notKnownYet(ref)
	}
	return nil, noSuchPod(ref, elsewhere)
}

func noSuchPod(ref *podsyncv1.PodRef, elsewhere []string) error {
	if len(elsewhere) > 0 {
		slices.Sort(elsewhere)
		return fmt.Errorf("no pod %s/%s on this node: did you mean %s?", ref.GetNamespace(), ref.GetName(), strings.Join(elsewhere, " or "))
	}
	return fmt.Errorf("no pod %s/%s on this node: polylet pods lists the pods", ref.GetNamespace(), ref.GetName())
}

func refOf(pod *v1.Pod) *podsyncv1.PodRef {
	return &podsyncv1.PodRef{Namespace: pod.Namespace, Name: pod.Name, Uid: string(pod.UID)}
}

// containerNames lists a pod's containers of all kinds, the ordinary ones first.
func containerNames(pod *v1.Pod) []string {
	var names []string
	for _, list := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			names = append(names, list[i].Name)
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		names = append(names, pod.Spec.EphemeralContainers[i].Name)
	}
	return names
}

// chooseContainer returns the container that was asked for, or the default one,
// and says to a person which others there are.
func chooseContainer(pod *v1.Pod, asked string, hints io.Writer) (string, error) {
	names := containerNames(pod)
	if asked != "" {
		if !slices.Contains(names, asked) {
			return "", fmt.Errorf("pod %s/%s has no container %s: it has %s", pod.Namespace, pod.Name, asked, strings.Join(names, ", "))
		}
		return asked, nil
	}
	if name := pod.Annotations[defaultContainer]; slices.Contains(names, name) {
		return name, nil
	}
	if len(names) > 1 {
		fmt.Fprintf(hints, "container %s of %s; -c chooses\n", names[0], strings.Join(names, ", "))
	}
	return names[0], nil
}
