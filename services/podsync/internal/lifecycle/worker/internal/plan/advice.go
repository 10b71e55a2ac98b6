package plan

import (
	"cmp"
	"strings"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// advice says what a person can do about a failed action.
func advice(k podstate.Kind, f Failure) string {
	f.Message = strings.ToLower(f.Message) // once, for all that is looked for in it
	if f.Reason == podstate.ReasonPanicked {
		return "podsync's log has the stack: please report it; it is a fault of polylet's, and tried again by itself"
	}
	if f.Away {
		return "start the container runtime; polylet status shows whether it answers"
	}
	switch k {
	case podstate.SetupVolumes:
		return volumeAdvice(f)
	case podstate.TeardownVolumes:
		return unmountAdvice(f)
	}
	if lack := cmp.Or(lackAdvice(k, f), runtimeAdvice(f)); lack != "" {
		return lack
	}
	switch k {
	case podstate.PullImage:
		return imageAdvice(f)
	case podstate.MakeSandbox:
		return sandboxAdvice(f)
	case podstate.StartContainer:
		return startAdvice(f)
	case podstate.StopSandbox:
		if names(f.Message, "cni", "network plugin", "plugin type", "tear down network", "destroy network") {
			return "mend the CNI plugin: its binary, its configuration in /etc/cni/net.d, and its log; the pod stays until its network is taken down, for its address is not free before"
		}
		return "check the runtime's log: it does not stop or remove what it runs"
	case podstate.BeginStop, podstate.KillContainer, podstate.RemoveContainer, podstate.RemoveSandbox:
		return "check the runtime's log: it does not stop or remove what it runs"
	case podstate.ResizeContainer, podstate.FitCgroup:
		return "if the limit is below what is in use, ask for more or let the container use less; else check the runtime's log"
	case podstate.DeleteObject:
		return "check the connection to the apiserver and the node's permissions"
	default:
		return "see podsync's log"
	}
}

// names says whether a message, in lower case, has one of the words.
func names(message string, words ...string) bool {
	for _, w := range words {
		if strings.Contains(message, w) {
			return true
		}
	}
	return false
}

// lackAdvice is about what the machine has none of any more, whatever was tried;
// "" when it is something else.
func lackAdvice(k podstate.Kind, f Failure) string {
	switch {
	case k == podstate.PullImage && names(f.Message, "no space left"):
		return "make room on the node's image filesystem"
	case names(f.Message, "no space left on device", "disk quota exceeded"):
		return "make room on the filesystem that the error names: df shows its bytes, df -i its inodes"
	case names(f.Message, "read-only file system") && (k != podstate.StartContainer || f.Reason == "CreateContainerConfigError"):
		return "find why that filesystem became read-only (dmesg), and mount it for writing again"
	case names(f.Message, "too many open files"):
		return "find who holds so many files open on the node, or raise the limit: the process's own, fs.file-max, or fs.inotify.max_user_instances"
	case names(f.Message, "cannot allocate memory"):
		return "make memory free on the node"
	}
	return ""
}

// runtimeAdvice is about what is broken in the runtime itself, whatever it was asked
// for; "" when it is something else.
func runtimeAdvice(f Failure) string {
	switch {
	case names(f.Message, "has no dynamic resource allocation", "has no device plugins"):
		return "let the pod run on a node that has them: delete it here, and keep pods that ask for devices away from this node with a taint or a node selector"
	case names(f.Message, "blob not found", "error unpacking image", "does not exist: not found") && names(f.Message, "blob", "snapshot"):
		return "the runtime has lost a part of this image on the node's disk, no registry was asked for it: remove the image there (crictl rmi, or ctr -n k8s.io images rm of every name it has), then it is pulled anew"
	case names(f.Message, "unable to retrieve oci runtime error", "failed to start shim", "binary not installed"):
		return "mend the OCI runtime on the node: the program that the error or the runtime's configuration names (runc, its shim) is not there or does not run"
	case names(f.Message, "is reserved for", "is still making this"):
		return "wait: the runtime is still at an earlier try of the same; if it does not end, look at the runtime's log, and restart the runtime: containers go on"
	}
	return ""
}

func sandboxAdvice(f Failure) string {
	switch {
	case names(f.Message, "runtime handler of runtimeclass"):
		return "create the RuntimeClass that the error names, or mend the pod's runtimeClassName; it is tried again as soon as it is there"
	case names(f.Message, "no runtime for", "failed to find runtime handler"):
		return "give the container runtime a handler of that name on this node, mend the RuntimeClass, or keep its pods away from this node with the RuntimeClass's scheduling"
	case names(f.Message, "user namespaces", "hostusers"):
		return "mend what the error names: the pod's hostUsers or RuntimeClass, or the container runtime of the node"
	case names(f.Message, "fqdn"):
		return "give the pod a shorter hostname or subdomain, or set setHostnameAsFQDN to false"
	case names(f.Message, "no ip addresses available", "no available ip", "ipam: no free"):
		return "the node's range of pod addresses is used up: look for addresses that nobody has any more in the CNI plugin's store (/var/lib/cni/networks), or give the node a larger range"
	case names(f.Message, "cni", "network plugin", "plugin type", "setup network"):
		return "mend the CNI plugin: its binary, its configuration in /etc/cni/net.d, and its log"
	case names(f.Message, "get sandbox image"):
		return "let the runtime have its sandbox (pause) image: load it on the node, or name one in the runtime's configuration that can be pulled"
	case names(f.Message, "sysctl", "/proc/sys/"):
		return "mend securityContext.sysctls: the node's kernel has none of that name for pods, or does not take the value"
	case names(f.Message, "deadline exceeded"):
		return slowRuntime
	case tooSmall(f.Message):
		return smallAdvice
	case f.Reason == "ConfigPodSandboxError":
		return "mend on the node what the error names; the runtime was not asked yet"
	}
	return "check the runtime's log and the CNI configuration"
}

// tooSmall says whether a container was killed by its own limit before it ran.
func tooSmall(message string) bool {
	return names(message, "init was oom-killed", "memory limit too low")
}

const slowRuntime = "the container runtime did not do it in time: look at its log, and whether the node's disk, memory or processors are overloaded (dmesg, /proc/pressure)"

const smallAdvice = "raise resources.limits.memory: with so little no container can even be started"

func imageAdvice(f Failure) string {
	switch f.Reason {
	case "InvalidImageName":
		return "mend the image name in the pod's spec"
	case "ErrImageNeverPull":
		return "load the image on the node or change imagePullPolicy"
	case "ImageInspectError":
		return "the container runtime does not say which images it has, and no registry was asked: look at its log; polylet status shows whether it answers"
	}
	switch {
	case names(f.Message, "no match for platform", "no image found in image index for architecture", "no matching manifest for"):
		return "use an image that was built for this node's processor: the registry has this one for others only; or keep the pod away from this node with a node selector (kubernetes.io/arch)"
	case names(f.Message, "toomanyrequests", "too many requests", "rate limit"):
		return "wait, it is tried again: the registry lets this node pull no more for now; pull secrets or a mirror may have a higher limit"
	case names(f.Message, "may require authorization", "repository does not exist"):
		return "check the image's name and the pull secrets: the registry tells nobody without credentials whether it has it"
	case names(f.Message, "unauthorized", "authorization failed", "forbidden", "denied", "no basic auth"):
		return "check the pull secrets: the registry wants credentials for this image"
	case names(f.Message, "not found", "manifest unknown", "name unknown"):
		return "mend the image's name or tag, or push the image: the registry does not have it"
	case names(f.Message, "connection refused", "no such host", "i/o timeout", "no route", "dial tcp", "deadline exceeded", "server misbehaving", "eof"):
		return "check that the registry runs and can be reached from this node (address, DNS, proxy, firewall)"
	case names(f.Message, "500 internal", "502 bad gateway", "503 service", "504 gateway"):
		return "wait, it is tried again: the registry, or a proxy in front of it, is in trouble itself"
	case names(f.Message, "certificate", "x509", "http response to https"):
		return "check the registry's certificate and the runtime's configuration for this registry"
	}
	return "check the image's name, the registry and the pull secrets"
}

// startAdvice is about a container that could not be made or started; f's message is in
// lower case.
func startAdvice(f Failure) string {
	switch {
	case f.Reason == "PostStartHookError":
		return "check the container's postStart hook"
	case tooSmall(f.Message):
		return smallAdvice
	case names(f.Message, "subpath"):
		return "check the volume mount that the error names: its subPath in the volume, and what lies there"
	case names(f.Message, "environment file", "environment of envfrom"):
		return "check the file or object that the container's environment is read from"
	case names(f.Message, "unable to find target container"):
		return "name a container that runs as the target of the debug container (kubectl debug --target)"
	case names(f.Message, "device information", "custom device"):
		return "look whether the node has the device that the error names"
	case names(f.Message, "not a shared mount", "not a shared or slave mount"):
		return "make that mount of the node a shared one (mount --make-rshared), or leave mountPropagation out"
	case names(f.Message, "apparmor"):
		return "load the AppArmor profile that the error names on the node, or mend securityContext.appArmorProfile"
	case names(f.Message, "seccomp"):
		return "put the seccomp profile on the node, where the error names it, or mend securityContext.seccompProfile"
	case names(f.Message, "runasnonroot", "non-root"):
		return "set securityContext.runAsUser to a number other than 0, or use an image whose user is one: runAsNonRoot allows no other"
	case names(f.Message, "unable to find user", "unable to find group", "no users found"):
		return "set securityContext.runAsUser to a number, or mend the image: it has no user or group of that name"
	case names(f.Message, "to rootfs at", "error mounting"):
		return "check the volume mount that the error names: what is mounted there, and onto what"
	case names(f.Message, "exec format error"):
		return "use an image that was built for this node's processor, or mend the program: it is none that the node can run"
	case names(f.Message, "chdir to cwd"):
		return "check workingDir: the image has no such directory, or its user may not enter it"
	case names(f.Message, "cgroup"):
		return "look at the node's cgroups: somebody else may have removed the pod's, or the runtime has another cgroup driver than this node"
	case names(f.Message, "/proc/self/attr"):
		return "check securityContext (seLinuxOptions, appArmorProfile): the node's kernel does not take its label or profile"
	case names(f.Message, "deadline exceeded"):
		return slowRuntime
	case names(f.Message, "executable file not found", "no such file or directory", "permission denied"):
		return "check command and args: the image has no such program, or it may not be run"
	case names(f.Message, "secret", "configmap", "config map"):
		return "create the Secret or ConfigMap, or the key in it, that the error names, or mend the reference in env"
	}
	return "check the container's command, environment and references"
}

// admissionAdvice says what a person can do about a pod that waits for admission.
func admissionAdvice(reason string) string {
	switch reason {
	case "InvalidNodeInfo":
		return "polylet status says whether the apiserver answers this node, and lets it read its Node"
	case "Preempting":
		return "polylet explain of those pods says what holds up their end"
	case "SameName":
		return "what holds up the end of the earlier one stands beside this"
	case "UnexpectedAdmissionError":
		return "look whether the plugin of these devices runs on this node, and what it says"
	case "Evicted":
		return "polylet status says whether nodestatus runs, and polylet explain node what the node is short of"
	}
	return "it is asked again at each change"
}
