package server

import (
	"errors"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	v1 "k8s.io/api/core/v1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

func readAll(t *testing.T, r *rig, container string, o *v1.PodLogOptions) (string, error) {
	t.Helper()
	data, err := o.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	stream, err := r.client.ReadLogs(t.Context(), &podsyncv1.ReadLogsRequest{Pod: ref, Container: container, Options: data})
	if err != nil {
		return "", err
	}
	text := ""
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return text, nil
		}
		if err != nil {
			return text, err
		}
		text += string(resp.GetData())
	}
}

func TestLogsSayWhyThereAreNone(t *testing.T) {
	ended := func(id string) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: id}}
	}
	waiting := func(reason string) v1.ContainerState {
		return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}
	}
	for _, tc := range []struct {
		name        string
		container   string
		state, last v1.ContainerState
		previous    bool
		code        codes.Code
		text        string
		path        string
	}{
		{"a running one", "c", v1.ContainerState{Running: &v1.ContainerStateRunning{}}, v1.ContainerState{}, false, codes.OK, "", "/logs/ns_p_u/c/1.log"},
		{"its former start", "c", v1.ContainerState{Running: &v1.ContainerStateRunning{}}, ended("containerd://c0"), true, codes.OK, "", "/logs/c/0"},
		{"no former start", "c", v1.ContainerState{Running: &v1.ContainerStateRunning{}}, v1.ContainerState{}, true, codes.FailedPrecondition, `previous terminated container "c" in pod "p" not found`, ""},
		{"an ended one", "c", ended("containerd://c9"), v1.ContainerState{}, false, codes.OK, "", "/logs/c/1"},
		{"one that backs off", "c", waiting("CrashLoopBackOff"), ended("containerd://c9"), false, codes.OK, "", "/logs/c/1"},
		{"one that never started", "c", waiting("ContainerCreating"), v1.ContainerState{}, false, codes.FailedPrecondition, `container "c" in pod "p" is waiting to start: ContainerCreating`, ""},
		{"one without its image", "c", waiting("ErrImagePull"), v1.ContainerState{}, false, codes.FailedPrecondition, "image can't be pulled", ""},
		{"one that is not in the spec", "d", v1.ContainerState{}, v1.ContainerState{}, false, codes.NotFound, `container "d" not found in pod "p"`, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			run(t, func(t *testing.T, r *rig) {
				r.addRunning()
				pod := runningPod()
				pod.Status.ContainerStatuses[0].State, pod.Status.ContainerStatuses[0].LastTerminationState = tc.state, tc.last
				r.pods.Set(pod)
				text, err := readAll(t, r, tc.container, &v1.PodLogOptions{Previous: tc.previous})
				wantCode(t, err, tc.code, tc.text)
				if tc.code == codes.OK && (text != "hello\n" || r.logs.req.Path != tc.path) {
					t.Fatalf("text %q from %s, want %s", text, r.logs.req.Path, tc.path)
				}
			})
		})
	}
}

func TestAFollowedLogEndsWithItsContainer(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.addRunning()
		go func() {
			time.Sleep(time.Minute)
			r.table.SetPod("u", nil, []podstate.ContainerRow{{ID: "c1", UID: "u", Name: "c", State: podstate.StateExited}})
		}()
		began := time.Now()
		text, err := readAll(t, r, "c", &v1.PodLogOptions{Follow: true})
		if err != nil || text != "hello\n" || time.Since(began) != time.Minute {
			t.Fatalf("text %q after %v, error %v", text, time.Since(began), err)
		}
	})
}
