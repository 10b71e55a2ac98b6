package kernellog

import (
	"fmt"
	"testing"
	"time"
)

const (
	aloneLine    = "Memory cgroup out of memory: Killed process %d (sh) total-vm:2372kB, anon-rss:56kB"
	togetherLine = "Tasks in /kubepods/pod7b1d/4f1c are going to be killed due to memory.oom.group set"
)

// killsOf are the processes of which records tell that they were killed.
func killsOf(r *killReader, at time.Duration, lines ...string) (pids []int) {
	for _, line := range lines {
		if k, found := r.read(Record{Kernel: true, SinceBoot: at, Text: line}, time.Unix(0, 0)); found {
			pids = append(pids, k.PID)
		}
	}
	return pids
}

// The kernel says at most ten times in five seconds of which cgroup a process was.
func TestAKillSoonAfterAGroupsIsToldThoughTheKernelSaysNothingMoreOfIt(t *testing.T) {
	r := newKillReader()
	got := killsOf(r, time.Second, fmt.Sprintf(aloneLine, 1), togetherLine, fmt.Sprintf(aloneLine, 2), fmt.Sprintf(aloneLine, 1))
	got = append(got, killsOf(r, time.Second+300*time.Millisecond, fmt.Sprintf(aloneLine, 3))...)
	if fmt.Sprint(got) != "[1 3]" {
		t.Errorf("kills of %v are told", got)
	}
}

func TestAGroupOfWhichTheKernelTellsSlowlyIsOneKill(t *testing.T) {
	r := newKillReader()
	got := killsOf(r, time.Second, fmt.Sprintf(aloneLine, 1), togetherLine)
	for i := range 100 {
		got = append(got, killsOf(r, time.Second+time.Duration(i)*20*time.Millisecond, fmt.Sprintf(aloneLine, 2+i))...)
	}
	if fmt.Sprint(got) != "[1]" {
		t.Errorf("kills of %v are told", got)
	}
}
