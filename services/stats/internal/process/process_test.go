package process

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/google/cadvisor/lib/model"
)

const netDev = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 9 9 0 0 0 0 0 0 9 9 0 0 0 0 0 0
  eth0:  10 2 3 4 0 0 0 0 50 6 7 8 0 0 0 0
vethab1: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0
`

func TestInterfacesAreReadWithoutLoopbackAndPairs(t *testing.T) {
	want := []model.InterfaceStats{{Name: "eth0", RxBytes: 10, RxPackets: 2, RxErrors: 3, RxDropped: 4, TxBytes: 50, TxPackets: 6, TxErrors: 7, TxDropped: 8}}
	if diff := cmp.Diff(want, parseNetDev([]byte(netDev))); diff != "" {
		t.Errorf("interfaces (-want +got):\n%s", diff)
	}
}

func FuzzInterfacesOfAnyContentAreParsed(f *testing.F) {
	f.Add([]byte(netDev))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, s := range parseNetDev(data) {
			if ignored(s.Name) {
				t.Errorf("interface %q is ignored and came out", s.Name)
			}
		}
	})
}

// Who has NET_ADMIN in a pod names its interfaces, with any bytes.
func TestAnInterfacesNameThatIsNoUTF8IsShownAsText(t *testing.T) {
	counts := ":" + strings.Repeat(" 0", 16) + "\n"
	var names []string
	for _, s := range parseNetDev([]byte("a\xff" + counts + "a\xfe" + counts + "\xc3ä" + counts + "ö" + counts)) {
		names = append(names, s.Name)
	}
	if diff := cmp.Diff([]string{`a\xff`, `a\xfe`, `\xc3ä`, "ö"}, names); diff != "" {
		t.Error(diff)
	}
}

func TestThisProcessIsSeen(t *testing.T) {
	proc := Proc("/proc")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	files, _ := proc.Files(t.Context(), []int{os.Getpid()})
	if files < 5 {
		t.Errorf("%d open files; this process has its standard ones and a pipe", files)
	}
	if limit, err := proc.OpenFilesLimit(os.Getpid()); err != nil || limit == 0 {
		t.Errorf("limit %d, %v", limit, err)
	}
	numbers, err := proc.Numbers()
	if err != nil || numbers.Running < 1 || numbers.Max < numbers.Running {
		t.Errorf("process numbers %+v, %v", numbers, err)
	}
	if boot, err := proc.BootSeconds(); err != nil || boot < 1_000_000_000 {
		t.Errorf("boot time %d, %v", boot, err)
	}
}
