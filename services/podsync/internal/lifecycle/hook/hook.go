// Package hook runs the lifecycle handlers of containers: postStart and preStop
// by exec, HTTP GET or sleep.
//
// It owns how a handler is run; it must never decide what its failure means.
// Source: the Kubernetes API documentation of v1.LifecycleHandler.
package hook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	neturl "net/url"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/dialctx"
	"github.com/polylet/polylet/internal/tlsbound"
	"github.com/polylet/polylet/services/podsync/internal/metrics"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
)

const (
	// maxBody of a response is read, so that the connection ends in order.
	maxBody = 10 << 10
	// maxHeader is how much of a response's header is read: who answers is a tenant's
	// container, and headers of a few letters take twenty times as much as they are long.
	maxHeader = 16 << 10
)

// Execer runs a command in a container; *cri.Client has it.
type Execer interface {
	ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) (*runtimeapi.ExecSyncResponse, error)
}

// Events records an event on a pod.
type Events interface {
	Pod(pod *v1.Pod, eventType, reason, message string)
}

// Deps are what a Runner is given; Events and Transport may be nil.
type Deps struct {
	Exec   Execer
	Events Events
	// Transport makes the HTTP requests; one that verifies no certificate when nil.
	Transport http.RoundTripper
	// Metrics may be nil.
	Metrics *metrics.Metrics
	// Version goes into the User-Agent, e.g. "1.36".
	Version string
}

// Runner runs handlers. Safe for concurrent use.
type Runner struct{ deps Deps }

// New returns a Runner.
func New(deps Deps) *Runner {
	if deps.Transport == nil {
		dial := dialctx.Brief(new(net.Dialer).DialContext)
		deps.Transport = &http.Transport{
			DisableKeepAlives: true,
			DialContext:       dialctx.Ending(dial),
			DialTLSContext:    dialctx.Ending(waiting(tlsbound.Dial(dial, &tls.Config{InsecureSkipVerify: true}))), //nolint:gosec // as the API documents: hooks verify nothing
			Proxy:             nil,
			// Else net/http takes 10 MiB.
			MaxResponseHeaderBytes: maxHeader,
		}
	}
	if deps.Version == "" {
		deps.Version = "1.36"
	}
	return &Runner{deps: deps}
}

// busyTime is how long a hook waits until it tries again to connect to a server that shows
// many certificates, when there are too many such connections.
const busyTime = time.Second

// waiting is a dial that waits while the node is busy with other servers: a hook that
// failed for that would cost the container.
func waiting(dial dialctx.Dial) dialctx.Dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		for {
			conn, err := dial(ctx, network, address)
			if !errors.Is(err, tlsbound.ErrBusy) || sleep(ctx, busyTime) != nil {
				return conn, err
			}
		}
	}
}

// Target is the container that a handler belongs to.
type Target struct {
	Pod         *v1.Pod // nil when no source knows it
	Container   *v1.Container
	ContainerID string
	// PodIP is the default host of HTTP requests.
	PodIP string
}

// Run runs a handler to its end or to ctx's. What it runs, asks for and gets for
// an answer may be secret: the error, which many see, is without, and the whole
// stands in the log at verbosity 4.
func (r *Runner) Run(ctx context.Context, t Target, h *v1.LifecycleHandler) error {
	err := r.run(ctx, t, h)
	var f *failure
	if log := klog.FromContext(ctx).V(4); log.Enabled() && errors.As(err, &f) {
		log.Info("Lifecycle hook failed", "container", t.Container.Name, "containerID", t.ContainerID, "reason", f.whole.Error())
	}
	return err
}

// failure is an error of two faces.
type failure struct {
	shown string
	whole error
}

// Error is what everybody may see.
func (f *failure) Error() string { return f.shown }

// Unwrap is all of it.
func (f *failure) Unwrap() error { return f.whole }

func (r *Runner) run(ctx context.Context, t Target, h *v1.LifecycleHandler) error {
	switch {
	case h.Exec != nil:
		return r.exec(ctx, t, h.Exec)
	case h.HTTPGet != nil:
		return r.httpGet(ctx, t, h.HTTPGet)
	case h.Sleep != nil:
		err := sleep(ctx, podutil.Seconds(h.Sleep.Seconds))
		if err != nil {
			r.deps.Metrics.SleepCutShort()
		}
		return err
	}
	return errors.New("the lifecycle handler says nothing that can be run: give it exec, httpGet or sleep")
}

func (r *Runner) exec(ctx context.Context, t Target, e *v1.ExecAction) error {
	resp, err := r.deps.Exec.ExecSync(ctx, t.ContainerID, e.Command, 0)
	if err != nil {
		return &failure{
			fmt.Sprintf("the hook's command could not be run in container %s: %s", t.Container.Name, cri.Code(err)),
			fmt.Errorf("run %q in container %s: %w", e.Command, t.Container.Name, err),
		}
	}
	if resp.GetExitCode() != 0 {
		out := strings.TrimSpace(string(resp.GetStdout()) + string(resp.GetStderr()))
		// What is no text, or half of a character, would change on its way to the apiserver.
		return &failure{
			fmt.Sprintf("the hook's command exited with %d", resp.GetExitCode()),
			fmt.Errorf("command %q exited with %d: %s", e.Command, resp.GetExitCode(), strings.ToValidUTF8(out[:min(len(out), 1024)], "\uFFFD")),
		}
	}
	return nil
}

func (r *Runner) httpGet(ctx context.Context, t Target, g *v1.HTTPGetAction) error {
	port, err := resolve(g.Port, t.Container)
	if err != nil {
		return err
	}
	host := g.Host
	if host == "" {
		host = t.PodIP
	}
	if host == "" {
		return fmt.Errorf("httpGet of container %s has no host: the pod has no IP", t.Container.Name)
	}
	scheme := strings.ToLower(string(g.Scheme))
	if scheme == "" {
		scheme = "http"
	}
	if t.Pod != nil {
		ctx = tlsbound.For(ctx, t.Pod.Namespace)
	}
	address := net.JoinHostPort(host, fmt.Sprint(port))
	path := pathOf(g)
	err = r.get(ctx, scheme+"://"+address+path, g.HTTPHeaders, true)
	if scheme == "https" && err != nil && strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
		if again := r.get(ctx, "http://"+address+path, g.HTTPHeaders, false); again != nil {
			return err
		}
		if r.deps.Events != nil && t.Pod != nil {
			r.deps.Events.Pod(t.Pod, v1.EventTypeWarning, "LifecycleHTTPFallback",
				fmt.Sprintf("request to HTTPS lifecycle hook %s got HTTP response, retry with HTTP succeeded", address))
		}
		r.deps.Metrics.FellBackToHTTP()
		return nil
	}
	return err
}

// pathOf is the path and query of a request. One that is none, as with a lone
// percent sign, is sent as it is, escaped: nobody has refused the pod for it.
func pathOf(g *v1.HTTPGetAction) string {
	path := "/" + strings.TrimPrefix(g.Path, "/")
	if _, err := neturl.Parse(path); err != nil {
		return (&neturl.URL{Path: path}).EscapedPath()
	}
	return path
}

// get makes a request; any answer is a success, also one whose header is too long to be
// read. Credentials are not sent in the clear.
func (r *Runner) get(ctx context.Context, url string, headers []v1.HTTPHeader, credentials bool) error {
	ctx, cancel := dialctx.With(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return &failure{"the hook's URL is none", fmt.Errorf("request %s: %w", url, err)}
	}
	for _, h := range headers {
		name := http.CanonicalHeaderKey(h.Name)
		switch {
		case name == "Host":
			req.Host = h.Value
		case name == "Authorization" && !credentials:
		default:
			req.Header.Add(name, h.Value)
		}
	}
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", "kube-lifecycle/"+r.deps.Version)
	}
	if req.Header.Get("Accept") == "" {
		req.Header.Set("Accept", "*/*")
	}
	client := &http.Client{Transport: r.deps.Transport, CheckRedirect: redirect}
	resp, err := client.Do(req)
	var of *neturl.Error // it has the whole URL
	switch {
	case errors.As(err, &of) && strings.Contains(of.Err.Error(), "server response headers exceeded"):
		return nil
	case of != nil:
		return &failure{fmt.Sprintf("the hook's request to %s: %s", req.URL.Host, withoutAnswer(of.Err)), err}
	case err != nil:
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxBody))
	return nil
}

// maxRedirects are followed.
const maxRedirects = 10

// redirect follows within one host name only: what is to hear of the hook is the
// container. Credentials are not sent in the clear there, either.
func redirect(req *http.Request, via []*http.Request) error {
	switch {
	case req.URL.Hostname() != via[0].URL.Hostname():
		return http.ErrUseLastResponse
	case len(via) >= maxRedirects:
		return fmt.Errorf("stopped after %d redirects", maxRedirects)
	case req.URL.Scheme != "https" && via[0].URL.Scheme == "https":
		req.Header.Del("Authorization")
	}
	return nil
}

// withoutAnswer is what went wrong with a request, without what the server has
// said: net/http repeats an answer that it does not understand.
func withoutAnswer(err error) string {
	text := err.Error()
	if strings.Contains(text, "transport connection broken") {
		return "there was no HTTP answer"
	}
	return text
}

func resolve(port intstr.IntOrString, c *v1.Container) (int, error) {
	if port.Type == intstr.Int {
		return port.IntValue(), nil
	}
	for _, p := range c.Ports {
		if p.Name == port.StrVal {
			return int(p.ContainerPort), nil
		}
	}
	return 0, fmt.Errorf("httpGet names port %q, which container %s does not have", port.StrVal, c.Name)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
