package sim

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

// A seed that replays exactly runs in a process of its own. Such a process takes longer
// to begin than many a seed to run, so it is a copy of one that has begun: a mother
// starts, and has a child for each seed that it is told. All children begin from the
// same memory, for between two of them the mother allocates nothing.
var nursery = flag.Bool("nursery", false, "simulate each seed that standard input names in a copy of this process; -exact uses it")

// exactSeed is the seed in the environment of a child; the changed runtime sees it
// being set.
const exactSeed = "POLYLET_SIM_EXACT_SEED"

// seedWidth is how many digits tell a mother a seed, and a child: as many for each.
const seedWidth = 19

// childEnded is what a mother says, on a line of its own, with the status of a child that
// has ended.
const childEnded = "CHILD "

// bear has a child for each seed that standard input names, one after the other, and
// returns in each child with its seed set. In the mother it returns an error only.
func bear() error {
	name, seed, err := bearRaw()
	if err != 0 {
		return fmt.Errorf("copy the process for a seed: %w", err)
	}
	if seed == 0 {
		os.Exit(0) // no more seeds
	}
	*oneSeed = seed
	return os.Setenv(exactSeed, string(name[:]))
}

// bearRaw is what a mother does, beneath Go's runtime: every child is to find it in the
// same state. A seed of zero is the end.
func bearRaw() (name [seedWidth]byte, seed int64, _ syscall.Errno) {
	// Until the runtime's other threads, which have nothing to do, sleep.
	pause := syscall.Timespec{Nsec: 200e6}
	_, _, _ = syscall.RawSyscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&pause)), 0, 0)
	var line [seedWidth + 1]byte
	for {
		n, _, err := syscall.RawSyscall(syscall.SYS_READ, 0, uintptr(unsafe.Pointer(&line)), uintptr(len(line)))
		switch {
		case err == syscall.EINTR:
			continue
		case err != 0:
			return name, 0, err
		case n != uintptr(len(line)):
			return name, 0, 0
		}
		pid, _, err := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
		if err != 0 {
			return name, 0, err
		}
		if pid == 0 {
			for i := range name {
				name[i], seed = line[i], 10*seed+int64(line[i]-'0')
			}
			return name, seed, 0
		}
		var status syscall.WaitStatus
		for err = syscall.EINTR; err == syscall.EINTR; {
			_, _, err = syscall.RawSyscall6(syscall.SYS_WAIT4, pid, uintptr(unsafe.Pointer(&status)), 0, 0, 0, 0)
		}
		if err != 0 {
			return name, 0, err
		}
		const blank = "\n" + childEnded + "00000\n"
		var said [len(blank)]byte
		copy(said[:], blank)
		for at := len(said) - 2; status > 0; at, status = at-1, status/10 {
			said[at] += byte(status % 10)
		}
		if _, _, err := syscall.RawSyscall(syscall.SYS_WRITE, 1, uintptr(unsafe.Pointer(&said)), uintptr(len(said))); err != 0 {
			return name, 0, err
		}
	}
}

// mother is such a process, as who started it sees it.
type mother struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	src io.Closer // of out
}

// launch starts a mother: on one processor, without collection of garbage, and with
// nothing of this process's environment.
func launch(ctx context.Context, program string, args ...string) (*mother, error) {
	cmd := exec.CommandContext(ctx, program, append([]string{"-test.run", "^TestPodsyncKeepsItsPromisesWhateverFails$", "-nursery"}, args...)...)
	cmd.Env = []string{"GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1,memprofilerate=0", "GOGC=off"}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = write.Close() }()
	cmd.Stdout, cmd.Stderr = write, write
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the simulation: %w", err), read.Close())
	}
	return &mother{cmd: cmd, in: in, out: bufio.NewReaderSize(read, 1<<16), src: read}, nil
}

// simulate has a child for a seed, and writes to out what it says.
func (m *mother) simulate(seed int64, out io.Writer) error {
	if _, err := fmt.Fprintf(m.in, "%0*d\n", seedWidth, seed); err != nil {
		return fmt.Errorf("ask for the seed: %w", err)
	}
	for {
		line, err := m.out.ReadString('\n')
		if status, over := strings.CutPrefix(line, childEnded); over {
			return childError(status)
		}
		_, _ = io.WriteString(out, line)
		if err != nil {
			return fmt.Errorf("its process and the one it was copied from are gone: %w", err)
		}
	}
}

// childError says how a child ended, if not well.
func childError(text string) error {
	n, err := strconv.Atoi(strings.TrimSpace(text))
	switch status := syscall.WaitStatus(n); {
	case err != nil:
		return fmt.Errorf("the status of its process: %w", err)
	case status.Signaled():
		return fmt.Errorf("its process was ended: %v", status.Signal())
	case status.ExitStatus() != 0:
		return fmt.Errorf("its process exited with %d", status.ExitStatus())
	}
	return nil
}

// end ends a mother that has no child.
func (m *mother) end() {
	_ = m.in.Close()
	_, _ = io.Copy(io.Discard, m.out)
	_ = m.src.Close()
	_ = m.cmd.Wait()
}

func TestHowAChildEndedIsTold(t *testing.T) {
	for text, want := range map[string]string{
		"00000\n": "", "00256\n": "exited with 1", "00009\n": "killed", "nonsense\n": "invalid syntax",
	} {
		if err := childError(text); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
