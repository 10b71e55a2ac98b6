package daemon

import (
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOnlyWhatCanBeReadAgainIsLetGo(t *testing.T) {
	smaps := `00400000-01a31000 r-xp 00000000 00:1b 21395                              /opt/my polylet
Size:              22724 kB
Rss:               18688 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me sd
01a31000-03253000 r--p 01631000 00:1b 21395                              /opt/my polylet
Anonymous:             0 kB
03253000-03260000 r--p 02e53000 00:1b 21395                              /opt/my polylet
Anonymous:            52 kB
03260000-03311000 rw-p 02e60000 00:1b 21395                              /opt/my polylet
Anonymous:             0 kB
03311000-0337b000 rw-p 00000000 00:00 0
Anonymous:           100 kB
7f0000000000-7f0000001000 r--p 00000000 00:1b 7                          /lib/libc.so.6
Anonymous:             0 kB
`
	all, err := readMappings(strings.NewReader(smaps))
	if err != nil {
		t.Fatal(err)
	}
	var got []uintptr
	for _, m := range all {
		if m.comesBack("/opt/my polylet") {
			got = append(got, m.start)
		}
	}
	// Not what was relocated, what can be written, and what is others'.
	if want := []uintptr{0x400000, 0x1a31000}; len(all) != 6 || !slices.Equal(got, want) {
		t.Errorf("of %d ranges those from %x on are let go, want of 6 %x", len(all), got, want)
	}
	for _, bad := range []string{"nonsense", "4z-5 r-xp 0 0 0 /x", "4-5z r-xp 0 0 0 /x", "4-5 r-xp 0 0 0 /x\nAnonymous: much kB"} {
		if _, err := readMappings(strings.NewReader(bad)); err == nil {
			t.Errorf("%q was read without an error", bad)
		}
	}
}

func TestTheCodeOfTheStartIsLetGo(t *testing.T) {
	text := textOf(t)
	if _, _, errno := unix.Syscall(unix.SYS_MADVISE, text.start, text.end-text.start, unix.MADV_POPULATE_READ); errno != 0 {
		t.Fatal(errno)
	}
	whole := uint64(text.end-text.start) / 1024
	if before := textOf(t).resident; before < whole*9/10 {
		t.Fatalf("%d of %d kB of the code were mapped", before, whole)
	}
	if err := releaseCode(); err != nil {
		t.Fatal(err)
	}
	if after := textOf(t).resident; after > whole/2 {
		t.Errorf("%d of %d kB of the code are still mapped", after, whole)
	}
}

// textOf is the mapping of this program's code.
func textOf(t *testing.T) mapping {
	t.Helper()
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	all, err := readMappings(file)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(m mapping) bool { return m.file == exe && m.executable })
	if i < 0 {
		t.Fatalf("%s has no code in %+v", exe, all)
	}
	return all[i]
}
