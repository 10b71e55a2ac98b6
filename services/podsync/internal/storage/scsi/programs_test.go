package scsi

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

func TestADiskIsHadByTheProgramsOfTheHostAndTheirCodes(t *testing.T) {
	b := newBenchOfProcesses(t)
	b.make("target.json", `{"0": "sd"}`)
	b.make("sys/block/dm-3/slaves/sd2/")
	b.make("dev/dm-3")
	var ended *failure
	if said, err := b.iscsiadm(t.Context(), "-m", "node", "-p", portal, "-T", iqn, "-o", "show"); !errors.As(err, &ended) || *ended != (failure{"iscsiadm", codeNoObject, said}) || said != "iscsiadm: No records found\n" {
		t.Errorf("%q, %v", said, err)
	}
	if asked := b.endedAfter(0); !strings.Contains(asked, node+"--logout") || !strings.Contains(asked, "multipath -f ") {
		t.Errorf("asked\n%s", asked)
	}
}

func TestThatIscsiadmIsMissingIsSaidWithWhatToInstall(t *testing.T) {
	b := newBenchOfProcesses(t)
	if err := os.Remove(filepath.Join(b.host, "bin/iscsiadm")); err != nil {
		t.Fatal(err)
	}
	_, err := b.Setup(t.Context(), b.inline("uid-1", "v", source(0)))
	if podstate.VolumeCauseOf(err) != podstate.VolumeProgramMissing || !strings.Contains(err.Error(), "this node has no iscsiadm: install open-iscsi (Debian, SUSE) or iscsi-initiator-utils (Red Hat)") {
		t.Error(err)
	}
	names, err := b.Left() // and is no reason for the cluster to think that it is used here
	if err != nil || len(names) != 1 {
		t.Fatalf("%q, %v", names, err)
	}
	if left, err := b.Settle(t.Context(), names[0]); left || err != nil {
		t.Errorf("%v, %v", left, err)
	}
	b.bare()
}

func TestOfWhatAProgramSaysLittleIsHeld(t *testing.T) {
	b := newBenchOfProcesses(t)
	said, err := b.iscsiadm(t.Context(), "-m", "speaks")
	if len(said) != mostSaid || err != nil {
		t.Errorf("%d bytes, %v", len(said), err)
	}
}
