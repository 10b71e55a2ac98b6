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

	"github.com/spf13/cobra"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/internal/service"
)

func newTopCommand() *cobra.Command {
	var sortBy string
	var containers bool
	cmd := inspectCommand("top [[NAMESPACE/]POD]", "Show what the node and its pods use", cobra.MaximumNArgs(1),
		func(cmd *cobra.Command, dir string, args []string) error {
			raw, err := summary(cmd.Context(), dir)
			if err != nil {
				return err
			}
			if done, err := structured(cmd, func() ([]byte, error) { return raw, nil }); done {
				return err
			}
			s := &statsapi.Summary{}
			if err := json.Unmarshal(raw, s); err != nil {
				return fmt.Errorf("read stats' summary: %w", err)
			}
			if len(args) > 0 {
				ref := podRef(args[0])
				s.Pods = slices.DeleteFunc(s.Pods, func(p statsapi.PodStats) bool {
					return p.PodRef.Namespace != ref.GetNamespace() || p.PodRef.Name != ref.GetName()
				})
				if len(s.Pods) == 0 {
					return fmt.Errorf("stats measures no pod %s/%s: polylet pods lists the pods", ref.GetNamespace(), ref.GetName())
				}
			}
			return showTop(cmd.OutOrStdout(), s, sortBy, containers || len(args) > 0)
		})
	cmd.Example = "  polylet top\n  polylet top --containers --sort-by=memory\n  polylet top kube-system/dns"
	cmd.ValidArgsFunction = completePods
	cmd.Flags().StringVar(&sortBy, "sort-by", "cpu", "cpu, memory or name.")
	cmd.Flags().BoolVar(&containers, "containers", false, "A line for each container too.")
	_ = cmd.RegisterFlagCompletionFunc("sort-by", cobra.FixedCompletions([]string{"cpu", "memory", "name"}, cobra.ShellCompDirectiveNoFileComp))
	outputFlag(cmd)
	return cmd
}

// summary asks stats for its document.
func summary(ctx context.Context, dir string) ([]byte, error) {
	conn, err := dial(dir, service.Stats)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	resp, err := statsv1.NewStatsServiceClient(conn).GetSummary(ctx, &statsv1.GetSummaryRequest{})
	if err != nil {
		return nil, explainCall(service.Stats, err)
	}
	return resp.GetSummaryJson(), nil
}

func showTop(out io.Writer, s *statsapi.Summary, sortBy string, containers bool) error {
	order, err := topOrder(sortBy)
	if err != nil {
		return err
	}
	slices.SortFunc(s.Pods, order)
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "NAMESPACE\tNAME\tCPU\tMEMORY\tEPHEMERAL")
	disk := uint64(0)
	if s.Node.Fs != nil {
		disk = value(s.Node.Fs.UsedBytes)
	}
	fmt.Fprintf(w, "-\t(node %s)\t%s\t%s\t%s\n", s.Node.NodeName, millicores(s.Node.CPU), memory(s.Node.Memory), mebibytes(disk))
	for i := range s.Pods {
		p := &s.Pods[i]
		disk := uint64(0)
		if p.EphemeralStorage != nil {
			disk = value(p.EphemeralStorage.UsedBytes)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", p.PodRef.Namespace, p.PodRef.Name, millicores(p.CPU), memory(p.Memory), mebibytes(disk))
		for j := range p.Containers {
			if c := &p.Containers[j]; containers {
				fmt.Fprintf(w, "\t  %s\t%s\t%s\t\n", c.Name, millicores(c.CPU), memory(c.Memory))
			}
		}
	}
	return w.Flush()
}

func topOrder(by string) (func(a, b statsapi.PodStats) int, error) {
	byName := func(a, b statsapi.PodStats) int {
		return cmp.Or(strings.Compare(a.PodRef.Namespace, b.PodRef.Namespace), strings.Compare(a.PodRef.Name, b.PodRef.Name))
	}
	switch by {
	case "name":
		return byName, nil
	case "cpu":
		return func(a, b statsapi.PodStats) int { return cmp.Or(cmp.Compare(cores(b.CPU), cores(a.CPU)), byName(a, b)) }, nil
	case "memory":
		return func(a, b statsapi.PodStats) int {
			return cmp.Or(cmp.Compare(workingSet(b.Memory), workingSet(a.Memory)), byName(a, b))
		}, nil
	}
	return nil, fmt.Errorf("--sort-by %s: use cpu, memory or name", by)
}

func cores(c *statsapi.CPUStats) uint64 {
	if c == nil {
		return 0
	}
	return value(c.UsageNanoCores)
}

func workingSet(m *statsapi.MemoryStats) uint64 {
	if m == nil {
		return 0
	}
	return value(m.WorkingSetBytes)
}

func millicores(c *statsapi.CPUStats) string {
	if c == nil || c.UsageNanoCores == nil {
		return "-"
	}
	return fmt.Sprintf("%dm", (*c.UsageNanoCores+500_000)/1_000_000)
}

func memory(m *statsapi.MemoryStats) string { return mebibytes(workingSet(m)) }

func value(v *uint64) uint64 {
	if v == nil {
		return 0
	}
	return *v
}
