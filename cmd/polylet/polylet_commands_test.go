package main

import (
	"bytes"
	"context"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	commonv1 "github.com/polylet/polylet/api/gen/polylet/common/v1"
	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	probesv1 "github.com/polylet/polylet/api/gen/polylet/probes/v1"
	"github.com/polylet/polylet/internal/buildinfo"
	"github.com/polylet/polylet/internal/kubeletconfig"
)

// fakeNode is a podsync with the pods default/web and kube-system/dns.
type fakeNode struct {
	podsapi.UnimplementedPodsServer
	podsyncv1.UnimplementedPodSyncServiceServer
	commonv1.UnimplementedCommonServiceServer
}

func (fakeNode) ListPods(context.Context, *podsapi.ListPodsRequest) (*podsapi.ListPodsResponse, error) {
	out := &podsapi.ListPodsResponse{}
	for _, pod := range []v1.Pod{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "1"}, Spec: v1.PodSpec{
			Containers: []v1.Container{{Name: "app"}, {Name: "side"}}, InitContainers: []v1.Container{{Name: "init"}},
		}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "dns", UID: "2"}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "dns"}}}},
	} {
		raw, err := pod.Marshal()
		if err != nil {
			return nil, err
		}
		out.Pods = append(out.Pods, raw)
	}
	return out, nil
}

func (fakeNode) ReadLogs(req *podsyncv1.ReadLogsRequest, stream grpc.ServerStreamingServer[podsyncv1.ReadLogsResponse]) error {
	var o v1.PodLogOptions
	if err := o.Unmarshal(req.GetOptions()); err != nil {
		return err
	}
	for _, text := range []string{req.GetPod().GetUid(), " ", req.GetContainer(), " tail ", string(rune('0' + *o.TailLines))} {
		if err := stream.Send(&podsyncv1.ReadLogsResponse{Data: []byte(text)}); err != nil {
			return err
		}
	}
	return nil
}

func (fakeNode) ListWaits(context.Context, *podsyncv1.ListWaitsRequest) (*podsyncv1.ListWaitsResponse, error) {
	return &podsyncv1.ListWaitsResponse{Pods: []*podsyncv1.PodWaits{{
		Pod: &podsyncv1.PodRef{Uid: "2"}, Waits: []*podsyncv1.Wait{{Kind: "image", Object: "i", Reason: "no such image"}},
	}}}, nil
}

func (fakeNode) ExplainPod(_ context.Context, r *podsyncv1.ExplainPodRequest) (*podsyncv1.ExplainPodResponse, error) {
	return &podsyncv1.ExplainPodResponse{Pod: r.GetPod(), Phase: "Running"}, nil
}

func (fakeNode) ListVolumes(_ context.Context, r *podsyncv1.ListVolumesRequest) (*podsyncv1.ListVolumesResponse, error) {
	if r.GetName() == "none" {
		return nil, status.Error(codes.NotFound, "no such pod")
	}
	return &podsyncv1.ListVolumesResponse{Pods: []*podsyncv1.PodVolumeStates{{
		Pod: &podsyncv1.PodRef{Namespace: "default", Name: "web", Uid: "1"},
		Volumes: []*podsyncv1.VolumeState{
			{Name: "data", Plugin: "kubernetes.io/csi", Driver: "csi.x", PvcName: "data-0", PvName: "pv-7", Standing: podsyncv1.VolumeStanding_VOLUME_STANDING_PRESENT},
			{
				Name: "new", Plugin: "kubernetes.io/csi", PvcName: "new-0", Standing: podsyncv1.VolumeStanding_VOLUME_STANDING_WAITING,
				Waits: []*podsyncv1.Wait{{Kind: "volume", Object: "new", Reason: "PVC is\nnot bound"}},
			},
		},
	}}}, nil
}

func (fakeNode) GetInfo(context.Context, *commonv1.GetInfoRequest) (*commonv1.GetInfoResponse, error) {
	return &commonv1.GetInfoResponse{Service: "podsync", Build: &commonv1.Build{Protocol: buildinfo.Get().Protocol}}, nil
}

func (fakeNode) GetConfig(context.Context, *commonv1.GetConfigRequest) (*commonv1.GetConfigResponse, error) {
	loaded, err := kubeletconfig.Load([]string{"--max-pods=42"})
	if err != nil {
		return nil, err
	}
	return &commonv1.GetConfigResponse{KubeletConfigurationJson: loaded.ConfigzJSON(), Origins: loaded.Origins()}, nil
}

// startNode serves a fakeNode and returns the socket directory.
func startNode(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	socket, err := net.Listen("unix", filepath.Join(dir, "podsync.sock"))
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	podsapi.RegisterPodsServer(s, fakeNode{})
	podsyncv1.RegisterPodSyncServiceServer(s, fakeNode{})
	commonv1.RegisterCommonServiceServer(s, fakeNode{})
	go func() { _ = s.Serve(socket) }()
	t.Cleanup(s.Stop)
	return dir
}

// polylet runs a command and returns what it wrote.
func polylet(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := newRootCommand()
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestTheCommandsAskTheRunningNode(t *testing.T) {
	dir := "--socket-dir=" + startNode(t)
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"pods", dir}, []string{"kube-system dns Pending", "image i: no such image"}},
		{[]string{"pods", dir, "-o", "yaml"}, []string{"kind: PodList", "name: web"}},
		{[]string{"explain", dir, "web"}, []string{"default/web (uid ): Running", "Which of its processes the kernel has killed for lack of memory is not known: no socket"}},
		{[]string{"volumes", dir}, []string{"default web data csi.x data-0 pv-7 present - - -", "new kubernetes.io/csi new-0 - waiting - - PVC is not bound (for -)", "How full the volumes are is not known: no socket"}},
		{[]string{"volumes", dir, "web", "-o", "yaml"}, []string{"standing: VOLUME_STANDING_WAITING"}},
		{[]string{"logs", dir, "web", "-c", "side", "--tail=3"}, []string{"1 side tail 3"}},
		{[]string{"logs", dir, "web", "--tail=3"}, []string{"container app of app, side, init; -c chooses", "1 app tail 3"}},
		{[]string{"config", dir}, []string{"maxPods 42 110 flag --max-pods"}},
		{[]string{"config", dir, "--all"}, []string{"maxPods 42 110 flag --max-pods", `syncFrequency "1m0s" "1m0s" default`}},
		{[]string{"config", dir, "-o", "json"}, []string{`"maxPods": 42`}},
		{[]string{"__complete", "explain", dir, ""}, []string{"web", "default/web", "kube-system/dns"}[:1]},
		{[]string{"__complete", "logs", dir, "kube"}, []string{"kube-system/dns"}},
		{[]string{"__complete", "exec", dir, "web", "-c", ""}, []string{"app side init"}},
		{[]string{"__complete", "pods", "-o", ""}, []string{"json yaml"}},
	} {
		out, err := polylet(t, c.args...)
		if err != nil {
			t.Errorf("%v: %v", c.args, err)
		}
		has(t, out, c.want...)
	}
}

func TestWhatIsNotThereIsNamedWithWhatToDo(t *testing.T) {
	dir := "--socket-dir=" + startNode(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"logs", dir, "dns"}, "did you mean kube-system/dns?"},
		{[]string{"logs", dir, "nobody"}, "polylet pods lists the pods"},
		{[]string{"logs", dir, "web", "-c", "x"}, "it has app, side, init"},
		{[]string{"logs", dir, "web", "--since-time=yesterday"}, "2006-01-02T15:04:05Z"},
		{[]string{"pods", dir, "-o", "xml"}, "use json or yaml"},
		{[]string{"top", dir}, "stats.sock: start the node"},
		{[]string{"volumes", dir, "none"}, "the node has no pod default/none: polylet pods lists the pods"},
		{[]string{"probes", "list", "--socket-dir=/nonexistent"}, "/nonexistent/probes.sock"},
		{[]string{"config", dir, "--service=kubelet"}, "there is no service kubelet"},
	} {
		if out, err := polylet(t, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q; %s", c.args, err, c.want, out)
		}
	}
}

func TestProbesIsForAPersonUnlessAServiceIsStarted(t *testing.T) {
	for _, c := range []struct {
		args   string
		env    string
		person bool
	}{
		{"", "", true},
		{"", "INVOCATION_ID", false},
		{"", "LISTEN_FDS", false},
		{"--config=/x", "", false},
		{"--socket-dir=/x --v=2", "", false},
		{"-o json", "", true},
		{"--socket-dir=/x", "", true},
		{"--socket-dir /x kube-system/dns", "", true},
		{"--socket-dir /x -o json", "", true},
		{"--socket-dir /x --config=/x", "", false},
		{"--socket-dir=/x", "NOTIFY_SOCKET", false},
		{"--socket-dir", "", true},
		{"kube-system/dns --socket-dir=/x", "", true},
		{"list", "INVOCATION_ID", true},
		{"--help", "", true},
		{"--help", servesVariable, false},
		{"", servesVariable, false},
	} {
		env := func(name string) string {
			if name == c.env {
				return "1"
			}
			return ""
		}
		if got := asksAboutProbes(strings.Fields(c.args), env); got != c.person {
			t.Errorf("%q with %q: %v", c.args, c.env, got)
		}
	}
}

func TestTopSortsByWhatIsAskedFor(t *testing.T) {
	pod := func(name string, nano, bytes uint64) statsapi.PodStats {
		cpu, memory := &statsapi.CPUStats{UsageNanoCores: &nano}, &statsapi.MemoryStats{WorkingSetBytes: &bytes}
		return statsapi.PodStats{
			PodRef: statsapi.PodReference{Namespace: "n", Name: name}, CPU: cpu, Memory: memory,
			Containers: []statsapi.ContainerStats{{Name: "c-" + name, CPU: cpu, Memory: memory}},
		}
	}
	s := func() *statsapi.Summary {
		return &statsapi.Summary{Node: statsapi.NodeStats{NodeName: "here"}, Pods: []statsapi.PodStats{
			pod("a", 1e6, 3<<20), pod("b", 250e6, 1<<20), pod("c", 2e6, 9<<20),
		}}
	}
	for by, want := range map[string]string{"cpu": "b c a", "memory": "c a b", "name": "a b c"} {
		var out strings.Builder
		if err := showTop(&out, s(), by, false); err != nil {
			t.Fatal(err)
		}
		var order []string
		for line := range strings.Lines(out.String()) {
			if f := strings.Fields(line); f[0] == "n" {
				order = append(order, f[1])
			}
		}
		if strings.Join(order, " ") != want {
			t.Errorf("by %s: %v", by, order)
		}
	}
	var out strings.Builder
	if err := showTop(&out, s(), "cpu", true); err != nil {
		t.Fatal(err)
	}
	has(t, out.String(), "(node here)", "n b 250m 1.0 MiB", "c-b 250m 1.0 MiB")
	if err := showTop(&out, s(), "luck", false); err == nil {
		t.Error("an order that does not exist is no error")
	}
}

func TestProbesShowWhatStandsAndWhatWasSaid(t *testing.T) {
	var out strings.Builder
	err := showProbes(&out, []*probesv1.ProbeState{{
		Target: &podsyncv1.ProbeTarget{
			Key: &podsyncv1.ProbeKey{Container: "app", Type: podsyncv1.ProbeType_PROBE_TYPE_READINESS},
			Pod: &podsyncv1.PodRef{Namespace: "n", Name: "p"}, PodIp: "10.0.0.9",
			Handler: &podsyncv1.ProbeTarget_HttpGet{HttpGet: &podsyncv1.HTTPGetHandler{
				Scheme: "http", Port: 80, Path: "/ok", Headers: []*podsyncv1.HTTPHeader{{Name: "Authorization", Value: "secret"}},
			}},
		},
		Outcome: podsyncv1.ProbeOutcome_PROBE_OUTCOME_FAILURE, Streak: 4, Message: "HTTP 500",
		LastAttemptTime: timestamppb.New(now.Add(-3 * time.Second)), NextAttemptTime: timestamppb.New(now.Add(7 * time.Second)),
	}}, now)
	if err != nil {
		t.Fatal(err)
	}
	has(t, out.String(), "n p app readiness failure failed 4 3s 7.0s GET http://10.0.0.9:80/ok HTTP 500")
	if strings.Contains(out.String(), "secret") {
		t.Error("a header's value is shown")
	}
}

func TestTheContainerThatTheAnnotationNamesIsTheDefault(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{defaultContainer: "b"}}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a"}, {Name: "b"}}}}
	var hints bytes.Buffer
	if got, err := chooseContainer(pod, "", &hints); err != nil || got != "b" || hints.Len() != 0 {
		t.Errorf("%q %v %q", got, err, hints.String())
	}
	if names := containerNames(pod); !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("%v", names)
	}
}
