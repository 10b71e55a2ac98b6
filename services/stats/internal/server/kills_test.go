package server

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/services/stats/internal/inventory"
	"github.com/polylet/polylet/services/stats/internal/kernellog"
)

// kernel writes records into a log that is read.
type kernel struct {
	records chan string
	closed  chan struct{}
}

func (k *kernel) Read(p []byte) (int, error) {
	select {
	case r := <-k.records:
		return copy(p, r), nil
	case <-k.closed:
		return 0, io.EOF
	}
}

func (k *kernel) Close() error {
	select {
	case <-k.closed:
	default:
		close(k.closed)
	}
	return nil
}

func TestAWatcherHearsOfKillsThatWereAndOfEachThatComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const id = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
		file := &kernel{records: make(chan string), closed: make(chan struct{})}
		log := kernellog.New(kernellog.Config{Open: func() (io.ReadCloser, error) { return file, nil }, Boot: time.Now})
		names := &inventory.Table{}
		names.Apply(inventory.Change{Snapshot: true, Containers: []inventory.Container{{ID: id, Name: "web", Pod: inventory.Pod{Namespace: "shop", Name: "web-0", UID: "u"}}}})
		s := New(Deps{Kernel: log, Names: names, Epoch: 42})
		ctx, cancel := context.WithCancel(t.Context())
		to := &stream[statsv1.WatchOOMKillsResponse]{ctx: ctx}
		read, watched := make(chan error, 1), make(chan error, 1)
		go func() { read <- log.Run(ctx) }()
		kill := func(sequence, pid int) {
			file.records <- fmt.Sprintf("6,%d,0,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/k/p,task_memcg=/k/p/cri-containerd-%s.scope,task=eater,pid=%d,uid=0", sequence-1, id, pid)
			file.records <- fmt.Sprintf("3,%d,0,-;Memory cgroup out of memory: Killed process %d (eater) total-vm:9kB", sequence, pid)
			synctest.Wait()
		}
		kill(2, 41)
		go func() { watched <- s.WatchOOMKills(&statsv1.WatchOOMKillsRequest{}, to) }()
		synctest.Wait()
		kill(4, 42)
		frames := to.all()
		if len(frames) != 2 || !frames[0].GetSnapshot() || frames[1].GetSnapshot() || frames[1].GetRevision() != 2 || frames[0].GetEpoch() != 42 {
			t.Fatalf("%v", frames)
		}
		for i, f := range frames {
			k := f.GetKills()
			if len(k) != 1 || k[0].GetPid() != int32(41+i) || k[0].GetPodName() != "web-0" || k[0].GetPodUid() != "u" || k[0].GetContainer() != "web" || k[0].GetSystem() || k[0].GetLimitCgroup() != "/k/p" {
				t.Errorf("frame %d: %v", i, k)
			}
		}
		cancel()
		if err := <-watched; err != nil {
			t.Error(err)
		}
		if err := <-read; err != nil {
			t.Error(err)
		}
	})
}

// Who may make cgroups within his own (a systemd in a container) chooses their names.
func TestAProcessBelongsToTheOutermostContainerWhateverCgroupsThatHasMade(t *testing.T) {
	own, other := strings.Repeat("b", 64), strings.Repeat("c", 64)
	names := &inventory.Table{}
	names.Apply(inventory.Change{Snapshot: true, Containers: []inventory.Container{
		{ID: own, Name: "web", Pod: inventory.Pod{Namespace: "shop", Name: "web-0", UID: "u"}},
		{ID: other, Name: "db", Pod: inventory.Pod{Namespace: "bank", Name: "db-0", UID: "v"}},
	}})
	for name, c := range map[string]struct{ cgroup, want string }{
		"its own":                       {"/kubepods/podu/" + own, "web-0"},
		"one within":                    {"/kubepods/podu/" + own + "/system.slice/app.service", "web-0"},
		"one within, as systemd has it": {"/kubepods.slice/kubepods-podu.slice/cri-containerd-" + own + ".scope/init.scope", "web-0"},
		"one with another's name":       {"/kubepods/podu/" + own + "/cri-containerd-" + other + ".scope", "web-0"},
		"nobody's":                      {"/system.slice/sshd.service", ""},
		"not known":                     {"", ""},
	} {
		if got := killOf(kernellog.Kill{Cgroup: c.cgroup}, names.View()); got.GetPodName() != c.want {
			t.Errorf("%s: %q, want %q", name, got.GetPodName(), c.want)
		}
	}
}

func TestAWatcherOfKillsHearsAtOnceThatThereAreNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Deps{Kernel: kernellog.New(kernellog.Config{}), Names: &inventory.Table{}})
		ctx, cancel := context.WithCancel(t.Context())
		to := &stream[statsv1.WatchOOMKillsResponse]{ctx: ctx}
		done := make(chan error, 1)
		go func() { done <- s.WatchOOMKills(&statsv1.WatchOOMKillsRequest{}, to) }()
		synctest.Wait()
		if frames := to.all(); len(frames) != 1 || !frames[0].GetSnapshot() || len(frames[0].GetKills()) > 0 {
			t.Errorf("%v", frames)
		}
		cancel()
		<-done
	})
}

// After a start of the whole agent the kernel's log is read before podsync has named a
// container.
func TestAKillIsNotToldBeforeItMayBeKnownWhoseItWas(t *testing.T) {
	for name, after := range map[string]time.Duration{
		"podsync is a little late": 3 * time.Second, "podsync is away": 0,
		// It waits 5 s itself, from its first list on, which has taken a moment.
		"the runtime says nothing to podsync of one pod": 5*time.Second + 200*time.Millisecond,
	} {
		synctest.Test(t, func(t *testing.T) {
			id := strings.Repeat("b", 64)
			file := &kernel{records: make(chan string), closed: make(chan struct{})}
			log := kernellog.New(kernellog.Config{Open: func() (io.ReadCloser, error) { return file, nil }, Boot: time.Now})
			names := &inventory.Table{}
			s := New(Deps{Kernel: log, Names: names})
			ctx, cancel := context.WithCancel(t.Context())
			to := &stream[statsv1.WatchOOMKillsResponse]{ctx: ctx}
			read, watched := make(chan error, 1), make(chan error, 1)
			go func() { read <- log.Run(ctx) }()
			kill := func(sequence int) {
				file.records <- fmt.Sprintf("6,%d,0,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/k/p,task_memcg=/k/p/cri-containerd-%s.scope,task=eater,pid=9,uid=0", sequence-1, id)
				file.records <- fmt.Sprintf("3,%d,0,-;Memory cgroup out of memory: Killed process 9 (eater) total-vm:9kB", sequence)
				synctest.Wait()
			}
			kill(2)
			go func() { watched <- s.WatchOOMKills(&statsv1.WatchOOMKillsRequest{}, to) }()
			time.Sleep(time.Second)
			names.Apply(inventory.Change{Snapshot: true}) // podsync was just started, too.
			time.Sleep(cmp.Or(after, namesWait) - 2*time.Second)
			synctest.Wait()
			if frames := to.all(); len(frames) > 0 {
				t.Errorf("%s: too early: %v", name, frames)
			}
			time.Sleep(time.Second)
			want := ""
			if after > 0 {
				want = "web-0"
				names.Apply(inventory.Change{Containers: []inventory.Container{{ID: id, Name: "web", Pod: inventory.Pod{Namespace: "shop", Name: "web-0", UID: "u"}}}})
			}
			synctest.Wait()
			kill(4) // None waits again.
			frames := to.all()
			if len(frames) != 2 || frames[0].GetKills()[0].GetPodName() != want || frames[1].GetKills()[0].GetPodName() != want {
				t.Errorf("%s: %v", name, frames)
			}
			cancel()
			if err := <-watched; err != nil {
				t.Error(err)
			}
			if err := <-read; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestNoNameIsAwaitedOfAKillThatIsOldOrNoContainers(t *testing.T) {
	now, container := time.Now(), "/k/p/"+strings.Repeat("b", 64)
	for name, c := range map[string]struct {
		kill  kernellog.Kill
		names inventory.View
		want  bool
	}{
		"a container's":      {kernellog.Kill{Cgroup: container + "/app", Time: now}, inventory.View{}, true},
		"nobody's":           {kernellog.Kill{Cgroup: "/system.slice/sshd.service", Time: now}, inventory.View{}, false},
		"not known":          {kernellog.Kill{Time: now}, inventory.View{}, false},
		"one of an hour ago": {kernellog.Kill{Cgroup: container, Time: now.Add(-time.Hour)}, inventory.View{}, false},
		"one that podsync has not had time to name": {kernellog.Kill{Cgroup: container, Time: now.Add(-time.Minute)}, inventory.View{Begun: now.Add(-time.Second)}, true},
		"one of now":                      {kernellog.Kill{Cgroup: container, Time: now}, inventory.View{Begun: now.Add(-time.Hour)}, true},
		"one whose container was removed": {kernellog.Kill{Cgroup: container, Time: now.Add(-time.Minute)}, inventory.View{Begun: now.Add(-time.Hour)}, false},
		"one of this node's pods":         {kernellog.Kill{Cgroup: "/host" + container, Time: now}, inventory.View{PodsCgroup: "/k"}, true},
		"one of another node's":           {kernellog.Kill{Cgroup: container, Time: now}, inventory.View{PodsCgroup: "/kubepods"}, false},
	} {
		if got := nameless(c.kill, c.names); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
