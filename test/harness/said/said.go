// Package said writes down what a node says of a pod that it has evicted, so that two
// nodes can be compared. It must never judge what should have been said.
package said

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

var (
	amount = regexp.MustCompile(`\b\d+([KMG]i)?\b`)
	larger = regexp.MustCompile(`Container \S+ was using N, request is N, has larger consumption of (ephemeral-storage|inodes)\. `)
)

// Evicted is what a pod's status and its events say in one line, without what depends on
// the machine and the moment: amounts, and of disks which container has more, for the
// kubelet says that only where its figures are new.
func Evicted(p *corev1.Pod, events []corev1.Event) string {
	parts := []string{string(p.Status.Phase), p.Status.Reason, plain(p.Status.Message), "class " + string(p.Status.QOSClass)}
	var conditions []string
	for _, c := range p.Status.Conditions {
		conditions = append(conditions, fmt.Sprintf("%s %s %q %q", c.Type, c.Status, c.Reason, plain(c.Message)))
	}
	slices.Sort(conditions)
	parts = append(parts, conditions...)
	for _, e := range events {
		text := fmt.Sprintf("event %s %s %q", e.Type, e.Reason, plain(e.Message))
		for _, key := range slices.Sorted(maps.Keys(e.Annotations)) {
			if key == "starved_resource" || e.Annotations["starved_resource"] == "memory" {
				text += fmt.Sprintf(" %s=%s", key, amount.ReplaceAllString(e.Annotations[key], "N"))
			}
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " | ")
}

// plain is a text without its amounts; those of limits are the pod's own.
func plain(text string) string {
	if !strings.HasPrefix(text, "The node was low on resource") {
		return text
	}
	return larger.ReplaceAllString(amount.ReplaceAllString(text, "N"), "")
}

// InOrder are those of the pods that went for what the node was short of, first those that
// went first.
func InOrder(pods []corev1.Pod) []string {
	at := map[string]time.Time{}
	for i := range pods {
		for _, c := range pods[i].Status.Conditions {
			if c.Type == corev1.DisruptionTarget && pods[i].Status.Reason == "Evicted" {
				at[pods[i].Name] = c.LastTransitionTime.Time
			}
		}
	}
	return slices.SortedFunc(maps.Keys(at), func(a, b string) int { return cmp.Or(at[a].Compare(at[b]), strings.Compare(a, b)) })
}

// Record is the order, and then what is said of each pod that was evicted and that wanted
// names; without wanted, of each.
func Record(pods []corev1.Pod, events func(pod string) []corev1.Event, wanted func(pod string) bool) []string {
	out := []string{"in order: " + strings.Join(InOrder(pods), " ")}
	for i := range pods {
		p := &pods[i]
		if p.Status.Reason == "Evicted" && (wanted == nil || wanted(p.Name)) {
			out = append(out, p.Name+": "+Evicted(p, events(p.Name)))
		}
	}
	return out
}

// Differ is the first line in which what polylet says is not what the kubelet said.
func Differ(polylets, kubelets []string) error {
	for i := range max(len(polylets), len(kubelets)) {
		line := func(of []string) string { return strings.Join(of[min(i, len(of)):min(i+1, len(of))], "") }
		if a, b := line(polylets), line(kubelets); a != b {
			return fmt.Errorf("polylet: %s\nkubelet: %s", a, b)
		}
	}
	return nil
}
