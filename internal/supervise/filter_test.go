package supervise

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// reach tries to get into the process that started this one, and says how each way ends.
func reach() {
	parent := uintptr(os.Getppid())
	pidfd, err := unix.PidfdOpen(int(parent), 0)
	fmt.Println("pidfd_open", err)
	here, there := unix.Iovec{Base: new(byte)}, unix.RemoteIovec{Len: 1}
	here.SetLen(1)
	try := func(name string, number uintptr, args ...uintptr) {
		var a [6]uintptr
		copy(a[:], args)
		_, _, errno := unix.Syscall6(number, a[0], a[1], a[2], a[3], a[4], a[5])
		fmt.Println(name, int(errno))
	}
	// The end of an address space and descriptors that are not there: what gets past
	// the filter and the rights fails with something else than EPERM.
	try("process_vm_readv", unix.SYS_PROCESS_VM_READV, parent, uintptr(unsafe.Pointer(&here)), 1, uintptr(unsafe.Pointer(&there)), 1)
	try("process_vm_writev", unix.SYS_PROCESS_VM_WRITEV, parent, uintptr(unsafe.Pointer(&here)), 1, uintptr(unsafe.Pointer(&there)), 1)
	try("pidfd_getfd", unix.SYS_PIDFD_GETFD, uintptr(pidfd), 1<<20)
	try("ptrace", unix.SYS_PTRACE, unix.PTRACE_SEIZE, parent)
	try("open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT, 0, 0, 0)
}

// TestAChildThatMayLookAtProcessesGetsIntoNone: the right to look at the tables of
// root's processes is the right to take their files and to write into their memory,
// if nothing else is in the way.
func TestAChildThatMayLookAtProcessesGetsIntoNone(t *testing.T) {
	out := saidByObserver(t, "reach")
	refused := strconv.Itoa(int(unix.EPERM))
	for _, want := range []string{
		"pidfd_open <nil>", "process_vm_readv " + refused, "process_vm_writev " + refused, "pidfd_getfd " + refused,
		"ptrace " + refused, "open_by_handle_at " + refused,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("lacks %q:\n%s", want, out)
		}
	}
}

func TestTheFilterRefusesOtherArchitecturesAndLetsTheRestThrough(t *testing.T) {
	for name, c := range map[string]struct {
		architecture, number uint32
		allowed              bool
	}{
		"read":                   {unix.AUDIT_ARCH_X86_64, unix.SYS_READ, true},
		"clone":                  {unix.AUDIT_ARCH_X86_64, unix.SYS_CLONE, true},
		"kcmp, of stats":         {unix.AUDIT_ARCH_X86_64, unix.SYS_KCMP, true},
		"ptrace":                 {unix.AUDIT_ARCH_X86_64, unix.SYS_PTRACE, false},
		"the last one":           {unix.AUDIT_ARCH_X86_64, reaching()[len(reaching())-1], false},
		"x32":                    {unix.AUDIT_ARCH_X86_64, firstOfX32 | unix.SYS_READ, false},
		"32 bits, by number 3":   {unix.AUDIT_ARCH_I386, 3, false},
		"32 bits, as if allowed": {unix.AUDIT_ARCH_I386, unix.SYS_READ, false},
	} {
		if got := judge(t, filter(unix.AUDIT_ARCH_X86_64, true), c.architecture, c.number); got != c.allowed {
			t.Errorf("%s: allowed %v, want %v", name, got, c.allowed)
		}
	}
}

// judge runs a filter as the kernel does.
func judge(t *testing.T, program []unix.SockFilter, architecture, number uint32) bool {
	t.Helper()
	var loaded uint32
	for at := 0; at < len(program); at++ {
		op := program[at]
		leap := func(yes bool) {
			if yes {
				at += int(op.Jt)
			} else {
				at += int(op.Jf)
			}
		}
		switch op.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			loaded = map[uint32]uint32{offsetNumber: number, offsetArchitecture: architecture}[op.K]
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			leap(loaded == op.K)
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			leap(loaded >= op.K)
		case unix.BPF_RET | unix.BPF_K:
			return op.K == unix.SECCOMP_RET_ALLOW
		default:
			t.Fatalf("an instruction that nobody knows: %+v", op)
		}
	}
	t.Fatal("the filter does not end")
	return false
}
