package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	probesv1 "github.com/polylet/polylet/api/gen/polylet/probes/v1"
	"github.com/polylet/polylet/internal/service"
)

// newProbeStatesCommand is what `polylet probes` does for a person; see
// asksAboutProbes.
func newProbeStatesCommand() *cobra.Command {
	cmd := inspectCommand("probes [[NAMESPACE/]POD]", "Show each probe and how its last attempt went", cobra.MaximumNArgs(1),
		func(cmd *cobra.Command, dir string, args []string) error {
			resp, err := probeStates(cmd.Context(), dir, args)
			if err != nil {
				return err
			}
			if done, err := structured(cmd, message(resp)); done {
				return err
			}
			return showProbes(cmd.OutOrStdout(), resp.GetProbes(), time.Now())
		})
	cmd.Long = `Show each probe and how its last attempt went.

"polylet serve probes" runs the service that makes the attempts; so does "polylet probes" when it has flags of the
kubelet, or when systemd or polylet run starts it.`
	cmd.ValidArgsFunction = completePods
	outputFlag(cmd)
	return cmd
}

func probeStates(ctx context.Context, dir string, args []string) (*probesv1.ListProbesResponse, error) {
	conn, err := dial(dir, service.Probes)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	req := &probesv1.ListProbesRequest{}
	if len(args) > 0 {
		ref := podRef(args[0])
		req.Namespace, req.Name = ref.GetNamespace(), ref.GetName()
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	resp, err := probesv1.NewProbesServiceClient(conn).ListProbes(ctx, req)
	if err != nil {
		return nil, explainCall(service.Probes, err)
	}
	return resp, nil
}

func showProbes(out io.Writer, probes []*probesv1.ProbeState, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "NAMESPACE\tPOD\tCONTAINER\tPROBE\tSTANDS\tLAST TRY\tIN A ROW\tAGO\tNEXT IN\tWHAT IT DOES\tIT SAID")
	for _, p := range probes {
		t := p.GetTarget()
		last, ago := "-", "-"
		if at := stamp(p.GetLastAttemptTime()); !at.IsZero() {
			last, ago = "failed", age(at, now)
			if p.GetLastAttemptOk() {
				last = "ok"
			}
		}
		next := "on hold"
		if at := stamp(p.GetNextAttemptTime()); !at.IsZero() {
			next = fmt.Sprintf("%.1fs", max(at.Sub(now), 0).Seconds())
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", t.GetPod().GetNamespace(), t.GetPod().GetName(), t.GetKey().GetContainer(),
			lower(t.GetKey().GetType().String(), "PROBE_TYPE_"), outcome(p.GetOutcome()), last, p.GetStreak(), ago, next,
			handler(t), orDash(oneLine(p.GetMessage())))
	}
	return w.Flush()
}

func outcome(o podsyncv1.ProbeOutcome) string {
	if o == podsyncv1.ProbeOutcome_PROBE_OUTCOME_UNSPECIFIED {
		return "unknown"
	}
	return lower(o.String(), "PROBE_OUTCOME_")
}

func lower(text, prefix string) string { return strings.ToLower(strings.TrimPrefix(text, prefix)) }

// handler says in few words what a probe does; arguments and headers may be
// secret and are left out.
func handler(t *podsyncv1.ProbeTarget) string {
	host := func(h string) string {
		if h == "" {
			return t.GetPodIp()
		}
		return h
	}
	switch h := t.GetHandler().(type) {
	case *podsyncv1.ProbeTarget_HttpGet:
		return fmt.Sprintf("GET %s://%s:%d%s", h.HttpGet.GetScheme(), host(h.HttpGet.GetHost()), h.HttpGet.GetPort(), h.HttpGet.GetPath())
	case *podsyncv1.ProbeTarget_TcpSocket:
		return fmt.Sprintf("tcp %s:%d", host(h.TcpSocket.GetHost()), h.TcpSocket.GetPort())
	case *podsyncv1.ProbeTarget_Grpc:
		return fmt.Sprintf("grpc %s:%d %s", t.GetPodIp(), h.Grpc.GetPort(), h.Grpc.GetService())
	case *podsyncv1.ProbeTarget_Exec:
		if c := h.Exec.GetCommand(); len(c) > 0 {
			return "exec " + c[0]
		}
		return "exec"
	}
	return "-"
}
