package handler

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/polylet/polylet/internal/dialctx"
	"github.com/polylet/polylet/internal/tlsbound"
	"github.com/polylet/polylet/services/probes/internal/probe"
)

const maxRedirects = 10

// newTransport makes connections of one attempt each, which read so many bytes of an
// answer's header.
func newTransport(header int64) *http.Transport {
	// Probes ask whether the application answers, not who it is; containers serve
	// certificates for names that the node does not know.
	anybody := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}}
	raw := dialctx.Closing(receiving(dial(0), header+mostBeside))
	return &http.Transport{
		// No proxy: a probe is between the node and its pod.
		Proxy:                  nil,
		DialContext:            dialctx.Ending(raw),
		DialTLSContext:         dialctx.Ending(tlsbound.Dial(raw, anybody)),
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: header,
		// Over TLS some servers speak nothing else. What they may send without
		// being asked for it is bounded, too.
		ForceAttemptHTTP2: true,
		HTTP2:             &http.HTTP2Config{MaxReceiveBufferPerConnection: answerLimit, MaxReceiveBufferPerStream: answerLimit},
	}
}

// httpGet succeeds with a status from 200 to 399.
func (h *Handlers) httpGet(ctx context.Context, t probe.Target, a probe.HTTPGet) probe.Answer {
	ctx, cancel := dialctx.With(tlsbound.For(ctx, t.Namespace))
	defer cancel()
	req, wrong := h.request(ctx, t, a)
	if wrong != "" {
		return errored("%s", wrong)
	}
	client := &http.Client{Transport: h.transport, Timeout: t.Timeout, CheckRedirect: redirect}
	res, err := client.Do(req)
	if longHeader(err) {
		if !h.longHeaders.Take(t.Namespace, 1) {
			return errored("the node reads few answers at once whose header is longer than %d KiB, which says nothing about the container: %v", headerLimit>>10, err)
		}
		defer h.longHeaders.GiveBack(t.Namespace, 1)
		client.Transport = h.roomy
		res, err = client.Do(req.Clone(ctx))
	}
	if err != nil {
		return h.unconnected(err, err.Error())
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, bodyLimit))
	if err != nil {
		return errored("failed to read the response's body: %v", err)
	}
	switch {
	case res.StatusCode < http.StatusOK || res.StatusCode >= http.StatusBadRequest:
		return failed(fmt.Sprintf("HTTP probe failed with statuscode: %d", res.StatusCode))
	case res.StatusCode >= http.StatusMultipleChoices:
		// A redirect to another host, which is not followed, or one to nowhere.
		return probe.Answer{Verdict: probe.Warned, Message: "Probe terminated redirects, Response body: " + string(body)}
	}
	return probe.Answer{Verdict: probe.Passed, Message: string(body)}
}

// tooLong are what net/http says when the header of an answer is longer than its transport
// reads, as it has no error of its own for that: over HTTP/1, and over HTTP/2 of all
// headers and of a single one.
var tooLong = []string{"server response headers exceeded", "response header list larger than advertised limit", "COMPRESSION_ERROR"}

func longHeader(err error) bool {
	var of *url.Error // it has the whole URL, in which anything may stand
	return errors.As(err, &of) && slices.ContainsFunc(tooLong, func(text string) bool { return strings.Contains(of.Err.Error(), text) })
}

// redirect follows within one host name only: another host says nothing about
// this container.
func redirect(req *http.Request, via []*http.Request) error {
	if req.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	if len(via) >= maxRedirects {
		return errors.New("stopped after 10 redirects")
	}
	return nil
}

func (h *Handlers) request(ctx context.Context, t probe.Target, a probe.HTTPGet) (*http.Request, string) {
	addr, wrong := address(a.Host, t.PodIP, a.Port, a.PortName)
	if wrong != "" {
		return nil, wrong
	}
	u, err := url.Parse(a.Path)
	if err != nil {
		// What does not parse is sent as a path, escaped.
		u = &url.URL{Path: a.Path}
	}
	u.Scheme, u.Host = strings.ToLower(a.Scheme), addr
	if u.Scheme == "" {
		u.Scheme = "http"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err.Error()
	}
	req.Header = headers(a.Headers, h.cfg.UserAgent)
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	return req, ""
}

// headers is the user's list with the defaults of User-Agent and Accept; an
// empty value of the user's removes the default.
func headers(list []probe.Header, userAgent string) http.Header {
	out := http.Header{}
	for _, h := range list {
		out.Add(h.Name, h.Value)
	}
	if _, ok := out["Accept"]; !ok {
		out.Set("Accept", "*/*")
	} else if out.Get("Accept") == "" {
		out.Del("Accept")
	}
	if _, ok := out["User-Agent"]; !ok {
		out.Set("User-Agent", userAgent)
	}
	// An empty User-Agent stays: that is how net/http is told to send none.
	return out
}
