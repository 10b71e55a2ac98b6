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
			// The rest is worth showing without it.
			kills, err := oomKills(cmd.Context(), dir, resp.GetPod().GetUid())
			if err != nil {
				defer fmt.Fprintf(cmd.ErrOrStderr(), "Which of its processes the kernel has killed for lack of memory is not known: %v\n", err)
			}
			if done, err := structured(cmd, podDocument(resp, kills)); done {
				return err
			}
			if err := showExplanation(cmd.OutOrStdout(), resp, time.Now()); err != nil {
				return err
			}
			showOOMKills(cmd.OutOrStdout(), kills)
			return nil
		})
	cmd.Long = "Show what a pod waits for: image, sandbox and network, each volume, admission, probe, back-off,\ntermination, apiserver; since when, why, and what to do. Below it what happened to the pod, and which of its\nprocesses the kernel has killed for lack of memory. A pod that is gone is known for a quarter of an hour."
	cmd.Example = "  polylet explain web\n  polylet explain kube-system/dns -o yaml\n  polylet explain node"
	cmd.ValidArgsFunction = completePods
	outputFlag(cmd)
	cmd.AddCommand(newExplainNodeCommand())
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
	fmt.Fprintf(out, "%s/%s (uid %s): %s\n", pod.GetNamespace(), pod.GetName(), pod.GetUid(), state(resp, now))
	if resp.GetMessage() != "" || resp.GetReason() != "" {
		fmt.Fprintln(out, oneLine(strings.TrimPrefix(resp.GetReason()+": "+resp.GetMessage(), ": ")))
	}
	if len(resp.GetWaits()) == 0 && resp.GetGoneTime() == nil {
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
	if n := resp.GetDroppedEntries(); n > 0 {
		fmt.Fprintf(out, "(%d earlier entries are not kept)\n", n)
	}
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "TIME\tSTEP\tOBJECT\tTOOK\tWHAT CAME OF IT")
	for _, e := range resp.GetTimeline() {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", stamp(e.GetTime()).Local().Format("15:04:05.000"), e.GetStep(),
			orDash(e.GetObject()), took(e, now), orDash(cameOf(e)))
	}
	return w.Flush()
}

func state(resp *podsyncv1.ExplainPodResponse, now time.Time) string {
	switch {
	case resp.GetGoneTime() != nil && len(resp.GetWaits()) > 0:
		return "nothing of it is left on the node since " + age(stamp(resp.GetGoneTime()), now)
	case resp.GetGoneTime() != nil:
		return "gone since " + age(stamp(resp.GetGoneTime()), now)
	case resp.GetPhase() == "":
		return "Pending"
	default:
		return resp.GetPhase()
	}
}

func took(e *podsyncv1.TimelineEntry, now time.Time) string {
	switch {
	case e.GetRunning():
		return "for " + max(now.Sub(stamp(e.GetTime())), 0).Round(100*time.Millisecond).String()
	case e.GetDuration() == nil:
		return "-"
	case e.GetDuration().AsDuration() < time.Millisecond:
		return "<1ms"
	}
	return e.GetDuration().AsDuration().Round(time.Millisecond).String()
}

// cameOf is the error or what else is to be said of an entry.
func cameOf(e *podsyncv1.TimelineEntry) string {
	var parts []string
	for _, text := range []string{oneLine(e.GetDetail()), oneLine(e.GetError())} {
		if text != "" {
			parts = append(parts, text)
		}
	}
	if e.GetCount() > 1 {
		parts = append(parts, fmt.Sprintf("(%d times since %s)", e.GetCount(), stamp(e.GetFirstTime()).Local().Format("15:04:05")))
	}
	return strings.Join(parts, "; ")
}

// stamp is a proto's time; unset is the zero time, not 1970.
func stamp(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}
