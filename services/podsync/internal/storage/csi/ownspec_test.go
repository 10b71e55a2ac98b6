package csi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

func podOf(namespace, uid string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p", UID: types.UID(uid)}}
}

// TestWhatPodsOwnSpecsAddToTheNodeObjectIsBounded: one that is too large is not written any
// more, and no pod's volume that waits for it is mounted.
func TestWhatPodsOwnSpecsAddToTheNodeObjectIsBounded(t *testing.T) {
	b := newAttaching(t)
	b.cfg.Standalone = true // nobody is waited for
	b.showsDisk(false, false)
	hold := func(namespace, uid string, n int) error {
		return b.Hold(t.Context(), podOf(namespace, uid), v1.UniqueVolumeName(fmt.Sprintf("kubernetes.io/fc/[%s%d]", uid, n)), true, false)
	}
	fill := func(namespace string, pods int) {
		t.Helper()
		for p := range pods {
			for n := range mostOwnOfPod {
				if err := hold(namespace, fmt.Sprint(namespace, p), n); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	full := func(err error, want string) {
		t.Helper()
		if !errors.Is(err, rpcerr.ErrExhausted) || podstate.VolumeCauseOf(err) != podstate.VolumeAsSaid || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	fill("hostile", 1)
	full(hold("hostile", "hostile0", 64), "the pod on this node would have more than 64 volumes")
	if err := hold("hostile", "hostile0", 0); err != nil {
		t.Errorf("what it has already: %v", err)
	}
	if err := b.Hold(t.Context(), podOf("hostile", "hostile0"), "kubernetes.io/fc/[stands]", true, true); err != nil {
		t.Errorf("what stands: %v", err)
	}
	if err := b.Hold(t.Context(), podOf("hostile", "hostile0"), "kubernetes.io/fc/[claims]", false, false); err != nil {
		t.Errorf("a claim's: %v", err)
	}
	b.Forget("hostile0")
	fill("hostile", 4)
	full(hold("hostile", "more", 0), "the pods of namespace hostile on this node would have more than 256 volumes")
	for _, namespace := range []string{"a", "b", "c"} {
		fill(namespace, 4)
	}
	full(hold("quiet", "q", 0), "all pods on this node would have more than 1024 volumes")
	if n := len(b.inUse.told.Snapshot()); n > mostOwn+2 {
		t.Errorf("%d are told", n)
	}
	b.Forget("a0")
	if err := hold("quiet", "q", 0); err != nil {
		t.Error(err)
	}
}

// TestAPodThatLacksRoomInTheNodeObjectIsTriedAgainWhenAnotherFreesSome: it would else wait
// for as long as a failure has come to be waited for.
func TestAPodThatLacksRoomInTheNodeObjectIsTriedAgainWhenAnotherFreesSome(t *testing.T) {
	b := newAttaching(t)
	b.cfg.Standalone = true // nobody is waited for
	hold := func(uid string, n int, own bool) error {
		return b.Hold(t.Context(), podOf("ns", uid), v1.UniqueVolumeName(fmt.Sprintf("kubernetes.io/fc/[%s%d]", uid, n)), own, false)
	}
	for p := range mostOwnOfNamespace / mostOwnOfPod {
		for n := range mostOwnOfPod {
			if err := hold(fmt.Sprint("first", p), n, true); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := hold("claims", 0, false); err != nil {
		t.Fatal(err)
	}
	for _, uid := range []string{"waits", "leaves"} {
		if err := hold(uid, 0, true); !errors.Is(err, rpcerr.ErrExhausted) {
			t.Fatalf("%v, want that there is no room", err)
		}
	}
	told := func() (uids []types.UID) {
		for {
			select {
			case uid := <-b.woken:
				uids = append(uids, uid)
			default:
				return uids
			}
		}
	}
	b.Forget("claims") // which has none of the room
	b.Forget("leaves") // whom nobody need tell
	if uids := told(); len(uids) > 0 {
		t.Errorf("%q are tried again, and there is no room", uids)
	}
	b.Forget("first0")
	if uids := told(); !slices.Equal(uids, []types.UID{"waits"}) {
		t.Errorf("tried again are %q, want the one that waits", uids)
	}
	b.Forget("first1")
	if uids := told(); len(uids) > 0 {
		t.Errorf("%q are tried once more", uids)
	}
}

// TestTheNameOfAVolumeOfAPodsOwnSpecIsBounded, whatever it says that its disk is called.
func TestTheNameOfAVolumeOfAPodsOwnSpecIsBounded(t *testing.T) {
	b := newAttaching(t)
	b.shows(false, false)
	r := b.claimOf("uid-1")
	r.Migrated, r.Volume = true, &v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Cinder: &v1.CinderVolumeSource{}}}
	r.PV = r.PV.DeepCopy()
	r.PV.Spec.CSI.VolumeHandle = strings.Repeat("x", 1<<20)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // else it waits to be attached
	defer cancel()
	if err := b.Attach(ctx, r); !errors.Is(err, rpcerr.ErrInvalid) || len(err.Error()) > 300 || !strings.Contains(err.Error(), "MountVolume.WaitForAttach") {
		t.Errorf("%.300v", err)
	}
	if n := len(b.inUse.told.Snapshot()); n != 0 {
		t.Errorf("%d are told", n)
	}
}

// TestVolumesOfPodsOwnSpecsThatNeedNotBeAttachedAreAsManyAsTheyAre: the Node object names none.
func TestVolumesOfPodsOwnSpecsThatNeedNotBeAttachedAreAsManyAsTheyAre(t *testing.T) {
	b := newStaging(t, nil)
	for n := range mostOwnOfPod + 1 {
		r := b.claimOf("uid-1")
		r.Migrated, r.Volume = true, &v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Cinder: &v1.CinderVolumeSource{}}}
		r.PV.Spec.CSI.VolumeHandle = fmt.Sprint("h", n)
		if err := b.Attach(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	b.Forget("uid-1")
	b.nothing(t)
}
