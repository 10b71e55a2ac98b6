package pods

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/test/bench/internal/report"
	"github.com/polylet/polylet/test/bench/internal/stage"
	"github.com/polylet/polylet/test/bench/internal/usage"
)

// cost is what has been spent and counted so far. None of it depends much on
// what else the machine does, so that it can be compared on a busy one.
type cost struct {
	// cpu is milliseconds by who used them.
	cpu map[string]float64
	// requests are those that the apiserver has answered, by verb and resource;
	// the benchmark's own are among them.
	requests map[string]float64
	// calls are the agent's to the runtime, by operation.
	calls map[string]float64
}

func costOf(ctx context.Context, st *stage.Stage) (cost, error) {
	c := cost{cpu: map[string]float64{}}
	agent, err := usage.CPUOfEach(st.Node)
	if err != nil {
		return c, err
	}
	for name, used := range agent {
		c.cpu["agent"] += used
		if len(agent) > 1 {
			c.cpu[name] = used
		}
	}
	for name, pid := range map[string]int{"kube-apiserver": st.Cluster.APIServer.Pid(), "etcd": st.Cluster.Etcd.Pid()} {
		if c.cpu[name], err = usage.CPUOf(pid); err != nil {
			return c, fmt.Errorf("read the CPU time of %s: %w", name, err)
		}
	}
	if c.requests, err = counters(ctx, st, "/metrics", "apiserver_request_total", "verb", "resource", "subresource"); err != nil {
		return c, err
	}
	c.calls, err = counters(ctx, st, "/api/v1/nodes/"+stage.NodeName+"/proxy/metrics", "kubelet_runtime_operations_total", "operation_type")
	return c, err
}

// cpuOfRuntime is what containerd, its shims and all that they ran have used, in
// milliseconds: they begin in containerd's cgroup, and what has ended is counted
// there too. With the pods' processes, whose cgroups stand beside it, it is all.
func cpuOfRuntime(st *stage.Stage) (map[string]float64, error) {
	used := map[string]float64{}
	for name, path := range map[string]string{"the runtime": "/runtime", "the runtime and the pods": ""} {
		var err error
		if used[name], err = usage.CPUOfCgroup(st.Instance.CgroupRoot() + path); err != nil {
			return nil, fmt.Errorf("read the CPU time of %s: %w", name, err)
		}
	}
	return used, nil
}

const (
	// afterwards is what an agent gets to remove what its pods have left, and to
	// send the events that it holds back, before its own costs are read.
	afterwards = 5 * time.Second
	// removedAtLast is the same for one that collects once a minute, before the
	// runtime's are.
	removedAtLast = 100 * time.Second
)

// waitUntilEmpty waits until the runtime has no sandbox any more, at most so long.
func waitUntilEmpty(ctx context.Context, st *stage.Stage, most time.Duration) (empty bool, err error) {
	for end := time.Now().Add(most); ; {
		list, err := st.Runtime.Runtime().ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
		if err != nil || len(list.Items) == 0 {
			return err == nil, err
		}
		if time.Now().After(end) {
			return false, nil
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(500 * time.Millisecond): // the question costs the runtime too
		}
	}
}

// counters reads one family of counters, the sums by these labels' values.
func counters(ctx context.Context, st *stage.Stage, path, family string, labels ...string) (map[string]float64, error) {
	data, err := st.Cluster.Client.CoreV1().RESTClient().Get().AbsPath(path).DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return sums(data, family, labels...)
}

func sums(text []byte, family string, labels ...string) (map[string]float64, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("parse metrics: %w", err)
	}
	out := map[string]float64{}
	for _, m := range families[family].GetMetric() {
		values := map[string]string{}
		for _, l := range m.GetLabel() {
			values[l.GetName()] = l.GetValue()
		}
		var key []string
		for _, name := range labels {
			if values[name] != "" {
				key = append(key, values[name])
			}
		}
		out[strings.Join(key, " ")] += m.GetCounter().GetValue()
	}
	return out, nil
}

// addRuntimeCost adds what the runtime has spent per pod, from the sandbox to its
// removal.
func addRuntimeCost(st *stage.Stage, c *report.Column, before map[string]float64, pods int) error {
	after, err := cpuOfRuntime(st)
	if err != nil {
		return err
	}
	addCost(c, cost{cpu: before}, cost{cpu: after}, pods)
	return nil
}

// addCost adds rows for what was spent per pod between two readings. Requests
// and calls of which there were few are not the pods'.
func addCost(c *report.Column, before, after cost, pods int) {
	for _, part := range []struct {
		row           string
		before, after map[string]float64
		least         float64
	}{
		{"CPU per pod of %s, ms", before.cpu, after.cpu, 0},
		{"requests to the apiserver per pod: %s", before.requests, after.requests, 0.1},
		{"calls to the runtime per pod: %s", before.calls, after.calls, 0.1},
	} {
		for _, name := range slices.Sorted(maps.Keys(part.after)) {
			if per := (part.after[name] - part.before[name]) / float64(pods); per >= part.least {
				c.Add(fmt.Sprintf(part.row, name), per)
			}
		}
	}
}
