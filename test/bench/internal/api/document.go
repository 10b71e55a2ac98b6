package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/polylet/polylet/test/bench/internal/stage"
)

// document is one of the node's documents.
type document struct {
	path string
	// lines is whether it is in Prometheus' text format.
	lines bool
	// check says why a body is not the document of these pods.
	check func(body []byte, pods []string) error
	// oldest is the time of the oldest CPU figure of a container; nil if the
	// document has no such times.
	oldest func(body []byte) (time.Time, error)
	// shape lists what the document has: names with labels, or JSON paths.
	shape func(body []byte) (map[string]bool, error)
}

func documents() []document {
	return []document{
		{path: "/pods", check: checkPods, shape: jsonShape},
		{path: "/stats/summary", check: checkSummary, oldest: oldestInSummary, shape: jsonShape},
		{path: "/metrics", lines: true, check: checkMetrics, shape: textShape},
		{path: "/metrics/cadvisor", lines: true, check: checkCPUSeries, oldest: oldestInText, shape: textShape},
		{path: "/metrics/resource", lines: true, check: checkCPUSeries, oldest: oldestInText, shape: textShape},
	}
}

func checkPods(body []byte, pods []string) error {
	var list corev1.PodList
	if err := json.Unmarshal(body, &list); err != nil {
		return err
	}
	running := map[string]bool{}
	for _, p := range list.Items {
		running[p.Name] = p.Status.Phase == corev1.PodRunning && stage.IsReady(&p)
	}
	for _, name := range pods {
		if !running[name] {
			return fmt.Errorf("pod %s is not in it as running and ready", name)
		}
	}
	return nil
}

func checkSummary(body []byte, pods []string) error {
	used := map[string]bool{}
	err := eachContainer(body, func(pod string, c statsapi.ContainerStats) {
		used[pod] = c.CPU != nil && c.CPU.UsageCoreNanoSeconds != nil && c.Memory != nil && c.Memory.WorkingSetBytes != nil && c.Rootfs != nil && c.Logs != nil
	})
	if err != nil {
		return err
	}
	for _, name := range pods {
		if !used[name] {
			return fmt.Errorf("pod %s has no container with CPU, memory, root filesystem and logs", name)
		}
	}
	return nil
}

func oldestInSummary(body []byte) (time.Time, error) {
	var oldest time.Time
	err := eachContainer(body, func(_ string, c statsapi.ContainerStats) {
		if c.CPU != nil && (oldest.IsZero() || c.CPU.Time.Time.Before(oldest)) {
			oldest = c.CPU.Time.Time
		}
	})
	return oldest, err
}

func eachContainer(body []byte, do func(pod string, c statsapi.ContainerStats)) error {
	var summary statsapi.Summary
	if err := json.Unmarshal(body, &summary); err != nil {
		return err
	}
	for _, p := range summary.Pods {
		for _, c := range p.Containers {
			do(p.PodRef.Name, c)
		}
	}
	return nil
}

func checkMetrics(body []byte, pods []string) error {
	for _, line := range bytes.Split(body, []byte{'\n'}) {
		if text, ok := strings.CutPrefix(string(line), "kubelet_running_pods "); ok {
			if n, err := strconv.ParseFloat(text, 64); err != nil || int(n) < len(pods) {
				return fmt.Errorf("kubelet_running_pods is %s, want at least %d", text, len(pods))
			}
			return nil
		}
	}
	return errors.New("it has no kubelet_running_pods")
}

// checkCPUSeries wants the CPU time of every pod's container.
func checkCPUSeries(body []byte, pods []string) error {
	has := map[string]bool{}
	for _, s := range cpuSeries(body) {
		has[s.labels["pod"]] = true
	}
	for _, name := range pods {
		if !has[name] {
			return fmt.Errorf("it has no CPU time of pod %s's container", name)
		}
	}
	return nil
}

func oldestInText(body []byte) (time.Time, error) {
	var oldest time.Time
	for _, s := range cpuSeries(body) {
		if !s.at.IsZero() && (oldest.IsZero() || s.at.Before(oldest)) {
			oldest = s.at
		}
	}
	if oldest.IsZero() {
		return oldest, errors.New("no CPU time of a container has a time")
	}
	return oldest, nil
}

// cpuSeries are the containers' CPU times.
func cpuSeries(body []byte) []series {
	var out []series
	for line := range strings.Lines(string(body)) {
		if !strings.HasPrefix(line, "container_cpu_usage_seconds_total{") {
			continue
		}
		if s, err := parseSeries(strings.TrimSpace(line)); err == nil && s.labels["container"] == "app" {
			out = append(out, s)
		}
	}
	return out
}
