package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/internal/service"
)

func newVolumesCommand() *cobra.Command {
	cmd := inspectCommand("volumes [[NAMESPACE/]POD]", "Show the pods' volumes: how each stands, how full it is, and what it waits for", cobra.MaximumNArgs(1),
		func(cmd *cobra.Command, dir string, args []string) error {
			resp, err := volumesOf(cmd.Context(), dir, args)
			if err != nil {
				return err
			}
			if done, err := structured(cmd, message(resp)); done {
				return err
			}
			// The table is worth showing without what stats measures.
			raw, err := summary(cmd.Context(), dir)
			if err != nil {
				defer fmt.Fprintf(cmd.ErrOrStderr(), "How full the volumes are is not known: %v\n", err)
			}
			return showVolumes(cmd.OutOrStdout(), resp.GetPods(), fullness(raw), time.Now())
		})
	cmd.Long = `Show the pods' volumes: how each stands, how full it is, and what it waits for.
A row without a pod is a volume that no pod of this node has any more and that could not be unstaged:
the node says that it is in use, and a pod of another node may wait for it.

Drivers and servers are not asked: what is shown is what podsync knows and what stats has measured last.
polylet explain tells the rest of a pod.`
	cmd.Example = "  polylet volumes\n  polylet volumes kube-system/dns -o yaml"
	cmd.ValidArgsFunction = completePods
	outputFlag(cmd)
	return cmd
}

func volumesOf(ctx context.Context, dir string, args []string) (*podsyncv1.ListVolumesResponse, error) {
	p, err := dialPodsync(dir)
	if err != nil {
		return nil, err
	}
	defer p.conn.Close()
	req := &podsyncv1.ListVolumesRequest{}
	if len(args) > 0 {
		ref := podRef(args[0])
		req.Namespace, req.Name = ref.GetNamespace(), ref.GetName()
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	resp, err := p.sync.ListVolumes(ctx, req)
	switch {
	case errors.Is(err, rpcerr.ErrNotFound) && len(args) > 0:
		return nil, fmt.Errorf("the node has no pod %s/%s: polylet pods lists the pods", req.GetNamespace(), req.GetName())
	case err != nil:
		return nil, explainCall(service.Podsync, err)
	}
	return resp, nil
}

// measuredVolume is whose a figure of stats is.
type measuredVolume struct{ uid, name string }

// fullness is what stats has measured of the volumes; nothing when its document cannot be read.
func fullness(raw []byte) map[measuredVolume]statsapi.FsStats {
	s := &statsapi.Summary{}
	if json.Unmarshal(raw, s) != nil {
		return nil
	}
	out := map[measuredVolume]statsapi.FsStats{}
	for i := range s.Pods {
		for _, v := range s.Pods[i].VolumeStats {
			out[measuredVolume{s.Pods[i].PodRef.UID, v.Name}] = v.FsStats
		}
	}
	return out
}

func showVolumes(out io.Writer, pods []*podsyncv1.PodVolumeStates, full map[measuredVolume]statsapi.FsStats, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "NAMESPACE\tPOD\tVOLUME\tPLUGIN\tCLAIM\tPV\tSTANDS\tUSED\tOF\tWAITS FOR")
	for _, pod := range pods {
		for _, v := range pod.GetVolumes() {
			fs := full[measuredVolume{pod.GetPod().GetUid(), v.GetName()}]
			waits := waitOf(v, now)
			if pod.GetPod() == nil && v.GetHostPath() != "" { // what keeps it has to be looked for there
				waits = fmt.Sprintf("at %s: %s", v.GetHostPath(), waits)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", orDash(pod.GetPod().GetNamespace()), orDash(pod.GetPod().GetName()), v.GetName(),
				pluginOf(v), orDash(v.GetPvcName()), orDash(v.GetPvName()), lower(v.GetStanding().String(), "VOLUME_STANDING_"),
				mebibytes(value(fs.UsedBytes)), mebibytes(value(fs.CapacityBytes)), orDash(waits))
		}
	}
	return w.Flush()
}

func pluginOf(v *podsyncv1.VolumeState) string {
	if v.GetDriver() != "" {
		return v.GetDriver()
	}
	return v.GetPlugin()
}

// waitOf is the gravest thing that a volume waits for, with its age.
func waitOf(v *podsyncv1.VolumeState, now time.Time) string {
	if len(v.GetWaits()) == 0 {
		return ""
	}
	wait := v.GetWaits()[0]
	return fmt.Sprintf("%s (for %s)", oneLine(wait.GetReason()), age(stamp(wait.GetSince()), now))
}
