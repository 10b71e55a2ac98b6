package execreaper

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// vast is how much memory a process says is its command.
const vast = 64 << 20

// TestMain is also a process that says so, of a container's.
func TestMain(m *testing.M) {
	if os.Getenv("POLYLET_TEST_VAST_COMMAND") != "" {
		if err := vastCommand(); err != nil {
			fmt.Println("cannot:", err)
		} else {
			fmt.Println("ready")
		}
		time.Sleep(time.Minute)
		return
	}
	os.Exit(m.Run())
}

// mmMap is struct prctl_mm_map of linux/prctl.h.
type mmMap struct {
	startCode, endCode, startData, endData, startBrk, brk, startStack uint64
	argStart, argEnd, envStart, envEnd                                uint64
	auxv                                                              uint64
	auxvSize, exeFD                                                   uint32
}

func vastCommand() error {
	mem, err := unix.Mmap(-1, 0, vast, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return err
	}
	at := uint64(uintptr(unsafe.Pointer(&mem[0])))
	brk, _, _ := unix.Syscall(unix.SYS_BRK, 0, 0, 0)
	// What lies where does not matter, only what is first.
	m := mmMap{
		startCode: at, endCode: at + 1, startData: at, endData: at + 1, startBrk: uint64(brk), brk: uint64(brk), startStack: at,
		argStart: at, argEnd: at + vast, envStart: at, envEnd: at, exeFD: ^uint32(0),
	}
	const mapOption = 14 // PR_SET_MM_MAP
	return unix.Prctl(unix.PR_SET_MM, mapOption, uintptr(unsafe.Pointer(&m)), unsafe.Sizeof(m), 0)
}

func TestOfAProcessThatSaysItsCommandIsVastLittleIsRead(t *testing.T) {
	c := newPretend(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("POLYLET_TEST_VAST_COMMAND", "yes")
	cmd, said := c.start(self)
	if said != "ready" {
		t.Skipf("this kernel does not let a process say where its command is: %s", said)
	}
	if info, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", cmd.Process.Pid)); err != nil || len(info) < vast/2 {
		t.Fatalf("the process shows a command of %d bytes, %v", len(info), err)
	}
	all, err := c.host().container("c")
	if err != nil {
		t.Fatal(err)
	}
	found, held := false, 0
	for _, p := range all {
		found = found || p.PID == cmd.Process.Pid && len(p.Argv) > 0
		for _, arg := range p.Argv {
			held += len(arg) + int(unsafe.Sizeof(arg))
		}
	}
	if !found {
		t.Fatalf("the process is not among %d, or has no command", len(all))
	}
	if most := 32 << 10; held > most {
		t.Errorf("%d bytes are held of the commands, more than %d", held, most)
	}
}

func TestOfACommandAsMuchIsReadAsItTakesToJudgeIt(t *testing.T) {
	for name, c := range map[string]struct {
		cmdline string
		known   bool
	}{
		"as long as may be":               {strings.Repeat("x", longest) + "\x00", true},
		"as many arguments as may be":     {strings.Repeat("x\x00", mostOfOne), true},
		"both":                            {strings.Repeat(strings.Repeat("x", longest/mostOfOne)+"\x00", mostOfOne), true},
		"a byte too long":                 {strings.Repeat("x", longest+1) + "\x00", false},
		"much too long":                   {strings.Repeat("x", 1<<20) + "\x00", false},
		"one argument too many":           {strings.Repeat("x\x00", mostOfOne+1), false},
		"empty arguments":                 {strings.Repeat("\x00", 1<<20), false},
		"cut where both are at the limit": {strings.Repeat(strings.Repeat("x", longest/mostOfOne)+"\x00", mostOfOne) + "x\x00", false},
	} {
		root := t.TempDir()
		for file, text := range map[string]string{
			"6/stat":    "6 (init) S 3 6 6 34816 6 4194304 1 2 3 4 5 6 7 8 20 0 1 0 4700 0 0 0 0 0 0 0 0\n",
			"6/status":  "NSpid:\t6\t1\n",
			"6/cgroup":  "0::/c\n",
			"7/stat":    "7 (x) S 3 7 7 34816 7 4194304 1 2 3 4 5 6 7 8 20 0 1 0 4711 0 0 0 0 0 0 0 0\n",
			"7/status":  "NSpid:\t7\t2\n",
			"7/cgroup":  "0::/c\n",
			"7/cmdline": c.cmdline,
			"3/status":  "NSpid:\t3\n",
		} {
			if err := errors.Join(os.MkdirAll(filepath.Join(root, filepath.Dir(file)), 0o755), os.WriteFile(filepath.Join(root, file), []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		all, err := Procfs{Root: root}.container("c")
		if err != nil || len(all) != 2 {
			t.Fatalf("%s: %+v, %v", name, all, err)
		}
		for _, p := range all {
			if p.PID == 7 && (known(p.Argv) != nil) != c.known {
				t.Errorf("%s: looked at as %d arguments", name, len(known(p.Argv)))
			}
		}
	}
}
