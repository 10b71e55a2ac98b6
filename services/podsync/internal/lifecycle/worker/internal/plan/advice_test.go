package plan

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

func TestAdviceIsAboutWhatIsTheMatter(t *testing.T) {
	for _, c := range []struct {
		kind    podstate.Kind
		message string
		want    string
	}{
		{podstate.PullImage, "dial tcp: connection refused", "registry"},
		{podstate.MakeSandbox, "make the pod's directory: mkdir /var/lib/kubelet/pods/u: no space left on device", "df -i"},
		{podstate.MakeSandbox, "mkdir /var/lib/kubelet/pods/u: disk quota exceeded", "make room"},
		{podstate.MakeSandbox, "mkdir /var/lib/kubelet/pods/u: read-only file system", "dmesg"},
		{podstate.MakeSandbox, "open /var/lib/kubelet/pods/u/etc-hosts: too many open files", "open"},
		{podstate.MakeSandbox, "fork/exec /usr/bin/runc: cannot allocate memory", "memory"},
		{podstate.MakeSandbox, `failed to setup network: plugin type="bridge" failed`, "CNI"},
		{podstate.MakeSandbox, "resource claims gpu: this node has no dynamic resource allocation yet, and what they were allocated cannot be given to the pod", "taint"},
		{podstate.StartContainer, "resource claims gpu: this node has no dynamic resource allocation yet, and what they were allocated cannot be given to the pod", "taint"},
		{podstate.StartContainer, "devices of example.com/gpu: they were a device plugin's while a kubelet had this node, which has no device plugins yet", "taint"},
		{podstate.SetupVolumes, `MountVolume.SetUp failed for volume "e" : mkdir /v: no space left on device`, "df -i"},
		{podstate.StartContainer, "write /var/log/pods/u/c/0.log: no space left on device", "make room"},
		{podstate.StartContainer, "mkdirat /rootfs/data: read-only file system", "check the container"},
		{podstate.PullImage, "write /var/lib/containerd/blob: no space left on device", "image filesystem"},
		{podstate.RemoveSandbox, "it hangs", "runtime's log"},
		{podstate.TeardownVolumes, `volume "v": unmount /v: device or resource busy`, "fuser"},
		// What containerd 1.6 and 2.4 say:
		{podstate.PullImage, `failed to pull and unpack image "r/x:1": blob sha256:06 expected at /root/blobs/sha256/06: blob not found: not found`, "crictl rmi"},
		{podstate.PullImage, `failed to pull and unpack image "r/x:1": failed to resolve image: r/x:1: not found`, "the registry does not have it"},
		{podstate.MakeSandbox, "failed to create containerd container: error unpacking image: blob sha256:50 expected at /root/blobs/sha256/50: blob not found: not found", "crictl rmi"},
		{podstate.MakeSandbox, "failed to create shim task: OCI runtime create failed: unable to retrieve OCI runtime error (open /state/log.json: no such file or directory): fork/exec /opt/nope/runc: no such file or directory: unknown", "runc"},
		{podstate.StartContainer, "failed to create shim task: OCI runtime create failed: unable to retrieve OCI runtime error (open /state/log.json: no such file or directory): fork/exec /opt/nope/runc: no such file or directory: unknown", "runc"},
		{podstate.MakeSandbox, "runc create failed: unable to start container process: container init was OOM-killed (memory limit too low?): unknown", "limits.memory"},
		{podstate.StartContainer, `cannot load seccomp profile "/var/lib/kubelet/seccomp/nope.json": open /var/lib/kubelet/seccomp/nope.json: no such file or directory`, "seccompProfile"},
		{podstate.StartContainer, "container has runAsNonRoot and image will run as root", "runAsUser"},
		{podstate.StartContainer, "container has runAsNonRoot and image has non-numeric user (nobody), cannot verify user is non-root", "runAsUser"},
		{podstate.StartContainer, "unable to setup user: unable to find user nobody: no matching entries in passwd file", "runAsUser"},
		{podstate.StartContainer, `error mounting "/tmp/x" to rootfs at "/etc/passwd/x": not a directory`, "volume mount"},
		{podstate.StartContainer, `exec /app: exec format error`, "processor"},
		{podstate.StartContainer, `chdir to cwd ("/nope") set in config.json failed: no such file or directory`, "workingDir"},
		{podstate.MakeSandbox, `failed to get runtime handler of RuntimeClass "kata": runtimeclasses.node.k8s.io "kata" not found`, "create the RuntimeClass"},
		{podstate.MakeSandbox, `failed to get sandbox runtime: no runtime for "kata" is configured`, "handler of that name"},
		{podstate.MakeSandbox, "failed to find runtime handler kata from runtime list map[runc:0x1]", "handler of that name"},
		{podstate.MakeSandbox, "the container runtime does not support user namespaces (containerd does from 2.0 on, with runc 1.2); remove hostUsers: false", "hostUsers"},
		{podstate.MakeSandbox, "failed to construct FQDN from pod hostname and cluster domain, FQDN a.b is too long (64 characters is the max, 70 characters requested)", "shorter hostname"},
		{podstate.PullImage, "failed to unpack image: no match for platform in manifest: not found", "processor"},
		{podstate.PullImage, `choosing image instance: no image found in image index for architecture "arm64", variant "v8", OS "linux"`, "processor"},
		{podstate.PullImage, "unexpected status from GET request: 429 Too Many Requests: toomanyrequests: You have reached your unauthenticated pull rate limit", "wait"},
		{podstate.PullImage, "pull access denied, repository does not exist or may require authorization: insufficient_scope: authorization failed", "image's name and the pull secrets"},
		{podstate.StartContainer, `failed to prepare subPath for volumeMount "data" of container "c": mkdir x: permission denied`, "subPath"},
		{podstate.StartContainer, `couldn't read environment file "a" of volume "v": permission denied`, "environment is read from"},
		{podstate.StartContainer, "failed to apply apparmor profile: write /proc/self/attr/exec: no such file or directory", "AppArmor"},
		{podstate.MakeSandbox, `failed to reserve sandbox name "p_default_u1_0": name is reserved for "abc"`, "earlier try"},
		{podstate.StartContainer, `failed to reserve container name "a_p_default_u1_0": name "a_p_default_u1_0" is reserved for "1234"`, "earlier try"},
		{podstate.MakeSandbox, `failed to setup network for sandbox: plugin type="bridge" failed (add): no IP addresses available in range set: 10.244.1.1-10.244.1.254`, "used up"},
		{podstate.MakeSandbox, `failed to get sandbox image "registry.k8s.io/pause:3.10": failed to pull image: dial tcp: i/o timeout`, "pause"},
		{podstate.MakeSandbox, "open /proc/sys/net/core/somaxconn: no such file or directory", "sysctls"},
		{podstate.MakeSandbox, "context deadline exceeded", "overloaded"},
		{podstate.StartContainer, "context deadline exceeded", "overloaded"},
		{podstate.StartContainer, "unable to find target container x: it does not run", "--target"},
		{podstate.StartContainer, `error gathering device information while adding custom device "/dev/foo": no such file or directory`, "device"},
		{podstate.StartContainer, `path "/mnt/x" is mounted on "/" but it is not a shared mount`, "rshared"},
		{podstate.StartContainer, "error adding pid to cgroups: write /sys/fs/cgroup/x/cgroup.procs: no such file or directory", "cgroup driver"},
		{podstate.StartContainer, "write /proc/self/attr/keycreate: permission denied", "seLinuxOptions"},
		{podstate.PullImage, "unexpected status from HEAD request to https://r/v2: 503 Service Unavailable", "wait"},
		{podstate.StartContainer, `exec: "/nope": stat /nope: no such file or directory`, "command and args"},
	} {
		if got := advice(c.kind, Failure{Message: c.message}); !strings.Contains(got, c.want) {
			t.Errorf("%v, %s: the advice is %q, want %q in it", c.kind, c.message, got, c.want)
		}
	}
	hangs := Failure{Reason: "ImageInspectError", Message: `Failed to inspect image "app:1": rpc error: code = DeadlineExceeded desc = context deadline exceeded`}
	if got := advice(podstate.PullImage, hangs); !strings.Contains(got, "container runtime") {
		t.Errorf("of a runtime that hangs the advice is %q", got)
	}
}

// A container that could not be started has no log.
func TestWhoNeverRanHasNoLastWords(t *testing.T) {
	c := &podstate.Container{ExitCode: 128, Reason: "StartError", Message: `exec: "/nope": stat /nope: no such file or directory`}
	if got := exitAdvice(c); strings.Contains(got, "polylet logs") || !strings.Contains(got, "command and args") {
		t.Errorf("the advice is %q", got)
	}
	c.Message = "Exec Format Error"
	if got := exitAdvice(c); !strings.Contains(got, "this node's processor") {
		t.Errorf("of words that begin with capitals the advice is %q", got)
	}
	if got := exitAdvice(&podstate.Container{ExitCode: 3, Reason: "Error"}); !strings.Contains(got, "polylet logs") {
		t.Errorf("of one that ran the advice is %q", got)
	}
}

func TestOurOwnDiskThatIsReadOnlyIsNotTheContainers(t *testing.T) {
	f := Failure{Reason: "CreateContainerConfigError", Message: "write the pod's hosts file: open /var/lib/kubelet/pods/u/etc-hosts: read-only file system"}
	if got := advice(podstate.StartContainer, f); !strings.Contains(got, "dmesg") {
		t.Errorf("the advice is %q", got)
	}
}

// The runtime was not asked yet.
func TestAdviceOnASandboxThatCannotBeDescribedIsAboutWhatItsErrorNames(t *testing.T) {
	f := Failure{Reason: "ConfigPodSandboxError", Message: "read the host's resolver configuration (resolvConf): open /none: no such file or directory"}
	if got := advice(podstate.MakeSandbox, f); strings.Contains(got, "CNI") || !strings.Contains(got, "the error names") {
		t.Errorf("the advice is %q", got)
	}
}

func TestAPodThatWaitsForAdmissionSaysWhereToLook(t *testing.T) {
	for reason, want := range map[string]string{
		"InvalidNodeInfo": "apiserver", "Preempting": "polylet explain", "SameName": "earlier one", "UnexpectedAdmissionError": "plugin",
		"Evicted": "explain node", "": "asked again",
	} {
		w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
		w.s.Admission = podstate.Admission{Decision: podstate.AdmissionPending, Reason: reason, Message: "it waits"}
		out := Plan(w.s)
		if len(out.Waits) != 1 || out.Waits[0].Reason != "it waits" || !strings.Contains(out.Waits[0].Advice, want) {
			t.Errorf("%s: %+v", reason, out.Waits)
		}
	}
}

// Else it would be looked for at the runtime, or in the network.
func TestWhatPanickedIsToBeReported(t *testing.T) {
	for _, k := range []podstate.Kind{podstate.MakeSandbox, podstate.StartContainer, podstate.TeardownVolumes} {
		if got := advice(k, Failure{Reason: podstate.ReasonPanicked, Message: "internal error: it panicked: no space left on device"}); !strings.Contains(got, "podsync's log") {
			t.Errorf("%s: %s", k, got)
		}
	}
}
