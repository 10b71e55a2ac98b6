package podstate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// VolumeError is why one volume of a pod could not be set up.
type VolumeError struct {
	// Volume is its name in the spec.
	Volume string
	// PV is the name of the PersistentVolume that it is, as far as that is known.
	PV  string
	Err error
	// Stands: what was set up before, perhaps by a previous run, is there all the same.
	Stands bool
}

// StaleVolume is a volume that its pod goes on with, though it could not be brought up to date.
type StaleVolume struct {
	Volume, Why string
	// Since is the first failure in a row, Retry when it is tried again.
	Since, Retry time.Time
}

// MapNodeAffinity is the step that finds a device to be of other nodes.
const MapNodeAffinity = "MapVolume.NodeAffinity check"

// VolumeStep is an error of a step of a volume's set-up that has a name of its own.
type VolumeStep struct {
	Step string // e.g. MountVolume.NodeAffinity check
	Err  error
	// Whole: Step says that it failed, too.
	Whole bool
}

// InStep says of an error that it is of a step, unless it is said of which one.
func InStep(step string, err error) error {
	if known := (*VolumeStep)(nil); err == nil || errors.As(err, &known) {
		return err
	}
	return &VolumeStep{Step: step, Err: err}
}

// WaitForAttach is the step in which a volume's attachment is awaited.
const WaitForAttach = "MountVolume.WaitForAttach"

// OfDevice says of an error in a step of a mount that it is in that of a device, which is
// mapped and not mounted.
func OfDevice(err error) error {
	step := (*VolumeStep)(nil)
	if !errors.As(err, &step) {
		return err
	}
	name, mounts := strings.CutPrefix(step.Step, "MountVolume.")
	if !mounts {
		return err
	}
	return &VolumeStep{Step: "MapVolume." + name, Err: step.Err, Whole: step.Whole}
}

// Error implements error.
func (e *VolumeStep) Error() string { return e.Step + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *VolumeStep) Unwrap() error { return e.Err }

// Error implements error, in the words that people know: of a claim's volume they name the
// PersistentVolume.
func (e *VolumeError) Error() string {
	name := cmp.Or(e.PV, e.Volume)
	if step := (*VolumeStep)(nil); errors.As(e.Err, &step) {
		failed := " failed"
		if step.Whole {
			failed = ""
		}
		return fmt.Sprintf("%s%s for volume %q : %v", step.Step, failed, name, step.Err)
	}
	return fmt.Sprintf("MountVolume.SetUp failed for volume %q : %v", name, e.Err)
}

// Unwrap returns the cause.
func (e *VolumeError) Unwrap() error { return e.Err }

// VolumeErrors are the volumes of a pod that could not be set up; the others were.
type VolumeErrors []*VolumeError

// mostNamed is how many volumes are named in one line: there may be thousands.
const mostNamed = 10

// OrNil is an error when there is one.
func (e VolumeErrors) OrNil() error {
	if len(e) == 0 {
		return nil
	}
	return e
}

// Error implements error: in one line, the first ones when they are many.
func (e VolumeErrors) Error() string {
	texts := make([]string, min(len(e), mostNamed))
	for i := range texts {
		texts[i] = e[i].Error()
	}
	text := strings.Join(texts, "; ")
	if more := len(e) - len(texts); more > 0 {
		text += fmt.Sprintf("; and %d more volumes failed", more)
	}
	return text
}

// ErrNoRoomToAttach says that a volume is not attached because the node can have no more.
var ErrNoRoomToAttach = errors.New("the node can have no more volumes attached")

// Unattachable says, in the kubelet's words, that the pod cannot run on this node since
// that has no room for a volume; false when that is not why.
// Source: KEP-4876
func (e VolumeErrors) Unattachable() (message string, is bool) {
	var all, unattached []string
	for _, one := range e {
		all = append(all, one.Volume)
		step := (*VolumeStep)(nil)
		if errors.As(one.Err, &step) && strings.HasSuffix(step.Step, ".WaitForAttach") {
			unattached = append(unattached, one.Volume)
		}
		is = is || errors.Is(one.Err, ErrNoRoomToAttach)
	}
	slices.Sort(all)
	slices.Sort(unattached)
	return fmt.Sprintf("Node has reached its volume attachment limit, rejecting pod. unmounted volumes=%v, unattached volumes=%v, failed to process volumes=[]: context deadline exceeded", all, unattached), is
}

// EventReason is what the kubelet's event is called: volumes that are devices are mapped,
// others mounted, and before that they are attached. That one is of other nodes is said before
// it is mapped.
func (e VolumeErrors) EventReason() string {
	all := func(of string) bool {
		return !slices.ContainsFunc(e, func(one *VolumeError) bool {
			step := (*VolumeStep)(nil)
			return !errors.As(one.Err, &step) || !strings.HasPrefix(step.Step, of) || step.Step == MapNodeAffinity
		})
	}
	switch {
	case all("MapVolume."):
		return "FailedMapVolume"
	case all("AttachVolume."):
		return "FailedAttachVolume"
	}
	return "FailedMount"
}

// Standing lists those that stand all the same.
func (e VolumeErrors) Standing() []string {
	var names []string
	for _, one := range e {
		if one.Stands {
			names = append(names, one.Volume)
		}
	}
	return names
}

// Unwrap returns them all.
func (e VolumeErrors) Unwrap() []error {
	errs := make([]error, len(e))
	for i := range e {
		errs[i] = e[i]
	}
	return errs
}
