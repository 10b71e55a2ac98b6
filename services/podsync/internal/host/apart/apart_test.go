package apart

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/polylet/polylet/internal/rpcerr"
)

// TestMain is also the program of the processes.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Flag {
		os.Exit(Main(os.Args[1:], calls(), os.Stdout))
	}
	goleak.VerifyTestMain(m)
}

func calls() map[string]Call {
	return map[string]Call{
		"echo":  func(args []string) (string, error) { return strings.Join(args, "|"), nil },
		"fails": func([]string) (string, error) { return "", errors.New("device or resource busy") },
		"dies":  func([]string) (string, error) { os.Exit(3); return "", nil },
		"counts": func([]string) (string, error) {
			for i := range 3 {
				Tell(strconv.Itoa(i))
			}
			return "3", nil
		},
		"environment": func([]string) (string, error) {
			return strings.Join(os.Environ(), " "), nil
		},
		// hangs writes its process id into a file and ends when that is removed.
		"hangs": func(args []string) (string, error) {
			if err := os.WriteFile(args[0], []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
				return "", err
			}
			for {
				if _, err := os.Stat(args[0]); err != nil {
					return "ended", nil
				}
				time.Sleep(10 * time.Millisecond)
			}
		},
	}
}

func TestACallIsDoneByAProcessOfItsOwnWhichSaysWhatCameOfIt(t *testing.T) {
	p := New(Config{Most: 1, MostOfOne: 1})
	if got, err := p.Do(t.Context(), "s", "echo", "a b", "--c"); got != "a b|--c" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := p.Do(t.Context(), "s", "fails"); err == nil || err.Error() != "device or resource busy" {
		t.Error(err)
	}
	for _, call := range []string{"dies", "absent"} {
		if _, err := p.Do(t.Context(), "s", call); err == nil || errors.Is(err, ErrSilent) {
			t.Errorf("%s: %v", call, err)
		}
	}
	t.Setenv("SECRET", "x")
	if got, err := p.Do(t.Context(), "s", "environment"); strings.Contains(got, "SECRET") || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestACallIsHeardOnItsWay(t *testing.T) {
	p := New(Config{Most: 1, MostOfOne: 1})
	var told []string
	got, err := p.Follow(t.Context(), "s", func(how string) { told = append(told, how) }, "counts")
	if got != "3" || err != nil || strings.Join(told, " ") != "0 1 2" {
		t.Errorf("%q, %v, told %q", got, err, told)
	}
}

func TestAProgramThatCannotBeBegunIsSaid(t *testing.T) {
	p := New(Config{Program: filepath.Join(t.TempDir(), "absent"), Most: 1, MostOfOne: 1})
	for range 2 {
		if _, err := p.Do(t.Context(), "s", "echo"); !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	}
}

// begun waits for a call "hangs", and says which process does it.
func begun(t *testing.T, file string) int {
	t.Helper()
	for until := time.Now().Add(30 * time.Second); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		raw, _ := os.ReadFile(file)
		if pid, err := strconv.Atoi(string(raw)); err == nil {
			return pid
		}
	}
	t.Fatal("the process has not begun")
	return 0
}

func TestACallThatIsNotOverInItsTimeIsKilledAndSaidToBeSilent(t *testing.T) {
	p := New(Config{Most: 1, MostOfOne: 1})
	late := errors.New("a minute is over")
	ctx, cancel := context.WithCancelCause(t.Context())
	file := filepath.Join(t.TempDir(), "alive")
	done := make(chan error, 1)
	go func() {
		_, err := p.Do(ctx, "s", "hangs", file)
		done <- err
	}()
	pid := begun(t, file)
	cancel(late)
	if err := <-done; !errors.Is(err, ErrSilent) || !errors.Is(err, late) {
		t.Error(err)
	}
	if _, err := os.Stat("/proc/" + strconv.Itoa(pid)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the process is there: %v", err)
	}
	if got, err := p.Do(t.Context(), "s", "echo", "next"); got != "next" || err != nil {
		t.Errorf("the place is not free: %q, %v", got, err)
	}
}

// TestOneWhoDoesNotAnswerHasFewProcessesAndLeavesRoomForOthers: and who waits for a place
// gets it when there is one.
func TestOneWhoDoesNotAnswerHasFewProcessesAndLeavesRoomForOthers(t *testing.T) {
	p := New(Config{Most: 4, MostOfOne: 1})
	file := filepath.Join(t.TempDir(), "alive")
	done := make(chan error, 2)
	go func() {
		_, err := p.Do(t.Context(), "dead", "hangs", file)
		done <- err
	}()
	begun(t, file)
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := p.Do(short, "dead", "echo"); !errors.Is(err, rpcerr.ErrExhausted) || !errors.Is(err, ErrSilent) || !strings.Contains(err.Error(), "1 processes wait for it already, 1 for the pods of its namespace, and 1 in all") {
		t.Error(err)
	}
	if got, err := p.Do(t.Context(), "alive", "echo", "x"); got != "x" || err != nil {
		t.Errorf("another is held up: %q, %v", got, err)
	}
	go func() {
		_, err := p.Do(t.Context(), "dead", "echo")
		done <- err
	}()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if p.all != 0 || len(p.of) != 0 || len(p.in) != 0 {
		t.Errorf("%d, %v and %v are left over", p.all, p.of, p.in)
	}
}

// TestOneNamespaceWhoseServersHangLeavesPlacesToOthers: whoever makes pods names as many
// servers as he likes, of which each may have a process.
func TestOneNamespaceWhoseServersHangLeavesPlacesToOthers(t *testing.T) {
	p := New(Config{Most: 8, MostOfOne: 1})
	dir := t.TempDir()
	done := make(chan error, 8)
	begin := func(namespace, server string) {
		t.Helper()
		file := filepath.Join(dir, server)
		go func() {
			_, err := p.Do(For(t.Context(), namespace), server, "hangs", file)
			done <- err
		}()
		begun(t, file)
	}
	full := func(namespace, want string) {
		t.Helper()
		short, cancel := context.WithTimeout(For(t.Context(), namespace), 10*time.Millisecond)
		defer cancel()
		if _, err := p.Do(short, "one more", "echo"); !errors.Is(err, rpcerr.ErrExhausted) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", namespace, err)
		}
	}
	for i := range 4 {
		begin("hostile", "a"+strconv.Itoa(i))
	}
	full("hostile", "0 processes wait for it already, 4 for the pods of its namespace, and 4 in all")
	for i := range 2 {
		begin("as hostile", "b"+strconv.Itoa(i))
	}
	full("as hostile", "2 for the pods of its namespace, and 6 in all")
	for _, namespace := range []string{"quiet", ""} {
		if got, err := p.Do(For(t.Context(), namespace), "alive", "echo", "x"); got != "x" || err != nil {
			t.Errorf("%q is held up: %q, %v", namespace, got, err)
		}
	}
	for _, server := range []string{"a0", "a1", "a2", "a3", "b0", "b1"} {
		if err := os.Remove(filepath.Join(dir, server)); err != nil {
			t.Fatal(err)
		}
	}
	for range 6 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestAProcessThatDoesNotEndIsNotWaitedForAndKeepsItsPlace: one that waits in the kernel
// does not end when it is killed.
func TestAProcessThatDoesNotEndIsNotWaitedForAndKeepsItsPlace(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := wait(ctx, "unmount", make(chan result)); !errors.Is(err, ErrSilent) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	answered := make(chan result, 1)
	answered <- result{Answer: "done"}
	if got, err := wait(ctx, "unmount", answered); got != "done" || err != nil {
		t.Errorf("what was done in the last moment is lost: %q, %v", got, err)
	}
}

func TestWhoKnowsNothingOfACallSaysSo(t *testing.T) {
	for _, args := range [][]string{nil, {"version"}, {Flag}, {Flag, "later"}} {
		var out bytes.Buffer
		if code := Main(args, calls(), &out); code != 0 || !strings.Contains(out.String(), `"error":`) {
			t.Errorf("%q: %d, %s", args, code, out.String())
		}
	}
}
