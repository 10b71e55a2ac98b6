package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protojson"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/internal/oomlimit"
	"github.com/polylet/polylet/internal/service"
)

// oomKills asks stats which processes of a pod the kernel has killed for lack of memory,
// of the newest that it knows. podsync knows of none that was not the first of its container.
func oomKills(ctx context.Context, dir, podUID string) ([]*statsv1.OOMKill, error) {
	conn, err := dial(dir, service.Stats)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	stream, err := statsv1.NewStatsServiceClient(conn).WatchOOMKills(ctx, &statsv1.WatchOOMKillsRequest{})
	if err != nil {
		return nil, explainCall(service.Stats, err)
	}
	frame, err := stream.Recv()
	if err != nil {
		return nil, explainCall(service.Stats, err)
	}
	return killsOf(podUID, frame.GetKills()), nil
}

// killsOf are those of one pod, never nil.
func killsOf(podUID string, kills []*statsv1.OOMKill) []*statsv1.OOMKill {
	out := []*statsv1.OOMKill{}
	for _, k := range kills {
		if podUID != "" && k.GetPodUid() == podUID {
			out = append(out, k)
		}
	}
	return out
}

func showOOMKills(out io.Writer, kills []*statsv1.OOMKill) {
	head := "\nThe kernel has killed for lack of memory:\n"
	for _, k := range kills {
		fmt.Fprintf(out, "%s  %s  process %s (pid %d) of container %s, for %s was used up\n", head, stamp(k.GetTime()).Local().Format("2006-01-02 15:04:05"),
			oneLine(k.GetProcess()), k.GetPid(), orDash(k.GetContainer()), oomlimit.UsedUp(k.GetPodUid(), k.GetSystem(), k.GetCgroup(), k.GetLimitCgroup()))
		head = ""
	}
}

// podDocument is what podsync says as JSON, and beside it under oomKills which of the pod's
// processes the kernel has killed; that is missing where stats does not say.
func podDocument(resp *podsyncv1.ExplainPodResponse, kills []*statsv1.OOMKill) func() ([]byte, error) {
	return func() ([]byte, error) {
		raw, err := protojson.Marshal(resp)
		if err != nil || kills == nil {
			return raw, err
		}
		list := []json.RawMessage{}
		for _, k := range kills {
			raw, err := protojson.Marshal(k)
			if err != nil {
				return nil, err
			}
			list = append(list, raw)
		}
		return withField(raw, "oomKills", list)
	}
}

// withField is a JSON object with one more field.
func withField(raw []byte, name string, value any) ([]byte, error) {
	var out map[string]json.RawMessage
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, err
	}
	field, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	out[name] = field
	return json.Marshal(out)
}
