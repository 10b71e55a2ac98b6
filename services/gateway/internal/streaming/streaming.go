// Package streaming serves the streams of the node API: exec, attach,
// port-forward and run. podsync asks the runtime for a streaming URL; the
// connection is upgraded and proxied to that. It must never look into a stream.
package streaming

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	proxyutil "k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/services/gateway/internal/httperror"
	"github.com/polylet/polylet/services/gateway/internal/route"
)

// Target names what a session is with.
type Target struct {
	Namespace, Pod, UID string
	// Container is empty for port-forward.
	Container string
}

// Streams are those that a session wants.
type Streams struct{ Stdin, Stdout, Stderr, TTY bool }

// Opened is a session that is prepared.
type Opened struct {
	// URL is good for one use.
	URL string
	// Over, when not nil, is told once how the session ended. clientLeft: the
	// client has gone before its command ended, which is to be ended then; Over
	// returns when the connection to the runtime may be closed, after two seconds
	// at the latest.
	Over func(clientLeft bool)
}

// Runtime opens sessions; the URLs returned are good for one use.
type Runtime interface {
	OpenExec(ctx context.Context, t Target, command []string, s Streams) (Opened, error)
	OpenAttach(ctx context.Context, t Target, s Streams) (string, error)
	OpenPortForward(ctx context.Context, t Target, ports []int32) (string, error)
	// Run runs a command to its end.
	Run(ctx context.Context, t Target, command []string) (*Output, error)
}

// Output is what a command has said, and how it ended.
type Output struct {
	Stdout, Stderr []byte
	ExitCode       int
	// Done is called when the output is no longer needed: few are held at once.
	Done func()
}

// Meter counts sessions.
type Meter interface {
	// Begin counts a session and returns what ends it.
	Begin() (end func())
	// Translated counts a WebSocket that the gateway translated or tunnelled.
	Translated(subresource string)
}

// Sessions serves sessions. Runtime and Meter are needed.
type Sessions struct {
	Runtime Runtime
	Meter   Meter
	// NoTranslation hands the WebSockets of clients on to the runtime as they
	// are (the gate ExtendWebSocketsToKubelet is off).
	NoTranslation bool
}

// openTimeout bounds how long the runtime may take to prepare a session.
const openTimeout = 30 * time.Second

func target(r *http.Request) Target {
	return Target{
		Namespace: route.Param(r, "namespace"), Pod: route.Param(r, "pod"),
		UID: route.Param(r, "uid"), Container: route.Param(r, "container"),
	}
}

// Exec serves /exec.
func (s Sessions) Exec() http.Handler {
	return s.command("exec", func(ctx context.Context, t Target, r *http.Request, streams Streams) (Opened, error) {
		return s.Runtime.OpenExec(ctx, t, r.Form["command"], streams)
	})
}

// Attach serves /attach.
func (s Sessions) Attach() http.Handler {
	return s.command("attach", func(ctx context.Context, t Target, _ *http.Request, streams Streams) (Opened, error) {
		url, err := s.Runtime.OpenAttach(ctx, t, streams)
		return Opened{URL: url}, err
	})
}

func (s Sessions) command(name string, open func(context.Context, Target, *http.Request, Streams) (Opened, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// What else stands in a form would be held, or written to a file of the node's
		// disk, and an apiserver sends on whatever body a client gave it.
		r.Form = r.URL.Query()
		options, err := remotecommand.NewOptions(r)
		if err != nil {
			httperror.Text(w, http.StatusBadRequest, err.Error())
			return
		}
		if !upgrades(w, r) {
			return
		}
		var opened Opened
		location := s.open(w, r, func(ctx context.Context) (_ string, err error) {
			opened, err = open(ctx, target(r), r, Streams{Stdin: options.Stdin, Stdout: options.Stdout, Stderr: options.Stderr, TTY: options.TTY})
			return opened.URL, err
		})
		end := &ending{tell: opened.Over}
		defer end.over()
		if location == nil {
			return
		}
		w, r, cancel := end.watch(w, r)
		defer cancel()
		defer s.Meter.Begin()()
		if !s.NoTranslation && wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) {
			// The runtimes' servers do not know v5, which can close a stream.
			s.Meter.Translated(name)
			end.frames = true
			end.endSent.Store(true) // the translator says how it ended, whatever happens
			proxy.NewStreamTranslatorHandler(location, end.transport(), 0, proxy.Options{
				Stdin: options.Stdin, Stdout: options.Stdout, Stderr: options.Stderr, Tty: options.TTY,
			}).ServeHTTP(w, r)
			return
		}
		passOn(location, end.transport()).ServeHTTP(w, r)
	})
}

// mostPorts is how many ports of a pod one WebSocket can be for: each has two channels,
// whose number is a byte. For what is asked for beyond that the runtime would make channels
// all the same, of which a hundred thousand ports, asked for in half a megabyte, take more
// memory than it should have.
const mostPorts = 128

// PortForward serves /portForward.
func (s Sessions) PortForward() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tunnel := !s.NoTranslation && wsstream.IsWebSocketRequestWithTunnelingProtocol(r)
		var ports []int32
		if !tunnel {
			options, err := portforward.NewV4Options(r)
			if err != nil {
				httperror.Text(w, http.StatusBadRequest, err.Error())
				return
			}
			if ports = options.Ports; len(ports) > mostPorts {
				httperror.Text(w, http.StatusBadRequest, fmt.Sprintf("%d ports are too many for one session, which takes %d: ask for several", len(ports), mostPorts))
				return
			}
		}
		if !upgrades(w, r) {
			return
		}
		location := s.open(w, r, func(ctx context.Context) (string, error) {
			return s.Runtime.OpenPortForward(ctx, target(r), ports)
		})
		if location == nil {
			return
		}
		defer s.Meter.Begin()()
		handler := passOn(location, transport(func() {}))
		if tunnel {
			s.Meter.Translated("portforward")
			handler = proxy.NewTunnelingHandler(handler)
		}
		handler.ServeHTTP(w, r)
	})
}

func upgrades(w http.ResponseWriter, r *http.Request) bool {
	if !httpstream.IsUpgradeRequest(r) {
		httperror.Text(w, http.StatusBadRequest, "Upgrade request required")
		return false
	}
	return true
}

// open returns nil after it has answered with what went wrong.
func (s Sessions) open(w http.ResponseWriter, r *http.Request, call func(context.Context) (string, error)) *url.URL {
	ctx, cancel := context.WithTimeout(r.Context(), openTimeout)
	defer cancel()
	text, err := call(ctx)
	if err != nil {
		refuse(w, r, err)
		return nil
	}
	location, err := url.Parse(text)
	if err == nil && location.Host == "" {
		err = errors.New("it has no host")
	}
	if err != nil {
		httperror.Text(w, http.StatusInternalServerError, fmt.Sprintf("the runtime's streaming URL %q cannot be used: %v", text, err))
		return nil
	}
	return location
}

// refuse answers as the kubelet does: a pod that is not there, what is too
// much, and everything else (a container that does not run, too) as a fault.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	switch status := httperror.Status(err); {
	case status == http.StatusNotFound && strings.HasPrefix(r.URL.Path, "/portForward/") && route.Param(r, "uid") != "":
		httperror.Text(w, status, "pod not found")
	case status == http.StatusNotFound:
		httperror.Text(w, status, "pod does not exist")
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		httperror.ErrorStatus(w, service.Podsync, status, err)
	default:
		httperror.ErrorStatus(w, service.Podsync, http.StatusInternalServerError, err)
	}
}

// passOn proxies the upgraded connection as it is.
func passOn(location *url.URL, to http.RoundTripper) http.Handler {
	h := proxyutil.NewUpgradeAwareHandler(location, to, false, true, responder{})
	h.UseLocationHost = true
	h.RejectForwardingRedirects = true // no client is sent on to where a runtime likes
	return h
}

// transport speaks with the runtime's streaming server: on this machine, never
// through a proxy. onEnd is called when the runtime ends a session in good order.
func transport(onEnd func()) *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // documented to be one
	t.Proxy = nil
	t.DisableKeepAlives = true
	listen(t, onEnd)
	return t
}

type responder struct{}

// Error implements proxyutil.ErrorResponder.
func (responder) Error(w http.ResponseWriter, r *http.Request, err error) {
	klog.FromContext(r.Context()).Error(err, "Stream could not be proxied to the runtime", "path", r.URL.Path)
	httperror.Text(w, http.StatusInternalServerError, err.Error())
}

// runTimeout bounds a command of /run; the kubelet sets no limit there.
const runTimeout = time.Hour

// outputTime is how long a client of /run may take to receive the output: few are held.
const outputTime = time.Minute

// longestForm bounds the form in which a command of /run may stand, in bytes: it is held
// as long as the command runs, some times over, and is not counted as a long path is.
const longestForm = 16 << 10

// Run serves /run: it answers with the output once the command has ended.
func (s Sessions) Run() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), runTimeout)
		defer cancel()
		r.Body = http.MaxBytesReader(w, r.Body, longestForm)
		err := r.ParseForm()
		if err == nil {
			err = r.ParseMultipartForm(longestForm)
		}
		if err != nil && !errors.Is(err, http.ErrNotMultipart) {
			httperror.Text(w, http.StatusBadRequest, "the request's form could not be read, a long command stands in the path: "+err.Error())
			return
		}
		command := strings.Split(r.FormValue("cmd"), " ")
		defer s.Meter.Begin()()
		out, err := s.Runtime.Run(ctx, target(r), command)
		if err != nil {
			refuse(w, r, err)
			return
		}
		defer out.Done()
		conn := http.NewResponseController(w)
		// A writer that knows no deadlines is a test's; nor need a client that went away
		// an answer.
		_ = conn.SetWriteDeadline(time.Now().Add(outputTime))
		if out.ExitCode != 0 {
			httperror.Text(w, http.StatusInternalServerError, fmt.Sprintf("command '%s' exited with %d: %s", strings.Join(command, " "), out.ExitCode, out.Stderr))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(out.Stdout)
		_, _ = w.Write(out.Stderr)
	})
}
