package explain

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/report/podcache"
	"github.com/polylet/polylet/services/podsync/internal/report/timeline"
)

var now = time.Unix(5000, 0)

func TestAPodsWaitNamesItsCause(t *testing.T) {
	setup := podstate.Wait{Kind: "volume", Action: podstate.Key{Kind: podstate.SetupVolumes}, Reason: "the volumes are being set up"}
	kill := podstate.Wait{Kind: "termination", Object: "c", Action: podstate.Key{Kind: podstate.KillContainer, Object: "id"}, Reason: "it has 30 s"}
	probe := podstate.Wait{Kind: "probe", Object: "c", Reason: "the readiness probe (TCP port 1) has not succeeded yet"}
	for name, c := range map[string]struct {
		waits   []podstate.Wait
		running []timeline.Running
		line    []timeline.Entry
		trouble *Trouble
		// want is kind, object and a part of the reason of each wait.
		want [][3]string
	}{
		"each volume that hangs": {
			waits: []podstate.Wait{setup},
			running: []timeline.Running{
				{Action: "set up volumes", What: timeline.Volume, Object: "data", Detail: "nfs s:/x", Since: now},
				{Action: "set up volumes", What: timeline.Volume, Object: "home", Detail: "hostPath /h", Since: now},
			},
			want: [][3]string{{"volume", "data", "nfs s:/x"}, {"volume", "home", "hostPath /h"}},
		},
		"a volume that failed before, and one that hangs": {
			waits: []podstate.Wait{setup, {Kind: "volume", Object: "data", Action: setup.Action, Reason: "the last try failed: not found"}},
			running: []timeline.Running{
				{Action: "set up volumes", What: timeline.Volume, Object: "data", Detail: "configMap d", Since: now},
				{Action: "set up volumes", What: timeline.Volume, Object: "home", Detail: "hostPath /h", Since: now},
			},
			want: [][3]string{{"volume", "home", "hostPath /h"}, {"volume", "data", "not found"}},
		},
		"each volume that is not unmounted": {
			waits: []podstate.Wait{{Kind: "termination", Action: podstate.Key{Kind: podstate.TeardownVolumes}, Reason: "the volumes are being unmounted"}},
			running: []timeline.Running{
				{Action: "tear down volumes", What: timeline.Unmount, Object: "data", Detail: "kubernetes.io/csi:a", Since: now},
				{Action: "tear down volumes", What: timeline.UnmountAgain, Object: "home", Detail: "rpc error: code = Internal desc = it is busy", Since: now},
			},
			want: [][3]string{{"termination", "data", "(kubernetes.io/csi:a) is not unmounted yet"}, {"termination", "home", "could not be unmounted: it is busy"}},
		},
		"a volume that is not up to date": {
			trouble: &Trouble{Volumes: []podstate.StaleVolume{{Volume: "data", Why: "MountVolume.SetUp failed: rpc error: code = Internal desc = sealed", Since: now, Retry: now.Add(time.Minute)}}},
			want:    [][3]string{{"volume", "data", "cannot be brought up to date: MountVolume.SetUp failed: sealed"}},
		},
		"a preStop hook that hangs": {
			waits:   []podstate.Wait{kill},
			running: []timeline.Running{{Action: "kill container", ActionObject: "c", What: timeline.PreStop, Object: "c", Detail: "exec"}},
			want:    [][3]string{{"termination", "c", "the preStop hook of container c (exec) has not ended"}},
		},
		"not the hook of another container": {
			waits:   []podstate.Wait{kill},
			running: []timeline.Running{{Action: "kill container", ActionObject: "d", What: timeline.PreStop, Object: "d"}},
			want:    [][3]string{{"termination", "c", "it has 30 s"}},
		},
		"what the probe's last attempt said": {
			waits: []podstate.Wait{probe},
			line: []timeline.Entry{
				{What: timeline.ProbeAttempt, Object: "c", Detail: "of an earlier container"},
				{What: "container runs", Object: "c"},
				{What: timeline.ProbeAttempt, Object: "c", Detail: "Readiness probe failed: connection refused"},
				{What: timeline.ProbeAttempt, Object: "d", Detail: "another's"},
				{What: timeline.ProbeAttempt, Object: "c", Detail: "Liveness probe errored and resulted in unknown state: no such command"},
			},
			want: [][3]string{{"probe", "c", "yet: Readiness probe failed: connection refused"}},
		},
		"a probe's result without its attempt again": {
			waits: []podstate.Wait{{Kind: "probe", Object: "c", Reason: "the readiness probe fails: HTTP 500"}},
			line:  []timeline.Entry{{What: timeline.ProbeAttempt, Object: "c", Detail: "Readiness probe failed: HTTP 500"}},
			want:  [][3]string{{"probe", "c", "fails: HTTP 500"}},
		},
		"a runtime's error without its code": {
			waits: []podstate.Wait{{Kind: "image", Object: "i", Reason: "rpc error: code = NotFound desc = rpc error: code = Unknown desc = no such image"}},
			want:  [][3]string{{"image", "i", "no such image"}},
		},
		"a pull's cause and not its way": {
			waits: []podstate.Wait{{Kind: "image", Object: "i", Reason: `rpc error: code = NotFound desc = failed to pull and unpack image "r/i:1": failed to resolve image: r/i:1: not found`}},
			want:  [][3]string{{"image", "i", "r/i:1: not found"}},
		},
		"not what was said of an earlier container": {
			waits: []podstate.Wait{probe},
			line:  []timeline.Entry{{What: timeline.ProbeAttempt, Object: "c", Detail: "old"}, {What: "container runs", Object: "c"}},
			want:  [][3]string{{"probe", "c", "has not succeeded yet"}},
		},
		"an apiserver that refuses": {
			waits:   []podstate.Wait{{Kind: "apiserver", Action: podstate.Key{Kind: podstate.DeleteObject}, Reason: "deleted"}},
			trouble: &Trouble{Message: "admission webhook denied", Since: now},
			want:    [][3]string{{"apiserver", "", "has refused the pod's status: admission webhook denied"}},
		},
		"an apiserver that is away": {
			trouble: &Trouble{Message: "connection refused", Away: true},
			want:    [][3]string{{"apiserver", "", "does not answer"}},
		},
		"an apiserver that refuses a part for good": {
			waits:   []podstate.Wait{{Kind: "apiserver", Action: podstate.Key{Kind: podstate.DeleteObject}, Reason: "deleted"}},
			trouble: &Trouble{Refused: []RefusedPart{{Part: "containerStatuses[c]", Container: "c", Why: "may not be transitioned", Since: now}}},
			want:    [][3]string{{"apiserver", "", "deleted"}, {"apiserver", "c", "refuses containerStatuses[c] of the pod's status for good, the rest is written: may not be transitioned"}},
		},
		"a manifest that cannot be used, beside an apiserver that is away": {
			trouble: &Trouble{Message: "connection refused", Away: true, Manifest: "static pod manifest /m/a.yaml: did not find expected node content", ManifestSince: now},
			want:    [][3]string{{"apiserver", "", "does not answer"}, {"manifest", "", "the last good content goes on: static pod manifest /m/a.yaml: did not"}},
		},
		"what failed comes before what goes on": {
			waits: []podstate.Wait{setup, {Kind: "image", Object: "i", Reason: "not found", Retry: now}},
			want:  [][3]string{{"image", "i", "not found"}, {"volume", "", "being set up"}},
		},
	} {
		got := Waits(podcache.Explanation{Waits: c.waits, Running: c.running, Timeline: c.line}, c.trouble)
		if len(got) != len(c.want) {
			t.Errorf("%s: %+v", name, got)
			continue
		}
		for i, want := range c.want {
			if strings.Contains(got[i].Reason, "rpc error") || strings.Count(got[i].Reason, "HTTP 500") > 1 || got[i].Kind != want[0] || strings.Contains(got[i].Reason, "unpack") || got[i].Object != want[1] || !strings.Contains(got[i].Reason, want[2]) {
				t.Errorf("%s: %d is %+v, want %v", name, i, got[i], want)
			}
		}
	}
}

func TestAFailedPodNamesWhatFailed(t *testing.T) {
	ended := func(code int32, reason string) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code, Reason: reason, Message: "why"}}
	}
	for name, c := range map[string]struct {
		st            v1.PodStatus
		reason, about string
	}{
		"runs":        {v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{{Name: "c", State: ended(1, "Error")}}}, "", ""},
		"was evicted": {v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted", Message: "low on memory"}, "Evicted", "low on memory"},
		"init failed": {v1.PodStatus{
			Phase: v1.PodFailed, InitContainerStatuses: []v1.ContainerStatus{{Name: "i", State: ended(3, "Error")}},
			ContainerStatuses: []v1.ContainerStatus{{Name: "c"}},
		}, "Error", "container i ended with exit code 3: why"},
		"init ran out of memory": {v1.PodStatus{
			Phase: v1.PodFailed, InitContainerStatuses: []v1.ContainerStatus{{Name: "i", State: ended(0, "OOMKilled")}},
			ContainerStatuses: []v1.ContainerStatus{{Name: "c", State: ended(0, "OOMKilled")}},
		}, "OOMKilled", "container i ended with exit code 0: why"},
		"a child ran out of memory": {v1.PodStatus{
			Phase: v1.PodFailed, ContainerStatuses: []v1.ContainerStatus{{Name: "c", State: ended(0, "OOMKilled")}, {Name: "d", State: ended(1, "Error")}},
		}, "Error", "container d ended with exit code 1: why"},
	} {
		if reason, message := Verdict(&c.st); reason != c.reason || message != c.about {
			t.Errorf("%s: %q %q", name, reason, message)
		}
	}
}
