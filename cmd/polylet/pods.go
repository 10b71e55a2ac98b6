package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
)

func newPodsCommand() *cobra.Command {
	return inspectCommand("pods", "Show the node's pods, and what each waits for", cobra.NoArgs,
		func(cmd *cobra.Command, dir string, _ []string) error {
			p, err := dialPodsync(dir)
			if err != nil {
				return err
			}
			defer p.conn.Close()
			pods, err := p.list(cmd.Context())
			if err != nil {
				return err
			}
			return showPods(cmd.OutOrStdout(), pods, waitsOf(cmd.Context(), p, pods), time.Now())
		})
}

// waitsOf asks what the pods that are not ready wait for, by UID. A question
// without an answer is left out: the table is worth showing without it.
func waitsOf(ctx context.Context, p *podsyncPeer, pods []*v1.Pod) map[string]string {
	out := map[string]string{}
	for _, pod := range pods {
		if isReady(pod) && pod.DeletionTimestamp == nil {
			continue
		}
		resp, err := p.explain(ctx, &podsyncv1.PodRef{Namespace: pod.Namespace, Name: pod.Name, Uid: string(pod.UID)})
		if err != nil {
			continue
		}
		if waits := resp.GetWaits(); len(waits) > 0 {
			out[string(pod.UID)] = describe(waits[0])
		}
	}
	return out
}

func describe(w *podsyncv1.Wait) string {
	text := w.GetKind()
	if w.GetObject() != "" {
		text += " " + w.GetObject()
	}
	if w.GetReason() != "" {
		text += ": " + w.GetReason()
	}
	return oneLine(text)
}

func showPods(out io.Writer, pods []*v1.Pod, waits map[string]string, now time.Time) error {
	slices.SortFunc(pods, func(a, b *v1.Pod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "NAMESPACE\tNAME\tPHASE\tREADY\tRESTARTS\tIP\tAGE\tWAITS FOR")
	for _, pod := range pods {
		ready, restarts := counts(pod)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", pod.Namespace, pod.Name, phase(pod), ready, restarts,
			orDash(pod.Status.PodIP), age(bornAt(pod), now), orDash(waits[string(pod.UID)]))
	}
	return w.Flush()
}

func phase(pod *v1.Pod) string {
	switch {
	case pod.DeletionTimestamp != nil:
		return "Terminating"
	case pod.Status.Phase == "":
		return string(v1.PodPending)
	default:
		return string(pod.Status.Phase)
	}
}

func counts(pod *v1.Pod) (ready string, restarts int32) {
	n := 0
	for _, c := range pod.Status.ContainerStatuses {
		if c.Ready {
			n++
		}
		restarts += c.RestartCount
	}
	return fmt.Sprintf("%d/%d", n, len(pod.Spec.Containers)), restarts
}

// bornAt is when the pod was created, or, for a static pod, when it started.
func bornAt(pod *v1.Pod) time.Time {
	if !pod.CreationTimestamp.IsZero() {
		return pod.CreationTimestamp.Time
	}
	if pod.Status.StartTime != nil {
		return pod.Status.StartTime.Time
	}
	return time.Time{}
}

func isReady(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodReady && c.Status == v1.ConditionTrue
	})
}
