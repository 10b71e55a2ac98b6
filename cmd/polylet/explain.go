package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
)

func newExplainCommand() *cobra.Command {
	cmd := inspectCommand("explain [NAMESPACE/]POD", "Show what a pod waits for, since when and why, and what happened to it", cobra.ExactArgs(1),
		func(cmd *cobra.Command, dir string, args []string) error {
			p, err := dialPodsync(dir)
			if err != nil {
				return err
			}
			defer p.conn.Close()
			resp, err := p.explain(cmd.Context(), podRef(args[0]))
			if err != nil {
				return err
			}
			return showExplanation(cmd.OutOrStdout(), resp, time.Now())
		})
	return cmd
}

// podRef reads namespace/name or name, which is in namespace default.
func podRef(text string) *podsyncv1.PodRef {
	if namespace, name, ok := strings.Cut(text, "/"); ok {
		return &podsyncv1.PodRef{Namespace: namespace, Name: name}
	}
	return &podsyncv1.PodRef{Namespace: "default", Name: text}
}

func showExplanation(out io.Writer, resp *podsyncv1.ExplainPodResponse, now time.Time) error {
	pod := resp.GetPod()
	fmt.Fprintf(out, "%s/%s (uid %s): %s\n", pod.GetNamespace(), pod.GetName(), pod.GetUid(), resp.GetPhase())
	if len(resp.GetWaits()) == 0 {
		fmt.Fprintln(out, "It waits for nothing.")
	}
	for _, w := range resp.GetWaits() {
		fmt.Fprintf(out, "waits for %s, since %s\n", describe(w), age(stamp(w.GetSince()), now))
		if w.GetAdvice() != "" {
			fmt.Fprintf(out, "  to do: %s\n", w.GetAdvice())
		}
		if retry := stamp(w.GetRetryTime()); !retry.IsZero() {
			fmt.Fprintf(out, "  next try in %s\n", max(retry.Sub(now), 0).Round(100*time.Millisecond))
		}
	}
	if len(resp.GetTimeline()) == 0 {
		return nil
	}
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "TIME\tSTEP\tOBJECT\tTOOK\tERROR")
	for _, e := range resp.GetTimeline() {
		took := "-"
		if e.GetDuration() != nil {
			took = e.GetDuration().AsDuration().Round(time.Millisecond).String()
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", stamp(e.GetTime()).Local().Format("15:04:05.000"), e.GetStep(),
			orDash(e.GetObject()), took, orDash(oneLine(e.GetError())))
	}
	return w.Flush()
}

// stamp is a proto's time; unset is the zero time, not 1970.
func stamp(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}
