package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// control answers whoever measures:
//
//	GET  /calls          how often each CRI method was called, as a JSON object
//	POST /exit?pod=NAME  ends a running container of the pod (any namespace) with
//	                     code 0, waits until the agent has started it again, and
//	                     answers {"restart_seconds": …}, the time between the two
//	                     as the runtime saw it
func control(r *fakecri.Runtime, again *starts) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /calls", func(w http.ResponseWriter, _ *http.Request) { answer(w, r.Calls()) })
	mux.HandleFunc("POST /exit", func(w http.ResponseWriter, req *http.Request) {
		victim, ok := running(r, req.FormValue("pod"))
		if !ok {
			http.Error(w, fmt.Sprintf("no container of pod %q runs", req.FormValue("pod")), http.StatusNotFound)
			return
		}
		started := again.expect(victim.PodUID(), victim.Name())
		began := time.Now()
		if err := r.Exit(victim.ID, 0, ""); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		select {
		case at := <-started:
			answer(w, map[string]float64{"restart_seconds": at.Sub(began).Seconds()})
		case <-req.Context().Done():
		}
	})
	return mux
}

func running(r *fakecri.Runtime, pod string) (fakecri.ContainerInfo, bool) {
	for _, c := range r.Snapshot().Containers {
		if c.State == fakecri.Running && c.Sandbox.GetMetadata().GetName() == pod {
			return c, true
		}
	}
	return fakecri.ContainerInfo{}, false
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client went: nobody to tell
}

// starts tells of the next start of a container by name.
type starts struct {
	mu      sync.Mutex
	waiting map[string]chan time.Time
}

func newStarts() *starts { return &starts{waiting: map[string]chan time.Time{}} }

func (s *starts) expect(uid, name string) <-chan time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := make(chan time.Time, 1)
	s.waiting[uid+"/"+name] = ch
	return ch
}

// transition is the runtime's hook.
func (s *starts) transition(t fakecri.Transition, _ fakecri.View) {
	if t.Kind != fakecri.KindContainer || t.To != fakecri.Running {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := t.PodUID + "/" + t.Name
	if ch := s.waiting[key]; ch != nil {
		ch <- t.At
		delete(s.waiting, key)
	}
}
