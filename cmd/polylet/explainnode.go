package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/api/resource"

	nodestatusv1 "github.com/polylet/polylet/api/gen/polylet/nodestatus/v1"
	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/service"
)

// newExplainNodeCommand is `polylet explain node`.
func newExplainNodeCommand() *cobra.Command {
	cmd := inspectCommand("node", "Show what the node is short of, since when, what was reclaimed, which pods were considered and evicted, and why", cobra.NoArgs,
		func(cmd *cobra.Command, dir string, _ []string) error {
			conn, err := dial(dir, service.Nodestatus)
			if err != nil {
				return err
			}
			defer conn.Close()
			ctx, cancel := context.WithTimeout(cmd.Context(), answerWithin)
			defer cancel()
			resp, err := nodestatusv1.NewNodeStatusServiceClient(conn).ListEvictionDecisions(ctx, &nodestatusv1.ListEvictionDecisionsRequest{})
			if err != nil {
				return fmt.Errorf("ask nodestatus what the node is short of: %w", err)
			}
			waiting := putOff(ctx, dir)
			if done, err := structured(cmd, nodeDocument(resp, waiting)); done {
				return err
			}
			now := time.Now()
			if err := showShortages(cmd.OutOrStdout(), resp, now); err != nil {
				return err
			}
			showPutOff(cmd.OutOrStdout(), waiting, now)
			return nil
		})
	cmd.Long = "Show what the node is short of and since when, and the newest decisions about it, the newest last: what was\nreclaimed, which pods were considered with which figures, which one was evicted, and why; at last the pods\nwhose start is put off because others of their controller were evicted. A pod that is called node is explained\nby polylet explain default/node."
	outputFlag(cmd)
	return cmd
}

// silent is after how long without signals what they say is told with their age: stats
// sends some every ten seconds.
const silent = 30 * time.Second

func showShortages(out io.Writer, resp *nodestatusv1.ListEvictionDecisionsResponse, now time.Time) error {
	at := resp.GetSignalsTime()
	old := at != nil && now.Sub(at.AsTime()) >= silent
	if old {
		fmt.Fprintf(out, "It is not known what the node is short of now: stats has told nothing for %s (polylet status says why), and no pod is evicted for a shortage meanwhile. Before that:\n", age(stamp(at), now))
	}
	short := slices.Concat(resp.GetShortages(), resp.GetWaits())
	switch {
	case at == nil:
		fmt.Fprintf(out, "It is not known what the node is short of: nodestatus has heard no figures of stats since it was started%s (polylet status says why).\n", ago(resp.GetBeganTime(), now))
	case len(short) == 0 && old:
		fmt.Fprintln(out, "The node was short of nothing.")
	case len(short) == 0:
		fmt.Fprintln(out, "The node is short of nothing.")
	}
	for _, s := range short {
		fmt.Fprintf(out, "short of %s, since %s%s\n", shortageText(s), age(stamp(s.GetSince()), now), dueText(s, now))
	}
	if len(resp.GetConditions()) > 0 {
		fmt.Fprintf(out, "It has %s; a condition comes with a shortage, whatever its grace period, and stays for a while after it.\n", strings.Join(resp.GetConditions(), ", "))
	}
	for _, d := range resp.GetDecisions() {
		if err := showDecision(out, d); err != nil {
			return err
		}
	}
	return nil
}

// ago is how long ago something was; nothing where that is not known.
func ago(at *timestamppb.Timestamp, now time.Time) string {
	if at == nil {
		return ""
	}
	return fmt.Sprintf(" %s ago", age(stamp(at), now))
}

// dueText says when a shortage is acted upon; nothing where that is now.
func dueText(s *nodestatusv1.Shortage, now time.Time) string {
	if s.GetDueTime() == nil {
		return ""
	}
	return fmt.Sprintf("; nothing is reclaimed or evicted for it before its grace period is over, in %s", max(0, stamp(s.GetDueTime()).Sub(now)).Round(time.Second))
}

// nodeDocument is what nodestatus says as JSON, and beside it under putOff which pods wait;
// that is missing where podsync does not say.
func nodeDocument(resp *nodestatusv1.ListEvictionDecisionsResponse, waiting []*podsyncv1.PodWaits) func() ([]byte, error) {
	return func() ([]byte, error) {
		raw, err := protojson.Marshal(resp)
		if err != nil || waiting == nil {
			return raw, err
		}
		list := []json.RawMessage{}
		for _, pod := range waiting {
			short := &podsyncv1.PodWaits{Pod: pod.GetPod(), Waits: slices.DeleteFunc(slices.Clone(pod.GetWaits()), func(w *podsyncv1.Wait) bool { return w.GetKind() != "pressure" })}
			if len(short.GetWaits()) == 0 {
				continue
			}
			raw, err := protojson.Marshal(short)
			if err != nil {
				return nil, err
			}
			list = append(list, raw)
		}
		return withField(raw, "putOff", list)
	}
}

// putOff asks podsync which pods wait though they were admitted, because the node is short
// of something; nil without an answer: the rest is worth showing without it.
func putOff(ctx context.Context, dir string) []*podsyncv1.PodWaits {
	conn, err := dial(dir, service.Podsync)
	if err != nil {
		return nil
	}
	defer conn.Close()
	resp, err := podsyncv1.NewPodSyncServiceClient(conn).ListWaits(ctx, &podsyncv1.ListWaitsRequest{})
	if err != nil {
		return nil
	}
	return append([]*podsyncv1.PodWaits{}, resp.GetPods()...)
}

func showPutOff(out io.Writer, pods []*podsyncv1.PodWaits, now time.Time) {
	head := "\nPods whose start is put off:\n"
	for _, pod := range pods {
		for _, w := range pod.GetWaits() {
			if w.GetKind() != "pressure" {
				continue
			}
			fmt.Fprintf(out, "%s  %s/%s for %s more: %s\n", head, pod.GetPod().GetNamespace(), pod.GetPod().GetName(),
				max(0, stamp(w.GetRetryTime()).Sub(now)).Round(time.Second), oneLine(w.GetReason()))
			head = ""
		}
	}
}

func shortageText(s *nodestatusv1.Shortage) string {
	kind := "soft"
	if s.GetHard() {
		kind = "hard"
	}
	if strings.HasSuffix(s.GetSignal(), ".limit") {
		return fmt.Sprintf("%s: %s allowed, %s used", s.GetSignal(), s.GetThreshold(), s.GetAvailable())
	}
	return fmt.Sprintf("%s: %s left, the %s threshold is %s", s.GetSignal(), s.GetAvailable(), kind, s.GetThreshold())
}

func showDecision(out io.Writer, d *nodestatusv1.EvictionDecision) error {
	fmt.Fprintf(out, "\n%s  %s\n", stamp(d.GetTime()).Local().Format("2006-01-02 15:04:05.000"), shortageText(d.GetShortage()))
	if d.GetCount() > 1 {
		fmt.Fprintf(out, "  decided %d times since %s\n", d.GetCount(), stamp(d.GetFirstTime()).Local().Format("15:04:05"))
	}
	if r := d.GetReclaimed(); r != nil {
		fmt.Fprintf(out, "  reclaimed: %d containers, %d images (%s)\n", r.GetContainers(), r.GetImages(), bytesText(int64(min(r.GetImageBytes(), 1<<62)))) //nolint:gosec // Bounded.
		if r.GetError() != "" {
			fmt.Fprintf(out, "    not all of it: %s\n", oneLine(r.GetError()))
		}
	}
	fmt.Fprintf(out, "  %s\n", outcomeText(d))
	if len(d.GetCandidates()) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(out, 2, 8, 2, ' ', 0)
	fmt.Fprintln(w, "  CONSIDERED\tUSES\tASKED FOR\tEXCEEDS\tPRIORITY\tNOT EVICTED BECAUSE")
	for _, c := range d.GetCandidates() {
		exceeds := "no"
		if c.GetExceeds() {
			exceeds = "yes"
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%d\t%s\n", c.GetPod(), figure(d, c.GetUsage()), figure(d, c.GetRequest()), exceeds, c.GetPriority(), orDash(c.GetNot()))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if n := d.GetMoreCandidates(); n > 0 {
		fmt.Fprintf(out, "  and %d more\n", n)
	}
	return nil
}

// outcomeText says what was done and why.
func outcomeText(d *nodestatusv1.EvictionDecision) string {
	why := oneLine(d.GetWhy())
	if file := d.GetLargestFile(); file != "" {
		why += fmt.Sprintf(", the largest of them %q", file)
	}
	switch d.GetOutcome() {
	case "evicted":
		return fmt.Sprintf("evicted %s (it has %s to end): %s", d.GetChosen(), d.GetGrace().AsDuration(), why)
	case "reclaimed":
		return "evicted nobody: " + why
	case "nobody":
		return "could evict nobody: " + why
	case "refused":
		return fmt.Sprintf("would have evicted %s: %s", d.GetChosen(), why)
	case "hastened":
		return fmt.Sprintf("gave %s less time (it has %s to end): %s", d.GetChosen(), d.GetGrace().AsDuration(), why)
	case "held":
		return "did nothing: " + why
	}
	return fmt.Sprintf("%s: %s", d.GetOutcome(), why) // of a newer nodestatus
}

// figure is an amount of what is short.
func figure(d *nodestatusv1.EvictionDecision, n int64) string {
	if s := d.GetShortage().GetSignal(); s == "pid.available" || strings.HasSuffix(s, ".inodesFree") {
		return fmt.Sprint(n)
	}
	return bytesText(n)
}

func bytesText(n int64) string { return resource.NewQuantity(n, resource.BinarySI).String() }
