// Package image makes the images of containers present: pull policies, names,
// credentials, and pulls that run at once within a bound and only once for
// those who want the same.
//
// It owns what happens between a container's image name and a reference that
// the runtime can run. It must never wait between attempts (the planner does)
// and never remove an image.
package image

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The reasons that Kubernetes users look for.
const (
	ErrImagePull      = "ErrImagePull"
	ErrNeverPull      = "ErrImageNeverPull"
	ErrInvalidName    = "InvalidImageName"
	ErrInspect        = "ImageInspectError"
	ErrRegistry       = "RegistryUnavailable"
	ErrSignature      = "SignatureValidationFailed"
	eventPulling      = "Pulling"
	eventPulled       = "Pulled"
	eventFailed       = "Failed"
	eventNeverPull    = "ErrImageNeverPull"
	eventInspect      = "InspectFailed"
	eventSecretFailed = "FailedToRetrieveImagePullSecret"
)

// Client is what is asked of the runtime; *cri.Client has it.
type Client interface {
	Image(ctx context.Context, name string) (*runtimeapi.Image, error)
	PullImage(ctx context.Context, spec *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error)
}

// Secrets reads the pull secrets.
type Secrets interface {
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
}

// Events records events on a pod and its containers.
type Events interface {
	Pod(pod *v1.Pod, eventType, reason, message string)
	Container(pod *v1.Pod, container, eventType, reason, message string)
}

// Config of a Puller.
type Config struct {
	// Parallel is how many pulls run at once; no bound when zero, one by one
	// (serializeImagePulls) when 1.
	Parallel int
	// CredentialFiles are docker configuration files of the node, first wins,
	// e.g. /var/lib/kubelet/config.json. They are read at each pull.
	CredentialFiles []string
}

// Deps are what a Puller is given; all but Secrets must be set.
type Deps struct {
	Client  Client
	Secrets Secrets
	Events  Events
}

// Error says why an image is not present, with the waiting reason.
type Error struct {
	Reason string
	Err    error
}

// Error is the message without the reason.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Puller makes images present. Safe for concurrent use.
type Puller struct {
	cfg    Config
	deps   Deps
	places chan struct{}

	mu    sync.Mutex
	pulls map[string]*pull
}

// New returns a Puller.
func New(cfg Config, deps Deps) *Puller {
	p := &Puller{cfg: cfg, deps: deps, pulls: map[string]*pull{}}
	if cfg.Parallel > 0 {
		p.places = make(chan struct{}, cfg.Parallel)
	}
	return p
}

// Ensure makes the image of a container present as its pull policy says, and
// returns the reference to run. It records the events. Errors are *Error.
func (p *Puller) Ensure(ctx context.Context, pod *v1.Pod, c *v1.Container) (string, error) {
	name, err := Normalize(c.Image)
	if err != nil {
		p.deps.Events.Container(pod, c.Name, v1.EventTypeWarning, eventInspect, fmt.Sprintf("Failed to apply default image tag %q: %v", c.Image, err))
		return "", p.fail(pod, c, ErrInvalidName, fmt.Errorf("failed to apply default image tag %q: %w", c.Image, err))
	}
	var present *runtimeapi.Image
	if policy(c) != v1.PullAlways {
		present, err = p.deps.Client.Image(ctx, name)
		if err != nil {
			p.deps.Events.Container(pod, c.Name, v1.EventTypeWarning, eventInspect, fmt.Sprintf("Failed to inspect image %q: %v", c.Image, err))
			return "", p.fail(pod, c, ErrInspect, fmt.Errorf("failed to inspect image %q: %w", c.Image, err))
		}
	}
	if present != nil {
		p.deps.Events.Container(pod, c.Name, v1.EventTypeNormal, eventPulled,
			fmt.Sprintf("Container image %q already present on machine and can be accessed by the pod", c.Image))
		return present.GetId(), nil
	}
	if policy(c) == v1.PullNever {
		p.deps.Events.Container(pod, c.Name, v1.EventTypeWarning, eventNeverPull,
			fmt.Sprintf("Container image %q is not present with pull policy of Never", c.Image))
		return "", p.fail(pod, c, ErrNeverPull, fmt.Errorf("container image %q is not present with pull policy of Never", c.Image))
	}
	return p.pull(ctx, pod, c, name)
}

// pull pulls, with the credentials that fit, and records the events.
func (p *Puller) pull(ctx context.Context, pod *v1.Pod, c *v1.Container, name string) (string, error) {
	p.deps.Events.Container(pod, c.Name, v1.EventTypeNormal, eventPulling, fmt.Sprintf("Pulling image %q", c.Image))
	began := time.Now()
	res := p.share(ctx, name, p.credentials(ctx, pod, name))
	if res.err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		p.deps.Events.Container(pod, c.Name, v1.EventTypeWarning, eventFailed, fmt.Sprintf("Failed to pull image %q: %v", c.Image, res.err))
		return "", p.fail(pod, c, classify(res.err), res.err)
	}
	size := uint64(0)
	ref := res.ref
	if img, err := p.deps.Client.Image(ctx, name); err == nil && img != nil {
		size = img.GetSize()
		ref = img.GetId()
	}
	p.deps.Events.Container(pod, c.Name, v1.EventTypeNormal, eventPulled, fmt.Sprintf(
		"Successfully pulled image %q in %v (%v including waiting). Image size: %d bytes.",
		c.Image, res.took.Truncate(time.Millisecond), time.Since(began).Truncate(time.Millisecond), size))
	return ref, nil
}

// fail records the second event of a failure and makes the error.
func (p *Puller) fail(pod *v1.Pod, c *v1.Container, reason string, err error) error {
	p.deps.Events.Container(pod, c.Name, v1.EventTypeWarning, eventFailed, "Error: "+reason)
	return &Error{Reason: reason, Err: err}
}

// classify finds the waiting reason that a runtime gave in words.
func classify(err error) string {
	switch text := err.Error(); {
	case strings.Contains(text, ErrRegistry):
		return ErrRegistry
	case strings.Contains(text, ErrSignature):
		return ErrSignature
	}
	return ErrImagePull
}

// policy is the container's; the API defaults it, but not for every source.
func policy(c *v1.Container) v1.PullPolicy {
	if c.ImagePullPolicy != "" {
		return c.ImagePullPolicy
	}
	if name, err := Normalize(c.Image); err == nil && strings.HasSuffix(name, ":latest") {
		return v1.PullAlways
	}
	return v1.PullIfNotPresent
}

// Normalize gives an image name the tag "latest" when it has neither tag nor digest.
func Normalize(name string) (string, error) {
	if name == "" {
		return "", errors.New("the image name is empty")
	}
	if strings.TrimSpace(name) != name {
		return "", errors.New("the image name begins or ends with a space")
	}
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return "", fmt.Errorf("couldn't parse image name %q: %w", name, err)
	}
	if !reference.IsNameOnly(named) {
		return name, nil
	}
	return name + ":latest", nil
}
