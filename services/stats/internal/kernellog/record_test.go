package kernellog

import (
	"strings"
	"testing"
	"time"
)

func TestRecordsAreReadAsTheKernelWritesThem(t *testing.T) {
	for name, c := range map[string]struct {
		data string
		want Record
		ok   bool
	}{
		"of the kernel":          {"6,339,5140900,-;NET: Registered\n", Record{339, 5140900 * time.Microsecond, true, "NET: Registered"}, true},
		"with a device":          {"4,12,7,-;slow\n SUBSYSTEM=usb\n DEVICE=+usb:1\n", Record{12, 7 * time.Microsecond, true, "slow"}, true},
		"with more fields":       {"6,1,2,-,caller=T1;x\n", Record{1, 2 * time.Microsecond, true, "x"}, true},
		"of a program":           {"12,8,9,-;systemd: hello; there\n", Record{8, 9 * time.Microsecond, false, "systemd: hello; there"}, true},
		"of a boot without end":  {"6,1,9223372036854775807,-;x", Record{1, time.Duration(longestBoot) * time.Microsecond, true, "x"}, true},
		"without a text":         {"6,339,5140900,-", Record{}, false},
		"without numbers":        {"a,b,c,-;x", Record{}, false},
		"with a negative number": {"6,-1,0,-;x", Record{}, false},
		"with too few fields":    {"6,1;x", Record{}, false},
		"nothing":                {"", Record{}, false},
	} {
		got, ok := ParseRecord([]byte(c.data))
		if got != c.want || ok != c.ok {
			t.Errorf("%s: %+v, %v; want %+v, %v", name, got, ok, c.want, c.ok)
		}
	}
}

func FuzzRecordsOfAnyKind(f *testing.F) {
	f.Add([]byte("6,339,5140900,-;NET: Registered\n"))
	f.Add([]byte("3,1,2,-;Out of memory: Killed process 7 (a) b) total-vm:1kB"))
	f.Fuzz(func(t *testing.T, data []byte) {
		record, ok := ParseRecord(data)
		if ok && (record.SinceBoot < 0 || strings.Contains(record.Text, "\n")) {
			t.Errorf("%+v of %q", record, data)
		}
		if kill, ok := newKillReader().read(record, time.Unix(0, 0)); ok && kill.PID < 0 {
			t.Errorf("%+v of %q", kill, data)
		}
	})
}
