package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// node is the fake with one pod on it.
type node struct {
	runtime *fakecri.Runtime
	sandbox string
	config  *runtimeapi.PodSandboxConfig
}

func newNode(t *testing.T, cfg fakecri.Config) *node {
	t.Helper()
	n := &node{config: &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "u"}}}
	cfg.Images = []string{"app:1"}
	n.runtime = fakecri.New(cfg)
	t.Cleanup(n.runtime.Close)
	s, err := n.runtime.Runtime().RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: n.config})
	if err != nil {
		t.Fatal(err)
	}
	n.sandbox = s.PodSandboxId
	n.start(t, 0)
	return n
}

// start does what an agent does to have the container running.
func (n *node) start(t *testing.T, attempt uint32) {
	t.Helper()
	c, err := n.runtime.Runtime().CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{
		PodSandboxId: n.sandbox, SandboxConfig: n.config,
		Config: &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "app", Attempt: attempt}, Image: &runtimeapi.ImageSpec{Image: "app:1"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.runtime.Runtime().StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: c.ContainerId}); err != nil {
		t.Fatal(err)
	}
}

func TestTheEndOfAContainerIsAnsweredWhenItRunsAgain(t *testing.T) {
	again := newStarts()
	ended := make(chan struct{}, 1)
	n := newNode(t, fakecri.Config{OnTransition: func(tr fakecri.Transition, v fakecri.View) {
		again.transition(tr, v)
		if tr.To == fakecri.Exited {
			ended <- struct{}{}
		}
	}})
	server := httptest.NewServer(control(n.runtime, again))
	defer server.Close()
	answered := make(chan float64, 1)
	go func() {
		defer close(answered)
		res, err := http.Post(server.URL+"/exit?pod=web", "", nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer res.Body.Close()
		var said map[string]float64
		if err := json.NewDecoder(res.Body).Decode(&said); err != nil {
			t.Error(err)
		}
		answered <- said["restart_seconds"]
	}()
	<-ended
	select {
	case <-answered:
		t.Fatal("it was answered before the container ran again")
	default:
	}
	n.start(t, 1)
	if took := <-answered; took <= 0 {
		t.Errorf("it took %v s to run again, want a time", took)
	}
}

func TestNobodyToEndIsSaid(t *testing.T) {
	n := newNode(t, fakecri.Config{})
	w := httptest.NewRecorder()
	control(n.runtime, newStarts()).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/exit?pod=other", nil))
	if w.Code != http.StatusNotFound {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
}

func TestCallsAreCountedByMethod(t *testing.T) {
	n := newNode(t, fakecri.Config{})
	conn, err := n.runtime.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 3 {
		if _, err := runtimeapi.NewRuntimeServiceClient(conn).Version(t.Context(), &runtimeapi.VersionRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	w := httptest.NewRecorder()
	control(n.runtime, newStarts()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/calls", nil))
	var calls map[string]int
	if err := json.Unmarshal(w.Body.Bytes(), &calls); err != nil || calls["Version"] != 3 {
		t.Errorf("calls %v, %v: want three of Version", calls, err)
	}
}

func TestTroubleBefallsOnlyCallsThatChangeSomething(t *testing.T) {
	f := trouble{delay: 2 * time.Second, jitter: time.Second, hangShare: 0.5, hangFor: 30 * time.Second, failShare: 0.25, seed: 1}.faults()
	hung, failed := 0, 0
	for range 400 {
		fault := f(t.Context(), "StartContainer", nil)
		switch {
		case fault.Delay == 30*time.Second:
			hung++
		case fault.Delay < 2*time.Second || fault.Delay >= 3*time.Second:
			t.Fatalf("a delay of %v, want 2s to 3s", fault.Delay)
		}
		if fault.Err != nil {
			failed++
		}
	}
	if hung < 150 || hung > 250 || failed < 60 || failed > 140 {
		t.Errorf("of 400 calls %d hang and %d fail, want about 200 and 100", hung, failed)
	}
	if fault := f(t.Context(), "ListContainers", nil); fault.Delay != 0 || fault.Err != nil {
		t.Errorf("a list meets %+v", fault)
	}
	if (trouble{}).faults() != nil {
		t.Error("a runtime without trouble has faults")
	}
}
