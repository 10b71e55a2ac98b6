package supervise

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// reaching are the system calls by which a process gets into others, or around the
// names of files. With CAP_SYS_PTRACE, which is kept to look at tables of processes,
// they would make a child without root what any process of root is; with
// CAP_DAC_READ_SEARCH the last one opens files that its mounts hide from it. kcmp is not
// among them: stats compares with it, and it does no more.
func reaching() []uint32 {
	return []uint32{
		unix.SYS_PTRACE, unix.SYS_PIDFD_GETFD, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV,
		unix.SYS_PROCESS_MADVISE, unix.SYS_PERF_EVENT_OPEN, unix.SYS_OPEN_BY_HANDLE_AT,
	}
}

// architectures are the kernel's names of those that a child may use: its own.
var architectures = map[string]uint32{
	"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64, "ppc64le": unix.AUDIT_ARCH_PPC64LE,
	"riscv64": unix.AUDIT_ARCH_RISCV64, "s390x": unix.AUDIT_ARCH_S390X,
}

// firstOfX32 is where the numbers of amd64's other set of system calls begin.
const firstOfX32 = 0x40000000

// Where the kernel lays down what a filter looks at (struct seccomp_data).
const offsetNumber, offsetArchitecture = 0, 4

// refuse makes the kernel refuse this thread, and what it executes, the system
// calls that reach into other processes. It needs no_new_privs.
func refuse() error {
	architecture, known := architectures[runtime.GOARCH]
	if !known {
		return fmt.Errorf("system calls: their numbers on %s are not known here", runtime.GOARCH)
	}
	program := filter(architecture, runtime.GOARCH == "amd64")
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}                                         //nolint:gosec // A few dozen.
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog))) //nolint:gosec // There is no other way to give the kernel a filter.
	if errno != 0 {
		return fmt.Errorf("filter of system calls: %w; the kernel needs CONFIG_SECCOMP_FILTER", errno)
	}
	return nil
}

// filter is the program: what is refused fails with EPERM.
func filter(architecture uint32, x32 bool) []unix.SockFilter {
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	give := func(what uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: what} }
	no := give(unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM))
	// Each test is followed by the refusal that one of its ways leaps over.
	program := []unix.SockFilter{
		load(offsetArchitecture),
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: architecture, Jt: 1}, no,
		load(offsetNumber),
	}
	if x32 {
		program = append(program, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, K: firstOfX32, Jf: 1}, no)
	}
	for _, number := range reaching() {
		program = append(program, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: number, Jf: 1}, no)
	}
	return append(program, give(unix.SECCOMP_RET_ALLOW))
}
