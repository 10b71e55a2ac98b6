// Package contract is what polylet relies on in a CRI runtime, as test cases. The same
// cases run against fakecri and against a real containerd: where the two differ, the fake
// is mended. A case asserts behaviour that a client can see; it must never know which
// runtime it talks to, beyond what its Target says.
package contract

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Target is a runtime under test.
type Target struct {
	Conn grpc.ClientConnInterface
	// Image is the test program's image (test/images/testapp), which can be pulled.
	Image string
	// Other is a second image that can be pulled and is used by nobody else.
	Other string
	// Missing is a name in a registry that answers, without such an image.
	Missing string
	// LogDir is an existing directory for container logs.
	LogDir string
	// CgroupParent is the parent for sandboxes, or "".
	CgroupParent string
	// Containerd16 says that the runtime is of that age: no events, no RuntimeConfig,
	// NotFound for stops of what is unknown.
	Containerd16 bool
}

// Case is one story.
type Case struct {
	// Name is a sentence about behaviour.
	Name string
	run  func(*kit)
}

// Run plays the case against a target. Within a synctest bubble, t is the bubble's.
func (c Case) Run(t *testing.T, target Target) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	k := &kit{
		t: t, ctx: ctx, target: target, pod: strings.ToLower(strings.NewReplacer(" ", "-", "'", "", ",", "").Replace(c.Name)),
		rt: runtimeapi.NewRuntimeServiceClient(target.Conn), img: runtimeapi.NewImageServiceClient(target.Conn),
	}
	defer k.cleanUp()
	c.run(k)
}

// Cases returns all of them, in an order that matters: the first one wants a runtime that
// never had a subscriber to its events.
func Cases() []Case {
	var all []Case
	all = append(all, runtimeCases...)
	all = append(all, sandboxCases...)
	all = append(all, containerCases...)
	all = append(all, processCases...)
	return append(all, imageCases...)
}

// kit is what a case works with.
type kit struct {
	t      *testing.T
	ctx    context.Context
	target Target
	pod    string
	rt     runtimeapi.RuntimeServiceClient
	img    runtimeapi.ImageServiceClient
	made   []string // sandboxes
}

// cleanUp removes what the case made, even when it failed.
func (k *kit) cleanUp() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(k.ctx), 30*time.Second)
	defer cancel()
	for _, id := range k.made {
		_, err := k.rt.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
		if err != nil && status.Code(err) != codes.NotFound {
			k.t.Errorf("clean up: stop sandbox: %v", err)
		}
		if _, err := k.rt.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
			k.t.Errorf("clean up: remove sandbox: %v", err)
		}
	}
}

func (k *kit) sandboxConfig(attempt uint32) *runtimeapi.PodSandboxConfig {
	dir := filepath.Join(k.target.LogDir, k.pod)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		k.t.Fatal(err)
	}
	cfg := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: k.pod, Namespace: "contract", Uid: "uid-" + k.pod, Attempt: attempt},
		Labels:   map[string]string{"case": k.pod}, Annotations: map[string]string{"note": "a b"}, LogDirectory: dir,
		Linux: &runtimeapi.LinuxPodSandboxConfig{},
	}
	if k.target.CgroupParent != "" {
		cfg.Linux.CgroupParent = k.target.CgroupParent + "/" + k.pod
	}
	return cfg
}

func (k *kit) tryRun(cfg *runtimeapi.PodSandboxConfig) (string, error) {
	resp, err := k.rt.RunPodSandbox(k.ctx, &runtimeapi.RunPodSandboxRequest{Config: cfg})
	if err != nil {
		return "", err
	}
	k.made = append(k.made, resp.GetPodSandboxId())
	return resp.GetPodSandboxId(), nil
}

// sandbox runs a sandbox, and pulls the image that its containers will use.
func (k *kit) sandbox() (string, *runtimeapi.PodSandboxConfig) {
	k.t.Helper()
	if _, err := k.img.PullImage(k.ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: k.target.Image}}); err != nil {
		k.t.Fatalf("pull %s: %v", k.target.Image, err)
	}
	cfg := k.sandboxConfig(0)
	id, err := k.tryRun(cfg)
	if err != nil {
		k.t.Fatalf("run a sandbox: %v", err)
	}
	return id, cfg
}

func (k *kit) containerConfig(name string, args ...string) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name}, Image: &runtimeapi.ImageSpec{Image: k.target.Image},
		Args: args, LogPath: name + ".log", Labels: map[string]string{"name": name}, Annotations: map[string]string{"of": name},
	}
}

func (k *kit) tryCreate(sandbox string, cfg *runtimeapi.PodSandboxConfig, c *runtimeapi.ContainerConfig) (string, error) {
	resp, err := k.rt.CreateContainer(k.ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: sandbox, SandboxConfig: cfg, Config: c})
	return resp.GetContainerId(), err
}

func (k *kit) create(sandbox string, cfg *runtimeapi.PodSandboxConfig, name string, args ...string) string {
	k.t.Helper()
	id, err := k.tryCreate(sandbox, cfg, k.containerConfig(name, args...))
	if err != nil {
		k.t.Fatalf("create container %s: %v", name, err)
	}
	return id
}

func (k *kit) tryStart(id string) error {
	_, err := k.rt.StartContainer(k.ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
	return err
}

// running creates and starts a container, and waits until its program is there.
func (k *kit) running(sandbox string, cfg *runtimeapi.PodSandboxConfig, name string, args ...string) string {
	k.t.Helper()
	id := k.create(sandbox, cfg, name, args...)
	if err := k.tryStart(id); err != nil {
		k.t.Fatalf("start container %s: %v", name, err)
	}
	if _, err := k.exec(id, 10, "true"); err != nil {
		k.t.Fatalf("exec in container %s: %v", name, err)
	}
	return id
}

func (k *kit) exec(id string, timeout int64, args ...string) (*runtimeapi.ExecSyncResponse, error) {
	return k.rt.ExecSync(k.ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: append([]string{"/testapp"}, args...), Timeout: timeout})
}

func (k *kit) status(id string) *runtimeapi.ContainerStatus {
	k.t.Helper()
	resp, err := k.rt.ContainerStatus(k.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		k.t.Fatalf("container status: %v", err)
	}
	return resp.GetStatus()
}

func (k *kit) podStatus(id string) *runtimeapi.PodSandboxStatus {
	k.t.Helper()
	resp, err := k.rt.PodSandboxStatus(k.ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		k.t.Fatalf("sandbox status: %v", err)
	}
	return resp.GetStatus()
}

func (k *kit) stop(id string, timeout int64) {
	k.t.Helper()
	if _, err := k.rt.StopContainer(k.ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: timeout}); err != nil {
		k.t.Errorf("stop container: %v", err)
	}
}

// ended waits until a container has exited.
func (k *kit) ended(id string) *runtimeapi.ContainerStatus {
	k.t.Helper()
	var st *runtimeapi.ContainerStatus
	k.eventually("the container exits", func() bool {
		st = k.status(id)
		return st.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
	})
	return st
}

// eventually waits for a condition; a minute is for ever.
func (k *kit) eventually(what string, cond func() bool) {
	k.t.Helper()
	for range 1200 {
		if cond() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	k.t.Fatalf("not in a minute: %s", what)
}

// fails asserts a gRPC code, and a text in the message.
func (k *kit) fails(what string, err error, code codes.Code, text string) {
	k.t.Helper()
	if status.Code(err) != code || !strings.Contains(fmt.Sprint(err), text) {
		k.t.Errorf("%s: got %v, want code %v and %q in the message", what, err, code, text)
	}
}

func (k *kit) works(what string, err error) {
	k.t.Helper()
	if err != nil {
		k.t.Errorf("%s: %v", what, err)
	}
}

// idempotent asserts what a call on something unknown gives.
func (k *kit) idempotent(what string, err error) {
	k.t.Helper()
	if k.target.Containerd16 {
		k.fails(what, err, codes.NotFound, "not found")
	} else {
		k.works(what, err)
	}
}

// reserved asserts the error for a name that is taken.
func (k *kit) reserved(what string, err error) {
	k.t.Helper()
	code := codes.FailedPrecondition
	if k.target.Containerd16 {
		code = codes.Unknown
	}
	k.fails(what, err, code, "is reserved for")
}

func (k *kit) equal(what string, got, want any) {
	k.t.Helper()
	if got != want {
		k.t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

const unknownID = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
