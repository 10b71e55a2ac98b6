package node_test

import (
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestTheCommandLineLooksIntoARunningNode(t *testing.T) {
	h := build(t, plan{standalone: true})
	n := h.ask()
	web := webApp("web")
	web.APIVersion, web.Kind, web.Spec.NodeName = "v1", "Pod", ""
	web.Spec.Containers[0].Args = []string{"http", "port=8080"}
	manifest, err := json.Marshal(web)
	h.must(err)
	h.must(h.node.AddStaticPod("web.yaml", string(manifest)))
	pod := "web-" + nodeName
	h.eventually(2*time.Minute, "the pod is Ready", func() error { return boolError(isReady(n.pod(pod)), "%s", describe(n.pod(pod))) })
	for _, c := range []struct {
		args string
		want []string
	}{
		{"pods", []string{"default", pod, "Running", "1/1"}},
		{"pods -o json", []string{`"kind": "PodList"`, pod}},
		{"explain " + pod, []string{"It waits for nothing.", "make sandbox", "pod is ready"}},
		{"explain default/" + pod + " -o yaml", []string{"phase: Running", "step: start container"}},
		{"probes " + pod, []string{"readiness", "success", "GET http://", ":8080/healthz"}},
		{"top " + pod, []string{"(node " + nodeName + ")", pod, "app"}},
		{"top -o json", []string{`"nodeName": "` + nodeName + `"`}},
		{"config", []string{"maxPods", "250", "110"}},
		{"config --service=gateway -o yaml", []string{"kind: KubeletConfiguration"}},
		{"status -o yaml", []string{"service: podsync", "up: true", "nodeName: " + nodeName}},
		{"exec " + pod + " -- /testapp stat path=/testapp", []string{"testapp"}},
		{"__complete explain ", []string{pod}},
	} {
		h.eventually(time.Minute, "polylet "+c.args, func() error {
			args := strings.Fields(c.args)
			if strings.HasSuffix(c.args, " ") {
				args = append(args, "")
			}
			out, err := h.polyletWith(args)
			for _, want := range c.want {
				if err == nil && !strings.Contains(out, want) {
					return boolError(false, "%q is not in:\n%s", want, out)
				}
			}
			return err
		})
	}
	out, err := h.polyletWith([]string{"exec", pod, "--", "/testapp", "exit", "code=7"})
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("exec of a command that ends with 7: %v\n%s", err, out)
	}
	if out, err := h.polylet("logs", "nobody"); err == nil || !strings.Contains(out, "polylet pods lists the pods") {
		t.Errorf("logs of nobody: %v\n%s", err, out)
	}
	if _, err := h.polylet("logs", pod, "--tail=5", "--timestamps"); err != nil {
		t.Error(err)
	}
}

// polyletWith is polylet with the socket directory behind the command's name,
// before what may be a container's own flags.
func (h *house) polyletWith(args []string) (string, error) {
	at := 1
	if args[0] == "__complete" {
		at = 2
	}
	if args[0] == "probes" {
		at = 2
	}
	with := append([]string{}, args[:at]...)
	with = append(with, "--socket-dir="+h.node.SocketDir)
	return h.run(append(with, args[at:]...))
}
