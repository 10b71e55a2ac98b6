package podstate

// VolumeCause is what kind of thing keeps a volume from being set up or taken down. It is
// said where the failure arises: the text of an error has words of drivers, servers and
// programs in it, from which nobody can tell.
type VolumeCause int

// The causes. What is to be done about each the planner says; a new one needs its advice there.
const (
	// VolumeUnknown: it is not said; the text is all there is.
	VolumeUnknown VolumeCause = iota
	// VolumeSeveral: several things at once, which are not of one kind.
	VolumeSeveral
	// VolumeAsSaid: the error itself says what is to be done.
	VolumeAsSaid
	// VolumePanicked: a fault of this program's.
	VolumePanicked
	// VolumeUnderWay: it has not ended in the time that a try has.
	VolumeUnderWay

	// VolumeSpec: the volume, in the pod's spec or its PersistentVolume, is not right.
	VolumeSpec
	// VolumeUnsupported: this node does not make volumes of its kind.
	VolumeUnsupported
	// VolumeOptions: volumes of its kind do not take its mount options.
	VolumeOptions
	// VolumeNested: another volume cannot be mounted in it.
	VolumeNested
	// VolumeLabels: it cannot have all the SELinux labels that are wanted.
	VolumeLabels

	// VolumeObjectMissing: an object, or a key in one, is not there.
	VolumeObjectMissing
	// VolumeForbidden: the node may not read or ask for something.
	VolumeForbidden
	// VolumeAPIServer: the apiserver does not answer, or cannot do it.
	VolumeAPIServer
	// VolumeCertificate: a certificate for the pod was not issued, or not yet.
	VolumeCertificate

	// VolumeNotBound: the claim has no volume yet.
	VolumeNotBound
	// VolumeClaimEnding: the claim is being deleted.
	VolumeClaimEnding
	// VolumeOthersClaim: the PersistentVolume is another claim's.
	VolumeOthersClaim
	// VolumeOthersPod: the claim of the name that an ephemeral volume's has was not made for this pod.
	VolumeOthersPod
	// VolumeInUse: only one pod may have it, and another has.
	VolumeInUse
	// VolumeMode: containers mount a device, or want a filesystem as a device.
	VolumeMode
	// VolumeNoDevice: it is to be a device and is none.
	VolumeNoDevice
	// VolumeOtherNode: it can be used on other nodes.
	VolumeOtherNode

	// VolumeNoController: nobody attaches volumes to this node.
	VolumeNoController
	// VolumeNodeUnread: this node's own object is not known yet.
	VolumeNodeUnread
	// VolumeNotTold: the node's status does not name the volume as in use yet.
	VolumeNotTold
	// VolumeNoRoom: the node can have no more volumes attached.
	VolumeNoRoom
	// VolumeNotAttached: the control plane has not attached a CSI driver's volume.
	VolumeNotAttached
	// VolumeDiskNotAttached is that of a disk that has no driver.
	VolumeDiskNotAttached

	// VolumeDriverAway: the CSI driver is not registered on this node.
	VolumeDriverAway
	// VolumeDriverMode: the CSI driver does not have volumes where this one is named.
	VolumeDriverMode
	// VolumeDriverSilent: the CSI driver has not answered in time, or is not there.
	VolumeDriverSilent
	// VolumeDriverRefused: the CSI driver has answered that it cannot.
	VolumeDriverRefused

	// VolumeProgramMissing: the node lacks a program.
	VolumeProgramMissing
	// VolumeServerSilent: a server, or a process that serves a filesystem, does not answer.
	VolumeServerSilent
	// VolumeServerRefused: what a server has could not be mounted.
	VolumeServerRefused
	// VolumeTarget: an iSCSI target's disk cannot be had.
	VolumeTarget
	// VolumeFabric: a Fibre Channel fabric's disk cannot be had.
	VolumeFabric
	// VolumeDisk: a disk's filesystem could not be made, mended or mounted.
	VolumeDisk
	// VolumeOtherFilesystem: the disk has another filesystem than the volume is to have.
	VolumeOtherFilesystem

	// VolumeHostPath: what a hostPath names is not there, or of another type.
	VolumeHostPath
	// VolumeLocalPath: what a local volume names is not there, or neither a directory nor a disk.
	VolumeLocalPath
	// VolumeBusy: somebody uses what is to be unmounted.
	VolumeBusy

	// volumeCauses is how many there are.
	volumeCauses
)

// VolumeCauses are all of them, without VolumeUnknown.
func VolumeCauses() []VolumeCause {
	all := make([]VolumeCause, 0, volumeCauses-1)
	for c := VolumeUnknown + 1; c < volumeCauses; c++ {
		all = append(all, c)
	}
	return all
}

type withCause struct {
	error
	cause VolumeCause
}

// Unwrap returns the error without its cause.
func (e *withCause) Unwrap() error { return e.error }

// Wrap is err with a cause; nil stays nil. One that an error within it has already stays: who
// was nearest to the failure knows best.
func (c VolumeCause) Wrap(err error) error {
	if err == nil || VolumeCauseOf(err) != VolumeUnknown {
		return err
	}
	return &withCause{err, c}
}

// VolumeCauseOf is the cause that an error, or one within it, was given; VolumeUnknown for none,
// and VolumeSeveral when errors were joined that have different ones.
func VolumeCauseOf(err error) VolumeCause {
	switch e := err.(type) { //nolint:errorlint // It goes through the chain itself.
	case *withCause:
		return e.cause
	case interface{ Unwrap() error }:
		return VolumeCauseOf(e.Unwrap())
	case interface{ Unwrap() []error }:
		found := VolumeUnknown
		for _, one := range e.Unwrap() {
			switch c := VolumeCauseOf(one); {
			case c == VolumeUnknown || c == found:
			case found != VolumeUnknown:
				return VolumeSeveral
			default:
				found = c
			}
		}
		return found
	}
	return VolumeUnknown
}
