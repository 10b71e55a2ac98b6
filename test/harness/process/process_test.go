package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func shell(t *testing.T, script string, ready func(context.Context) error) *Process {
	t.Helper()
	return New(Config{
		Name: "shell", Path: "/bin/sh", Args: []string{"-c", script},
		LogFile: filepath.Join(t.TempDir(), "log"), Ready: ready,
		ReadyWithin: time.Minute, StopWithin: 200 * time.Millisecond,
	})
}

func TestStartReturnsWhenTheProbePasses(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	p := shell(t, "echo up > "+mark+"; exec sleep 60", func(context.Context) error {
		_, err := os.Stat(mark)
		return err
	})
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.Stop()
	if p.ExitErr() == nil {
		t.Error("sleep ended by SIGTERM reports no error")
	}
}

func TestAnExitBeforeReadyCarriesTheLog(t *testing.T) {
	p := shell(t, "echo the reason; exit 3", func(context.Context) error { return errors.New("never") })
	err := p.Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "the reason") || !strings.Contains(err.Error(), "exit status 3") {
		t.Fatalf("got %v, want the log's end and the exit status", err)
	}
}

func TestAProcessThatIgnoresTermIsKilled(t *testing.T) {
	p := shell(t, "trap '' TERM; while :; do sleep 0.05; done", nil)
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.Stop()
	select {
	case <-p.Done():
	default:
		t.Fatal("Stop returned while the process runs")
	}
}

func TestAKilledProcessStartsAgainWithANewPid(t *testing.T) {
	p := shell(t, "exec sleep 60", nil)
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := p.Pid()
	p.Kill()
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	if p.Pid() == first {
		t.Errorf("pid is still %d", first)
	}
}

func TestTailReturnsOnlyTheLastLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte("a\nb\nc\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := Tail(path, 2); got != "b\nc" {
		t.Errorf("got %q", got)
	}
}
