package volumes

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/polylet/polylet/test/bench/internal/report"
)

func TestOnlyMountsOfVolumesOfTheNodeAreWaitedFor(t *testing.T) {
	table := "36 35 98:0 / /r/pods/u/volumes/kubernetes.io~secret/s rw - tmpfs tmpfs rw\n" +
		"37 35 98:0 / /r/plugins/kubernetes.io/csi/d/x/globalmount rw - tmpfs tmpfs rw\n" +
		"38 35 98:0 / /r/plugins/other rw - tmpfs tmpfs rw\n39 35 98:0 / /r rw - ext4 x rw\n40 35 98:0 / /other/pods/x rw - ext4 x rw\nbroken\n"
	want := []string{"/r/pods/u/volumes/kubernetes.io~secret/s", "/r/plugins/kubernetes.io/csi/d/x/globalmount"}
	if got := mountsOf([]byte(table), "/r"); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestWhatIsMountedAtAPathIsSeenWithoutTheTable(t *testing.T) {
	dir := t.TempDir()
	if !isMount("/proc") || isMount(dir) || isMount(filepath.Join(dir, "absent")) {
		t.Errorf("/proc %v, a directory %v, nothing %v", isMount("/proc"), isMount(dir), isMount(filepath.Join(dir, "absent")))
	}
}

func TestCallsOfTheDriverAreCountedByTheirNames(t *testing.T) {
	file := filepath.Join(t.TempDir(), "calls")
	if err := os.WriteFile(file, []byte("NodeStageVolume\nNodePublishVolume\nNodeStageVolume\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := calls(file); err != nil || got["NodeStageVolume"] != 2 || got["NodePublishVolume"] != 1 || len(got) != 2 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := calls(file + "-absent"); err == nil {
		t.Error("no file is no calls")
	}
}

func TestATableOfTwoAgentsHasTheRatioOfTheirMedians(t *testing.T) {
	r := report.New()
	for _, v := range []float64{1, 2, 3} {
		r.Column("polylet").Add("ready, ms", v)
		r.Column("kubelet").Add("ready, ms", 4*v)
	}
	r.Column("polylet").Add("alone", 7)
	text := table(Settings{}, r, time.Unix(0, 0))
	for _, want := range []string{"| ready, ms | 2.0 / 3.0 / 3.0 | 8.0 / 12.0 / 12.0 | 0.25 |\n", "| alone | 7.0 / 7.0 / 7.0 | – | – |\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
