package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
)

func newPodsCommand() *cobra.Command {
	cmd := inspectCommand("pods", "Show the node's pods, and what each waits for", cobra.NoArgs,
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
			if names, waits := p.unheard(cmd.Context(), pods); waits {
				defer fmt.Fprintln(cmd.ErrOrStderr(), unheardNote(names))
			}
			if done, err := structured(cmd, podList(pods)); done {
				return err
			}
			return showPods(cmd.OutOrStdout(), pods, waitsOf(cmd.Context(), p), time.Now())
		})
	cmd.Long = "Show the node's pods as podsync has them, static ones and those that wait for their admission included,\nand the gravest thing that each waits for. polylet explain tells the rest."
	outputFlag(cmd)
	return cmd
}

// podList is the pods as a v1.PodList document, as kubectl has it: who may
// read podsync's socket may read the pods' specs.
func podList(pods []*v1.Pod) func() ([]byte, error) {
	return func() ([]byte, error) {
		list := v1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}}
		for _, pod := range pods {
			list.Items = append(list.Items, *pod)
		}
		return json.Marshal(list)
	}
}

// waitsOf asks what pods wait for, by UID. Without an answer it is empty: the
// table is worth showing without it.
func waitsOf(ctx context.Context, p *podsyncPeer) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	out := map[string]string{}
	resp, err := p.sync.ListWaits(ctx, &podsyncv1.ListWaitsRequest{})
	if err != nil {
		return out
	}
	for _, pod := range resp.GetPods() {
		out[pod.GetPod().GetUid()] = describe(pod.GetWaits()[0])
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
