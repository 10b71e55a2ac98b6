package plan

// advice says what a person can do about a failed action.
func advice(k Kind, f Failure) string {
	if f.Away {
		return "start the container runtime; polylet status shows whether it answers"
	}
	switch k {
	case PullImage:
		switch f.Reason {
		case "InvalidImageName":
			return "mend the image name in the pod's spec"
		case "ErrImageNeverPull":
			return "load the image on the node or change imagePullPolicy"
		}
		return "check the image's name, the registry and the pull secrets"
	case SetupVolumes:
		return "create the missing object or mend the volume that the error names"
	case MakeSandbox:
		return "check the runtime's log and the CNI configuration"
	case StartContainer:
		return "check the container's command, environment and references"
	case BeginStop, KillContainer, StopSandbox, RemoveContainer, RemoveSandbox:
		return "check the runtime's log: it does not stop or remove what it runs"
	case TeardownVolumes:
		return "find who keeps the mount busy, e.g. with findmnt and fuser"
	case DeleteObject:
		return "check the connection to the apiserver and the node's permissions"
	default:
		return "see podsync's log"
	}
}
