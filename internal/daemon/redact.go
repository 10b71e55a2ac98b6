package daemon

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
)

// redact is what a log shows of a value. From verbosity 8 on, client-go logs the
// bodies of requests and answers, among them Secrets and tokens; and from 6 on,
// what proxies a request logs the client's headers. Neither belongs in a journal,
// whatever the verbosity.
func redact(key string, value any) any {
	if key == "body" {
		return fmt.Sprintf("not logged (%d bytes), it may hold credentials", len(fmt.Sprint(value)))
	}
	headers, ok := value.(http.Header)
	if !ok {
		return value
	}
	shown := make(http.Header, len(headers))
	for name, values := range headers {
		switch strings.ToLower(name) {
		case "authorization", "proxy-authorization", "cookie", "set-cookie", "sec-websocket-protocol": // which may carry a bearer token
			values = []string{"not logged"}
		}
		shown[name] = values
	}
	return shown
}

// redactor is klog's filter of what is logged as text.
type redactor struct{}

// Filter implements klog.LogFilter.
func (redactor) Filter(args []any) []any { return redactAll(args) }

// FilterF implements klog.LogFilter.
func (redactor) FilterF(format string, args []any) (string, []any) { return format, redactAll(args) }

// FilterS implements klog.LogFilter.
func (redactor) FilterS(msg string, keysAndValues []any) (string, []any) {
	return msg, redactAll(keysAndValues)
}

// redactAll redacts values, each of which may have a key before it. It copies only
// what it changes: the values are the caller's.
func redactAll(args []any) []any {
	copied := false
	for i, value := range args {
		key := ""
		if i%2 == 1 {
			key, _ = args[i-1].(string)
		}
		if _, headers := value.(http.Header); key != "body" && !headers {
			continue
		}
		if !copied {
			args, copied = append([]any(nil), args...), true
		}
		args[i] = redact(key, value)
	}
	return args
}

// redactAttr redacts an attribute of slog's.
func redactAttr(a slog.Attr) slog.Attr {
	if a.Key == "body" || a.Value.Kind() == slog.KindAny {
		a.Value = slog.AnyValue(redact(a.Key, a.Value.Any()))
	}
	return a
}
