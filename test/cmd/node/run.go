package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/test/harness/node"
)

// podWithin bounds the wait for the sample pod.
const podWithin = 2 * time.Minute

//go:embed testdata/hello.yaml
var helloPod string

// runNode brings up a standalone node and stays until it is told to stop.
func runNode(ctx context.Context, o options) error {
	m, err := newMachine(ctx, "run", o)
	if err != nil {
		return err
	}
	defer m.stop()
	if err := m.startNode(ctx, node.Config{Name: "polylet-dev", ServeOn: "127.0.0.1", PageAddress: "127.0.0.1:4194"}); err != nil {
		return err
	}
	if err := m.Node.AddStaticPod("hello.yaml", helloPod); err != nil {
		return err
	}
	say("waiting for the sample pod …")
	ip, err := waitForPod(ctx, m.Node.ReadOnlyURL, "hello-polylet-dev")
	if err != nil {
		return fmt.Errorf("%w; see %s", err, m.Node.Processes["run"].LogFile())
	}
	url := "http://" + ip + ":8080/"
	answer, err := fetch(ctx, url)
	if err != nil {
		return fmt.Errorf("ask the sample pod: %w", err)
	}
	say("the pod answers: %s", strings.TrimSpace(answer))
	printTour(m.Node, url)
	err = m.wait(ctx)
	m.stop()
	m.sayGoodbye("the node")
	return err
}

func printTour(n *node.Node, url string) {
	polylet := "bin/polylet"
	sockets := "--socket-dir " + n.SocketDir
	say("\nA node is running. Look around:")
	say("  curl %s", url)
	say("  curl -s %s/pods", n.ReadOnlyURL)
	say("  curl -s %s/stats/summary", n.ReadOnlyURL)
	say("  curl -s %s/healthz?verbose", n.HealthzURL)
	say("  %s status %s", polylet, sockets)
	say("  %s pods %s", polylet, sockets)
	say("  bin/grpcurl -plaintext -unix %s list     # `make tools-dev` installs it", filepath.Join(n.SocketDir, "podsync.sock"))
	say("  ls %s                     # static pods: add, change, remove one", n.StaticPods)
	say("  ls %s                     # container logs", n.PodLogs)
	say("Ctrl-C stops the node.")
}

// waitForPod follows /pods until the pod is Ready and returns its address.
func waitForPod(ctx context.Context, readOnlyURL, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, podWithin)
	defer cancel()
	last := errors.New("it never appeared in /pods")
	for {
		ip, err := readyAddress(ctx, readOnlyURL, name)
		if err == nil {
			return ip, nil
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("wait for pod %s: %w", name, last)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func readyAddress(ctx context.Context, readOnlyURL, name string) (string, error) {
	body, err := fetch(ctx, readOnlyURL+"/pods")
	if err != nil {
		return "", err
	}
	var pods corev1.PodList
	if err := json.Unmarshal([]byte(body), &pods); err != nil {
		return "", fmt.Errorf("read %s/pods: %w", readOnlyURL, err)
	}
	for _, p := range pods.Items {
		if p.Name != name {
			continue
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return p.Status.PodIP, nil
			}
		}
		return "", fmt.Errorf("pod %s is %s and not Ready: %s", name, p.Status.Phase, waiting(&p))
	}
	return "", fmt.Errorf("pod %s is not among the %d pods of the node", name, len(pods.Items))
}

// waiting tells what a pod's containers wait for.
func waiting(p *corev1.Pod) string {
	for _, s := range p.Status.ContainerStatuses {
		if w := s.State.Waiting; w != nil {
			return s.Name + ": " + w.Reason + " " + w.Message
		}
	}
	return p.Status.Reason + " " + p.Status.Message
}

func fetch(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 64<<20))
	if err != nil {
		return "", err
	}
	if res.StatusCode != http.StatusOK {
		return "", fmt.Errorf("GET %s: %s: %.300s", url, res.Status, body)
	}
	return string(body), nil
}
