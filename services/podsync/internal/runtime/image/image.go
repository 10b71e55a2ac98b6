// Package image makes the images of containers and of image volumes present:
// pull policies, names, credentials, who may use what is present, and pulls
// that run at once within a bound and only once for those who want the same.
//
// It owns what happens between an image's name and a reference that the runtime
// can run. It must never wait between attempts (the planner does) and never
// remove an image.
package image

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/flowcontrol"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/services/podsync/internal/reason"
	"github.com/polylet/polylet/services/podsync/internal/runtime/image/credentialprovider"
	"github.com/polylet/polylet/services/podsync/internal/runtime/image/pullrecord"
	"github.com/polylet/polylet/services/podsync/internal/runtime/image/reference"
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
	ImageFor(ctx context.Context, spec *runtimeapi.ImageSpec) (*runtimeapi.Image, error)
	PullImage(ctx context.Context, spec *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error)
}

// Secrets reads the pull secrets.
type Secrets interface {
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
}

// Providers asks the credential provider plugins; *credentialprovider.Set has it.
type Providers interface {
	Answers(ctx context.Context, pod *v1.Pod, image string) ([]credentialprovider.Answer, []error)
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
	// QPS is how many pulls may begin in a second, after Burst at once; no bound
	// when zero.
	QPS   float32
	Burst int
	// CredentialFiles are docker configuration files of the node; the first that
	// can be read counts, e.g. /var/lib/kubelet/config.json. They are read at
	// each pull.
	CredentialFiles []string
}

// Deps are what a Puller is given; all but Secrets, Providers, Records and
// Metrics must be set.
type Deps struct {
	Client    Client
	Secrets   Secrets
	Providers Providers
	// Records of earlier pulls; without them who may use an image that is
	// present is not verified.
	Records *pullrecord.Ledger
	Events  Events
	Metrics prometheus.Registerer
}

// Request is an image that a pod wants.
type Request struct {
	Pod *v1.Pod
	// Container wants it; empty for an image volume, whose events are the pod's.
	Container string
	// Image is its name as the spec has it.
	Image string
	// Policy empty is what the API would fill in.
	Policy v1.PullPolicy
	// Early: nobody needs the image yet. One that is there is enough, whatever the policy
	// says, and a failure has no event. It is asked for again when somebody needs it.
	Early bool
	// Waits is told what the pull waits for before it begins, and over when that has
	// come; may be nil, must not block.
	Waits func(what string) (over func())
	// Sandbox is the configuration of the pod's sandbox, by which a runtime may choose
	// the policy for signatures, credentials of its own, and where the image goes. The
	// sandbox itself need not be there.
	Sandbox *runtimeapi.PodSandboxConfig
}

// spec is the image of this name as the runtime is asked for it.
func (r Request) spec(name string) *runtimeapi.ImageSpec {
	return &runtimeapi.ImageSpec{Image: name, UserSpecifiedImage: name, Annotations: r.Pod.Annotations}
}

// Puller makes images present. Safe for concurrent use.
type Puller struct {
	cfg     Config
	deps    Deps
	turns   *turns
	limiter flowcontrol.RateLimiter // nil for no bound
	metrics *metrics

	mu    sync.Mutex
	pulls map[string]*pull
}

// New returns a Puller.
func New(cfg Config, deps Deps) *Puller {
	p := &Puller{cfg: cfg, deps: deps, pulls: map[string]*pull{}, turns: newTurns(cfg.Parallel), metrics: newMetrics(deps.Metrics, deps.Records)}
	if cfg.QPS > 0 {
		p.limiter = flowcontrol.NewTokenBucketRateLimiter(cfg.QPS, max(1, cfg.Burst))
	}
	return p
}

// Ensure makes an image present as its pull policy says, and returns the
// reference to run. It records the events. Errors have a reason.
func (p *Puller) Ensure(ctx context.Context, r Request) (string, error) {
	name, err := Normalize(r.Image)
	if err != nil {
		return "", p.unclear(r, ErrInvalidName, fmt.Sprintf("Failed to apply default image tag %q", r.Image), err)
	}
	how := policy(r)
	var present *runtimeapi.Image
	if how != v1.PullAlways || r.Early {
		present, err = p.deps.Client.ImageFor(ctx, r.spec(name))
		if err != nil {
			return "", p.unclear(r, ErrInspect, fmt.Sprintf("Failed to inspect image %q", r.Image), err)
		}
	}
	if r.Early && present != nil {
		return present.GetId(), nil // whether it may be used, and is the newest, is asked when it is needed
	}
	creds := &credentials{}
	if present != nil && !p.mustPull(ctx, r, name, present.GetId(), creds) {
		p.metrics.ensured(how, true, false)
		text := fmt.Sprintf("Container image %q already present on machine", r.Image)
		if p.deps.Records != nil {
			text += " and can be accessed by the pod"
		}
		p.event(r, v1.EventTypeNormal, eventPulled, text)
		return present.GetId(), nil
	}
	if how == v1.PullNever {
		p.metrics.ensured(how, present != nil, present != nil)
		return "", p.refuse(r, present != nil)
	}
	p.metrics.ensured(how, present != nil, true)
	return p.pull(ctx, r, name, creds.get(ctx, p, r.Pod, name))
}

// unclear says that it cannot be told whether an image is present. The error is a
// status' text, and reads as the event does.
func (p *Puller) unclear(r Request, reason, what string, err error) error {
	err = fmt.Errorf("%s: %w", what, err)
	p.event(r, v1.EventTypeWarning, eventInspect, err.Error())
	return p.fail(r, reason, err)
}

// refuse says that an image would have to be pulled, which may never be. The
// error is a status' text, and begins as that does.
func (p *Puller) refuse(r Request, present bool) error {
	text := fmt.Sprintf("Container image %q is not present with pull policy of Never", r.Image)
	p.event(r, v1.EventTypeWarning, eventNeverPull, text)
	if present {
		return p.fail(r, ErrNeverPull, fmt.Errorf("%s: it is on the node, but was pulled with credentials that the pod does not have", text))
	}
	return p.fail(r, ErrNeverPull, errors.New(text))
}

// mustPull says whether a pod may use an image that is present only after a pull.
func (p *Puller) mustPull(ctx context.Context, r Request, name, ref string, creds *credentials) bool {
	if p.deps.Records == nil {
		return false
	}
	must := p.deps.Records.MustPull(klog.FromContext(ctx), name, ref, func() pullrecord.Grant {
		return grantOf(creds.get(ctx, p, r.Pod, name))
	})
	p.metrics.checked(must)
	return must
}

// pull pulls, with the credentials that fit, and records the events.
func (p *Puller) pull(ctx context.Context, r Request, name string, creds []credential) (string, error) {
	p.event(r, v1.EventTypeNormal, eventPulling, fmt.Sprintf("Pulling image %q", r.Image))
	began := time.Now()
	res := p.share(ctx, r, name, creds)
	if res.err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		p.event(r, v1.EventTypeWarning, eventFailed, fmt.Sprintf("Failed to pull image %q: %v", r.Image, res.err))
		word, err := classify(r.Image, res.err)
		return "", p.fail(r, word, err)
	}
	p.event(r, v1.EventTypeNormal, eventPulled, fmt.Sprintf(
		"Successfully pulled image %q in %v (%v including waiting). Image size: %d bytes.",
		r.Image, res.took.Truncate(time.Millisecond), time.Since(began).Truncate(time.Millisecond), res.size))
	return res.ref, nil
}

// event records an event on what wants the image.
func (p *Puller) event(r Request, eventType, reason, message string) {
	if r.Early && eventType == v1.EventTypeWarning {
		return
	}
	if r.Container == "" {
		p.deps.Events.Pod(r.Pod, eventType, reason, message)
		return
	}
	p.deps.Events.Container(r.Pod, r.Container, eventType, reason, message)
}

// fail records the second event of a failure and makes the error.
func (p *Puller) fail(r Request, word string, err error) error {
	p.event(r, v1.EventTypeWarning, eventFailed, "Error: "+word)
	return reason.New(word, err)
}

// policy is the one asked for; the API defaults it, but not for every source.
func policy(r Request) v1.PullPolicy {
	if r.Policy != "" {
		return r.Policy
	}
	if name, err := Normalize(r.Image); err == nil && strings.HasSuffix(name, ":latest") {
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
	parsed, err := reference.Parse(name)
	if err != nil {
		return "", fmt.Errorf("couldn't parse image name %q: %w", name, err)
	}
	if parsed.Tag != "" || parsed.Digest != "" {
		return name, nil
	}
	return name + ":latest", nil
}
