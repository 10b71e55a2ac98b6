package plan

import (
	"cmp"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// volumeAdvice is about a volume that could not be set up. It goes by what kind of thing the
// matter is: words of the text may be a driver's, a server's or a program's. f's message is in
// lower case.
func volumeAdvice(f Failure) string {
	if f.Volume != podstate.VolumeUnknown {
		return cmp.Or(volumeCauseAdvice(f.Volume), neutralVolume)
	}
	return cmp.Or(lackAdvice(podstate.SetupVolumes, f), neutralVolume)
}

// neutralVolume is true of each volume.
const neutralVolume = "look at the volume's message, which names what has failed; it is tried again by itself"

// volumeCauseAdvice is what a person can do about a volume that could not be set up; empty for
// a cause of which nothing is known.
func volumeCauseAdvice(c podstate.VolumeCause) string {
	return cmp.Or(ownAdvice(c), specAdvice(c), clusterAdvice(c), claimAdvice(c), attachAdvice(c), driverAdvice(c), storageAdvice(c))
}

// ownAdvice is about what is this node agent's own.
func ownAdvice(c podstate.VolumeCause) string {
	switch c {
	case podstate.VolumeSeveral:
		return "look at the volume's message, which names several things that have failed; it is tried again by itself"
	case podstate.VolumeAsSaid:
		return "do what the volume's message says; it is tried again by itself"
	case podstate.VolumePanicked:
		return "podsync's log has the stack: please report it; it is a fault of polylet's, and tried again by itself"
	case podstate.VolumeUnderWay:
		return "wait: it goes on, and is tried again by itself; if it does not end, look at what is behind the volume: the log of its CSI driver on this node, its server, or the disk"
	}
	return ""
}

// specAdvice is about what a volume is said to be.
func specAdvice(c podstate.VolumeCause) string {
	switch c {
	case podstate.VolumeSpec:
		return "correct what the error names, in the pod's spec or in the PersistentVolume; the volumes of a pod that is there cannot be changed: delete it and make it anew"
	case podstate.VolumeUnsupported:
		return "use another kind of volume: this node does not make that one"
	case podstate.VolumeOptions:
		return "take out of the PersistentVolume's mountOptions, and out of its StorageClass's for later ones, what this kind of volume does not have"
	case podstate.VolumeNested:
		return "mount the other volume somewhere else, or rename the file that is in its way, and make the pod anew"
	case podstate.VolumeLabels:
		return "give all containers and pods that have this volume on this node the same seLinuxOptions, or set seLinuxChangePolicy: Recursive in them; if another pod has the volume with its own label, it is tried again when that is gone"
	}
	return ""
}

// clusterAdvice is about what the apiserver is asked for.
func clusterAdvice(c podstate.VolumeCause) string {
	switch c {
	case podstate.VolumeObjectMissing:
		return "create what the error names, or mend the volume's reference to it; it is tried again by itself"
	case podstate.VolumeForbidden:
		return "the node may not read or ask for what the error names: check that the pod names it, and the node's permissions"
	case podstate.VolumeAPIServer:
		return "look whether the apiserver runs and answers this node (polylet status), and at what it says; it is tried again by itself"
	case podstate.VolumeCertificate:
		return "look at the pod's PodCertificateRequests (kubectl describe), and whether the signer that they name runs; if one was denied or has failed, mend what it says and make the pod anew"
	}
	return ""
}

// claimAdvice is about a claim and the volume that it is bound to.
func claimAdvice(c podstate.VolumeCause) string {
	switch c {
	case podstate.VolumeNotBound:
		return "look why the claim is not bound (kubectl describe pvc): it needs a PersistentVolume that fits it, or a StorageClass whose provisioner runs; the pod goes on as soon as it is bound"
	case podstate.VolumeClaimEnding:
		return "the claim is being deleted: make it anew when it is gone, or have the pod name another"
	case podstate.VolumeOthersClaim:
		return "the PersistentVolume is for another claim, which may have had the same name: make the claim anew, so that it gets a volume of its own, or mend the PersistentVolume's claimRef"
	case podstate.VolumeOthersPod:
		return "a claim has the name that this pod's own is to have: delete it if nobody needs it, and the pod's is made, or give the volume or the pod another name"
	case podstate.VolumeInUse:
		return "only one pod at a time may have this volume: delete the pod that has it, or wait for its end (polylet volumes names it; if none has it, one that is gone has left it below the pods directory, and the log of podsync says what keeps its volumes there); it is tried again by itself"
	case podstate.VolumeMode:
		return "name the volume in volumeDevices if its volumeMode is Block, and in volumeMounts if it is Filesystem, or use a claim of the other volumeMode"
	case podstate.VolumeNoDevice:
		return "use a block device for a volume of volumeMode Block, or make the PersistentVolume and its claim with volumeMode Filesystem; hostPath and nfs have no devices"
	case podstate.VolumeOtherNode:
		return "let the pod run on a node that the PersistentVolume's nodeAffinity allows (kubectl describe pv): leave the choice to the scheduler, or mend the node's labels"
	}
	return ""
}

// attachAdvice is about a volume that waits for what others do about the node.
func attachAdvice(c podstate.VolumeCause) string {
	switch c {
	case podstate.VolumeNoController:
		return "set enableControllerAttachDetach to true in this node's kubelet configuration: volumes of CSI drivers are attached by the control plane only"
	case podstate.VolumeNodeUnread:
		return "polylet status says whether the apiserver answers this node, and lets it read its Node"
	case podstate.VolumeNotTold:
		return "wait until the Node's status names the volume in volumesInUse, which nodestatus writes: polylet status says whether it runs and the apiserver answers"
	case podstate.VolumeNoRoom:
		return "delete pods here that have such volumes, or let this one run on another node: this one can have no more of them attached"
	case podstate.VolumeNotAttached:
		return "the control plane attaches the volume, and this node waits for that: look at its VolumeAttachment (kubectl describe volumeattachments), and at the logs of kube-controller-manager and of the driver's external-attacher; the pod goes on as soon as it is attached"
	case podstate.VolumeDiskNotAttached:
		return "the attach-detach controller names the volume in the Node's status when it may be used here, and this node waits for that: look at the log of kube-controller-manager, and whether another node has the volume still"
	}
	return ""
}

// driverAdvice is about a CSI driver.
func driverAdvice(c podstate.VolumeCause) string {
	switch c {
	case podstate.VolumeDriverAway:
		return "start the CSI driver that the error names on this node: it has not registered itself; the volume is set up as soon as it does"
	case podstate.VolumeDriverMode:
		return "use another driver, or have its CSIDriver object list in volumeLifecycleModes what the error names: Ephemeral for a volume in a pod's own spec, Persistent for a claim's"
	case podstate.VolumeDriverSilent:
		return "look whether the volume's CSI driver runs on this node, and at its log: it has not done in time what it was asked for"
	case podstate.VolumeDriverRefused:
		return "look at the log of the volume's CSI driver on this node: the error is the driver's own answer; it is asked again"
	}
	return ""
}

// storageAdvice is about what a volume is made of.
func storageAdvice(c podstate.VolumeCause) string {
	switch c {
	case podstate.VolumeProgramMissing:
		return "install on this node what the error names; it is tried again by itself"
	case podstate.VolumeServerSilent:
		return "look at the server behind the volume and at the node's mounts: something does not answer"
	case podstate.VolumeServerRefused:
		return "check the server's name, the path and the mount options of the volume, and on the server whether it exports that to this node; the error has what mount has said"
	case podstate.VolumeTarget:
		return "check the volume's portals, iqn, lun and CHAP secret, on the target whether it lets this node have the disk, and the log of iscsid on this node"
	case podstate.VolumeFabric:
		return "check the volume's WWNs and lun, or its WWIDs, and whether the fabric and the storage let this node have the disk (zones, LUN masks)"
	case podstate.VolumeDisk:
		return "look at the disk on this node (lsblk, blkid, dmesg), and at what the programs have said of it, which the error has"
	case podstate.VolumeOtherFilesystem:
		return "have the volume's fsType say which filesystem the disk has (blkid), or use an empty disk: what is on one is never overwritten"
	case podstate.VolumeHostPath:
		return "make on this node what hostPath.path names, of the type that hostPath.type asks for; DirectoryOrCreate and FileOrCreate make it themselves"
	case podstate.VolumeLocalPath:
		return "make the directory on this node that local.path of the PersistentVolume names, or have the disk there; it is tried again by itself"
	case podstate.VolumeBusy:
		return "find who keeps the mount busy, e.g. with findmnt and fuser"
	}
	return ""
}

// unmountAdvice is about a volume that could not be unmounted; f's message is in lower case.
func unmountAdvice(f Failure) string {
	switch c := f.Volume; c {
	case podstate.VolumeDriverAway:
		return "start the CSI driver that the error names on this node: it has not registered itself, and it alone can take its volume back; that is asked for as soon as it does"
	case podstate.VolumeDriverSilent:
		return "look at the log of the volume's CSI driver on this node: it does not answer; other volumes of the pod do not wait for it"
	case podstate.VolumeDriverRefused:
		return "look at the log of the volume's CSI driver on this node: it does not take its volume back"
	case podstate.VolumePanicked, podstate.VolumeUnderWay, podstate.VolumeServerSilent, podstate.VolumeBusy:
		return volumeCauseAdvice(c)
	case podstate.VolumeUnknown:
		return cmp.Or(lackAdvice(podstate.TeardownVolumes, f), neutralUnmount)
	}
	return neutralUnmount
}

// neutralUnmount is true of each volume.
const neutralUnmount = "mend what the error names; if something keeps a mount busy, findmnt and fuser -m say what"
